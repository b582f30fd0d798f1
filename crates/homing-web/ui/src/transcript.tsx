/** The steps of a run: what was asked, called and answered, not one row per event. */
import type { ComponentChildren } from "preact";
import { clock, count, duration, money, plural } from "./format";
import type { FactRecord } from "./fold";
import type { Streaming } from "./live";
import { Diff, replaced } from "./diff";
import { Markdown } from "./markdown";
import { Folding, WORDS } from "./parts";
import type { Status } from "./api";

export interface Call {
  key: string;
  name: string;
  args: unknown;
  at?: number;
  ended?: number;
  allowedBy?: string;
  result?: { text: string; is_error?: boolean; data?: any; images?: { media_type: string; base64: string }[] };
  refused?: any;
  questions: { id: string; text: string; answer?: string; by?: string }[];
}

export type Step =
  | { kind: "ask"; seq: number; at: number; asked: any; ended?: number; reply?: any; failure?: any; calls: Call[] }
  | { kind: "note"; seq: number; at: number; title: string; text: string; tone?: string };

const keyOf = (key: any) => `${key.turn}:${key.index}`;
const args = (call: any) => (call.args && "json" in call.args ? call.args.json : call.args?.malformed ?? call.args);

function saying(answer: any): string {
  return typeof answer === "string" ? answer : answer?.text ?? JSON.stringify(answer);
}

/** Pairs the facts of a run into steps. */
export function steps(records: FactRecord[]): Step[] {
  const out: Step[] = [];
  const calls = new Map<string, Call>();
  let turn = 0;
  let ask: Extract<Step, { kind: "ask" }> | undefined;
  const note = (record: FactRecord, title: string, text: string, tone?: string) => out.push({ kind: "note", seq: record.seq, at: record.at, title, text, tone });
  const callOf = (key: any, name: string): Call => {
    const known = calls.get(keyOf(key));
    if (known) return known;
    const call: Call = { key: keyOf(key), name, args: undefined, questions: [] };
    calls.set(call.key, call);
    (ask ?? (out[0] as any))?.calls?.push(call);
    return call;
  };
  for (const record of records) {
    const [kind, body] = Object.entries(record.fact)[0] as [string, any];
    switch (kind) {
      case "asked":
        ask = { kind: "ask", seq: record.seq, at: record.at, asked: body, calls: [] };
        out.push(ask);
        break;
      case "replied": {
        if (!ask) break;
        ask.reply = body.reply;
        ask.ended = record.at;
        if (ask.asked.purpose !== "compaction") turn++;
        let index = 0;
        for (const part of body.reply.parts) {
          if (!part.call) continue;
          const call: Call = { key: `${turn}:${index++}`, name: part.call.name, args: args(part.call), questions: [] };
          calls.set(call.key, call);
          ask.calls.push(call);
        }
        break;
      }
      case "ask_failed":
        if (ask) { ask.failure = body.failure; ask.ended = record.at; }
        break;
      case "called": {
        const call = callOf(body.key, body.call.name);
        Object.assign(call, { name: body.call.name, args: args(body.call), at: record.at, allowedBy: body.allowed_by });
        break;
      }
      case "returned": {
        const call = callOf(body.key, body.result.name);
        Object.assign(call, { ended: record.at, result: body.result, refused: body.refused });
        break;
      }
      case "questioned":
        callOf(body.question.key, "question").questions.push({ id: body.id, text: body.question.text });
        break;
      case "answered":
        for (const call of calls.values()) for (const question of call.questions) if (question.id === body.id) Object.assign(question, { answer: saying(body.answer), by: body.by });
        break;
      case "told": note(record, body.from ? "Message from another run" : "Message", body.message); break;
      case "halted": note(record, "Asked to stop", typeof body.by === "string" ? body.by.replace("_", " ") : body.by?.other ?? ""); break;
      case "compacted": note(record, `History of ${plural(body.upto, "message")} summarised`, body.summary); break;
      case "extended": note(record, "Limits raised", Object.entries(body.more).filter(([, cap]) => cap !== "default").map(([name, cap]: [string, any]) => `${name.replace("_micros", "").replace("_", " ")} ${cap.at === undefined ? "removed" : name === "cost_micros" ? "+" + money(cap.at) : "+" + cap.at}`).join(", ")); break;
      case "ended": {
        const outcome = body.outcome;
        const status = (typeof outcome === "string" ? outcome : Object.keys(outcome)[0]) as Status;
        const why = typeof outcome === "string" ? "" : outcome.failed?.message ?? "";
        note(record, `Ended: ${WORDS[status]}`, [why, body.text].filter(Boolean).join("\n\n"), status);
        break;
      }
    }
  }
  return out;
}

function Change({ call }: { call: Call }) {
  const input = call.args as any;
  if (call.name === "edit" && typeof input?.old_string === "string") return <Diff text={replaced(input.old_string, input.new_string ?? "")} />;
  if (call.name === "edit" && Array.isArray(input?.edits)) return <Diff text={input.edits.map((edit: any) => replaced(edit.old ?? "", edit.new ?? "")).join("\n@@\n")} />;
  if (call.name === "edit" && typeof input?.old === "string") return <Diff text={replaced(input.old, input.new ?? "")} />;
  if (call.name === "write" && typeof input?.content === "string") return <Diff text={input.content.split("\n").map((line: string) => "+" + line).join("\n")} />;
  return null;
}

const TELLING = ["command", "path", "file_path", "pattern", "query", "url", "task", "question", "message", "name"];

export function telling(input: any): string {
  if (typeof input === "string") return input;
  const key = TELLING.find((key) => typeof input?.[key] === "string");
  return key ? input[key] : "";
}

