/** The first page: what needs a person, then what runs, then what ran. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, type TreeRow } from "./api";
import { age, dateTime, lastFolder, money, plural, title } from "./format";
import { grouped, QuestionCard, StoppedCard } from "./inbox";
import { Budget, Command, Empty, Failure, StackedBar, State, WORDS } from "./parts";
import { Link, query, setQuery } from "./router";
import { loaded, newestFirst, now, problem, questions, reload, trees } from "./state";

const DAY = 86_400_000;

const hidden = signal<string[]>(JSON.parse(localStorage.getItem("hidden") ?? "[]"));
function hide(tree: string) {
  hidden.value = [...hidden.value, tree].slice(-500);
  localStorage.setItem("hidden", JSON.stringify(hidden.value));
}

export const isOpen = (tree: TreeRow) => ["queued", "running", "waiting"].includes(tree.status);
const isPerson = (tree: TreeRow) => isOpen(tree) && tree.questions > 0;

function matches(tree: TreeRow, filter: URLSearchParams): boolean {
  const is = (key: string, value: string) => !filter.get(key) || filter.get(key) === value;
  const words = (filter.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const text = `${tree.task} ${tree.agent} ${tree.model} ${Object.entries(tree.tags).map(([key, value]) => `${key}=${value}`).join(" ")}`.toLowerCase();
  const day = filter.get("day");
  const tag = filter.get("tag");
  return (
    is("project", tree.project) && is("agent", tree.agent) && is("status", tree.status) &&
    (!tag || Object.entries(tree.tags).some(([key, value]) => `${key}=${value}` === tag)) &&
    (!day || tree.started >= now.value - Number(day) * DAY) && words.every((word) => text.includes(word))
  );
}

/** Trees that a person can move on and has not dismissed. Older ones are history. */
function stopped(list: TreeRow[]): TreeRow[] {
  const stuck = (tree: TreeRow) => ["exhausted", "timed_out", "interrupted", "failed"].includes(tree.status);
  return list.filter((tree) => stuck(tree) && !hidden.value.includes(tree.tree) && (tree.last_at || tree.started) > now.value - 2 * DAY);
}

export function TreeLine({ tree, index }: { tree: TreeRow; index?: number }) {
  const runs = Object.values(tree.counts).reduce((sum, number) => sum + (number ?? 0), 0);
  return (
    <li class="line" data-index={index}>
      <State status={tree.status} person={isPerson(tree)} />
      <span class="task"><Link to={`/trees/${tree.tree}`}>{title(tree.task)}</Link></span>
      <span class="who">{tree.agent}</span>
      <span class="runs">{runs > 1 ? <><StackedBar counts={tree.counts} /><span class="quiet num">{runs}</span></> : null}</span>
      <Budget spent={tree.usage.cost_micros} held={tree.held_micros} limit={tree.limits.cost_micros} atMost={tree.usage.at_most_micros} />
      <span class="last quiet" title={tree.trouble ?? tree.last_action}>{tree.waiting_for_budget ? `${plural(tree.waiting_for_budget, "run")} waiting for budget` : tree.trouble ?? tree.last_action}</span>
      <time class="quiet num" dateTime={new Date(tree.started).toISOString()} title={dateTime(tree.started)}>{age(tree.started, now.value)}</time>
    </li>
  );
}

function Filters({ list }: { list: TreeRow[] }) {
  const filter = query.value;
  const distinct = (values: string[]) => [...new Set(values)].filter(Boolean).sort();
  const select = (key: string, label: string, options: [string, string][]) => (
    <select aria-label={label} value={filter.get(key) ?? ""} onChange={(event) => setQuery({ [key]: event.currentTarget.value })} class={filter.get(key) ? "on" : ""}>
      <option value="">{label}</option>
      {options.map(([value, word]) => <option value={value} selected={filter.get(key) === value}>{word}</option>)}
    </select>
  );
  const tags = distinct(list.flatMap((tree) => Object.entries(tree.tags).map(([key, value]) => `${key}=${value}`)));
  const any = ["q", "project", "agent", "status", "tag", "day"].some((key) => filter.get(key));
  return (
    <div class="filters" role="search">
      <input id="filter" type="search" placeholder="Filter by task, agent or tag" aria-label="Filter" value={filter.get("q") ?? ""} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
      {select("project", "Project", distinct(list.map((tree) => tree.project)).map((project) => [project, lastFolder(project)]))}
      {select("agent", "Agent", distinct(list.map((tree) => tree.agent)).map((agent) => [agent, agent]))}
      {select("status", "State", Object.entries(WORDS))}
      {tags.length > 0 && select("tag", "Tag", tags.map((tag) => [tag, tag]))}
      {select("day", "Any day", [["1", "Last 24 hours"], ["7", "Last 7 days"], ["30", "Last 30 days"]])}
      {any && <button class="out" onClick={() => setQuery({ q: null, project: null, agent: null, status: null, tag: null, day: null })}>Clear</button>}
    </div>
  );
}

