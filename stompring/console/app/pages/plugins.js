/**
 * Address policies in force: parameters, calls, times and faults.
 */
import { api } from "../api.js";
import { usePoll } from "../poll.js";
import { link } from "../router.js";
import { Badge, Card, Empty, Polled, StateIcon } from "../ui/badge.js";
import { amount, count, dateTime, duration } from "../ui/format.js";
import { html } from "../ui/html.js";
import { DataTable } from "../ui/table.js";

export default function Plugins() {
  const poll = usePoll((signal) => api.get("plugins", {}, signal), [], { interval: 5000 });
  return html`<div class="page-head"><h1>Plugins</h1></div>
    <${Polled} poll=${poll} what="the plugins">${(/** @type {any} */ list) =>
      list.data.length === 0
        ? html`<${Empty} title="broker.xml names no address policy."><p>Policies decide what happens to messages of an address. Several are shipped: <code>stompring example show policies.xml</code> shows them.</p><//>`
        : list.data.map((/** @type {any} */ plugin) => html`<${Plugin} plugin=${plugin} />`)}<//>`;
}

/** @param {{plugin: any}} props */
function Plugin({ plugin }) {
  const sum = (/** @type {string} */ name) => plugin.hooks.reduce((/** @type {number} */ total, /** @type {any} */ hook) => total + (hook[name] ?? 0), 0);
  const [errors, slow] = [sum("errors"), sum("slow")];
  const uses = plugin.uses ?? [];
  return html`<${Card} title=${html`<span class="name">${plugin.name}</span>`} label=${plugin.name} note=${plugin.plugin === plugin.name ? plugin.class : `${plugin.plugin} ${plugin.class}`}
      actions=${html`${errors > 0 && html`<${Badge} tone="error">${amount(errors, "error")}<//>`}${slow > 0 && html`<${Badge} tone="warning">${count(slow)} slow<//>`}<span class="muted">on ${amount(plugin.addresses, "address", "addresses")}</span>`}>
    <div class="stack">
    ${plugin.description && html`<p>${plugin.description}</p>`}
    ${plugin.lastError && html`<p class="form-error"><${StateIcon} tone="error" /><span>${dateTime(plugin.lastError.time)}, hook <code>${plugin.lastError.hook}</code>${plugin.lastError.address ? html`, address <a class="name" href=${link("addresses", plugin.lastError.address)}>${plugin.lastError.address}</a>` : ""}: ${plugin.lastError.text}</span></p>`}
    <div class="grid"><section class="span-6"><h3>Parameters</h3><${DataTable} label=${`Parameters of ${plugin.name}`} columns=${PARAMETERS} rows=${plugin.parameters} rowKey=${(/** @type {any} */ each) => each.name} empty="It has none." /></section>
    <section class="span-6"><h3>Hooks</h3><${DataTable} label=${`Hooks of ${plugin.name}`} columns=${HOOKS} rows=${plugin.hooks} rowKey=${(/** @type {any} */ each) => each.hook} empty="It has none." /></section></div>
    <section><h3>Used by</h3><${DataTable} label=${`Uses of ${plugin.name}`} columns=${USES} rows=${uses} rowKey=${(/** @type {any} */ each) => `${each.match} ${each.line}`} empty="No address-setting names it: it is in force nowhere." /></section>
    </div><//>`;
}

/** @type {import("../ui/table.js").Column[]} */
const PARAMETERS = [
  { key: "name", label: "Name", sort: true, width: "150px", render: (each) => html`<code class="name" title=${each.meaning}>${each.name}</code>` },
  { key: "value", label: "Value", width: "120px", render: (each) => html`<code class="wrap name">${each.value === null ? "–" : typeof each.value === "string" ? each.value : JSON.stringify(each.value)}</code>` },
  { key: "source", label: "From", sort: true, width: "100px", render: (each) => (each.source === "default" ? html`<span class="muted">default</span>` : each.source) },
];

/** @type {import("../ui/table.js").Column[]} */
const HOOKS = [
  { key: "hook", label: "Hook", sort: true, width: "120px", render: (each) => html`<code>${each.hook}</code>` },
  { key: "errors", label: "Errors", sort: true, number: true, width: "75px", render: (each) => html`<span class=${each.errors ? "text-error" : ""}>${count(each.errors)}</span>` },
  { key: "slow", label: "Slow", sort: true, number: true, width: "65px", title: "Calls longer than 20 ms", render: (each) => count(each.slow) },
  { key: "longest", label: "Longest", sort: true, number: true, width: "85px", title: "The longest of the slow calls", render: (each) => (each.slow ? duration(each.longest) : "–") },
];

/** @type {import("../ui/table.js").Column[]} */
const USES = [
  { key: "match", label: "Match", sort: true, width: "160px", render: (each) => html`<code class="name">${each.match}</code>${each.enabled ? "" : html` <${Badge}>disabled<//>`}` },
  { key: "parameters", label: "Its parameters", render: (each) => html`<span class="wrap">${Object.entries(each.parameters).map(([name, value]) => html`<code>${name}=${String(value)}</code> `)}</span>` },
  { key: "line", label: "Line", sort: true, number: true, width: "70px", title: "Line in broker.xml", render: (each) => count(each.line) },
];
