/**
 * A button that opens a list of actions. Arrow keys move, Escape closes.
 */
import { html, useEffect, useId, useRef, useState } from "./html.js";

/** @typedef {{label: string, run: () => void, danger?: boolean, hint?: string} | "-" | null | false | undefined} Action */

/** @param {{label: any, actions: Action[], title?: string}} props a "-" is a line */
export function Menu({ label, actions, title }) {
  const [open, setOpen] = useState(false);
  const id = useId();
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const button = useRef(/** @type {HTMLButtonElement | null} */ (null));
  const shown = actions.filter((action) => Boolean(action));
  const items = () => /** @type {HTMLElement[]} */ ([...(box.current?.querySelectorAll("[role=menuitem]") ?? [])]);
  useEffect(() => {
    if (!open) return undefined;
    items()[0]?.focus();
    const outside = (/** @type {Event} */ event) => {
      if (!box.current?.parentElement?.contains(/** @type {Node} */ (event.target))) setOpen(false);
    };
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [open]);
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape" || event.key === "Tab") {
      setOpen(false);
      button.current?.focus();
      if (event.key === "Escape") event.stopPropagation();
      return;
    }
    const all = items();
    const at = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    all[(next + all.length) % all.length]?.focus();
  };
  if (shown.every((action) => action === "-")) return null;
  return html`<div class="menu"><button ref=${button} type="button" class="button" title=${title} aria-haspopup="menu" aria-expanded=${open ? "true" : "false"} aria-controls=${id}
      onClick=${() => setOpen(!open)} onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
        if (event.key === "ArrowDown") {
          event.preventDefault();
          setOpen(true);
        }
      }}>${label}<span class="menu-mark" aria-hidden="true"></span></button>
    ${open && html`<div ref=${box} id=${id} class="menu-list" role="menu" onKeyDown=${pressed}>${shown.map((action) =>
      action === "-"
        ? html`<hr role="separator" />`
        : html`<button type="button" role="menuitem" tabindex="-1" class=${/** @type {any} */ (action).danger ? "danger-quiet" : ""} onClick=${() => {
            setOpen(false);
            button.current?.focus();
            /** @type {any} */ (action).run();
          }}>${/** @type {any} */ (action).label}${/** @type {any} */ (action).hint && html`<span class="hint">${/** @type {any} */ (action).hint}</span>`}</button>`,
    )}</div>`}
  </div>`;
}
