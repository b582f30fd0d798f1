/** The frame around the pages. */
import { render } from "preact";
import { Actions } from "./actions";
import { Agent, Agents, Team } from "./agents";
import { loggedOut, online } from "./api";
import { Compare } from "./compare";
import { exported } from "./exported";
import { Home } from "./home";
import { helping, Overlays, useKeys } from "./keys";
import { Empty, Toasts } from "./parts";
import { Link, path } from "./router";
import { RunPage } from "./run";
import { Start } from "./start";
import { follow, questions } from "./state";
import { TreePage } from "./tree";

function Page() {
  const [, first = "", second = "", third = ""] = path.value.split("/").map(decodeURIComponent);
  if (!first) return <Home />;
  if (first === "trees" && second && third) return <RunPage key={second + third} id={second} run={third} />;
  if (first === "trees" && second) return <TreePage key={second} id={second} />;
  if (first === "new") return <Start />;
  if (first === "compare") return <Compare />;
  if (first === "agents" && second) return <Agent name={second} />;
  if (first === "agents") return <Agents />;
  if (first === "teams" && second) return <Team name={second} />;
  return <Empty title="There is no such page"><p><Link to="/">All runs</Link></p></Empty>;
}

function Exported() {
  return (
    <header class="top">
      <span class="logo"><Mark />Homing</span>
      <span class="quiet small">Exported from a journal: nothing here can be changed.</span>
    </header>
  );
}

const Mark = () => <svg viewBox="0 0 32 32" aria-hidden="true"><path d="M6 22 16 8l10 14" /><circle cx="16" cy="22" r="2.6" /></svg>;

function App() {
  useKeys();
  if (exported !== null) return <><Exported /><main id="main" tabIndex={-1}><Page /></main><Overlays /><Toasts /></>;
  const here = (at: string) => path.value === at || path.value.startsWith(at + "/");
  return (
    <>
      <a class="skip" href="#main">Skip to the content</a>
      <header class="top">
        <Link to="/" class="logo" label="Homing, all runs"><Mark />Homing</Link>
        <nav aria-label="Pages">
          <Link to="/" current={path.value === "/"}>Runs{questions.value.length > 0 && <span class="badge person" title="questions">{questions.value.length}</span>}</Link>
          <Link to="/agents" current={here("/agents") || here("/teams")}>Agents</Link>
          <Link to="/compare" current={here("/compare")}>Compare</Link>
        </nav>
        <span class="grow" />
        {!online.value && !loggedOut.value && <span class="offline" role="status">Reconnecting…</span>}
        <button class="out keys-button" onClick={() => (helping.value = true)} aria-label="Keys">?</button>
        <Link to="/new" class="button primary">Start a run</Link>
      </header>
      {loggedOut.value && <div class="banner" role="alert">This browser is not logged in any more. Open the link that <code>homing serve</code> printed.</div>}
      <main id="main" tabIndex={-1}><Page /></main>
      <Actions /><Overlays /><Toasts />
    </>
  );
}

if (exported === null) follow();
render(<App />, document.getElementById("app")!);
