/**
 * Dialogs and notes.
 *
 *   openDialog(() => html`<${MyDialog} …/>`)          closes with closeDialog()
 *   confirm({ title, text, name, action, run })       asks before something is destroyed
 *   notify("Queue orders is paused.")                 a note at the lower edge; notifyError(error, "…")
 */
import { ApiError } from "../api.js";
import { createStore, useStore } from "../store.js";
import { html, useEffect, useId, useRef, useState } from "./html.js";
import { StateIcon } from "./badge.js";

/** @type {import("../store.js").Store<{key: number, content: () => any} | null>} */
const dialog = createStore(/** @type {{key: number, content: () => any} | null} */ (null));
let keys = 0;

/** @param {() => any} content makes a `Dialog` */
export function openDialog(content) {
  dialog.set({ key: ++keys, content });
}

export function closeDialog() {
  dialog.set(null);
}

/** Where the open dialog and the notes are; once in the shell. */
export function Overlays() {
  const open = useStore(dialog);
  return html`${open && html`<${Fragment} key=${open.key}>${open.content()}<//>`}<${Notes} />`;
}

/** @param {{children?: any}} props */
const Fragment = ({ children }) => children;

/**
 * A modal dialog. Escape and the button at the top close it, and the focus returns to where it was.
 * @param {{title: any, children?: any, footer?: any, onSubmit?: () => void, wide?: boolean}} props with `onSubmit` it is a form
 */
export function Dialog({ title, children, footer, onSubmit, wide = false }) {
  const id = useId();
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    const opened = element.current;
    const before = document.activeElement;
    opened?.showModal();
    const first = opened?.querySelector("[data-autofocus]") ?? opened?.querySelector(".dialog-body input, .dialog-body select, .dialog-body textarea, .dialog-foot button");
    /** @type {HTMLElement | null} */ (first ?? null)?.focus();
    return () => {
      opened?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const body = html`<div class="dialog-body">${children}</div>${footer && html`<footer class="dialog-foot">${footer}</footer>`}`;
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    onSubmit?.();
  };
  return html`<dialog ref=${element} class=${wide ? "dialog wide" : "dialog"} aria-labelledby=${id} onCancel=${(/** @type {Event} */ event) => {
    event.preventDefault();
    closeDialog();
  }}>
    <header class="dialog-head"><h2 id=${id}>${title}</h2>
      <button type="button" class="icon-button" aria-label="Close" onClick=${closeDialog}>✕</button></header>
    ${onSubmit ? html`<form class="dialog-form" onSubmit=${submit} novalidate>${body}</form>` : html`<div class="dialog-form">${body}</div>`}
  </dialog>`;
}

/**
 * @typedef {object} Confirmation
 * @property {string} title "Delete the queue orders"
 * @property {any} text what will happen
 * @property {string} [name] has to be typed: for what cannot be undone
 * @property {string} action label of the button: "Delete"
 * @property {boolean} [danger] default: true
 * @property {any} [fields] more controls
 * @property {() => Promise<any>} run closes the dialog when it succeeds; its error is shown
 */

/** @param {Confirmation} confirmation */
export function confirm(confirmation) {
  openDialog(() => html`<${ConfirmDialog} ...${confirmation} />`);
}

/** @param {Confirmation} props */
function ConfirmDialog({ title, text, name, action, danger = true, fields, run }) {
  const [typed, setTyped] = useState("");
  const { busy, error, start } = useAction(async () => {
    await run();
    closeDialog();
  });
  const id = useId();
  const ready = name === undefined || typed === name;
  return html`<${Dialog} title=${title} onSubmit=${() => ready && start()} footer=${html`
      <button type="button" class="button" onClick=${closeDialog}>Cancel</button>
      <button type="submit" class=${danger ? "button danger" : "button primary"} disabled=${!ready || busy}>${busy ? "Working …" : action}</button>`}>
    <div class="dialog-text">${text}</div>
    ${fields}
    ${name !== undefined && html`<div class="field"><label for=${id}>Type <code class="name">${name}</code> to confirm</label>
      <input id=${id} class="input mono" autocomplete="off" autocapitalize="off" spellcheck=${false} value=${typed} data-autofocus
        onInput=${(/** @type {any} */ event) => setTyped(event.currentTarget.value)} /></div>`}
    ${error && html`<${FormError} error=${error} />`}
  <//>`;
}

/** The error of an action, inside its dialog or form. @param {{error: ApiError}} props */
export function FormError({ error }) {
  return html`<p class="form-error" role="alert"><${StateIcon} tone="error" /><span>${error.detail || error.message}</span></p>`;
}

/**
 * An action with its state: `start()` runs it unless it is running.
 * @template {any[]} A
 * @param {(...args: A) => Promise<any>} action
 */
export function useAction(action) {
  const [state, setState] = useState({ busy: false, error: /** @type {ApiError | null} */ (null) });
  const start = async (/** @type {A} */ ...args) => {
    if (state.busy) return;
    setState({ busy: true, error: null });
    try {
      await action(...args);
      setState({ busy: false, error: null });
    } catch (fault) {
      setState({ busy: false, error: asApiError(fault) });
    }
  };
  return { ...state, start, clear: () => setState({ busy: false, error: null }) };
}

/** @param {unknown} fault */
export function asApiError(fault) {
  if (fault instanceof ApiError) return fault;
  console.error(fault);
  return new ApiError(-1, "Error of the page", String(fault));
}

// ---- notes

/** @typedef {{id: number, text: any, tone: import("./badge.js").Tone}} Note */
const notes = createStore(/** @type {Note[]} */ ([]));

/**
 * Shows a note for some seconds; errors stay until they are closed.
 * @param {any} text
 * @param {import("./badge.js").Tone} [tone]
 */
export function notify(text, tone = "ok") {
  const note = { id: ++keys, text, tone };
  notes.set([...notes.get().slice(-4), note]);
  if (tone !== "error") setTimeout(() => dismiss(note.id), 6000);
}

/** @param {unknown} fault @param {string} what "The queue could not be paused" */
export function notifyError(fault, what) {
  notify(`${what}: ${asApiError(fault).message}`, "error");
}

/** @param {number} id */
function dismiss(id) {
  notes.set(notes.get().filter((note) => note.id !== id));
}

function Notes() {
  const shown = useStore(notes);
  return html`<div class="notes" role="status" aria-live="polite">
    ${shown.map((note) => html`<div key=${note.id} class=${`note note-${note.tone}`}>
      <${StateIcon} tone=${note.tone} /><span>${note.text}</span>
      <button type="button" class="icon-button" aria-label="Dismiss" onClick=${() => dismiss(note.id)}>✕</button></div>`)}
  </div>`;
}
