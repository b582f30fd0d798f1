/** What a user can do to a run, each with the command that does the same. */
import { signal } from "@preact/signals";
import { post, type TreeRow } from "./api";
import { plural, quoted, short, title } from "./format";
import { limitWords } from "./inbox";
import { attempt, Dialog } from "./parts";
import { go } from "./router";

export interface Target {
  tree: string;
  run: string;
  agent: string;
  task: string;
  /** Number of runs that have not ended, this one included. */
  open?: number;
  /** Position to fork from. */
  seq?: number;
  /** Micro-dollars that were spent. */
  spent?: number;
  /** Why it stopped, from which the dialog guesses the limit to raise. */
  why?: string;
  /** The limit that it reached. */
  limit?: TreeRow["limit"];
}

type Kind = "cancel" | "tell" | "resume" | "limits" | "fork";
const open = signal<{ kind: Kind; target: Target } | null>(null);
const text = signal("");
const amount = signal("1.00");
const limit = signal<keyof typeof LIMITS>("cost");

/** The limits that can be raised: their words, the option of the command line, and an amount to propose. */
const LIMITS = {
  cost: ["Cost in US dollars", "--max-cost", "1.00"],
  turns: ["Turns", "--max-turns", "20"],
  time: ["Time", "--timeout", "30m"],
  tokens: ["Tokens", "--max-tokens", "500000"],
  tool_calls: ["Tool calls", "--max-tool-calls", "100"],
  children: ["Runs below", "--max-children", "50"],
} as const;

/** The limit that a run reached, as far as it is known. */
function reached(target: Target): keyof typeof LIMITS {
  const named = /turns|tokens|tool.calls|children|cost/.exec(target.limit?.name ?? target.why ?? "")?.[0].replace(" ", "_") as keyof typeof LIMITS | undefined;
  return named ?? (/wall|work|time/.test(target.limit?.name ?? target.why ?? "") ? "time" : "cost");
}

/** A bounded amount: of money as much again as was spent, at least ten cents and enough for a few calls. */
function amountFor(name: keyof typeof LIMITS, target: Target): string {
  const few = Math.max(target.spent ?? 0, 5 * (target.limit?.next_call_micros ?? 0));
  return name === "cost" && few ? Math.max(0.1, Math.ceil(few / 100_000) / 10).toFixed(2) : LIMITS[name][2];
}

/** What one click adds to the limit that a run reached. */
export function raised(target: Target): { words: string; body: Record<string, string>; option: string } {
  const name = reached(target);
  const more = amountFor(name, target);
  const words = name === "cost" ? `$${more}` : name === "time" ? more : `${more} ${LIMITS[name][0].toLowerCase()}`;
  return { words, body: { [name]: "+" + more }, option: `${LIMITS[name][1]} +${more}` };
}

function propose(name: keyof typeof LIMITS, target: Target) {
  limit.value = name;
  amount.value = amountFor(name, target);
}

export function ask(kind: Kind, target: Target) {
  text.value = "";
  propose(reached(target), target);
  open.value = { kind, target };
}

async function send(kind: Kind, target: Target) {
  const more = amount.value.trim();
  const body = {
    cancel: {},
    tell: { message: text.value },
    resume: {},
    limits: { [limit.value]: "+" + more },
    fork: { seq: target.seq, message: text.value || undefined },
  }[kind];
  const done = await attempt(() => post(`/api/runs/${target.run}/${kind}`, body));
  if (!done) return;
  open.value = null;
  if (kind === "fork" && done.tree) go(`/trees/${done.tree}`);
}

export function Actions() {
  if (!open.value) return null;
  const { kind, target } = open.value;
  const id = short(target.run);
  const close = () => (open.value = null);
  const submit = () => send(kind, target);
  const subject = <p class="subject"><b>{target.agent}</b> {title(target.task)}</p>;
  const message = (label: string, optional = false) => (
    <label>{label}<textarea rows={4} required={!optional} value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} /></label>
  );
  const more = (
    <div class="raise">
      <label>Limit<select value={limit.value} onChange={(event) => propose(event.currentTarget.value as keyof typeof LIMITS, target)}>
        {Object.entries(LIMITS).map(([name, [words]]) => <option value={name} selected={name === limit.value}>{words}</option>)}
      </select></label>
      <label>Add<input value={amount.value} required pattern="[0-9]+([.][0-9]+)?(s|m|h|d)?" onInput={(event) => (amount.value = event.currentTarget.value)} /></label>
    </div>
  );
  switch (kind) {
    case "cancel": {
      const runs = target.open ?? 1;
      return (
        <Dialog title={runs > 1 ? `Stop ${plural(runs, "run")}?` : "Stop this run?"} action={`Stop ${plural(runs, "run")}`} danger onClose={close} onSubmit={submit} command={`homing cancel ${id}`}>
          {subject}
          <p>{runs > 1 ? `This run and the ${plural(runs - 1, "run")} below it that have not ended will stop.` : "It will stop at once."} What is done stays recorded.</p>
        </Dialog>
      );
    }
    case "tell":
      return <Dialog title="Send a message" action="Send" onClose={close} onSubmit={submit} command={`homing tell ${id} ${quoted(text.value || "MESSAGE")}`}>{subject}{message("The agent reads it before its next step")}</Dialog>;
    case "resume":
      return <Dialog title="Resume this run" action="Resume" onClose={close} onSubmit={submit} command={`homing resume ${id}`}>{subject}<p>It goes on where it stopped. What was done is not repeated or paid again.</p></Dialog>;
    case "limits":
      return <Dialog title="Raise a limit" action="Raise and go on" onClose={close} onSubmit={submit} command={`homing resume ${id} ${LIMITS[limit.value][1]} +${amount.value}`}>{subject}{target.limit && <p>{limitWords(target.limit)}</p>}{more}</Dialog>;
    case "fork":
      return <Dialog title="Continue from here in a new run" action="Fork" onClose={close} onSubmit={submit} command={`homing fork ${id} --at ${target.seq}`}>{subject}<p>The new run takes over everything up to fact {target.seq} and pays nothing again.</p>{message("Message to begin with (optional)", true)}</Dialog>;
  }
}