interface Account { name: string; spent_micros: number; limit_micros?: number | null; period?: string | null }
const accounts = signal<Account[]>([]);

/** Spend as the trees of this page say it, so that it never contradicts them; accounts come from the server. */
function Spend({ list }: { list: TreeRow[] }) {
  useEffect(() => {
    get<{ accounts?: Account[] }>("/api/usage", { by: "day" }).then((usage) => (accounts.value = usage.accounts ?? []), () => {});
  }, []);
  const midnight = new Date(now.value).setHours(0, 0, 0, 0);
  const since = (from: number) => list.filter((tree) => tree.started >= from).reduce((sum, tree) => sum + tree.usage.cost_micros, 0);
  const held = list.reduce((sum, tree) => sum + tree.held_micros, 0);
  return (
    <section class="spend" aria-label="Spend">
      <span><span class="quiet">Today</span> <b>{money(since(midnight))}</b></span>
      <span><span class="quiet">Last 7 days</span> <b>{money(since(midnight - 6 * DAY))}</b></span>
      {held > 0 && <span><span class="quiet">Held now</span> <b>{money(held)}</b></span>}
      {accounts.value.map((account) => (
        <span><span class="quiet">{account.name}{account.period ? ` this ${account.period}` : ""}</span> <Budget spent={account.spent_micros} held={0} limit={account.limit_micros ?? undefined} /></span>
      ))}
    </section>
  );
}

function First() {
  return (
    <Empty title="No runs yet">
      <p>Start one here, or in a terminal; it appears on this page either way.</p>
      <Command text={'homing run "summarise the README"'} />
      <p><Link class="button primary" to="/new">Start a run</Link> <Link class="button" to="/agents">See the agents</Link></p>
      <p class="quiet">No API key yet? <code>--model offline</code> needs none, and <code>homing doctor</code> shows what is missing.</p>
    </Empty>
  );
}

export function Home() {
  useEffect(() => void (document.title = questions.value.length ? `(${questions.value.length}) Homing` : "Homing"), [questions.value.length]);
  if (problem.value && !loaded.value) return <Failure problem={problem.value} retry={reload} />;
  if (!loaded.value) return <p class="loading" role="status">Loading…</p>;
  const all = newestFirst.value;
  if (!all.length) return <First />;
  const filter = query.value;
  const list = all.filter((tree) => matches(tree, filter));
  const asked = grouped(questions.value.filter((question) => !filter.get("project") || question.project === filter.get("project")));
  const stuck = stopped(list);
  const running = list.filter(isOpen);
  const recent = list.filter((tree) => !isOpen(tree));
  return (
    <div class="home">
      <h1 class="hidden">Runs</h1>
      <div class="bar-top"><Filters list={all} /><Spend list={[...trees.value.values()]} /></div>
      {(asked.length > 0 || stuck.length > 0) && (
        <section aria-labelledby="needs">
          <h2 id="needs">Needs you <span class="badge person">{asked.length + stuck.length}</span></h2>
          <div class="cards">
            {asked.map((group) => <QuestionCard key={group[0].id} group={group} now={now.value} />)}
            {stuck.slice(0, 6).map((tree) => <StoppedCard key={tree.tree} tree={tree} now={now.value} onHide={() => hide(tree.tree)} />)}
          </div>
          {stuck.length > 6 && <p class="quiet small">{plural(stuck.length - 6, "more run")} stopped; they are below.</p>}
        </section>
      )}
      {running.length > 0 && (
        <section aria-labelledby="running">
          <h2 id="running">Running <span class="badge">{running.length}</span></h2>
          <ul class="lines">{running.map((tree, index) => <TreeLine key={tree.tree} tree={tree} index={index} />)}</ul>
        </section>
      )}
      <section aria-labelledby="recent">
        <h2 id="recent">Recent <span class="badge">{recent.length}</span></h2>
        {recent.length ? <ul class="lines">{recent.slice(0, 200).map((tree, index) => <TreeLine key={tree.tree} tree={tree} index={running.length + index} />)}</ul>
          : <p class="quiet">{list.length ? "Nothing has ended yet." : "No run matches the filter."}</p>}
      </section>
    </div>
  );
}
