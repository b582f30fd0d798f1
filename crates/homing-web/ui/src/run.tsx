/** One run: what it is, what it did, and what can be done to it. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { ask } from "./actions";
import { post } from "./api";
import { clock, count, duration, money, plural, short } from "./format";
import type { FactRecord, Row, View } from "./fold";
import { exported } from "./exported";
import { grouped, Outcomes, QuestionCard } from "./inbox";
import type { LiveTree } from "./live";
import { attempt, Budget, Command, Failure, Folding, State } from "./parts";
import { Link, query, setQuery } from "./router";
import { arrange, type Tree } from "./rows";
import { steps, Transcript } from "./transcript";
import { asCards, isAlive, openBelow, useLiveTree } from "./tree";
import { now } from "./state";

/** What the tools say the run really did. */
function Receipts({ records }: { records: FactRecord[] }) {
  const files = new Map<string, boolean>();
  const commands: { command: string; exit: unknown }[] = [];
  const hosts = new Set<string>();
  for (const step of steps(records)) {
    if (step.kind !== "ask") continue;
    for (const call of step.calls) {
      const data = call.result?.data;
      if ((call.name === "write" || call.name === "edit") && data?.path) files.set(data.path, files.get(data.path) || data.created);
      if (call.name === "bash" && call.at !== undefined) commands.push({ command: String((call.args as any)?.command ?? ""), exit: data?.exit_code });
      for (const host of data?.hosts ?? []) hosts.add(String(host));
    }
  }
  if (!files.size && !commands.length && !hosts.size) return null;
  return (
    <details class="receipts">
      <summary>{[files.size && plural(files.size, "file") + " changed", commands.length && plural(commands.length, "command"), hosts.size && plural(hosts.size, "host") + " reached"].filter(Boolean).join(" · ")}</summary>
      <ul>
        {[...files].map(([path, created]) => <li><code>{path}</code> {created ? "created" : "changed"}</li>)}
        {commands.map(({ command, exit }) => <li><code>{command}</code> {exit === undefined || exit === null ? "no exit code" : `exit ${exit}`}</li>)}
        {[...hosts].map((host) => <li><code>{host}</code></li>)}
      </ul>
    </details>
  );
}

function Setup({ spawned, row }: { spawned: any; row: Row }) {
  const limits = Object.entries(row.limits).map(([name, value]) => `${name.replace("_", " ")} ${name === "cost" ? money(value) : name === "wall" || name === "work" ? duration(value) : value}`);
  return (
    <details class="setup">
      <summary>Set-up: model, limits, prompt</summary>
      <dl>
        <dt>Models</dt><dd>{spawned.models.join(", then ") || "none"}</dd>
        <dt>Limits</dt><dd>{limits.join(", ") || "those of the runs above it"}</dd>
        <dt>Folder</dt><dd><code>{spawned.workdir}</code></dd>
        {spawned.until && <><dt>Must succeed</dt><dd><code>{spawned.until}</code></dd></>}
        {Object.keys(spawned.tags ?? {}).length > 0 && <><dt>Tags</dt><dd>{Object.entries(spawned.tags).map(([key, value]) => `${key}=${value}`).join(", ")}</dd></>}
      </dl>
      <Folding text={spawned.system || "(no prompt)"} lines={8} />
    </details>
  );
}

