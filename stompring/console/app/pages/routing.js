/**
 * Diverts and bridges: their counters, states and faults; create, change, pause, delete.
 */
import { api, may } from "../api.js";
import { useSuggestions } from "../operations.js";
import { AddressLink, DefinedIn, kept, QueueLink } from "../parts.js";
import { usePoll } from "../poll.js";
import { Badge, Card, Empty, Polled } from "../ui/badge.js";
import { closeDialog, confirm, Dialog, FormError, notify, notifyError, openDialog, useAction } from "../ui/dialog.js";
import { bytes, count, dateTime, short } from "../ui/format.js";
import { Checkbox, SearchField, Select, TextField } from "../ui/form.js";
import { html, useState } from "../ui/html.js";
import { DataTable } from "../ui/table.js";

/** Diverts and bridges that are shown; a search finds the others. */
const SHOWN = 200;

/** @param {string} text names with commas or spaces between them */
const names = (text) => text.split(/[\s,]+/).filter(Boolean);

export default function Routing() {
  const [search, setSearch] = useState("");
  const query = { search, size: SHOWN, sort: "name" };
  const diverts = usePoll((signal) => api.get("diverts", query, signal), [search], { interval: 3000, keep: true });
  const bridges = usePoll((signal) => api.get("bridges", query, signal), [search], { interval: 3000, keep: true });
  const divert = (/** @type {any} */ each = null) => openDialog(() => html`<${DivertDialog} divert=${each} done=${diverts.refresh} />`);
  const bridge = () => openDialog(() => html`<${BridgeDialog} done=${bridges.refresh} />`);
  const note = (/** @type {any} */ list) => list && (list.count > list.data.length ? `${count(list.data.length)} of ${count(list.count)}: search for the others` : count(list.count));
  const none = search ? "No name matches." : "";
  return html`<div class="page-head"><h1>Diverts and bridges</h1><span class="spacer"></span>
      ${may("manage") && html`<button type="button" class="button primary" onClick=${() => divert()}>Create a divert</button>
        <button type="button" class="button primary" onClick=${bridge}>Create a bridge</button>`}</div>
    <div class="toolbar"><${SearchField} label="Search diverts and bridges" value=${search} onInput=${setSearch} /></div>
    <${Card} title="Diverts" note=${note(diverts.data)}><${Polled} poll=${diverts} what="the diverts">${(/** @type {any} */ list) => html`
      <${DataTable} label="Diverts" rows=${list.data} rowKey=${(/** @type {any} */ each) => each.name} sort="name" columns=${divertColumns(divert, diverts.refresh)}
        empty=${none || html`<${Empty} title="There is no divert.">A divert copies the messages of an address to other addresses of this broker, or moves them there.<//>`} />`}<//><//>
    <${Card} title="Bridges" note=${note(bridges.data)}><${Polled} poll=${bridges} what="the bridges">${(/** @type {any} */ list) => html`
      <${DataTable} label="Bridges" rows=${list.data} rowKey=${(/** @type {any} */ each) => each.name} sort="name" columns=${bridgeColumns(bridges.refresh)}
        empty=${none || html`<${Empty} title="There is no bridge.">A bridge forwards the messages of a queue to another broker.<//>`} />`}<//><//>`;
}

/**
 * @param {(divert: any) => void} edit
 * @param {() => Promise<void>} refresh
 * @returns {import("../ui/table.js").Column[]}
 */
