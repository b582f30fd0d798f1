/** Which rows of a tree are shown: what is unfolded, filtered, summed up, and in trouble. */
import type { Status } from "./api";
import type { Row, Trouble, View } from "./fold";

/** Siblings that are alike fold into one row from this number on. */
const MANY = 8;

export interface Line {
  kind: "run" | "group";
  key: string;
  depth: number;
  row: Row;
  /** The runs of a group. */
  members: Row[];
  open: boolean;
  hasChildren: boolean;
  /** Trouble of the runs below. */
  below: { row: Row; trouble: Trouble }[];
}

export interface Tree {
  rows: Row[];
  children: Map<number, number[]>;
  below: Map<number, { row: Row; trouble: Trouble }[]>;
  counts: Partial<Record<Status, number>>;
}

const LOUD = new Set(["question", "failed", "limit", "unknown"]);

export const loud = (row: Row): Trouble | undefined => row.trouble.find((trouble) => LOUD.has(trouble.kind));

/** The rows with their true states: what no process works on is interrupted, unless it only waits for a person. */
export function arrange(view: View, alive: boolean): Tree {
  const children = new Map<number, number[]>();
  const below = new Map<number, { row: Row; trouble: Trouble }[]>();
  const counts: Partial<Record<Status, number>> = {};
  const isOpen = (status: Status) => status === "queued" || status === "running" || status === "waiting";
  const interrupted = (row: Row): Row => {
    const unknown = (row.activity?.at_risk ?? []).map((text): Trouble => ({ kind: "unknown", text }));
    return { ...row, status: "interrupted", trouble: [...unknown, ...row.trouble] };
  };
  const rows = view.rows.map((row): Row => (!alive && !view.parked && isOpen(row.status) ? interrupted(row) : row));
  rows.forEach((row, index) => {
    counts[row.status] = (counts[row.status] ?? 0) + 1;
    if (row.parent !== null) {
      const known = children.get(row.parent);
      if (known) known.push(index);
      else children.set(row.parent, [index]);
    }
    const trouble = loud(row);
    for (let up = row.parent; trouble && up !== null; up = rows[up].parent) {
      const known = below.get(up);
      if (known) known.push({ row, trouble });
      else below.set(up, [{ row, trouble }]);
    }
  });
  return { rows, children, below, counts };
}

/** The lines to draw, from the root down. `toggled` holds the keys that differ from their default. */
export function lines(tree: Tree, toggled: Set<string>, filter: string, words: string): Line[] {
  const out: Line[] = [];
  if (filter || words) {
    const parts = words.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (row: Row) => `${row.place} ${row.agent} ${row.task} ${row.model}`.toLowerCase();
    const fits = (row: Row) =>
      (!filter || row.status === filter || (filter === "trouble" && loud(row))) && parts.every((part) => text(row).includes(part));
    return tree.rows.filter(fits).map((row) => ({ kind: "run", key: row.run, depth: 0, row, members: [], open: false, hasChildren: false, below: [] }));
  }
  const visit = (index: number, depth: number) => {
    const row = tree.rows[index];
    const children = tree.children.get(index) ?? [];
    const open = !toggled.has(row.run);
    out.push({ kind: "run", key: row.run, depth, row, members: [], open, hasChildren: children.length > 0, below: tree.below.get(index) ?? [] });
    if (open) visitChildren(row, children, depth + 1);
  };
  const visitChildren = (parent: Row, children: number[], depth: number) => {
    const groups = new Map<string, number[]>();
    for (const index of children) {
      const row = tree.rows[index];
      if (loud(row) || tree.below.has(index)) continue;
      const known = groups.get(row.agent);
      if (known) known.push(index);
      else groups.set(row.agent, [index]);
    }
    const drawn = new Set<string>();
    for (const index of children) {
      const row = tree.rows[index];
      const group = groups.get(row.agent) ?? [];
      if (group.length < MANY || loud(row) || tree.below.has(index)) visit(index, depth);
      else if (!drawn.has(row.agent)) {
        drawn.add(row.agent);
        const key = `${parent.run}/${row.agent}`;
        const open = toggled.has(key);
        out.push({ kind: "group", key, depth, row, members: group.map((member) => tree.rows[member]), open, hasChildren: true, below: [] });
        if (open) for (const member of group) visit(member, depth + 1);
      }
    }
  };
  if (tree.rows.length) visit(0, 0);
  return out;
}

/** Adds up the states of runs. */
export function countStates(rows: Row[]): Partial<Record<Status, number>> {
  const counts: Partial<Record<Status, number>> = {};
  for (const row of rows) counts[row.status] = (counts[row.status] ?? 0) + 1;
  return counts;
}
