/**
 * The settings of a queue or an address, each with where its value comes from.
 */
import { DefinedIn } from "./parts.js";
import { Badge, Card, ErrorBox, Loading } from "./ui/badge.js";
import { bytes, count, duration } from "./ui/format.js";
import { html, useState } from "./ui/html.js";
import { Choice, SearchField } from "./ui/form.js";
import { DataTable } from "./ui/table.js";

/**
 * @typedef {{name: string, element: string, value: any, unit: string, source: string, match: string | null,
 *   definedIn: string | null, line: number | null, meaning: string}} Setting
 */

/**
 * @param {{poll: import("./poll.js").Poll<any>, what: "queue" | "address", more?: import("./ui/table.js").Column[], link?: any}} props
 *   `more`: further columns; `link`: in the head
 */
export function SettingsTable({ poll, what, more = [], link }) {
  const [shown, setShown] = useState("set");
  const [search, setSearch] = useState("");
  /** @type {Setting[]} */
  const all = poll.data?.data ?? [];
  const text = search.trim().toLowerCase();
  const rows = all.filter(
    (row) => (shown === "all" || row.source !== "default" || text) && (!text || `${row.element} ${row.name} ${row.meaning}`.toLowerCase().includes(text)),
  );
  return html`<${Card} title="Settings" note=${all.length ? `${count(all.filter((row) => row.source !== "default").length)} set, ${count(all.length)} in all` : ""} actions=${all.length > 0 &&
    html`<${SearchField} label="Search settings" value=${search} onInput=${setSearch} /><${Choice} label="Settings shown" value=${shown} onInput=${setShown} options=${[["set", "Set"], ["all", "All"]]} />${link}`}>
    ${poll.data
      ? html`<${DataTable} label=${`Settings of the ${what}`} columns=${[...COLUMNS, ...more]} rows=${rows} rowKey=${(/** @type {Setting} */ row) => row.element + row.name} empty=${text ? "No setting matches." : "Every setting has its default."} />`
      : poll.error
        ? html`<${ErrorBox} error=${poll.error} what="The settings could not be loaded" again=${poll.refresh} />`
        : html`<${Loading} what="the settings" />`}<//>`;
}

/** @type {import("./ui/table.js").Column[]} */
const COLUMNS = [
  { key: "element", label: "Setting", sort: true, width: "220px", render: (row) => html`<code>${row.element || row.name}</code>` },
  { key: "value", label: "Value", width: "120px", render: (row) => html`<span class="wrap">${valueOf(row)}</span>` },
  { key: "source", label: "From", sort: true, width: "176px", render: (row) => html`<${Source} row=${row} />` },
  { key: "meaning", label: "Meaning", render: (row) => html`<span class="wrap muted">${plain(row.meaning)}</span>` },
];

/** @param {{row: Setting}} props */
function Source({ row }) {
  if (row.source === "default") return html`<${Badge}>default<//>`;
  if (row.source === "address-setting") return html`<span class="badges"><${Badge} tone="accent" title="address-setting">match <span class="mono">${row.match}</span><//>${row.definedIn && html`<${DefinedIn} of=${row} />`}</span>`;
  return html`<${Badge} tone="ok">${row.source}<//>`;
}

/** @param {{value: any, unit: string}} row */
export function valueOf({ value, unit }) {
  if (value === null || value === "") return html`<span class="muted">not set</span>`;
  if (Array.isArray(value)) return value.join(", ") || html`<span class="muted">none</span>`;
  if (typeof value === "number" && value !== -1 && unit === "ms") return html`<span title=${`${count(value)} ms`}>${duration(value)}</span>`;
  if (typeof value === "number" && value > 1023 && /^bytes?$/.test(unit)) return html`<span title=${`${count(value)} bytes`}>${bytes(value)}</span>`;
  if (typeof value === "number") return value === -1 ? html`-1` : count(value);
  if (typeof value === "boolean") return value ? "true" : "false";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Markdown of the meaning as plain text. @param {string} text */
export const plain = (text) => (text ?? "").replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/`/g, "");
