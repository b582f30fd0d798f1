/** The agents and teams that are known here, and what each may do. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, type Status } from "./api";
import { duration, money } from "./format";
import { Command, Empty, Failure, Folding } from "./parts";
import { Link } from "./router";
import { newestFirst } from "./state";
import { isOpen } from "./home";
import { LiveTree } from "./live";
import { Shape, WORDS } from "./parts";

const list = signal<any[] | null>(null);
const teams = signal<string[]>([]);
const detail = signal<Record<string, any>>({});
const problem = signal<unknown>(null);

const text = (value: unknown): string => (typeof value === "string" ? value : value === null || value === undefined ? "" : JSON.stringify(value));
const said = (diagnostic: any): string => (typeof diagnostic === "string" ? diagnostic : diagnostic?.message ?? diagnostic?.text ?? JSON.stringify(diagnostic));
const origin = (source: any): string => (source?.path ? source.path : source?.kind === "built_in" ? "built in" : text(source?.kind));

function load() {
  problem.value = null;
  get<any>("/api/agents").then((found) => {
    list.value = Array.isArray(found) ? found : found.agents ?? [];
    teams.value = (found.teams ?? []).map((team: any) => (typeof team === "string" ? team : team.name));
  }, (error) => (problem.value = error));
}

export function Agents() {
  useEffect(() => { document.title = "Agents · Homing"; load(); }, []);
  if (problem.value) return <Failure problem={problem.value} retry={load} />;
  if (!list.value) return <p class="loading" role="status">Loading…</p>;
  const ran = newestFirst.value.filter((tree) => tree.model.startsWith("team/") && tree.agent !== "map").map((tree) => tree.agent);
  const known = [...new Set([...teams.value, ...ran])].sort();
  return (
    <div class="agents">
      <h1>Agents</h1>
      <ul class="lines">
        {list.value.map((agent) => (
          <li class="agent-line">
            <Link to={`/agents/${encodeURIComponent(agent.name)}`}><b>{agent.name}</b></Link>
            <span class="cut">{agent.description}</span>
            <span class="quiet cut">{origin(agent.source)}</span>
            {agent.diagnostics?.length > 0 ? <span class="tag">{agent.diagnostics.length} {agent.diagnostics.length === 1 ? "warning" : "warnings"}</span> : <span />}
          </li>
        ))}
      </ul>
      <h2>Teams</h2>
      {known.length ? <ul class="lines">{known.map((team) => <li class="agent-line"><Link to={`/teams/${encodeURIComponent(team)}`}><b>{team}</b></Link></li>)}</ul>
        : <Empty title="No teams here"><p>A team is a file that says which agents work together, and in which order.</p><Command text="homing init" /></Empty>}
    </div>
  );
}

function Tools({ agent }: { agent: any }) {
  const effective = agent.effective ?? {};
  const tools: any[] = Array.isArray(effective.tools) ? effective.tools : [];
  if (!tools.length) return <p class="quiet">{agent.tools === null || agent.tools === undefined ? "All tools that its place in the tree allows." : (agent.tools as string[]).join(", ") || "No tools."}</p>;
  return (
    <div class="scroll-x" tabIndex={0}><table>
      <thead><tr><th>Tool</th><th>Decision</th><th>Why</th></tr></thead>
      <tbody>{tools.map((tool) => typeof tool === "string" ? <tr><td>{tool}</td><td>yes</td><td /></tr>
        : <tr><td><code>{tool.name}</code></td><td>{text(tool.decided)}</td><td class="quiet">{text(tool.by)}</td></tr>)}</tbody>
    </table></div>
  );
}

export function Agent({ name }: { name: string }) {
  useEffect(() => {
    document.title = `${name} · Homing`;
    get<any>(`/api/agents/${encodeURIComponent(name)}`).then((found) => (detail.value = { ...detail.value, [name]: found.agent ?? found }), (error) => (detail.value = { ...detail.value, [name]: error }));
  }, [name]);
  const agent = detail.value[name];
  if (agent instanceof Error) return <Failure problem={agent} />;
  if (!agent) return <p class="loading" role="status">Loading…</p>;
  const from = agent.from ?? {};
  const limits: { name: string; value: number | null; from: string }[] = (agent.effective?.limits ?? []).filter((limit: any) => limit.value !== null);
  const amount = (limit: { name: string; value: number | null }) => (limit.name === "cost" ? money(limit.value!) : limit.name === "wall" || limit.name === "work" ? duration(limit.value!) : String(limit.value));
  return (
    <div class="agent">
      <nav class="crumbs" aria-label="Agents"><Link to="/agents">Agents</Link><span aria-hidden="true">/</span><b>{agent.name}</b></nav>
      <div class="row"><h1>{agent.name}</h1><Link class="button primary" to={`/new?agent=${encodeURIComponent(agent.name)}`}>Start a run</Link></div>
      <p>{agent.description}</p>
      <Command text={`homing agents ${agent.name}`} />
      {agent.diagnostics?.length > 0 && <section><h2>Warnings</h2>{agent.diagnostics.map((diagnostic: any) => <div class="notice"><p>{said(diagnostic)}</p></div>)}</section>}
      <section><h2>Tools</h2><Tools agent={agent} /></section>
      <section><h2>Settings</h2><dl>
        <dt>From</dt><dd>{origin(agent.source)}</dd>
        <dt>Model</dt><dd>{text(agent.effective?.model ?? agent.model)} <span class="quiet">{text(from.model)}</span></dd>
        {agent.shadows?.length > 0 && <><dt>Hides</dt><dd>{agent.shadows.map(origin).join(", ")}</dd></>}
        {agent.effective?.sandbox && <><dt>Sandbox</dt><dd>{agent.effective.sandbox}, network {text(agent.effective.network)}</dd></>}
        {limits.length > 0 && <><dt>Limits</dt><dd>{limits.map((limit) => `${limit.name.replace("_", " ")} ${amount(limit)}${limit.from === "default" ? "" : ` (${limit.from})`}`).join(", ")}</dd></>}
      </dl></section>
      {(agent.effective?.prompt ?? agent.definition?.prompt) && <section><h2>Prompt</h2><Folding text={agent.effective?.prompt ?? agent.definition.prompt} lines={24} /></section>}
    </div>
  );
}

interface Node { id: string; label: string; kind: string }
interface Edge { from: string; to: string; label?: string | null }

/** Places the nodes in columns: each one right of everything that leads to it, except for the way back of a loop. */
export function columns(nodes: Node[], edges: Edge[]): Map<string, [column: number, row: number]> {
  const level = new Map(nodes.map((node) => [node.id, 0]));
  const order = new Map(nodes.map((node, index) => [node.id, index]));
  for (let round = 0; round < nodes.length; round++) {
    let moved = false;
    for (const { from, to } of edges) {
      const isBack = (order.get(from) ?? 0) >= (order.get(to) ?? 0);
      if (isBack || !level.has(from) || !level.has(to)) continue;
      if (level.get(to)! <= level.get(from)!) { level.set(to, level.get(from)! + 1); moved = true; }
    }
    if (!moved) break;
  }
  const used = new Map<number, number>();
  return new Map(nodes.map((node) => {
    const column = level.get(node.id)!;
    const row = used.get(column) ?? 0;
    used.set(column, row + 1);
    return [node.id, [column, row]];
  }));
}

