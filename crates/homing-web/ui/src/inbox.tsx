/** What waits for a person, with the one action that unblocks each. */
import { useState } from "preact/hooks";
import { get, post, type Question, type TreeRow } from "./api";
import { ask } from "./actions";
import { age, money, quoted, short, title } from "./format";
import { attempt, Command, Shape } from "./parts";
import { Link } from "./router";
import { questions } from "./state";
import { Diff } from "./diff";

/** Questions that are the same for a person: one answer fits all. */
export function grouped(list: Question[]): Question[][] {
  const groups = new Map<string, Question[]>();
  for (const question of list) {
    const { kind, tool, command, text, arguments: args, choices } = question;
    const key = JSON.stringify(kind === "permission" ? [tool, command ?? args, question.rule] : [kind, text, choices]);
    groups.set(key, [...(groups.get(key) ?? []), question]);
  }
  return [...groups.values()];
}

async function answer(list: Question[], text: string) {
  for (const question of list) {
    const done = await attempt(() => post(`/api/questions/${question.id}`, { answer: text }));
    if (!done) break;
  }
  const found = await get<{ questions: Question[] }>("/api/questions").catch(() => null);
  if (found) questions.value = found.questions;
}

function Evidence({ question }: { question: Question }) {
  if (question.diff) return <Diff text={question.diff} />;
  if (question.command) return <pre class="evidence" tabIndex={0}>{question.command}</pre>;
  if (question.arguments !== undefined && question.arguments !== null && question.kind === "permission") {
    return <pre class="evidence" tabIndex={0}>{question.tool} {JSON.stringify(question.arguments, null, 2)}</pre>;
  }
  return null;
}

export function QuestionCard({ group, now, here }: { group: Question[]; now: number; here?: boolean }) {
  const [text, setText] = useState("");
  const question = group[0];
  const many = group.length > 1;
  const id = question.id.slice(0, 8);
  const heading = question.kind === "permission" ? (many ? `${group.length} runs ask for the same call` : question.text) : question.text;
  return (
    <article class="card person" aria-label={`Question of ${question.agent}`} data-question={question.id}>
      <header>
        <Shape status="waiting" person />
        <span class="grow"><b>{question.agent}</b> {question.kind === "permission" ? "needs approval" : "asks"}</span>
        <span class="quiet">{age(question.asked_at, now)}</span>
      </header>
      <p class="asked">{heading}</p>
      <Evidence question={question} />
      {question.rule && <p class="quiet small">Asked because of the rule <code>{question.rule}</code></p>}
      {!here && <p class="small quiet">For <Link to={`/trees/${question.tree}/${question.run}`}>{title(question.task)}</Link></p>}
      {question.kind === "text" && (
        <label class="answer">Answer<textarea rows={2} value={text} onInput={(event) => setText(event.currentTarget.value)} /></label>
      )}
      <div class="actions">
        {question.kind === "permission" && <>
          <button class="primary" data-key="a" onClick={() => answer(group, "yes")}>{many ? `Allow all ${group.length}` : "Allow once"}</button>
          {many && <button onClick={() => answer([question], "yes")}>Only this one</button>}
          {!!question.always?.length && <button onClick={() => answer(group, "always")} title={`Adds the rule ${question.always.join(", ")}`}>Always</button>}
          <button class="out" onClick={() => answer(group, "no")}>{many ? "Deny all" : "Deny"}</button>
        </>}
        {question.kind === "choice" && (question.choices ?? []).map((choice) => <button onClick={() => answer(group, choice)}>{choice}</button>)}
        {question.kind === "text" && <button class="primary" disabled={!text.trim()} onClick={() => answer(group, text)}>Answer</button>}
      </div>
      <Command text={`homing answer ${id} ${question.kind === "permission" ? "yes" : quoted(text || question.choices?.[0] || "TEXT")}`} />
    </article>
  );
}

/** A tree that stopped and that a person can move on: a limit, a failure, an unknown outcome, a process that is gone. */
export function StoppedCard({ tree, now, onHide }: { tree: TreeRow; now: number; onHide: () => void }) {
  const why = tree.trouble ?? tree.last_action;
  const target = { tree: tree.tree, run: tree.run, agent: tree.agent, task: tree.task, spent: tree.usage.cost_micros, why };
  const id = short(tree.run);
  const isLimit = tree.status === "exhausted" || tree.status === "timed_out";
  const canResume = isLimit || tree.status === "interrupted";
  const happened = { exhausted: "reached a limit", timed_out: "ran out of time", interrupted: "was interrupted", failed: "failed" }[tree.status as string] ?? tree.status;
  return (
    <article class={`card ${tree.status === "failed" ? "failed" : "stopped"}`} aria-label={`${tree.agent} ${happened}`}>
      <header>
        <Shape status={tree.status} />
        <span class="grow"><b>{tree.agent}</b> {happened}</span>
        <span class="quiet">{age(tree.last_at || tree.started, now)}</span>
      </header>
      <p class="asked"><Link to={`/trees/${tree.tree}`}>{title(tree.task)}</Link></p>
      <p class="small quiet">{why} · {money(tree.usage.cost_micros)} spent</p>
      <div class="actions">
        {isLimit && <button class="primary" onClick={() => ask("limits", target)}>Raise the limit</button>}
        {tree.status === "interrupted" && <button class="primary" onClick={() => attempt(() => post(`/api/runs/${tree.run}/resume`, {}))}>Resume</button>}
        {!canResume && <Link class="button primary" to={`/trees/${tree.tree}?trouble=1`}>Look into it</Link>}
        <button class="out" onClick={onHide}>{isLimit ? "Keep what there is" : "Dismiss"}</button>
      </div>
      <Command text={canResume ? `homing resume ${id}` : `homing show ${id}`} />
    </article>
  );
}
