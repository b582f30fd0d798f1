/** The server's HTTP interface: its types, requests and event streams. */
import { signal } from "@preact/signals";

export type Status = "queued" | "running" | "waiting" | "interrupted" | "done" | "exhausted" | "timed_out" | "cancelled" | "failed";

export interface Usage {
  input: number;
  cached: number;
  output: number;
  cost_micros: number;
  at_most_micros?: number;
  turns: number;
  tool_calls: number;
  wall_ms: number;
}

export interface TreeRow {
  run: string;
  tree: string;
  agent: string;
  model: string;
  task: string;
  status: Status;
  started: number;
  usage: Usage;
  tags: Record<string, string>;
  waiting_for_budget: number;
  project: string;
  counts: Partial<Record<Status, number>>;
  limits: Record<string, number>;
  held_micros: number;
  last_action: string;
  last_at: number;
  questions: number;
  trouble?: string | null;
  /** The limit that ended the root, and what the next model call may need. */
  limit?: { name: string; limit: number; spent: number; next_call_micros: number; next_call_tokens: number };
  /** Calls that may have had an effect before their process died. */
  unknown?: { run: string; agent: string; call: string }[];
  owner?: { pid: number; host: string; alive: boolean } | null;
}

export interface Question {
  id: string;
  tree: string;
  run: string;
  place: string;
  agent: string;
  task: string;
  project: string;
  asked_at: number;
  kind: "permission" | "choice" | "text";
  tool?: string | null;
  arguments?: unknown;
  command?: string | null;
  diff?: string | null;
  text: string;
  reason?: string | null;
  choices?: string[] | null;
  rule?: string | null;
  /** Rules that "always" adds. */
  always?: string[];
}

export interface Done {
  tree?: string;
  run?: string;
  message?: string;
  command?: string;
}

/** An answer of the server that is not a success. */
export class Problem extends Error {
  constructor(readonly status: number, message: string, readonly hint?: string) {
    super(message);
  }
}

/** False while the server cannot be reached. */
export const online = signal(true);
/** True once the server has refused this browser. */
export const loggedOut = signal(false);
/** The server's clock minus this browser's, in milliseconds. */
export const skew = signal(0);

export async function raw(path: string, init?: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...init });
  } catch {
    online.value = false;
    throw new Problem(0, "the server cannot be reached", "Is `homing serve` still running?");
  }
  online.value = true;
  const date = Date.parse(response.headers.get("date") ?? "");
  if (Math.abs(date - Date.now()) > 5000) skew.value = date - Date.now();
  if (response.ok) return response;
  if (response.status === 401) loggedOut.value = true;
  const body = await response.json().catch(() => ({}));
  throw new Problem(response.status, body.detail ?? body.title ?? `the server answered ${response.status}`, body.hint);
}

export async function get<T>(path: string, query: Record<string, string | number | undefined> = {}): Promise<T> {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value !== undefined && value !== "") params.set(key, String(value));
  const text = params.toString();
  return (await raw(text ? `${path}?${text}` : path)).json();
}

export async function post<T = Done>(path: string, body: unknown, headers: Record<string, string> = {}): Promise<T> {
  const init = { method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) };
  return (await raw(path, init)).json();
}

export interface StreamEvent {
  name: string;
  id: string;
  data: string;
}

/**
 * Reads server-sent events until `signal` is aborted. It reconnects by itself and asks for what follows the last event. The
 * browser's own EventSource cannot start at a position, and gives up for good on some errors.
 */
export async function stream(path: () => string, on: (event: StreamEvent) => void, stop: AbortSignal): Promise<void> {
  let delay = 250;
  while (!stop.aborted) {
    try {
      const response = await raw(path(), { signal: stop, headers: { accept: "text/event-stream" } });
      delay = 250;
      await readEvents(response, on);
    } catch (problem) {
      if (stop.aborted) return;
      if (problem instanceof Problem && (problem.status === 401 || problem.status === 404)) return;
      online.value = false;
    }
    if (stop.aborted) return;
    await new Promise((done) => setTimeout(done, delay));
    delay = Math.min(delay * 2, 4000);
  }
}

async function readEvents(response: Response, on: (event: StreamEvent) => void): Promise<void> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop()!;
    for (const block of blocks) {
      const event = { name: "message", id: "", data: "" };
      for (const line of block.split(/\r?\n/)) {
        const [, field, text] = /^(\w+): ?(.*)$/.exec(line) ?? [];
        if (field === "event") event.name = text;
        else if (field === "id") event.id = text;
        else if (field === "data") event.data += (event.data ? "\n" : "") + text;
      }
      if (event.data || event.name !== "message") on(event);
    }
  }
}