const live = signal<LiveTree | null>(null);

export function Team({ name }: { name: string }) {
  const running = newestFirst.value.find((tree) => tree.agent === name && isOpen(tree)) ?? newestFirst.value.find((tree) => tree.agent === name);
  useEffect(() => {
    document.title = `${name} · Homing`;
    get<any>(`/api/teams/${encodeURIComponent(name)}`).then((found) => (detail.value = { ...detail.value, ["team " + name]: found }), (error) => (detail.value = { ...detail.value, ["team " + name]: error }));
  }, [name]);
  useEffect(() => {
    if (!running) return;
    const tree = new LiveTree(running.tree);
    live.value = tree;
    return () => tree.close();
  }, [running?.tree]);
  const team = detail.value["team " + name] as { nodes: Node[]; edges: Edge[] } | Error | undefined;
  if (team instanceof Error) return <Failure problem={team} />;
  if (!team) return <p class="loading" role="status">Loading…</p>;
  // A label is the node's name and, on a second line, its agent. The fold knows which job belongs to which node.
  const parts = (node: Node) => node.label.split("\n");
  const states = live.value?.view.value?.nodes ?? {};
  const stateOf = (node: Node): Status | undefined => states[node.id];
  const at = columns(team.nodes, team.edges);
  const spot = (id: string): [number, number] => { const [column, row] = at.get(id) ?? [0, 0]; return [24 + column * 220, 24 + row * 84]; };
  const width = Math.max(...[...at.values()].map(([column]) => column), 0) * 220 + 212;
  const height = Math.max(...[...at.values()].map(([, row]) => row), 0) * 84 + 108;
  return (
    <div class="team">
      <nav class="crumbs" aria-label="Teams"><Link to="/agents">Agents and teams</Link><span aria-hidden="true">/</span><b>{name}</b></nav>
      <div class="row"><h1>{name}</h1>{running && <Link class="button" to={`/trees/${running.tree}`}>{isOpen(running) ? "Open the running tree" : "Open the latest run"}</Link>}</div>
      <div class="scroll-x" tabIndex={0} aria-label="Graph of the team">
        <svg class="graph" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={team.edges.map((edge) => `${edge.from} leads to ${edge.to}`).join(", ") || team.nodes.map((node) => parts(node)[0]).join(", ")}>
          <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" class="head" /></marker></defs>
          {team.edges.map((edge) => {
            const [x1, y1] = spot(edge.from), [x2, y2] = spot(edge.to);
            const back = x2 <= x1;
            const path = back ? `M${x1 + 82} ${y1 + 52}C${x1 + 82} ${y1 + 90} ${x2 + 82} ${y2 + 90} ${x2 + 82} ${y2 + 54}` : `M${x1 + 164} ${y1 + 26}C${x1 + 192} ${y1 + 26} ${x2 - 28} ${y2 + 26} ${x2 - 2} ${y2 + 26}`;
            return <g><path d={path} class="edge" marker-end="url(#arrow)" />{edge.label && <text x={(x1 + x2) / 2 + 82} y={(y1 + y2) / 2 + (back ? 84 : 18)} class="label">{edge.label}</text>}</g>;
          })}
          {team.nodes.map((node) => {
            const [x, y] = spot(node.id);
            const status = stateOf(node);
            return (
              <g transform={`translate(${x} ${y})`} class={`node n-${status ?? "none"}`}>
                <rect width="164" height="52" rx="8" />
                <text x="14" y="23" class="title">{parts(node)[0].slice(0, 18)}</text>
                <text x="14" y="40" class="sub">{[parts(node)[1] ?? (node.kind === node.id ? "" : node.kind), status && WORDS[status]].filter(Boolean).join(" · ").slice(0, 24)}</text>
                {status && <g transform="translate(136 18)"><Shape status={status} /></g>}
              </g>
            );
          })}
        </svg>
      </div>
    </div>
  );
}
