/** Keys: the same actions as the buttons, without a mouse. */
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ask } from "./actions";
import { title } from "./format";
import { go, path, query, setQuery } from "./router";
import { newestFirst } from "./state";
import { loud } from "./rows";
import { current, fold, openBelow, shown } from "./tree";

export const helping = signal(false);
const finding = signal(false);

const HELP: [string, string][] = [
  ["/", "filter"], ["Ctrl K", "find a run by words of its task"], ["j k", "next, previous"], ["Enter", "open"], ["Esc", "close, back"],
  ["n", "next run in trouble"], ["a", "allow what is asked first"], ["x", "stop the run (asks first)"], ["t", "tell the run"], ["r", "resume or raise its limit"],
  ["← →", "fold, unfold"], ["c", "start a run"], ["g h", "home"], ["?", "this list"],
];

const isTyping = (target: EventTarget | null) => target instanceof HTMLElement && (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && (target as HTMLInputElement).type !== "range" || target.isContentEditable);

/** Home: moves between the lines. */
function moveInList(step: number) {
  const links = [...document.querySelectorAll<HTMLAnchorElement>(".lines .task a, .lines .agent-line a")];
  const at = links.indexOf(document.activeElement as HTMLAnchorElement);
  links[Math.max(0, Math.min(links.length - 1, at + step))]?.focus();
}

function moveInTree(step: number) {
  const all = shown.value?.all.filter((line) => line.kind === "run") ?? [];
  const at = all.findIndex((line) => line.row.run === query.value.get("run"));
  const next = all[Math.max(0, Math.min(all.length - 1, at + step))];
  if (next) setQuery({ run: next.row.run });
}

function nextTrouble() {
  const rows = shown.value?.tree.rows ?? [];
  const at = rows.findIndex((row) => row.run === query.value.get("run"));
  const found = [...rows.slice(at + 1), ...rows.slice(0, at + 1)].find((row) => loud(row));
  if (found) setQuery({ run: found.run });
}

function act(kind: "cancel" | "tell" | "limits") {
  const live = current.value;
  const state = shown.value;
  if (!live || !state) return;
  const row = state.tree.rows.find((row) => row.run === query.value.get("run")) ?? state.tree.rows[0];
  const open = row.ended === null;
  if (kind !== "limits" && !open) return;
  if (kind === "limits" && open && row.status !== "interrupted" && row.limits.cost === undefined) return;
  ask(kind, { tree: live.id, run: row.run, agent: row.agent, task: row.task, open: openBelow(state.tree, row), spent: row.subtree.cost_micros, why: row.trouble[0]?.text });
}

let last = "";

function onKey(event: KeyboardEvent) {
  if ((event.ctrlKey || event.metaKey) && event.key === "k") {
    event.preventDefault();
    finding.value = true;
    return;
  }
  if (event.key === "Escape" && isTyping(event.target)) (event.target as HTMLElement).blur();
  if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const isTree = /^\/trees\/[^/]+$/.test(path.value);
  const two = last + event.key;
  last = event.key;
  const keys: Record<string, () => void> = {
    "/": () => document.getElementById("filter")?.focus(),
    "?": () => (helping.value = true),
    j: () => (isTree ? moveInTree(1) : moveInList(1)),
    k: () => (isTree ? moveInTree(-1) : moveInList(-1)),
    n: nextTrouble,
    a: () => document.querySelector<HTMLButtonElement>('.card.person [data-key="a"]')?.focus(),
    x: () => act("cancel"),
    t: () => act("tell"),
    r: () => act("limits"),
    c: () => go("/new"),
    Escape: () => (query.value.get("run") ? setQuery({ run: null }) : isTree ? go("/") : undefined),
  };
  if (isTree && event.key === "Enter" && query.value.get("run") && !(event.target instanceof HTMLButtonElement) && !(event.target instanceof HTMLAnchorElement)) return go(`${path.value}/${query.value.get("run")}`);
  if (isTree && (event.key === "ArrowLeft" || event.key === "ArrowRight") && !(event.target instanceof HTMLInputElement)) {
    const run = query.value.get("run");
    if (run) fold(run, event.key === "ArrowLeft");
    return;
  }
  if (two === "gh") return go("/");
  const action = keys[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

export function useKeys() {
  useEffect(() => {
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

function Box({ label, onClose, children }: { label: string; onClose: () => void; children: any }) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => box.current?.showModal(), []);
  return <dialog ref={box} aria-label={label} onClose={onClose} onClick={(event) => event.target === box.current && box.current?.close()}>{children}</dialog>;
}

const words = signal("");

export function Overlays() {
  if (helping.value) {
    return <Box label="Keys" onClose={() => (helping.value = false)}><h2>Keys</h2><dl class="keys">{HELP.map(([key, what]) => <><dt><kbd>{key}</kbd></dt><dd>{what}</dd></>)}</dl></Box>;
  }
  if (!finding.value) return null;
  const close = () => { finding.value = false; words.value = ""; };
  const parts = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = newestFirst.value.filter((tree) => parts.every((part) => `${tree.task} ${tree.agent}`.toLowerCase().includes(part))).slice(0, 12);
  const open = (tree: string) => { close(); go(`/trees/${tree}`); };
  return (
    <Box label="Find a run" onClose={close}>
      <input class="finder" autoFocus type="search" placeholder="Words of the task" aria-label="Words of the task" value={words.value} onInput={(event) => (words.value = event.currentTarget.value)}
        onKeyDown={(event) => { if (event.key === "Enter" && found[0]) open(found[0].tree); }} />
      <ul class="found">{found.map((tree) => <li><button onClick={() => open(tree.tree)}><b>{tree.agent}</b> {title(tree.task)}</button></li>)}</ul>
      {!found.length && <p class="quiet">No run has these words.</p>}
    </Box>
  );
}
