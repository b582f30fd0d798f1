/** Markdown as elements. Text of models is never parsed as HTML, and only plain web links become links. */
import type { ComponentChildren } from "preact";

const INLINE = /(`+)([\s\S]*?[^`])\1(?!`)|\*\*([^*\n]+)\*\*|\*([^*\n]+)\*|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)|(https?:\/\/[^\s<>"')\]]+)/g;

function inline(text: string): ComponentChildren[] {
  const out: ComponentChildren[] = [];
  let last = 0;
  for (const match of text.matchAll(INLINE)) {
    out.push(text.slice(last, match.index));
    last = match.index + match[0].length;
    if (match[2] !== undefined) out.push(<code>{match[2]}</code>);
    else if (match[3] !== undefined) out.push(<strong>{inline(match[3])}</strong>);
    else if (match[4] !== undefined) out.push(<em>{inline(match[4])}</em>);
    else {
      const href = match[6] ?? match[7];
      // The address is shown with the words, because the words may claim another one.
      const words = match[5] === undefined || match[5] === href ? href : `${match[5]} (${new URL(href).host})`;
      out.push(<a href={href} rel="noreferrer noopener" target="_blank">{words}</a>);
    }
  }
  out.push(text.slice(last));
  return out;
}

type Block = { kind: "p" | "ul" | "ol" | "quote" | "h"; lines: string[] } | { kind: "code" | "table"; lines: string[] };

function blocks(text: string): Block[] {
  const found: Block[] = [];
  let code: string | null = null;
  const add = (kind: Block["kind"], line: string, joins: boolean) => {
    const last = found[found.length - 1];
    if (joins && last?.kind === kind) last.lines.push(line);
    else found.push({ kind, lines: [line] });
  };
  let open = false;
  for (const line of text.split("\n")) {
    const fence = /^\s*(```+|~~~+)/.exec(line);
    if (code !== null) {
      if (fence && fence[1].startsWith(code)) code = null;
      else found[found.length - 1].lines.push(line);
      open = false;
    } else if (fence) {
      code = fence[1];
      found.push({ kind: "code", lines: [] });
      open = false;
    } else if (/^\s*$/.test(line)) open = false;
    else if (/^#{1,6}\s/.test(line)) {
      add("h", line.replace(/^#+\s+/, ""), false);
      open = false;
    } else if (/^\s*[-*+]\s+/.test(line)) {
      add("ul", line.replace(/^\s*[-*+]\s+/, ""), true);
      open = true;
    } else if (/^\s*\d+[.)]\s+/.test(line)) {
      add("ol", line.replace(/^\s*\d+[.)]\s+/, ""), true);
      open = true;
    } else if (/^\s*>/.test(line)) {
      add("quote", line.replace(/^\s*>\s?/, ""), open);
      open = true;
    } else if (/^\s*\|.*\|\s*$/.test(line)) {
      add("table", line, true);
      open = false;
    } else {
      const last = found[found.length - 1];
      if (open && (last?.kind === "ul" || last?.kind === "ol") && /^\s/.test(line)) last.lines[last.lines.length - 1] += "\n" + line.trim();
      else add("p", line, open);
      open = true;
    }
  }
  return found;
}

function table(lines: string[]) {
  const cells = (line: string) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const rows = lines.filter((line) => !/^[\s|:-]+$/.test(line)).map(cells);
  const [head, ...body] = rows;
  return (
    <div class="scroll-x" tabIndex={0}>
      <table>
        <thead><tr>{head?.map((cell) => <th>{inline(cell)}</th>)}</tr></thead>
        <tbody>{body.map((row) => <tr>{row.map((cell) => <td>{inline(cell)}</td>)}</tr>)}</tbody>
      </table>
    </div>
  );
}

export function Markdown({ text }: { text: string }) {
  return (
    <div class="prose">
      {blocks(text).map((block) => {
        const body = block.lines.join("\n");
        switch (block.kind) {
          case "code": return <pre tabIndex={0}>{body}</pre>;
          case "table": return table(block.lines);
          case "h": return <p class="heading">{inline(body)}</p>;
          case "ul": return <ul>{block.lines.map((line) => <li>{inline(line)}</li>)}</ul>;
          case "ol": return <ol>{block.lines.map((line) => <li>{inline(line)}</li>)}</ol>;
          case "quote": return <blockquote>{inline(body)}</blockquote>;
          case "p": return <p>{inline(body)}</p>;
        }
      })}
    </div>
  );
}
