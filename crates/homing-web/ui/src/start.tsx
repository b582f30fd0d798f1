/** Starts a run, after a plan if the user wants one. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type Done, get, post, Problem } from "./api";
import { quoted } from "./format";
import { Command, Failure } from "./parts";
import { go, query } from "./router";

const agents = signal<{ name: string; description?: string }[]>([]);
const models = signal<string[]>([]);
const form = signal({ agent: "general", task: "", cost: "", time: "", turns: "", model: "" });
const plan = signal<unknown>(null);
const problem = signal<unknown>(null);
const busy = signal(false);
/** A repeated click or a lost answer starts one run, not two. */
let key = crypto.randomUUID();

const names = (found: any): any[] => (Array.isArray(found) ? found : found?.agents ?? found?.models ?? []);

function body(planned: boolean) {
  const { agent, task, cost, time, turns, model } = form.value;
  const limits = Object.fromEntries(Object.entries({ cost, time, turns: turns ? Number(turns) : "" }).filter(([, value]) => value !== ""));
  return { agent, task, ...(model ? { model } : {}), ...(Object.keys(limits).length ? { limits } : {}), ...(planned ? { plan: true } : {}) };
}

async function send(planned: boolean) {
  busy.value = true;
  problem.value = null;
  try {
    const done = await post<Done & Record<string, unknown>>("/api/runs", body(planned), planned ? {} : { "idempotency-key": key });
    if (planned) plan.value = done.plan ?? done;
    else {
      key = crypto.randomUUID();
      form.value = { ...form.value, task: "" };
      plan.value = null;
      go(`/trees/${done.tree}`);
    }
  } catch (error) {
    problem.value = error instanceof Problem ? error : new Problem(0, String(error));
  }
  busy.value = false;
}

/** A plan as nested lists, whatever it contains. */
function Plan({ value }: { value: unknown }) {
  if (typeof value === "string") return <pre tabIndex={0}>{value}</pre>;
  if (value === null || typeof value !== "object") return <span>{String(value)}</span>;
  return <dl class="plan">{Object.entries(value).filter(([, part]) => part !== null && part !== "" && !(Array.isArray(part) && !part.length)).map(([name, part]) => <><dt>{name.replaceAll("_", " ")}</dt><dd>{Array.isArray(part) && part.every((item) => typeof item === "string") ? part.join(", ") : <Plan value={part} />}</dd></>)}</dl>;
}

export function Start() {
  useEffect(() => {
    document.title = "Start a run · Homing";
    get<any>("/api/agents").then((found) => (agents.value = names(found)), () => {});
    get<any>("/api/models").then((found) => (models.value = names(found).map((model) => (typeof model === "string" ? model : model.name ?? model.id))), () => {});
    const agent = query.value.get("agent");
    if (agent) form.value = { ...form.value, agent };
  }, []);
  const set = (name: string) => (event: Event) => { form.value = { ...form.value, [name]: (event.currentTarget as HTMLInputElement).value }; plan.value = null; };
  const { agent, task, cost, time, turns, model } = form.value;
  const command = ["homing run", agent !== "general" && `-a ${quoted(agent)}`, model && `-m ${quoted(model)}`, cost && `--max-cost ${cost}`, time && `--timeout ${time}`, turns && `--max-turns ${turns}`, quoted(task || "TASK")].filter(Boolean).join(" ");
  const chosen = agents.value.find((other) => other.name === agent);
  return (
    <form class="start" onSubmit={(event) => { event.preventDefault(); send(false); }} onKeyDown={(event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); send(false); } }}>
      <h1>Start a run</h1>
      <label>Agent
        <select value={agent} onChange={set("agent")}>
          {(agents.value.length ? agents.value : [{ name: agent }]).map((other) => <option value={other.name} selected={other.name === agent}>{other.name}</option>)}
        </select>
      </label>
      {chosen?.description && <p class="quiet small">{chosen.description}</p>}
      <label>Task<textarea rows={6} required value={task} onInput={set("task")} placeholder="What should it do? Say what it must know; it sees only this and the project." /></label>
      <fieldset>
        <legend>Limits</legend>
        <label>Cost in US dollars<input inputMode="decimal" pattern="[0-9]*[.]?[0-9]+" placeholder="5.00" value={cost} onInput={set("cost")} /></label>
        <label>Time<input pattern="[0-9]+(ms|s|m|h|d)" placeholder="1h" value={time} onInput={set("time")} /></label>
        <label>Turns<input inputMode="numeric" pattern="[0-9]+" placeholder="100" value={turns} onInput={set("turns")} /></label>
        <label>Model<input list="models" placeholder="the agent's own" value={model} onInput={set("model")} /><datalist id="models">{models.value.map((name) => <option value={name} />)}</datalist></label>
      </fieldset>
      {problem.value !== null && <Failure problem={problem.value} />}
      <div class="actions">
        <button type="submit" class="primary" disabled={busy.value || !task.trim()}>Start</button>
        <button type="button" disabled={busy.value || !task.trim()} onClick={() => send(true)}>Plan first</button>
        <span class="quiet small">A plan costs nothing.</span>
      </div>
      <Command text={command} />
      {plan.value !== null && <section class="planned"><h2>Plan</h2><Plan value={plan.value} /></section>}
    </form>
  );
}