const divertColumns = (edit, refresh) => [
  { key: "name", label: "Divert", sort: true, width: "110px", render: (row) => html`<span class="name" title=${`routing-name ${row.routingName}`}>${row.name}</span>` },
  { key: "address", label: "From", sort: true, width: "110px", render: (row) => (/[*#]/.test(row.address) ? html`<code class="name">${row.address}</code>` : html`<${AddressLink} name=${row.address} />`) },
  { key: "forwardingAddresses", label: "To", render: (row) => html`<span class="wrap">${row.forwardingAddresses.map((/** @type {string} */ name) => html`<div><${AddressLink} name=${name} /></div>`)}</span>` },
  { key: "kind", label: "Kind", width: "110px", render: (row) => html`<span class="wrap">${row.exclusive ? html`<${Badge} tone="warning" title="The queues of the address do not get the messages">exclusive<//>` : html`<${Badge}>copy<//>`} ${row.filter && html`<code title="Selector">${row.filter}</code>`}</span>` },
  { key: "copiedMessageCount", label: "Copied", sort: true, number: true, width: "72px", render: (row) => short(row.copiedMessageCount) },
  { key: "unroutedMessageCount", label: "Not routed", title: "No queue accepted them", sort: true, number: true, width: "92px", render: (row) => short(row.unroutedMessageCount) },
  { key: "droppedMessageCount", label: "Dropped", title: "By a full address or a policy", sort: true, number: true, width: "80px", render: (row) => short(row.droppedMessageCount) },
  { key: "definedIn", label: "Source", sort: true, width: "96px", render: (row) => html`<${DefinedIn} of=${row} />` },
  ...(may("manage") ? [{ key: "actions", label: "Actions", width: "150px", render: (/** @type {any} */ row) => html`<span class="row-actions">
    <button type="button" class="button small" aria-label=${`Change ${row.name}`} onClick=${() => edit(row)}>Change</button>
    <button type="button" class="button small danger-quiet" aria-label=${`Delete ${row.name}`} onClick=${() => remove("divert", row, "Its address gets messages as before; the copies that it has made stay.", refresh)}>Delete</button></span>` }] : []),
];

/** @type {Record<string, import("../ui/badge.js").Tone>} */
const TONES = { CONNECTED: "ok", CONNECTING: "accent", WAITING: "warning", STOPPING: "warning", FAILED: "error" };

/** @param {() => Promise<void>} refresh @returns {import("../ui/table.js").Column[]} */
const bridgeColumns = (refresh) => [
  { key: "name", label: "Bridge", sort: true, width: "90px", render: (row) => html`<span class="name">${row.name}</span>` },
  { key: "queue", label: "Queue", sort: true, width: "90px", render: (row) => html`<${QueueLink} name=${row.queue} />` },
  { key: "remote", label: "To", width: "168px", render: (row) => html`<span class="wrap"><span class="name mono" title=${row.remoteServer ?? undefined}>${row.remote ?? row.connectors.join(", ")}</span>${row.forwardingAddress && html` <span class="name">${row.forwardingAddress}</span>`}${row.filter && html` <code title="Selector">${row.filter}</code>`}</span>` },
  { key: "state", label: "State", sort: true, width: "108px", render: (row) => html`<span class="badges"><${Badge} tone=${TONES[row.state] ?? "neutral"}>${row.state.toLowerCase()}<//>${row.paused && html`<${Badge} tone="warning" title="It takes no messages from the queue">paused<//>`}</span>` },
  { key: "messagesForwarded", label: "Forwarded", sort: true, number: true, width: "88px", render: (row) => html`<span title=${bytes(row.bytesForwarded)}>${short(row.messagesForwarded)}</span>` },
  { key: "inFlight", label: "In flight", title: "Sent, and not yet confirmed", sort: true, number: true, width: "72px", render: (row) => count(row.inFlight) },
  { key: "lastError", label: "Last error", width: "150px", render: (row) => (row.lastError ? html`<span class="wrap">${row.lastError} <span class="muted">${dateTime(row.lastErrorTime)}</span></span>` : html`<span class="muted">none</span>`) },
  { key: "definedIn", label: "Source", sort: true, width: "96px", render: (row) => html`<${DefinedIn} of=${row} />` },
  ...(may("edit") ? [{ key: "actions", label: "Actions", width: "160px", render: (/** @type {any} */ row) => html`<span class="row-actions">
    ${["FAILED", "STOPPED"].includes(row.state)
      ? html`<button type="button" class="button small" aria-label=${`Start ${row.name}`} onClick=${() => act(row.name, "start", refresh)}>Start</button>`
      : html`<button type="button" class="button small" aria-label=${`${row.paused ? "Resume" : "Pause"} ${row.name}`} onClick=${() => act(row.name, row.paused ? "resume" : "pause", refresh)}>${row.paused ? "Resume" : "Pause"}</button>`}
    ${may("manage") && html`<button type="button" class="button small danger-quiet" aria-label=${`Delete ${row.name}`} onClick=${() => remove("bridge", row, "Its messages wait in the queue.", refresh)}>Delete</button>`}</span>` }] : []),
];

const DONE = { pause: "is paused: it takes no messages.", resume: "takes messages again.", start: "starts." };

/** @param {string} name @param {keyof typeof DONE} what @param {() => Promise<void>} refresh */
async function act(name, what, refresh) {
  try {
    await api.post(["bridges", name, what]);
    notify(`Bridge ${name} ${DONE[what]}`);
  } catch (fault) {
    notifyError(fault, `${what === "start" ? "Start" : what === "pause" ? "Pause" : "Resume"} of bridge ${name} failed`);
  }
  await refresh();
}

/** @param {"divert" | "bridge"} kind @param {any} row @param {string} effect @param {() => Promise<void>} refresh */
function remove(kind, row, effect, refresh) {
  confirm({
    title: `Delete the ${kind} ${row.name}`,
    text: html`<p>${effect}</p>${kept(row, kind)}`,
    name: row.name,
    action: "Delete",
    run: async () => {
      await api.delete([`${kind}s`, row.name]);
      notify(`${kind === "divert" ? "Divert" : "Bridge"} ${row.name} is deleted.`);
      await refresh();
    },
  });
}

/** @param {{divert: any, done: () => Promise<void>}} props `divert` null: a new one */
function DivertDialog({ divert, done }) {
  const [form, setForm] = useState({
    name: "", address: divert?.address ?? "", to: divert?.forwardingAddresses.join(", ") ?? "", filter: divert?.filter ?? "",
    exclusive: Boolean(divert?.exclusive), routingType: divert?.routingType ?? "STRIP",
  });
  const set = (/** @type {Partial<typeof form>} */ changes) => setForm((before) => ({ ...before, ...changes }));
  const addresses = useSuggestions(true, "address", form.address);
  const { busy, error, start } = useAction(async () => {
    const body = { address: form.address.trim(), forwardingAddresses: names(form.to), filter: form.filter.trim() || null, exclusive: form.exclusive, routingType: form.routingType };
    if (divert) await api.patch(["diverts", divert.name], body);
    else await api.post("diverts", { name: form.name.trim(), ...body });
    closeDialog();
    notify(divert ? `Divert ${divert.name} is changed.` : `Divert ${form.name.trim()} is created.`);
    await done();
  });
  const ready = (divert || form.name.trim()) && form.address.trim() && names(form.to).length > 0;
  return html`<${Dialog} title=${divert ? html`Change the divert <span class="name">${divert.name}</span>` : "Create a divert"} onSubmit=${() => ready && start()} footer=${html`
      <button type="button" class="button" onClick=${closeDialog}>Cancel</button>
      <button type="submit" class="button primary" disabled=${!ready || busy}>${busy ? "Working …" : divert ? "Apply" : "Create"}</button>`}>
    ${!divert && html`<${TextField} label="Name" name="name" mono required autofocus error=${error} value=${form.name} onInput=${(/** @type {string} */ name) => set({ name })} />`}
    <${TextField} label="From address" name="address" mono required error=${error} value=${form.address} list=${addresses} onInput=${(/** @type {string} */ address) => set({ address })} hint="It may have wildcards: orders.#" />
    <${TextField} label="To addresses" name="forwardingAddresses" mono required error=${error} value=${form.to} onInput=${(/** @type {string} */ to) => set({ to })} hint="Addresses of this broker, separated by commas." />
    <${TextField} label="Selector" name="filter" mono error=${error} value=${form.filter} onInput=${(/** @type {string} */ filter) => set({ filter })} placeholder="colour = 'red'" hint="Only messages that match; empty: all" />
    <${Select} label="Routing type of the copies" name="routingType" error=${error} value=${form.routingType} onInput=${(/** @type {string} */ routingType) => set({ routingType })}
      options=${[["STRIP", "STRIP: as the other address has it"], ["PASS", "PASS: that of the message"], ["ANYCAST", "ANYCAST: each message to one queue"], ["MULTICAST", "MULTICAST: to every queue"]]} />
    <${Checkbox} label="Exclusive" name="exclusive" checked=${form.exclusive} onChange=${(/** @type {boolean} */ exclusive) => set({ exclusive })} hint="The queues of the first address do not get the messages." />
    ${divert && kept(divert, "divert", true)}
    ${error && !["name", "address", "forwardingAddresses", "filter", "routingType"].includes(error.field ?? "") && html`<${FormError} error=${error} />`}
  <//>`;
}

/** @param {{done: () => Promise<void>}} props */
function BridgeDialog({ done }) {
  const [form, setForm] = useState({ name: "", queue: "", to: "", forwardingAddress: "", filter: "", user: "", password: "" });
  const field = (/** @type {keyof typeof form} */ name) => ({ name, error, value: form[name], onInput: (/** @type {string} */ value) => setForm((before) => ({ ...before, [name]: value })) });
  const queues = useSuggestions(true, "queue", form.queue);
  const { busy, error, start } = useAction(async () => {
    const { name, queue, to, password, ...more } = form;
    const given = Object.fromEntries(Object.entries(more).map(([key, value]) => [key, value.trim()]).filter(([, value]) => value));
    await api.post("bridges", { name: name.trim(), queue: queue.trim(), to: to.split(/\s+/).filter(Boolean), ...given, ...(password ? { password } : {}) });
    closeDialog();
    notify(`Bridge ${name.trim()} is created, and starts.`);
    await done();
  });
  const ready = form.name.trim() && form.queue.trim() && form.to.trim();
  return html`<${Dialog} title="Create a bridge" onSubmit=${() => ready && start()} footer=${html`
      <button type="button" class="button" onClick=${closeDialog}>Cancel</button>
      <button type="submit" class="button primary" disabled=${!ready || busy}>${busy ? "Working …" : "Create"}</button>`}>
    <${TextField} label="Name" mono required autofocus ...${field("name")} />
    <${TextField} label="Queue" mono required list=${queues} hint="A queue that exists. Its messages are forwarded." ...${field("queue")} />
    <${TextField} label="To" mono required placeholder="tcp://broker.example.com:61613" hint="URL of the other broker. Several, separated by spaces, are tried in this order. ssl:// for TLS; for RabbitMQ ?virtualHost=/ at the end" ...${field("to")} />
    <${TextField} label="Address there" mono hint="Empty: the address of each message. /queue/orders for RabbitMQ" ...${field("forwardingAddress")} />
    <${TextField} label="Selector" mono placeholder="colour = 'red'" hint="Only messages that match; empty: all" ...${field("filter")} />
    <${TextField} label="User there" ...${field("user")} />
    <${TextField} label="Password" type="password" autocomplete="new-password" hint="It is never shown again." ...${field("password")} />
    ${error && !(error.field && error.field in form) && html`<${FormError} error=${error} />`}
  <//>`;
}
