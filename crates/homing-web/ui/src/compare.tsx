/** Two runs side by side. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { raw } from "./api";
import { count, dateTime, duration, money, title } from "./format";
import { type FactRecord, Fold, type Row, type View } from "./fold";
import { Markdown } from "./markdown";
import { Empty, State } from "./parts";
import { Link, query, setQuery } from "./router";
import { newestFirst } from "./state";
import { steps } from "./transcript";
import { Bars } from "./timeline";

interface Side { view: View; row: Row; records: FactRecord[]; tree: string }
const sides = signal<Record<string, Side | string>>({});

async function load(address: string) {
  const [tree, run] = address.split("/");
  try {
    const fold = await Fold.create();
    for (let next = 0; ;) {
      const bytes = new Uint8Array(await (await raw(`/api/trees/${tree}/facts?from=${next}&limit=5000`)).arrayBuffer());
      const pushed = fold.push(bytes);
      if (!pushed.more) break;
      next = pushed.next;
    }
    const view = fold.view();
    const row = view.rows.find((row) => row.run === run) ?? view.rows[0];
    sides.value = { ...sides.value, [address]: { view, row, records: fold.facts(row.run), tree } };
  } catch (error) {
    sides.value = { ...sides.value, [address]: (error as Error).message };
  }
}

function tools(side: Side): string {
  const counts = new Map<string, number>();
  for (const step of steps(side.records)) if (step.kind === "ask") for (const call of step.calls) counts.set(call.name, (counts.get(call.name) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).map(([name, number]) => `${name} ${number}`).join(", ") || "none";
}

function answer(side: Side): string {
  const ended = side.records.map((record) => record.fact.ended).filter(Boolean).pop();
  return ended?.text ?? "";
}

function Picker({ name }: { name: string }) {
  const chosen = query.value.get(name) ?? "";
  return (
    <select aria-label={`Run ${name.toUpperCase()}`} onChange={(event) => setQuery({ [name]: event.currentTarget.value })}>
      <option value="">Choose a run</option>
      {chosen && !newestFirst.value.some((tree) => `${tree.tree}/${tree.run}` === chosen) && <option value={chosen} selected>{chosen.split("/")[1]?.slice(0, 8)}</option>}
      {newestFirst.value.slice(0, 200).map((tree) => <option value={`${tree.tree}/${tree.run}`} selected={`${tree.tree}/${tree.run}` === chosen}>{tree.agent}: {title(tree.task).slice(0, 60)} ({dateTime(tree.started)})</option>)}
    </select>
  );
}

export function Compare() {
  const a = query.value.get("a") ?? "", b = query.value.get("b") ?? "";
  useEffect(() => { document.title = "Compare · Homing"; if (a) void load(a); if (b) void load(b); }, [a, b]);
  const found = [a, b].map((address) => sides.value[address]);
  const both = found.every((side) => side && typeof side !== "string") ? (found as Side[]) : null;
  const took = (side: Side) => (side.row.began === null ? 0 : (side.row.ended ?? side.view.now) - side.row.began);
  const figure = (name: string, pick: (side: Side) => number, format: (value: number) => string) => {
    if (!both) return null;
    const [left, right] = both.map(pick);
    const more = left && right ? Math.round((right / left - 1) * 100) : 0;
    return <tr><th scope="row">{name}</th><td class="num">{format(left)}</td><td class="num">{format(right)}{more !== 0 && <span class="quiet"> {more > 0 ? "+" : ""}{more}%</span>}</td></tr>;
  };
  return (
    <div class="compare">
      <h1>Compare</h1>
      <div class="pickers"><Picker name="a" /><Picker name="b" /></div>
      {found.map((side) => typeof side === "string" && <p class="failed">{side}</p>)}
      {!both && <Empty title="Choose two runs"><p>Cost, time, calls and answers are shown side by side.</p></Empty>}
      {both && <>
        <div class="scroll-x" tabIndex={0}>
          <table class="figures-table">
            <thead><tr><th scope="col"><span class="hidden">Figure</span></th>{both.map((side) => <th scope="col"><Link to={`/trees/${side.tree}/${side.row.run}`}>{side.row.agent}: {side.row.task}</Link></th>)}</tr></thead>
            <tbody>
              <tr><th scope="row">State</th>{both.map((side) => <td><State status={side.row.status} /></td>)}</tr>
              <tr><th scope="row">Model</th>{both.map((side) => <td>{side.row.model}</td>)}</tr>
              {figure("Cost", (side) => side.row.subtree.cost_micros, money)}
              {figure("Time", took, duration)}
              {figure("Tokens in", (side) => side.row.subtree.input, count)}
              {figure("Tokens out", (side) => side.row.subtree.output, count)}
              {figure("Turns", (side) => side.row.subtree.turns, String)}
              {figure("Tool calls", (side) => side.row.subtree.tool_calls, String)}
              {figure("Runs below", (side) => side.row.subtree.children, String)}
              <tr><th scope="row">Tools</th>{both.map((side) => <td>{tools(side)}</td>)}</tr>
              <tr><th scope="row">Time line</th>{both.map((side) => <td class="chart"><Bars row={side.row} span={Math.max(...both.map((one) => one.view.now), 100)} now={side.view.now} /></td>)}</tr>
            </tbody>
          </table>
        </div>
        <div class="answers">{both.map((side) => <section aria-label={`Answer of ${side.row.agent}`}><h2>Answer</h2>{answer(side) ? <Markdown text={answer(side)} /> : <p class="quiet">No answer yet.</p>}</section>)}</div>
      </>}
    </div>
  );
}