export function RunDetail({ live, view, tree, row }: { live: LiveTree; view: View; tree: Tree; row: Row }) {
  const [rawLog, setRaw] = useState(false);
  const isNow = view.position === view.total;
  // The facts of a run change only with the position and the number of records.
  const records = useMemo(() => live.fold.facts(row.run, view.position), [row.run, view.position, view.total]);
  const spawned = records[0]?.fact.spawned;
  const open = row.ended === null && isNow && exported === null;
  const person = row.trouble.some((trouble) => trouble.kind === "question");
  const target = { tree: live.id, run: row.run, agent: row.agent, task: row.task, open: openBelow(tree, row), spent: row.subtree.cost_micros, why: row.trouble[0]?.text, limit: row.parent === null ? live.row.value?.limit : undefined };
  const asked = isNow && exported === null ? grouped(asCards(live, view, row.run)) : [];
  const elapsed = row.began === null ? 0 : (row.ended ?? Math.max(view.now, isNow ? now.value - view.start : 0)) - row.began;
  const canRaise = (row.status === "exhausted" || row.status === "timed_out") && exported === null;
  const canResume = row.status === "interrupted" && open;
  const works = open && row.status !== "interrupted";
  return (
    <div class="run" data-run={row.run}>
      <header>
        <div class="row"><State status={row.status} person={person} stopping={row.stopping} /><b>{row.agent}</b><span class="quiet">{row.place}</span></div>
        <div class="row facts">
          <span class="quiet cut">{row.model}{row.effort ? ` · ${row.effort} effort` : ""}</span>
          <Budget wide spent={row.subtree.cost_micros} held={row.held.cost_micros} limit={row.limits.cost} atMost={row.subtree.at_most_micros} />
          <span class="quiet num">{count(row.own.input + row.own.output)} tokens · {plural(row.own.turns, "turn")} · {plural(row.own.tool_calls, "call")} · {duration(elapsed)}</span>
        </div>
        <div class="actions">
          {works && <button onClick={() => ask("tell", target)}>Tell</button>}
          {canRaise && <button class="primary" onClick={() => ask("limits", target)}>Raise limit and resume</button>}
          {canResume && row.parent === null && <button class="primary" onClick={() => attempt(() => post(`/api/runs/${row.run}/resume`, {}))}>Resume</button>}
          {exported === null && <Link class="button" to={`/compare?a=${live.id}/${row.run}`}>Compare</Link>}
          <button aria-pressed={rawLog} onClick={() => setRaw(!rawLog)}>{rawLog ? "Steps" : "Raw log"}</button>
          {works && <button class="danger" onClick={() => ask("cancel", target)}>Stop</button>}
        </div>
        <Command text={`homing show ${short(row.run)}`} />
      </header>
      {asked.map((group) => <QuestionCard key={group[0].id} group={group} now={now.value} here />)}
      {row.trouble.filter((trouble) => trouble.kind !== "question").map((trouble) => (
        <div class={`notice t-${trouble.kind}`}>
          <p>{trouble.kind === "unknown" ? <>The process died during <code>{trouble.text}</code>. It may have happened.</> : trouble.text}</p>
          {trouble.kind === "unknown" && open && <Outcomes run={row.run} call={trouble.text} resume={row.status === "interrupted"} />}
        </div>
      ))}
      {(spawned?.warnings ?? []).map((warning: string) => <div class="notice"><p>{warning}</p></div>)}
      {spawned && <Setup spawned={spawned} row={row} />}
      <Receipts records={records} />
      {rawLog
        ? <ol class="raw">{records.map((record) => <li key={record.seq}><details><summary><span class="num quiet">{record.seq}</span> <span class="num quiet">{clock(record.at)}</span> {Object.keys(record.fact)[0].replace("_", " ")}</summary><pre tabIndex={0}>{JSON.stringify(record.fact, null, 2)}</pre></details></li>)}</ol>
        : <Transcript records={records} said={isNow ? live.streaming.value.get(row.run) : undefined} onFork={exported === null ? (seq) => ask("fork", { ...target, seq }) : undefined} />}
    </div>
  );
}

export function RunPage({ id, run }: { id: string; run: string }) {
  const live = useLiveTree(id);
  const view = live?.view.value;
  useEffect(() => { live?.draw(); }, [query.value.get("at")]);
  const row = view?.rows.find((row) => row.run === run);
  useEffect(() => void (document.title = `${row?.agent ?? "Run"} · Homing`), [row?.agent]);
  if (live?.problem.value) return <Failure problem={live.problem.value} />;
  if (!live || !view) return <p class="loading" role="status">Loading…</p>;
  if (!row) return <Failure problem={new Error("this run does not exist yet at this point of the history")} retry={() => setQuery({ at: null })} />;
  const tree = arrange(view, isAlive(live, view));
  const own = tree.rows.find((other) => other.run === run)!;
  const above: Row[] = [];
  for (let up = own.parent; up !== null; up = tree.rows[up].parent) above.unshift(tree.rows[up]);
  const below = (tree.children.get(tree.rows.indexOf(own)) ?? []).map((index) => tree.rows[index]);
  return (
    <div class="run-page">
      <nav class="crumbs" aria-label="Runs above this one">
        <Link to={`/trees/${id}`}>Tree</Link>
        {above.map((row) => <><span aria-hidden="true">/</span><Link to={`/trees/${id}/${row.run}`}>{row.agent}</Link></>)}
        <span aria-hidden="true">/</span><b>{own.agent} {own.place}</b>
      </nav>
      <h1 class="hidden">{own.task}</h1>
      {below.length > 0 && (
        <details class="below"><summary>{plural(below.length, "run")} below</summary>
          <ul>{below.slice(0, 200).map((row) => <li><Link to={`/trees/${id}/${row.run}`}><State status={row.status} /> <b>{row.agent}</b> {row.task}</Link></li>)}</ul>
        </details>
      )}
      <RunDetail live={live} view={view} tree={tree} row={own} />
    </div>
  );
}
