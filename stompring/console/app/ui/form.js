/**
 * Labelled controls. `error` is an ApiError: the control whose name is its `field` shows it.
 */
import { html, useId } from "./html.js";

/**
 * @typedef {object} FieldProps
 * @property {string} label
 * @property {string} [name] of the field in the API
 * @property {any} [hint]
 * @property {import("../api.js").ApiError | null} [error]
 * @property {boolean} [required]
 * @property {boolean} [disabled]
 * @property {boolean} [autofocus]
 */

/** @param {FieldProps & {control: (attributes: Record<string, any>) => any}} props */
function Field({ label, name, hint, error, required, control }) {
  const id = useId();
  const wrong = error && name !== undefined && error.field === name ? error.detail : "";
  const described = [hint && `${id}-hint`, wrong && `${id}-error`].filter(Boolean).join(" ") || undefined;
  return html`<div class="field">
    <label for=${id}>${label}${required && html`<span class="required" aria-hidden="true"> *</span>`}</label>
    ${control({ id, name, "aria-describedby": described, "aria-invalid": wrong ? "true" : undefined, "aria-required": required ? "true" : undefined })}
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
    ${wrong && html`<p class="field-error" id=${`${id}-error`}>${wrong}</p>`}
  </div>`;
}

/**
 * @param {FieldProps & {value: string, onInput: (value: string) => void, type?: string, placeholder?: string, mono?: boolean,
 *   list?: string[], autocomplete?: string, min?: number, max?: number}} props
 */
export function TextField({ value, onInput, type = "text", placeholder, mono = false, list, autocomplete = "off", autofocus, disabled, min, max, ...field }) {
  const listId = useId();
  return html`<${Field} ...${field} control=${(/** @type {any} */ attributes) => html`<input ...${attributes} class=${mono ? "input mono" : "input"}
    type=${type} value=${value} placeholder=${placeholder} disabled=${disabled} autocomplete=${autocomplete} autocapitalize="off" spellcheck=${false}
    min=${min} max=${max} list=${list ? listId : undefined} data-autofocus=${autofocus ? "" : undefined}
    onInput=${(/** @type {any} */ event) => onInput(event.currentTarget.value)} />
    ${list && html`<datalist id=${listId}>${list.map((item) => html`<option value=${item}></option>`)}</datalist>`}`} />`;
}

/** @param {FieldProps & {value: string, onInput: (value: string) => void, rows?: number, mono?: boolean, placeholder?: string}} props */
export function TextArea({ value, onInput, rows = 6, mono = true, placeholder, autofocus, disabled, ...field }) {
  return html`<${Field} ...${field} control=${(/** @type {any} */ attributes) => html`<textarea ...${attributes} class=${mono ? "input mono" : "input"}
    rows=${rows} value=${value} placeholder=${placeholder} disabled=${disabled} spellcheck=${false} data-autofocus=${autofocus ? "" : undefined}
    onInput=${(/** @type {any} */ event) => onInput(event.currentTarget.value)}></textarea>`} />`;
}

/** @param {FieldProps & {value: string, onInput: (value: string) => void, options: (string | [string, string])[]}} props options: values, or values with labels */
export function Select({ value, onInput, options, autofocus, disabled, ...field }) {
  return html`<${Field} ...${field} control=${(/** @type {any} */ attributes) => html`<select ...${attributes} class="input" value=${value} disabled=${disabled}
    data-autofocus=${autofocus ? "" : undefined} onChange=${(/** @type {any} */ event) => onInput(event.currentTarget.value)}>
    ${options.map((option) => {
      const [key, text] = Array.isArray(option) ? option : [option, option];
      return html`<option value=${key} selected=${key === value}>${text}</option>`;
    })}</select>`} />`;
}

/** @param {{label: any, checked: boolean, onChange: (checked: boolean) => void, disabled?: boolean, hint?: any, name?: string}} props */
export function Checkbox({ label, checked, onChange, disabled, hint, name }) {
  const id = useId();
  return html`<div class="field check"><label><input type="checkbox" name=${name} checked=${checked} disabled=${disabled} aria-describedby=${hint ? id : undefined}
    onChange=${(/** @type {any} */ event) => onChange(event.currentTarget.checked)} /><span>${label}</span></label>
    ${hint && html`<p class="hint" id=${id}>${hint}</p>`}</div>`;
}

/** ↓ goes from a search to the first row that it found. @param {KeyboardEvent} event */
function toRows(event) {
  const first = event.key === "ArrowDown" && document.querySelector("main tr[data-row] :is(a[href], button, input)");
  if (!(first instanceof HTMLElement)) return;
  event.preventDefault();
  first.focus();
}

/** A field for searching; `/` focuses it. @param {{label: string, value: string, onInput: (value: string) => void, placeholder?: string}} props */
export function SearchField({ label, value, onInput, placeholder = label }) {
  return html`<input class="input search" type="search" aria-label=${label} placeholder=${placeholder} value=${value} autocomplete="off" spellcheck=${false} data-search
    onInput=${(/** @type {any} */ event) => onInput(event.currentTarget.value)} onKeyDown=${toRows} />`;
}

/**
 * One of a few, as a row of buttons.
 * @param {{label: string, value: string, options: (string | [string, string])[], onInput: (value: string) => void}} props
 */
export function Choice({ label, value, options, onInput }) {
  return html`<div class="choice" role="group" aria-label=${label}>${options.map((option) => {
    const [key, text] = Array.isArray(option) ? option : [option, option];
    return html`<button type="button" aria-pressed=${key === value ? "true" : "false"} onClick=${() => onInput(key)}>${text}</button>`;
  })}</div>`;
}

/** A select with its label for screen readers only. @param {{label: string, value: string, options: (string | [string, string])[], onInput: (value: string) => void}} props */
export function Filter({ label, value, options, onInput }) {
  return html`<select class="input filter" aria-label=${label} value=${value} onChange=${(/** @type {any} */ event) => onInput(event.currentTarget.value)}>
    ${options.map((option) => {
      const [key, text] = Array.isArray(option) ? option : [option, option];
      return html`<option value=${key} selected=${key === value}>${text}</option>`;
    })}</select>`;
}