function refusal(refused: any): string | null {
  if (!refused) return null;
  const kind = typeof refused === "string" ? refused : Object.keys(refused)[0];
  return { mistake: "not executed: the call was not valid", no_tool: null, denied: "denied", no_approver: "denied: it needs approval and no approver was there", limit: "not executed: a limit was reached", outcome_unknown: "the outcome is unknown: the process died during this call" }[kind] ?? kind;
}

function CallBox({ call, children }: { call: Call; children?: ComponentChildren }) {
  const denied = refusal(call.refused);
  const bad = call.result?.is_error && !denied;
  const took = call.at !== undefined && call.ended !== undefined ? duration(call.ended - call.at) : call.at !== undefined && !call.result ? "running" : "";
  const change = Change({ call });
  const exit = call.result?.data?.exit_code;
  return (
    <details class={`call${bad ? " bad" : ""}${denied ? " denied" : ""}`} open={!!change || undefined}>
      <summary>
        <span class="tool">{call.name}</span><span class="cut mono">{telling(call.args)}</span>
        {denied && <span class={`tag ${call.refused === "outcome_unknown" ? "red" : ""}`}>{denied}</span>}
        {bad && <span class="tag red">failed</span>}
        {typeof exit === "number" && exit !== 0 && <span class="tag red">exit {exit}</span>}
        <span class="quiet num">{took}</span>
      </summary>
      {change ?? <Folding class="args" text={typeof call.args === "string" ? call.args : JSON.stringify(call.args ?? {}, null, 2)} lines={10} />}
      {call.questions.map((question) => <p class="small">Asked: {question.text} {question.answer ? <b>{question.answer}{question.by ? ` (${question.by})` : ""}</b> : <b>no answer yet</b>}</p>)}
      {call.allowedBy && <p class="small quiet">Allowed by {call.allowedBy}</p>}
      {call.result && call.result.text && <Folding text={call.result.text} class={bad ? "bad" : ""} />}
      {call.result?.images?.filter((image) => /^image\/(png|jpeg|gif|webp)$/.test(image.media_type)).map((image) => <img alt="Result of the call" src={`data:${image.media_type};base64,${image.base64}`} />)}
      {children}
    </details>
  );
}

const PURPOSES: Record<string, string> = { turn: "", repair: "another attempt at the answer", compaction: "summary of the history", landing: "last turn before the limit" };

function Ask({ step, onFork }: { step: Extract<Step, { kind: "ask" }>; onFork?: (seq: number) => void }) {
  const purpose = typeof step.asked.purpose === "string" ? step.asked.purpose : Object.keys(step.asked.purpose)[0];
  const usage = step.reply?.usage;
  const parts: any[] = step.reply?.parts ?? [];
  let index = 0;
  return (
    <section class="step">
      <header>
        <span class="num quiet">{clock(step.at)}</span>
        <span class="cut">{step.reply?.model ?? step.asked.model}</span>
        {PURPOSES[purpose] && <span class="tag">{PURPOSES[purpose]}</span>}
        {step.reply?.stop === "length" && <span class="tag">cut at its output limit</span>}
        <span class="grow" />
        {usage && <span class="quiet num">{count(usage.input)} in{usage.cached ? ` (${count(usage.cached)} cached)` : ""} · {count(usage.output)} out · {usage.estimated ? "≤ " : ""}{money(usage.cost_micros)}</span>}
        {step.ended !== undefined && <span class="quiet num">{duration(step.ended - step.at)}</span>}
        {onFork && step.reply && <button class="out small" onClick={() => onFork(step.seq)} title="Continue from here in a new run">Fork</button>}
      </header>
      {step.asked.nudge && <p class="nudge small">{step.asked.nudge}</p>}
      {parts.map((part) => {
        if (typeof part.text === "string") return <Markdown text={part.text} />;
        if (part.thinking) return part.thinking.text ? <details class="thinking"><summary>Reasoning</summary><Folding text={part.thinking.text} lines={40} /></details> : <p class="small quiet">Hidden reasoning</p>;
        if (part.call) { const call = step.calls[index++]; return call ? <CallBox call={call} /> : null; }
        return null;
      })}
      {step.calls.slice(index).map((call) => <CallBox call={call} />)}
      {step.failure && <p class="failed small">The call failed: {Object.values(step.failure.error ?? {}).map((detail: any) => detail?.reason ?? "").join(" ") || String(Object.keys(step.failure.error ?? step.failure)[0] ?? step.failure.error)}</p>}
    </section>
  );
}

export function Transcript(props: { records: FactRecord[]; said?: Streaming; onFork?: (seq: number) => void }) {
  const spawned = props.records[0]?.fact.spawned;
  const list = steps(props.records);
  return (
    <div class="transcript">
      {spawned && <section class="step"><header><span class="num quiet">{clock(props.records[0].at)}</span><span>Task</span></header><Markdown text={spawned.task} /></section>}
      {list.map((step) => step.kind === "ask" ? <Ask key={step.seq} step={step} onFork={props.onFork} /> : (
        <section class={`step note ${step.tone ? "o-" + step.tone : ""}`} key={step.seq}>
          <header><span class="num quiet">{clock(step.at)}</span><b>{step.title}</b></header>
          {step.text && <Markdown text={step.text} />}
        </section>
      ))}
      {props.said && (props.said.text || props.said.thinking || props.said.progress || props.said.wait) && (
        <section class="step streaming" aria-live="polite" aria-busy="true">
          {props.said.wait && <p class="quiet">{props.said.wait}</p>}
          {props.said.thinking && !props.said.text && <p class="quiet thinking">{props.said.thinking.slice(-600)}</p>}
          {props.said.text && <Markdown text={props.said.text} />}
          {props.said.progress && <pre>{props.said.progress}</pre>}
        </section>
      )}
    </div>
  );
}
