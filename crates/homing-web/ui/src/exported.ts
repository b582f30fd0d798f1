/** A page that was exported as a file has the records and the fold inside, and no server to ask. */
export const exported: string | null = document.getElementById("records")?.textContent ?? null;

/** The tree of such a page. */
export const exportedTree = /"tree":\s*"([0-9a-f-]{36})"/.exec(exported?.slice(0, 10_000) ?? "")?.[1] ?? "";

export async function embeddedFold(): Promise<ArrayBuffer> {
  const bytes = Uint8Array.from(atob(document.getElementById("fold")!.textContent!), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}
