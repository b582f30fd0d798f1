/** One tree: rows left, time right, and beside it the run that is selected. */
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { ask, raised } from "./actions";
import { type Question, type Status, post } from "./api";
import { clock, count, dateTime, duration, money, plural, short } from "./format";
import type { Row, View } from "./fold";
import { exported } from "./exported";
import { grouped, limitWords, QuestionCard } from "./inbox";
import { LiveTree } from "./live";
import { attempt, Budget, Command, Failure, Shape, StackedBar, State, WORDS } from "./parts";
import { go, Link, query, setQuery } from "./router";
import { arrange, countStates, type Line, lines, loud, type Tree } from "./rows";
import { RunDetail } from "./run";
import { now, questions } from "./state";
import { Axis, Bars, Density, Legend } from "./timeline";

const HEIGHT = 32;

/** The tree that is on the screen. */
export const current = signal<LiveTree | null>(null);
const toggled = signal<Set<string>>(new Set());

/** Hides or shows the runs below a run. */
export function fold(run: string, isFolded: boolean) {
  const next = new Set(toggled.value);
  if (isFolded) next.add(run);
  else next.delete(run);
  toggled.value = next;
}

export function useLiveTree(id: string): LiveTree | null {
  useEffect(() => {
    const live = new LiveTree(id);
    current.value = live;
    toggled.value = new Set();
    return () => live.close();
  }, [id]);
  return current.value?.id === id ? current.value : null;
}

export function isAlive(live: LiveTree, view: View): boolean {
  return view.position < view.total || !!live.row.value?.owner?.alive || live.row.value?.status !== "interrupted";
}

export const openBelow = (tree: Tree, row: Row) =>
  tree.rows.filter((other) => other.place === row.place || other.place.startsWith(row.place + ".")).filter((other) => other.ended === null).length;

function Toggle({ line }: { line: Line }) {
  if (!line.hasChildren) return <span class="twisty" />;
  const flip = (event: Event) => {
    event.stopPropagation();
    const next = new Set(toggled.value);
    if (!next.delete(line.key)) next.add(line.key);
    toggled.value = next;
  };
  const words = line.kind === "group" ? `${line.members.length} runs of ${line.row.agent}` : `runs below ${line.row.place}`;
  return (
    <button class="twisty" onClick={flip} aria-expanded={line.open} aria-label={`${line.open ? "Fold" : "Unfold"} ${words}`} tabIndex={-1}>
      <svg viewBox="0 0 16 16" aria-hidden="true"><path d={line.open ? "m4 6 4 4 4-4" : "m6 4 4 4-4 4"} class="line" /></svg>
    </button>
  );
}

function Group({ line, span, elapsed }: { line: Line; span: number; elapsed: number }) {
  const counts = countStates(line.members);
  const words = Object.entries(counts).map(([status, number]) => `${number} ${WORDS[status as Status]}`).join(", ");
  const sum = (pick: (row: Row) => number) => line.members.reduce((total, row) => total + pick(row), 0);
  return (
    <>
      <span class="name"><Toggle line={line} /><span class="many">{line.members.length} ×</span><b>{line.row.agent}</b><StackedBar counts={counts} /><span class="quiet cut">{words}</span></span>
      <span class="num">{money(sum((row) => row.subtree.cost_micros))}</span>
      <span class="num wide-only">{count(sum((row) => row.subtree.input + row.subtree.output))}</span>
      <span class="num wide-only" />
      <Density rows={line.members} span={span} now={elapsed} />
    </>
  );
}

