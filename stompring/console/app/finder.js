/**
 * The search in the header: queues and addresses by name.
 */
import { api, may } from "./api.js";
import { link, navigate } from "./router.js";
import { short } from "./ui/format.js";
import { html, useEffect, useRef, useState } from "./ui/html.js";

/** @typedef {{kind: string, name: string, href: string, note: string}} Hit */

const HITS = 6;

export function Finder() {
  const [text, setText] = useState("");
  const [hits, setHits] = useState(/** @type {Hit[]} */ ([]));
  const [open, setOpen] = useState(false);
  const [active, setActive] = useState(-1);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    setActive(-1);
    if (!text.trim()) {
      setHits([]);
      return undefined;
    }
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        setHits(await find(text.trim(), abort.signal));
      } catch {
        setHits([]);
      }
    }, 200);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);
  if (!may("view")) return html`<span class="finder"></span>`;

  const go = (/** @type {string} */ href) => {
    navigate(href);
    setText("");
    setOpen(false);
    field.current?.blur();
  };
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      setActive(Math.max(-1, Math.min(hits.length - 1, active + step)));
    } else if (event.key === "Enter" && text.trim()) {
      event.preventDefault();
      const hit = hits[active] ?? hits.find((each) => each.name === text.trim());
      go(hit ? hit.href : link("queues", { search: text.trim() }));
    } else if (event.key === "Escape") {
      if (text) setText("");
      else field.current?.blur();
    }
  };
  const shown = open && hits.length > 0;
  return html`<search class="finder">
    <input ref=${field} type="search" class="input search" role="combobox" aria-label="Find a queue or an address" aria-expanded=${shown ? "true" : "false"}
      aria-controls="finder-hits" aria-autocomplete="list" aria-activedescendant=${active >= 0 ? `finder-hit-${active}` : undefined}
      placeholder="Find a queue or an address" autocomplete="off" spellcheck=${false} data-search value=${text}
      onInput=${(/** @type {any} */ event) => setText(event.currentTarget.value)} onKeyDown=${pressed}
      onFocus=${() => setOpen(true)} onBlur=${() => setTimeout(() => setOpen(false), 150)} />
    <kbd class="finder-key" aria-hidden="true">/</kbd>
    <ul id="finder-hits" role="listbox" aria-label="Matches" class="finder-hits" hidden=${!shown}>
      ${hits.map((hit, index) => html`<li key=${hit.href} id=${`finder-hit-${index}`} role="option" aria-selected=${index === active ? "true" : "false"}
        onMouseDown=${(/** @type {Event} */ event) => {
          event.preventDefault();
          go(hit.href);
        }}><span class="name">${hit.name}</span><span class="muted">${hit.kind} · ${hit.note}</span></li>`)}
    </ul>
  </search>`;
}

/**
 * @param {string} search
 * @param {AbortSignal} signal
 * @returns {Promise<Hit[]>}
 */
async function find(search, signal) {
  const [queues, addresses] = await Promise.all(
    ["queues", "addresses"].map((path) => api.get(path, { search, size: HITS, sort: "-messageCount" }, signal)),
  );
  const hit = (/** @type {string} */ path, /** @type {string} */ kind) => (/** @type {any} */ item) => ({
    kind,
    name: item.name,
    href: link(path, item.name),
    note: item.messageCount === 1 ? "1 message" : `${short(item.messageCount)} messages`,
  });
  return [...queues.data.map(hit("queues", "queue")), ...addresses.data.map(hit("addresses", "address"))];
}
