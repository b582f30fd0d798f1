/** Addresses: every page, selection and filter is one, so that links can be shared. */
import { computed, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { exported, exportedTree } from "./exported";

// The addresses of an exported file are behind its `#`, because there is no server that knows them.
const written = () => (exported === null ? location.pathname + location.search : location.hash.slice(1) || `/trees/${exportedTree}`);
const here = () => {
  const [path, query] = written().split(/\?(.*)/s);
  return { path, query: new URLSearchParams(query) };
};
const href = (to: string) => (exported === null ? to : "#" + to);

export const address = signal(here());
export const path = computed(() => address.value.path);
export const query = computed(() => address.value.query);

window.addEventListener("popstate", () => (address.value = here()));

export function go(to: string, replace = false) {
  if (replace) history.replaceState(null, "", href(to));
  else history.pushState(null, "", href(to));
  address.value = here();
  if (!replace) window.scrollTo(0, 0);
}

/** Changes parts of the query; an empty value removes one. */
export function setQuery(changes: Record<string, string | null>, replace = true) {
  const next = new URLSearchParams(address.value.query);
  for (const [key, value] of Object.entries(changes)) {
    if (value) next.set(key, value);
    else next.delete(key);
  }
  const text = next.toString();
  go(address.value.path + (text ? "?" + text : ""), replace);
}

export function Link(props: { to: string; class?: string; children: ComponentChildren; title?: string; label?: string; current?: boolean }) {
  const click = (event: MouseEvent) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    go(props.to);
  };
  return (
    <a href={href(props.to)} class={props.class} title={props.title} aria-label={props.label} aria-current={props.current ? "page" : undefined} onClick={click}>
      {props.children}
    </a>
  );
}
