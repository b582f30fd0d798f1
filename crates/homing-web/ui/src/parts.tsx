/** Small pieces that several pages share. */
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { type Done, Problem, type Status } from "./api";
import { money } from "./format";

export const WORDS: Record<Status, string> = {
  queued: "queued", running: "running", waiting: "waiting", interrupted: "interrupted", done: "done",
  exhausted: "limit reached", timed_out: "timed out", cancelled: "cancelled", failed: "failed",
};

/** The order in which bars and legends list the states. */
export const ORDER: Status[] = ["failed", "exhausted", "timed_out", "interrupted", "waiting", "running", "queued", "cancelled", "done"];

/** A state as a shape; the colour only repeats it. `person` is a run that waits for the user. */
export function Shape({ status, person }: { status: Status; person?: boolean }) {
  const kind = person ? "person" : status;
  const inner = {
    queued: <circle cx="8" cy="8" r="5" class="line dashed" />,
    running: <><circle cx="8" cy="8" r="5" class="line faint" /><path d="M8 3a5 5 0 0 1 5 5" class="line spin" /></>,
    waiting: <path d="M5.5 4v8M10.5 4v8" class="line" />,
    person: <path d="M8 2.5 14 13H2z" class="solid" />,
    interrupted: <path d="M3 8h3m4 0h3M8 3v3m0 4v3" class="line" />,
    done: <path d="m3.5 8.5 3 3 6-7" class="line" />,
    exhausted: <path d="M3 4h10M3 12h10M8 4v8" class="line" />,
    timed_out: <><circle cx="8" cy="8" r="5.5" class="line" /><path d="M8 5v3.2l2 1.3" class="line" /></>,
    cancelled: <path d="M4 8h8" class="line" />,
    failed: <path d="m4 4 8 8m0-8-8 8" class="line" />,
  }[kind];
  return <svg class={`shape s-${kind}`} width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">{inner}</svg>;
}

export function State({ status, person, stopping }: { status: Status; person?: boolean; stopping?: boolean }) {
  const word = person ? "needs you" : stopping ? "stopping" : WORDS[status];
  return <span class={`state s-${person ? "person" : status}`}><Shape status={status} person={person} />{word}</span>;
}

/** Counts by state as one bar. A click on a part filters by it. */
export function StackedBar(props: { counts: Partial<Record<Status, number>>; onPick?: (status: Status) => void; picked?: string }) {
  const parts = ORDER.filter((status) => props.counts[status]);
  const words = parts.map((status) => `${props.counts[status]} ${WORDS[status]}`).join(", ");
  if (!props.onPick) {
    return (
      <span class="stack" role="img" aria-label={words} title={words}>
        {parts.map((status) => <span class={`part b-${status}`} style={{ flexGrow: props.counts[status] }} />)}
      </span>
    );
  }
  return (
    <div class="legend" role="group" aria-label="Runs by state">
      {parts.map((status) => (
        <button class={`pill s-${status}`} aria-pressed={props.picked === status} onClick={() => props.onPick!(status)}>
          <Shape status={status} /><b>{props.counts[status]}</b> {WORDS[status]}
        </button>
      ))}
    </div>
  );
}

/** Spent, held and limit, as figures and as a bar. */
export function Budget(props: { spent: number; held: number; limit?: number; atMost?: number; wide?: boolean }) {
  const { spent, held, limit } = props;
  const share = (part: number) => `${limit ? Math.min(100, (part / limit) * 100) : 0}%`;
  const words = `${money(spent)} spent${held ? `, ${money(held)} held for calls in progress` : ""}${limit ? `, limit ${money(limit)}` : ", no limit"}`;
  return (
    <span class={`budget${props.wide ? " wide" : ""}`} title={words + (props.atMost ? `; ${money(props.atMost)} of it is an upper estimate` : "")}>
      <span class="figures">
        <b>{props.atMost ? "≤ " : ""}{money(spent)}</b>
        {props.wide && held > 0 && <span class="held"> + {money(held)} held</span>}
        {limit !== undefined && <span class="quiet"> of {money(limit)}</span>}
      </span>
      {limit !== undefined && (
        <span class="bar" aria-hidden="true">
          <span class={`fill${spent >= limit ? " over" : ""}`} style={{ width: share(spent) }} />
          <span class="fill held" style={{ width: share(held) }} />
        </span>
      )}
    </span>
  );
}

