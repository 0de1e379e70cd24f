/**
 * Small parts: badges, states of a page, meters, tiles, lists of values.
 */
import { ApiError, retry } from "../api.js";
import { count, percent } from "./format.js";
import { html, useState } from "./html.js";

/** @typedef {"neutral" | "ok" | "warning" | "error" | "accent"} Tone */

/**
 * A short word with a colour.
 * @param {{tone?: Tone, title?: string, children?: any}} props
 */
export function Badge({ tone = "neutral", title, children }) {
  return html`<span class=${`badge badge-${tone}`} title=${title}>${children}</span>`;
}

const PATHS = {
  ok: "M3 8.5l3.2 3.2L13 4.8",
  warning: "M8 3v6.2M8 12.2v.6",
  error: "M4 4l8 8M12 4l-8 8",
  neutral: "M4 8h8",
  accent: "M4 8h8",
};

/** A round icon for a state. @param {{tone: Tone}} props */
export function StateIcon({ tone }) {
  return html`<span class=${`state-icon state-${tone}`} aria-hidden="true">
    <svg viewBox="0 0 16 16" width="16" height="16"><path d=${PATHS[tone]} /></svg>
  </span>`;
}

/** While the first data are on their way. @param {{what?: string}} props */
export function Loading({ what = "" }) {
  return html`<div class="state-box loading" role="status">
    <span class="spinner" aria-hidden="true"></span><p>Loading${what ? ` ${what}` : ""} …</p>
  </div>`;
}

/**
 * Nothing to show, and what to do next.
 * @param {{title: string, children?: any}} props
 */
export function Empty({ title, children }) {
  return html`<div class="state-box empty"><p class="state-title">${title}</p>${children && html`<div class="state-text">${children}</div>`}</div>`;
}

/**
 * A request that failed: the cause, and what to do.
 * @param {{error: ApiError, what?: string, again?: () => void}} props `what`: "the queues could not be loaded"
 */
export function ErrorBox({ error, what = "This could not be loaded", again }) {
  const [tone, title, hint] = explain(error, what);
  return html`<div class=${`state-box ${tone}`} role="alert">
    <p class="state-title"><${StateIcon} tone=${tone} />${title}</p>
    <p class="state-text">${error.detail || error.message}</p>
    ${hint && html`<p class="state-text muted">${hint}</p>`}
    ${again && !error.unknownRoute && html`<p><button type="button" class="button" onClick=${error.status === 0 ? () => retry() : again}>Try again</button></p>`}
  </div>`;
}

/**
 * @param {ApiError} error
 * @param {string} what
 * @returns {[Tone, string, string]}
 */
function explain(error, what) {
  if (error.status === 0) return ["warning", what, "The page tries again by itself."];
  if (error.forbidden) return ["warning", "No permission", "A user with the permission manage can show who may do what: Permissions."];
  if (error.unknownRoute) return ["neutral", "This broker does not offer this", "It is an older version than this page."];
  if (error.missing) return ["neutral", "Not found", "It may have been deleted meanwhile."];
  return ["error", what, ""];
}

/**
 * Content of a poll: loading, error or the data. An error after data exist is a note above them.
 * @param {{poll: import("../poll.js").Poll<any>, what: string, children: (data: any) => any}} props `what`: "the queues"
 */
export function Polled({ poll, what, children }) {
  const { data, error } = poll;
  const named = `${what[0].toUpperCase()}${what.slice(1)} could not be loaded`;
  if (data === undefined) {
    return error ? html`<${ErrorBox} error=${error} what=${named} again=${poll.refresh} />` : html`<${Loading} what=${what} />`;
  }
  return html`${error && error.status !== 0 && html`<${ErrorBox} error=${error} what=${named} again=${poll.refresh} />`}${children(data)}`;
}

/**
 * How full something is, with its limit.
 * @param {{label: string, value: number | null, max: number | null, format?: (value: number) => string, warnAt?: number,
 *   errorAt?: number, note?: any}} props `max` -1 or null: no limit
 */
export function Meter({ label, value, max, format = count, warnAt = 0.8, errorAt = 0.95, note }) {
  const limited = max !== null && max > 0;
  const ratio = limited && value !== null ? value / max : 0;
  const tone = !limited ? "neutral" : ratio >= errorAt ? "error" : ratio >= warnAt ? "warning" : "ok";
  const text = value === null ? "unknown" : limited ? `${format(value)} of ${format(max)}` : `${format(value)}, no limit`;
  return html`<div class="meter">
    <div class="meter-head"><span>${label}</span><span class="meter-value">${limited && value !== null ? percent(ratio) : ""}</span></div>
    <div class=${`meter-bar meter-${tone}`} role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax="100"
      aria-valuenow=${Math.round(100 * Math.min(ratio, 1))} aria-valuetext=${text}>
      <div style=${{ width: `${Math.min(100, 100 * ratio)}%` }}></div>
    </div>
    <div class="meter-foot muted">${text}${note && html` · ${note}`}</div>
  </div>`;
}

/**
 * One figure.
 * @param {{label: string, value: any, note?: any, href?: string, tone?: Tone, title?: string}} props
 */
export function Stat({ label, value, note, href, tone = "neutral", title }) {
  const content = html`<span class="stat-label">${label}</span><span class="stat-value">${value}</span>
    ${note !== undefined && html`<span class="stat-note">${note}</span>`}`;
  return href
    ? html`<a class=${`stat stat-${tone}`} href=${href} title=${title}>${content}</a>`
    : html`<div class=${`stat stat-${tone}`} title=${title}>${content}</div>`;
}

/**
 * Names and values. @param {{items: [any, any][]}} props
 */
export function Values({ items }) {
  return html`<dl class="values">${items.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/**
 * A part of a page with a heading.
 * @param {{title: any, actions?: any, note?: any, children?: any, class?: string, label?: string}} props
 */
export function Card({ title, actions, note, children, class: more = "", label }) {
  return html`<section class=${`card ${more}`} aria-label=${label ?? (typeof title === "string" ? title : undefined)}>
    <header class="card-head"><h2>${title}</h2>${note && html`<span class="card-note muted">${note}</span>`}
      ${actions && html`<div class="card-actions">${actions}</div>`}</header>
    ${children}
  </section>`;
}

/** Copies a text. @param {{text: string, label?: string}} props */
export function CopyButton({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="button small quiet" onClick=${copy}>${done ? "Copied" : label}</button>`;
}

