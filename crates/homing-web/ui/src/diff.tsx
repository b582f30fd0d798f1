/** Differences of files. */

export function Diff({ text }: { text: string }) {
  const lines = text.replace(/\n$/, "").split("\n");
  const shown = lines.slice(0, 400);
  const kind = (line: string) => (/^(\+\+\+|---|@@|diff )/.test(line) ? "meta" : line[0] === "+" ? "add" : line[0] === "-" ? "del" : "");
  return (
    <pre class="diff" tabIndex={0}>
      {shown.map((line) => <span class={kind(line)}>{line + "\n"}</span>)}
      {lines.length > shown.length && <span class="meta">… {lines.length - shown.length} more lines</span>}
    </pre>
  );
}

/** A replacement as a diff: lines that both sides begin or end with are context. */
export function replaced(before: string, after: string): string {
  const a = before.split("\n"), b = after.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const mark = (sign: string, lines: string[]) => lines.map((line) => sign + line);
  return [
    ...mark(" ", a.slice(Math.max(0, start - 3), start)),
    ...mark("-", a.slice(start, a.length - end)),
    ...mark("+", b.slice(start, b.length - end)),
    ...mark(" ", a.slice(a.length - end, a.length - end + 3)),
  ].join("\n");
}
