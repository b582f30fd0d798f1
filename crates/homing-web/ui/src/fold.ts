/** The runtime's own fold, compiled to WebAssembly. Everything that a page says about a tree comes from it. */
import type { Status } from "./api";
import { embeddedFold, exported } from "./exported";

export type SegmentKind = "queued" | "waiting" | "rate_limit" | "model" | "tool" | "children" | "person" | "stopped";
export type Segment = [kind: SegmentKind, start: number, end: number | null];

export interface Figures {
  input: number;
  cached: number;
  output: number;
  cost_micros: number;
  at_most_micros: number;
  turns: number;
  tool_calls: number;
  children: number;
}

export interface Trouble {
  kind: "question" | "failed" | "limit" | "unknown" | "denied" | "retrying" | "cancelled";
  text: string;
}

export interface Row {
  run: string;
  place: string;
  parent: number | null;
  agent: string;
  model: string;
  effort: string | null;
  background: boolean;
  tags: Record<string, string>;
  task: string;
  status: Status;
  stopping: boolean;
  own: Figures;
  subtree: Figures;
  held: { tokens: number; cost_micros: number };
  limits: Record<string, number>;
  /** Its current call. The outcome of those at risk is not known if no process works on the run. */
  activity: { kind: SegmentKind; text: string; at_risk?: string[] } | null;
  trouble: Trouble[];
  answer: string | null;
  spawned: number;
  began: number | null;
  ended: number | null;
  segments: Segment[];
}

export interface OpenQuestion {
  id: string;
  run: string;
  place: string;
  agent: string;
  kind: "permission" | "choice" | "text";
  text: string;
  options: string[];
  rule: string | null;
  key: { run: string; turn: number; index: number };
}

export interface View {
  position: number;
  total: number;
  start: number;
  now: number;
  parked: boolean;
  questions: OpenQuestion[];
  /** The states of a team's nodes. */
  nodes?: Record<string, Status>;
  rows: Row[];
}

export interface Mark {
  seq: number;
  at: number;
  run: string;
  place: string;
  agent: string;
  kind: string;
}

export interface FactRecord {
  tree: string;
  seq: number;
  at: number;
  epoch: number;
  run: string;
  place: string;
  fact: Record<string, any>;
}

interface Exports {
  memory: WebAssembly.Memory;
  input(len: number): number;
  output(): number;
  push(): number;
  view(position: number): number;
  facts(position: number): number;
  mark(position: number): number;
}

export const NEWEST = 0xffffffff;

let compiled: Promise<WebAssembly.Module> | undefined;

/** One tree. Each has an instance of its own, so that two can be compared. */
export class Fold {
  private constructor(private readonly wasm: Exports) {}

  static async create(): Promise<Fold> {
    compiled ??= exported === null ? WebAssembly.compileStreaming(fetch("/fold.wasm")) : embeddedFold().then(WebAssembly.compile);
    const instance = await WebAssembly.instantiate(await compiled, {});
    return new Fold(instance.exports as unknown as Exports);
  }

  /** Takes in a record or a page of records. */
  push(json: Uint8Array | string): { next: number; added: number; more: boolean } {
    this.write(typeof json === "string" ? new TextEncoder().encode(json) : json);
    return this.read(this.wasm.push());
  }

  view(position = NEWEST): View {
    return this.read(this.wasm.view(position));
  }

  facts(run: string, position = NEWEST): FactRecord[] {
    this.write(new TextEncoder().encode(run));
    return this.read(this.wasm.facts(position));
  }

  mark(position: number): Mark | null {
    return this.read(this.wasm.mark(position));
  }

  private write(bytes: Uint8Array) {
    const at = this.wasm.input(bytes.length);
    new Uint8Array(this.wasm.memory.buffer, at, bytes.length).set(bytes);
  }

  private read<T>(length: number): T {
    const bytes = new Uint8Array(this.wasm.memory.buffer, this.wasm.output(), length);
    const value = JSON.parse(new TextDecoder().decode(bytes));
    if (value && typeof value.error === "string" && Object.keys(value).length === 1) throw new Error(value.error);
    return value;
  }
}