/** A command line that can be copied. */
export function Command({ text }: { text: string }) {
  const copied = signal(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(text).catch(() => {});
    toast({ message: "command copied" });
    copied.value = true;
  };
  return (
    <button class="command" type="button" onClick={copy} title="Copy this command" aria-label={`Copy the command ${text}`}>
      <span aria-hidden="true" class="prompt">$</span><code>{text}</code>
    </button>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="empty"><h2>{title}</h2>{children}</div>;
}

export function Failure({ problem, retry }: { problem: unknown; retry?: () => void }) {
  const hint = problem instanceof Problem ? problem.hint : undefined;
  return (
    <div class="failure" role="alert">
      <p><b>{problem instanceof Error ? problem.message : String(problem)}</b></p>
      {hint && <p>{hint}</p>}
      {retry && <button onClick={retry}>Try again</button>}
    </div>
  );
}

/** A long text, of which the beginning is shown until the reader asks for more. */
export function Folding({ text, lines = 12, class: name = "" }: { text: string; lines?: number; class?: string }) {
  const all = text.split("\n");
  const isLong = all.length > lines + 2 || text.length > lines * 240;
  if (!isLong) return <pre class={name} tabIndex={0}>{text}</pre>;
  const start = all.slice(0, lines).join("\n").slice(0, lines * 240);
  return (
    <details class="folding">
      <summary><pre class={name}>{start}</pre><span class="more">{all.length} lines, {text.length.toLocaleString()} characters</span></summary>
      <pre class={name} tabIndex={0}>{text}</pre>
    </details>
  );
}

// Notices that appear for a moment.

interface Toast { message: string; command?: string; bad?: boolean }
const toasts = signal<(Toast & { id: number })[]>([]);
let lastToast = 0;

export function toast(notice: Toast) {
  const id = ++lastToast;
  toasts.value = [...toasts.value.slice(-2), { ...notice, id }];
  setTimeout(() => (toasts.value = toasts.value.filter((other) => other.id !== id)), notice.bad ? 12_000 : 6000);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((notice) => (
        <div class={`toast${notice.bad ? " bad" : ""}`} key={notice.id}>
          <span>{notice.message}</span>
          {notice.command && <code>{notice.command}</code>}
        </div>
      ))}
    </div>
  );
}

/** Does something, and says how it went. */
export async function attempt(action: () => Promise<Done>): Promise<Done | null> {
  try {
    const done = await action();
    toast({ message: done.message ?? "done", command: done.command });
    return done;
  } catch (problem) {
    const hint = problem instanceof Problem && problem.hint ? ` (${problem.hint})` : "";
    toast({ message: (problem as Error).message + hint, bad: true });
    return null;
  }
}

/** A dialog with a form. Escape closes it. */
export function Dialog(props: { title: string; onClose: () => void; onSubmit: () => void; action: string; danger?: boolean; command?: string; children: ComponentChildren }) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    box.current?.showModal();
    box.current?.querySelector<HTMLElement>("textarea, input, select, .primary")?.focus();
  }, []);
  return (
    <dialog ref={box} onClose={props.onClose} aria-label={props.title}>
      <form onSubmit={(event) => { event.preventDefault(); props.onSubmit(); }}
        onKeyDown={(event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); props.onSubmit(); } }}>
        <h2>{props.title}</h2>
        {props.children}
        <div class="actions">
          <button type="submit" class={`primary${props.danger ? " danger" : ""}`}>{props.action}</button>
          <button type="button" onClick={() => box.current?.close()}>Back</button>
        </div>
        {props.command && <Command text={props.command} />}
      </form>
    </dialog>
  );
}
