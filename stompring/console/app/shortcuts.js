/**
 * Keyboard: `/` searches, `?` shows this list, g and a letter opens a page, arrows move in lists.
 */
import { may } from "./api.js";
import { ROUTES } from "./routes.js";
import { Dialog, openDialog } from "./ui/dialog.js";
import { html, useEffect } from "./ui/html.js";

const pages = () => ROUTES.filter((route) => route.key && (!route.permission || may(route.permission)));

export function useShortcuts() {
  useEffect(() => {
    let prefix = 0;
    const pressed = (/** @type {KeyboardEvent} */ event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      const target = /** @type {HTMLElement} */ (event.target);
      if (target.closest("input, select, textarea, [contenteditable]")) return;
      if (event.key === "/") {
        event.preventDefault();
        const field = document.querySelector("main [data-search]") ?? document.querySelector("[data-search]");
        if (field instanceof HTMLInputElement) {
          field.focus();
          field.select();
        }
      } else if (event.key === "?") {
        event.preventDefault();
        openShortcuts();
      } else if (event.key === "g") {
        prefix = event.timeStamp;
        return;
      } else if (event.timeStamp - prefix < 1500) {
        const route = pages().find((each) => each.key === event.key);
        if (route) {
          event.preventDefault();
          window.location.hash = route.path;
        }
      }
      prefix = 0;
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
}

export function openShortcuts() {
  openDialog(() => html`<${Dialog} title="Keyboard shortcuts">
    <dl class="shortcuts">
      <div><dt><kbd>/</kbd></dt><dd>Search</dd></div>
      <div><dt><kbd>?</kbd></dt><dd>Show this list</dd></div>
      <div><dt><kbd>↑</kbd> <kbd>↓</kbd></dt><dd>Previous or next row of a list</dd></div>
      <div><dt><kbd>Enter</kbd></dt><dd>Open the row</dd></div>
      <div><dt><kbd>Esc</kbd></dt><dd>Close a dialog, leave the search</dd></div>
      ${pages().map((route) => html`<div><dt><kbd>g</kbd> <kbd>${route.key}</kbd></dt><dd>${route.nav}</dd></div>`)}
    </dl>
  <//>`);
}
