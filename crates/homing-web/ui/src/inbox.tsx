/** What waits for a person, with the one action that unblocks each. */
import { useState } from "preact/hooks";
import { get, post, type Question, type TreeRow } from "./api";
import { ask, raised } from "./actions";
import { age, count, duration, money, plural, quoted, short, title, visible } from "./format";
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
  if (question.command) return <pre class="evidence" tabIndex={0}>{visible(question.command)}</pre>;
  if (question.arguments !== undefined && question.arguments !== null && question.kind === "permission") {
    return <pre class="evidence" tabIndex={0}>{question.tool} {visible(JSON.stringify(question.arguments, null, 2))}</pre>;
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
      <p class="asked">{visible(heading)}</p>
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

/** What a person can say about a call that was under way when its process died. Nobody else knows. */
export const OUTCOMES: [word: string, message: (call: string) => string][] = [
  ["It happened", (call) => `The call \`${call}\` did happen; do not repeat it.`],
  ["It did not", (call) => `The call \`${call}\` did not happen; repeat it if it is still needed.`],
  ["Let the agent look", (call) => `Find out whether \`${call}\` happened before you continue.`],
];

/** Buttons for a call with an unknown outcome. The answer resumes a run whose process is gone. */
export function Outcomes({ run, call, resume }: { run: string; call: string; resume: boolean }) {
  const send = (message: string) => attempt(() => post(`/api/runs/${run}/${resume ? "resume" : "tell"}`, { message }));
  return <div class="actions">{OUTCOMES.map(([word, message], index) => <button class={index === 2 ? "primary" : ""} onClick={() => send(message(call))}>{word}</button>)}</div>;
}

const AMOUNTS: Record<string, (value: number) => string> = { cost: money, wall: duration, work: duration };

/** A reached limit in words, with what the next call may cost. */
export function limitWords({ name, limit, spent, next_call_micros, next_call_tokens }: NonNullable<TreeRow["limit"]>): string {
  const shown = AMOUNTS[name] ?? count;
  const words = { wall: "time", work: "working time", cost: "cost" }[name] ?? name.replace("_", " ");
  const next = next_call_micros ? `The next call may cost up to ${money(next_call_micros)}.` : next_call_tokens ? `The next call may use up to ${count(next_call_tokens)} tokens.` : "";
  const used = name === "cost" || name === "tokens" ? `, ${shown(spent)} used` : "";
  return `The limit of ${shown(limit)} ${words} is reached${used}. ${next}`;
}

/** A tree that stopped and that a person can move on: a limit, a failure, an unknown outcome, a process that is gone. */
export function StoppedCard({ tree, now, onHide }: { tree: TreeRow; now: number; onHide: () => void }) {
  const why = tree.trouble ?? tree.last_action;
  const target = { tree: tree.tree, run: tree.run, agent: tree.agent, task: tree.task, spent: tree.usage.cost_micros, why, limit: tree.limit };
  const id = short(tree.run);
  const isLimit = tree.status === "exhausted" || tree.status === "timed_out";
  const unknown = tree.unknown?.[0];
  const canResume = isLimit || tree.status === "interrupted";
  const happened = unknown ? "stopped in the middle of a call" : { exhausted: "reached a limit", timed_out: "ran out of time", interrupted: "was interrupted", failed: "failed" }[tree.status as string] ?? tree.status;
  const raise = raised(target);
  return (
    <article class={`card ${tree.status === "failed" ? "failed" : "stopped"}`} aria-label={`${tree.agent} ${happened}`}>
      <header>
        <Shape status={tree.status} />
        <span class="grow"><b>{tree.agent}</b> {happened}</span>
        <span class="quiet">{age(tree.last_at || tree.started, now)}</span>
      </header>
      <p class="asked"><Link to={`/trees/${tree.tree}`}>{title(tree.task)}</Link></p>
      {unknown ? <>
        <p class="small quiet">{unknown.agent} was in the middle of this call. It may have happened.</p>
        <pre class="evidence" tabIndex={0}>{visible(unknown.call)}</pre>
        <Outcomes run={unknown.run} call={unknown.call} resume />
        {tree.unknown!.length > 1 && <p class="small quiet">{plural(tree.unknown!.length - 1, "more call")} of this tree are open: <Link to={`/trees/${tree.tree}?trouble=1`}>look at them</Link></p>}
      </> : <>
        <p class="small quiet">{isLimit && tree.limit ? limitWords(tree.limit) : `${why} · ${money(tree.usage.cost_micros)} spent`}</p>
        <div class="actions">
          {isLimit && <button class="primary" onClick={() => attempt(() => post(`/api/runs/${tree.run}/limits`, raise.body))}>Add {raise.words} and go on</button>}
          {isLimit && <button onClick={() => ask("limits", target)}>Other amount</button>}
          {tree.status === "interrupted" && <button class="primary" onClick={() => attempt(() => post(`/api/runs/${tree.run}/resume`, {}))}>Resume</button>}
          {!canResume && <Link class="button primary" to={`/trees/${tree.tree}?trouble=1`}>Look into it</Link>}
          <button class="out" onClick={onHide}>{isLimit ? "Finish with what there is" : "Dismiss"}</button>
        </div>
      </>}
      <Command text={isLimit ? `homing resume ${id} ${raise.option}` : canResume ? `homing resume ${id}` : `homing show ${id}`} />
    </article>
  );
}
