/** Addresses: every page, selection and filter is one, so that links can be shared. */
import { computed, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

const here = () => ({ path: location.pathname, query: new URLSearchParams(location.search) });

export const address = signal(here());
export const path = computed(() => address.value.path);
export const query = computed(() => address.value.query);

window.addEventListener("popstate", () => (address.value = here()));

export function go(to: string, replace = false) {
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  address.value = here();
  if (!replace) window.scrollTo(0, 0);
}

/** Changes parts of the query; an empty value removes one. */
export function setQuery(changes: Record<string, string | null>, replace = true) {
  const next = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value) next.set(key, value);
    else next.delete(key);
  }
  const text = next.toString();
  go(location.pathname + (text ? "?" + text : ""), replace);
}

export function Link(props: { to: string; class?: string; children: ComponentChildren; title?: string; label?: string; current?: boolean }) {
  const click = (event: MouseEvent) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    go(props.to);
  };
  return (
    <a href={props.to} class={props.class} title={props.title} aria-label={props.label} aria-current={props.current ? "page" : undefined} onClick={click}>
      {props.children}
    </a>
  );
}
