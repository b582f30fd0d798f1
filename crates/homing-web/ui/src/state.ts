/** State that several pages share: the trees and questions of the server, and the time. */
import { computed, signal } from "@preact/signals";
import { get, type Question, skew, stream, type TreeRow } from "./api";

export const trees = signal<Map<string, TreeRow>>(new Map());
export const questions = signal<Question[]>([]);
export const loaded = signal(false);
export const problem = signal<unknown>(null);
/** The server's time, once a second. */
export const now = signal(Date.now());
setInterval(() => (now.value = Date.now() + skew.value), 1000);

export const newestFirst = computed(() => [...trees.value.values()].sort((a, b) => b.started - a.started));

function put(rows: TreeRow[]) {
  const next = new Map(trees.value);
  for (const row of rows) next.set(row.tree, row);
  trees.value = next;
}

export async function reload() {
  try {
    const [found, asked] = await Promise.all([
      get<{ trees: TreeRow[] }>("/api/trees", { limit: 500 }),
      get<{ questions: Question[] }>("/api/questions").catch(() => ({ questions: [] })),
    ]);
    trees.value = new Map(found.trees.map((row) => [row.tree, row]));
    questions.value = asked.questions;
    problem.value = null;
    loaded.value = true;
  } catch (error) {
    problem.value = error;
  }
}

async function reloadQuestions() {
  const asked = await get<{ questions: Question[] }>("/api/questions").catch(() => null);
  if (asked) questions.value = asked.questions;
}

/** Follows the changes of all trees, for as long as the page is open. */
export function follow() {
  let last = "";
  let pending: TreeRow[] = [];
  // A fan-out changes its row many times a second; the list is drawn at most ten times.
  const flush = () => {
    put(pending);
    pending = [];
  };
  const on = (event: { name: string; id: string; data: string }) => {
    if (event.id) last = event.id;
    if (event.name === "tree") {
      if (!pending.length) setTimeout(flush, 100);
      pending.push(JSON.parse(event.data));
    } else if (event.name === "questions") reloadQuestions();
    else if (event.name === "gap") reload();
  };
  const address = () => (last ? `/api/events?from=${encodeURIComponent(last)}` : "/api/events");
  reload().then(() => stream(address, on, new AbortController().signal));
}