function One({ line, span, elapsed, live }: { line: Line; span: number; elapsed: number; live: LiveTree }) {
  const { row, below } = line;
  const person = row.trouble.some((trouble) => trouble.kind === "question");
  const trouble = loud(row) ?? row.trouble[0];
  const said = live.streaming.value.get(row.run);
  const doing = row.ended !== null || person || row.status === "interrupted" ? undefined : said?.wait || said?.progress || (row.activity?.kind === "model" ? `waiting for ${row.activity.text}` : row.activity?.text);
  const took = row.began === null ? null : (row.ended ?? elapsed) - row.began;
  return (
    <>
      <span class="name">
        <Toggle line={line} />
        <span title={person ? "needs you" : WORDS[row.status]}><Shape status={row.status} person={person} /></span>
        <span class="hidden">{person ? "needs you" : WORDS[row.status]}</span>
        <b>{row.agent}</b>
        {trouble && <span class={`trouble t-${trouble.kind}`} title={trouble.text}>{trouble.text}</span>}
        {below.length > 0 && <span class={`climbed t-${below[0].trouble.kind}`} title={below.map((item) => `${item.row.place} ${item.row.agent}: ${item.trouble.text}`).slice(0, 8).join("\n")}>▴ {below.length} below: {below[0].trouble.text}</span>}
        <span class={`cut${doing ? " quiet" : ""}`}>{row.task}</span>
        {doing && <span class="doing cut">{doing}</span>}
      </span>
      <span class="num" title={row.held.cost_micros ? `${money(row.held.cost_micros)} held` : undefined}>{money(row.subtree.cost_micros)}{row.held.cost_micros > 0 && <i class="holds" aria-label={`and ${money(row.held.cost_micros)} held`}>+</i>}</span>
      <span class="num wide-only">{count(row.subtree.input + row.subtree.output)}</span>
      <span class="num wide-only">{took === null ? "" : duration(took)}</span>
      <Bars row={row} span={span} now={elapsed} />
    </>
  );
}

