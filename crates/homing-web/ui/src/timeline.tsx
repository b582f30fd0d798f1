/** What a run did when, as one line of coloured stretches on the tree's axis of time. */
import type { ComponentChildren } from "preact";
import { duration } from "./format";
import type { Row, SegmentKind } from "./fold";

export const KINDS: Record<SegmentKind, string> = {
  queued: "queued", waiting: "waiting for budget or a free slot", rate_limit: "waiting for the provider", model: "model",
  tool: "tool", children: "waiting for runs below", person: "waiting for a person", stopped: "no process",
};

/** Names a tick of the axis: about five of them, at round times. */
export function ticks(span: number): number[] {
  const steps = [10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 864e5];
  const step = steps.find((step) => span / step <= 6) ?? 864e5 * Math.ceil(span / 864e5 / 6);
  const out: number[] = [];
  for (let at = 0; at <= span; at += step) out.push(at);
  return out;
}

export function Axis({ span }: { span: number }) {
  return (
    <span class="axis" aria-hidden="true">
      {ticks(span).map((at) => <span class="tick" style={{ left: `${(at / span) * 100}%` }}>{at === 0 ? "0" : duration(at)}</span>)}
    </span>
  );
}

function describe(rows: Row[], now: number): string {
  const sums = new Map<SegmentKind, number>();
  for (const row of rows) for (const [kind, start, end] of row.segments) sums.set(kind, (sums.get(kind) ?? 0) + (end ?? now) - start);
  return [...sums].filter(([, ms]) => ms > 0).map(([kind, ms]) => `${KINDS[kind]} ${duration(ms)}`).join(", ") || "nothing yet";
}

/** The bars of one run. */
export function Bars({ row, span, now }: { row: Row; span: number; now: number }) {
  const scale = 1000 / span;
  const words = describe([row], now);
  const rects = [];
  let last = -1;
  for (const [kind, start, end] of row.segments) {
    const from = start * scale;
    const width = Math.max(((end ?? now) - start) * scale, 1.2);
    // What is narrower than a pixel beside what is drawn adds nothing but work.
    if (width <= 1.2 && from + width <= last) continue;
    last = from + width;
    const thin = kind === "queued" || kind === "waiting" || kind === "children" || kind === "stopped";
    rects.push(<rect class={`k-${kind}`} x={from} width={width} y={thin ? 6.5 : 3} height={thin ? 3 : 10} />);
  }
  return <Chart words={words} rects={rects} />;
}

const BINS = 125;

/** How many of several runs worked at each moment. */
export function Density({ rows, span, now }: { rows: Row[]; span: number; now: number }) {
  const bins: Record<"model" | "tool", number[]> = { model: Array(BINS).fill(0), tool: Array(BINS).fill(0) };
  for (const row of rows) {
    for (const [kind, start, end] of row.segments) {
      if (kind !== "model" && kind !== "tool") continue;
      const last = Math.min(BINS - 1, Math.floor((((end ?? now) / span) * BINS)));
      for (let bin = Math.floor((start / span) * BINS); bin <= last; bin++) bins[kind][bin]++;
    }
  }
  const most = Math.max(1, ...bins.model.map((number, bin) => number + bins.tool[bin]));
  const width = 1000 / BINS;
  const rects = bins.model.flatMap((number, bin) => {
    const model = (number / most) * 15, tool = (bins.tool[bin] / most) * 15;
    return [
      model > 0 && <rect class="k-model" x={bin * width} width={width} y={16 - model} height={model} />,
      tool > 0 && <rect class="k-tool" x={bin * width} width={width} y={16 - model - tool} height={tool} />,
    ];
  });
  return <Chart words={describe(rows, now)} rects={rects} />;
}

function Chart({ words, rects }: { words: string; rects: ComponentChildren }) {
  return (
    <svg class="bars" viewBox="0 0 1000 16" preserveAspectRatio="none" role="img" aria-label={words}>
      <title>{words}</title>
      {rects}
    </svg>
  );
}

export function Legend() {
  return (
    <span class="kinds" aria-hidden="true">
      {(["model", "tool", "children", "waiting", "rate_limit", "person"] as SegmentKind[]).map((kind) => (
        <span><i class={`dot bk-${kind}`} />{kind === "children" ? "runs below" : kind === "rate_limit" ? "provider" : kind}</span>
      ))}
    </span>
  );
}
