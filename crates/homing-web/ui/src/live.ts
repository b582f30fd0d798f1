/** A tree as it grows: its facts, loaded in pages and then followed, with the notices of calls in progress. */
import { computed, signal } from "@preact/signals";
import { get, Problem, raw, skew, stream, type TreeRow } from "./api";
import { exported } from "./exported";
import { Fold, NEWEST, type View } from "./fold";
import { go, query, setQuery } from "./router";
import { loaded, trees } from "./state";

export interface Notice {
  run: string;
  kind: string;
  at: number;
  text?: string;
  reason?: string;
  in_ms?: number;
}

/** What a run's open call has said so far. */
export interface Streaming {
  text: string;
  thinking: string;
  progress: string;
  wait: string;
}

export class LiveTree {
  readonly view = signal<View | null>(null);
  /** The tree's line in the list of all trees, which the server keeps up to date; its own answer if the list does not have it. */
  readonly row = computed(() => trees.value.get(this.id) ?? this.found.value);
  private readonly found = signal<TreeRow | null>(null);
  readonly problem = signal<unknown>(null);
  readonly streaming = signal<Map<string, Streaming>>(new Map());
  /** True once the facts that existed when the page opened are loaded. */
  readonly complete = signal(false);
  fold!: Fold;
  private next = 0;
  private timer = 0;
  private readonly stop = new AbortController();

  constructor(readonly id: string) {
    this.start().catch((error) => (this.problem.value = error));
  }

  close() {
    this.stop.abort();
    clearTimeout(this.timer);
  }

  /** Number of facts that are shown; all of them while the page is live. */
  get position(): number {
    const at = query.value.get("at");
    return at === null ? NEWEST : Math.max(1, Number(at) || 1);
  }

  moveTo(position: number | null) {
    setQuery({ at: position === null ? null : String(position) });
    this.draw();
  }

  draw = () => {
    this.timer = 0;
    if (this.fold && this.next > 0) this.view.value = this.fold.view(this.position);
  };

  private async start() {
    this.fold = await Fold.create();
    if (exported !== null) {
      this.next = this.fold.push(exported).next;
      this.complete.value = true;
      this.draw();
      return;
    }
    try {
      await this.load();
    } catch (problem) {
      // A link may name any run of a tree; only the root's ID is the tree's.
      const known = this.next === 0 && problem instanceof Problem && problem.status === 404;
      const row = known ? await get<TreeRow>(`/api/trees/${this.id}`).catch(() => null) : null;
      if (!row || row.tree === this.id) throw problem;
      go(`/trees/${row.tree}/${this.id}`, true);
      return;
    }
    this.draw();
    this.complete.value = true;
    if (loaded.value && !this.row.value) this.found.value = await get<TreeRow>(`/api/trees/${this.id}`);
    const address = () => `/api/events?tree=${this.id}&from=${this.next}`;
    await stream(address, (event) => this.on(event), this.stop.signal);
  }

  private async load() {
    // The first page is small, so that there is something to see at once.
    for (let limit = this.next ? 5000 : 400; ; limit = 5000) {
      const response = await raw(`/api/trees/${this.id}/facts?from=${this.next}&limit=${limit}`, { signal: this.stop.signal });
      const bytes = new Uint8Array(await response.arrayBuffer());
      const { next, more } = this.fold.push(bytes);
      this.next = next;
      if (!more) return;
      this.draw();
    }
  }

  private on(event: { name: string; data: string }) {
    if (event.name === "record") {
      try {
        this.next = this.fold.push(event.data).next;
      } catch {
        // A record is missing: the stream begins anew at the position that the fold knows.
        void this.load().then(this.draw);
        return;
      }
      const { run, fact, at } = JSON.parse(event.data);
      if (Math.abs(at - Date.now()) > 5000) skew.value = at - Date.now();
      this.settle(run, fact);
      this.schedule();
    } else if (event.name === "notice") this.notice(JSON.parse(event.data));
    else if (event.name === "gap") void this.load().then(this.draw);
  }

  /** Draws soon. Large trees are drawn less often, because every view covers all runs. */
  private schedule() {
    const runs = this.view.value?.rows.length ?? 0;
    if (!this.timer) this.timer = window.setTimeout(this.draw, runs > 300 ? 400 : 60);
  }

  private settle(run: string, fact: Record<string, unknown>) {
    if (!this.streaming.value.has(run)) return;
    if ("told" in fact || "halted" in fact || "extended" in fact) return;
    const next = new Map(this.streaming.value);
    next.delete(run);
    this.streaming.value = next;
  }

  private notice(notice: Notice) {
    const next = new Map(this.streaming.value);
    const now = { ...(next.get(notice.run) ?? { text: "", thinking: "", progress: "", wait: "" }) };
    if (notice.kind === "text") now.text += notice.text ?? "";
    else if (notice.kind === "thinking") now.thinking += notice.text ?? "";
    else if (notice.kind === "progress") now.progress = notice.text ?? "";
    else if (notice.kind === "waiting_for_budget") now.wait = "waiting for budget";
    else if (notice.kind === "queued") now.wait = "waiting for a free slot";
    else if (notice.kind === "retrying") now.wait = `trying again: ${notice.reason ?? ""}`;
    else return;
    next.set(notice.run, now);
    this.streaming.value = next;
  }
}