/** Draws only the lines that are on the screen. */
function Lines({ all, live, view, base }: { all: Line[]; live: LiveTree; view: View; base: string }) {
  const box = useRef<HTMLDivElement>(null);
  const [window_, setWindow] = useState({ top: 0, height: 700 });
  useEffect(() => {
    const measure = () => box.current && setWindow({ top: box.current.scrollTop, height: box.current.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  const selected = query.value.get("run") ?? "";
  useEffect(() => {
    const index = all.findIndex((line) => line.kind === "run" && line.row.run === selected);
    if (index < 0 || !box.current) return;
    const { scrollTop, clientHeight } = box.current;
    if (index * HEIGHT < scrollTop) box.current.scrollTop = index * HEIGHT;
    else if ((index + 1) * HEIGHT > scrollTop + clientHeight) box.current.scrollTop = (index + 1) * HEIGHT - clientHeight;
  }, [selected, all.length]);
  const first = Math.max(0, Math.floor(window_.top / HEIGHT) - 8);
  const last = Math.min(all.length, Math.ceil((window_.top + window_.height) / HEIGHT) + 8);
  const isLive = exported === null && live.complete.value && view.rows[0]?.ended === null && view.position === view.total && !view.parked;
  const elapsed = isLive && live.row.value?.status !== "interrupted" ? Math.max(view.now, now.value - view.start) : view.now;
  const span = Math.max(elapsed, 100) * 1.01;
  const pick = (line: Line) => {
    if (matchMedia("(max-width: 899px)").matches) go(`${base}/${line.row.run}`);
    else setQuery({ run: line.row.run }, false);
  };
  const flip = (line: Line) => (toggled.value = new Set(toggled.value.has(line.key) ? [...toggled.value].filter((key) => key !== line.key) : [...toggled.value, line.key]));
  return (
    <>
      <div class="grid-head grid-line" aria-hidden="true"><span class="name">Run</span><span class="num">Cost</span><span class="num wide-only">Tokens</span><span class="num wide-only">Time</span><Axis span={span} /></div>
      <div class="grid" ref={box} role="tree" aria-label="Runs" tabIndex={0} onScroll={(event) => setWindow({ top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight })}>
        <div style={{ height: `${all.length * HEIGHT}px` }} role="presentation">
          <div style={{ transform: `translateY(${first * HEIGHT}px)` }} role="presentation">
            {all.slice(first, last).map((line) => (
              <div class={`grid-line${line.kind === "run" && line.row.run === selected ? " selected" : ""}`} key={line.key} role="treeitem" aria-level={line.depth + 1}
                aria-selected={line.kind === "run" && line.row.run === selected} aria-expanded={line.hasChildren ? line.open : undefined} data-place={line.kind === "run" ? line.row.place : undefined}
                style={{ "--depth": line.depth }} onClick={() => (line.kind === "group" ? flip(line) : pick(line))}>
                {line.kind === "group" ? <Group line={line} span={span} elapsed={elapsed} /> : <One line={line} span={span} elapsed={elapsed} live={live} />}
              </div>
            ))}
          </div>
        </div>
      </div>
    </>
  );
}

/** Moves through the facts of the tree. */
function Scrubber({ live, view }: { live: LiveTree; view: View }) {
  const isPast = view.position < view.total;
  const mark = live.fold.mark(view.position);
  const words = mark ? `${clock(mark.at)} · ${mark.place} ${mark.agent} ${mark.kind.replace("_", " ")}` : "";
  return (
    <div class={`scrubber${isPast ? " past" : ""}`}>
      <button onClick={() => live.moveTo(Math.max(1, view.position - 1))} aria-label="One fact back">‹</button>
      <input type="range" min={1} max={view.total} value={view.position} aria-label="Position in the history" aria-valuetext={words}
        onInput={(event) => { const to = Number(event.currentTarget.value); live.moveTo(to >= view.total ? null : to); }} />
      <button onClick={() => live.moveTo(view.position + 1 >= view.total ? null : view.position + 1)} aria-label="One fact forward" disabled={!isPast}>›</button>
      <span class="num quiet">{view.position} / {view.total}</span>
      <span class="cut grow">{words}</span>
      {isPast ? <button class="primary" onClick={() => live.moveTo(null)}>Back to now</button> : <span class="live">{!live.complete.value ? "loading" : live.row.value?.status === "interrupted" ? "stopped" : view.rows[0]?.ended === null && exported === null ? "live" : "end"}</span>}
      <Legend />
    </div>
  );
}

/** The questions of this tree, with the server's evidence once it has it. */
export function asCards(live: LiveTree, view: View, only?: string): Question[] {
  const known = new Map(questions.value.map((question) => [question.id, question]));
  const row = live.row.value;
  return view.questions.filter((question) => !only || question.run === only).map((question) => known.get(question.id) ?? {
    id: question.id, tree: live.id, run: question.run, place: question.place, agent: question.agent, task: row?.task ?? "", project: row?.project ?? "",
    asked_at: view.start + view.now, kind: question.kind, text: question.text, choices: question.options, rule: question.rule,
  });
}

function Head({ live, view, tree, children }: { live: LiveTree; view: View; tree: Tree; children: ComponentChildren }) {
  const root = tree.rows[0];
  const person = view.questions.length > 0;
  const id = short(root.run);
  // The rest of the facts may say that it has ended.
  const open = root.ended === null && live.complete.value && view.position === view.total && exported === null;
  const target = { tree: live.id, run: root.run, agent: root.agent, task: root.task, open: openBelow(tree, root), spent: root.subtree.cost_micros, why: root.trouble[0]?.text, limit: live.row.value?.limit };
  const canRaise = (root.status === "exhausted" || root.status === "timed_out") && exported === null;
  const works = open && root.status !== "interrupted";
  const raise = raised(target);
  return (
    <header class="tree-head">
      <div class="row">
        <h1 class="cut" title={root.task}>{root.task || "(no task)"}</h1>
        <div class="actions">
          {!live.complete.value && <span class="quiet small" role="status">Loading…</span>}
          {works && <button onClick={() => ask("tell", target)}>Tell</button>}
          {root.limits.cost !== undefined && works && <button onClick={() => ask("limits", target)}>Raise limit</button>}
          {root.status === "interrupted" && open && <button class="primary" onClick={() => attempt(() => post(`/api/runs/${root.run}/resume`, {}))}>Resume</button>}
          {canRaise && <button class="primary" onClick={() => ask("limits", target)} title={`${target.limit ? limitWords(target.limit) : ""} Proposed: ${raise.words}`}>Raise limit and resume</button>}
          {exported === null && <Link class="button" to={`/compare?a=${live.id}/${root.run}`}>Compare</Link>}
          {exported === null && <a class="button" href={`/api/trees/${live.id}/export`} download title={`The same view as a file: homing export ${id} --format view`}>Export</a>}
          {works && <button class="danger" onClick={() => ask("cancel", target)}>Stop</button>}
        </div>
      </div>
      <div class="row facts">
        <State status={live.complete.value ? root.status : live.row.value?.status ?? root.status} person={person} stopping={root.stopping} />
        <span>{root.agent}</span>
        <span class="quiet">{root.model}{root.effort ? ` · ${root.effort} effort` : ""}</span>
        <Budget wide spent={root.subtree.cost_micros} held={root.held.cost_micros} limit={root.limits.cost} atMost={root.subtree.at_most_micros} />
        <span class="quiet cut totals">{count(root.subtree.input + root.subtree.output)} tokens · {plural(root.subtree.tool_calls, "call")} · {plural(tree.rows.length, "run")}</span>
        <time class="quiet" dateTime={new Date(view.start).toISOString()}>{dateTime(view.start)}</time>
        <Command text={`homing show ${id}`} />
        {children}
      </div>
    </header>
  );
}

export function TreePage({ id }: { id: string }) {
  const live = useLiveTree(id);
  const view = live?.view.value;
  useEffect(() => void (document.title = `${view?.rows[0]?.task.slice(0, 60) ?? "Run"} · Homing`), [view?.rows[0]?.task]);
  useEffect(() => { live?.draw(); }, [query.value.get("at")]);
  if (live?.problem.value) return <Failure problem={live.problem.value} />;
  if (!live || !view) return <p class="loading" role="status">Loading…</p>;
  const tree = arrange(view, isAlive(live, view));
  const filter = query.value.get("trouble") ? "trouble" : query.value.get("status") ?? "";
  const words = query.value.get("q") ?? "";
  const all = lines(tree, toggled.value, filter, words);
  const selected = tree.rows.find((row) => row.run === query.value.get("run"));
  const troubles = tree.below.get(0)?.length ?? 0;
  const asked = view.position === view.total && exported === null ? grouped(asCards(live, view)) : [];
  shown.value = { tree, all, base: `/trees/${id}` };
  return (
    <div class={`tree-page${selected ? " with-detail" : ""}`} data-runs={tree.rows.length}>
      <Head live={live} view={view} tree={tree}>
        <div class="tools">
          <StackedBar counts={tree.counts} picked={filter} onPick={(status) => setQuery({ status: filter === status ? null : status, trouble: null })} />
          {troubles > 0 && <button class="pill" aria-pressed={filter === "trouble"} onClick={() => setQuery({ trouble: filter === "trouble" ? null : "1", status: null })}>{troubles} in trouble</button>}
          <input id="filter" type="search" placeholder="Filter runs" aria-label="Filter runs" value={words} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        </div>
      </Head>
      <div class="split">
        <div class="main">
          {asked.length > 0 && <div class="cards strip">{asked.map((group) => <QuestionCard key={group[0].id} group={group} now={now.value} here />)}</div>}
          {all.length ? <Lines all={all} live={live} view={view} base={`/trees/${id}`} /> : <p class="quiet pad">No run matches the filter.</p>}
        </div>
        {selected && (
          <aside class="detail" aria-label={`Run ${selected.place}`}>
            <div class="detail-bar"><Link to={`/trees/${id}/${selected.run}`}>Open as page</Link><button class="out" onClick={() => setQuery({ run: null })} aria-label="Close details">Close</button></div>
            <RunDetail live={live} view={view} tree={tree} row={selected} />
          </aside>
        )}
      </div>
      <Scrubber live={live} view={view} />
    </div>
  );
}

/** What keys act on. */
export const shown = signal<{ tree: Tree; all: Line[]; base: string } | null>(null);
