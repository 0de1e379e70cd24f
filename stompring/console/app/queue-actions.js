/**
 * What an operator can do with a queue: one function for each, which opens a dialog where one is needed.
 */
import { api } from "./api.js";
import { operate, useSuggestions } from "./operations.js";
import { link, navigate } from "./router.js";
import { Dialog, FormError, closeDialog, confirm, notify, notifyError, openDialog, useAction } from "./ui/dialog.js";
import { Checkbox, Select, TextField } from "./ui/form.js";
import { amount, count } from "./ui/format.js";
import { html, useState } from "./ui/html.js";

/** @typedef {() => void} Done */

/** @param {string} name @param {boolean} paused @param {Done} done */
export async function pauseQueue(name, paused, done) {
  try {
    await api.patch(["queues", name], { paused });
    notify(paused ? `Queue ${name} is paused: it accepts messages and delivers none.` : `Queue ${name} delivers again.`);
    done();
  } catch (fault) {
    notifyError(fault, `Queue ${name} could not be ${paused ? "paused" : "resumed"}`);
  }
}

/** @param {any} queue @param {Done} done */
export function purgeQueue(queue, done) {
  operate({
    title: "Purge the queue",
    text: html`<p>This removes all pending and scheduled messages of <b class="name">${queue.name}</b>, ${count(queue.messageCount - queue.deliveringCount)} now. ${queue.deliveringCount ? `${amount(queue.deliveringCount, "message")} in delivery stay.` : ""} They cannot be brought back.</p>`,
    queue: queue.name,
    operation: "purge",
    selection: {},
    action: "Purge",
    name: queue.name,
    onDone: done,
  });
}

/** @param {any} queue @param {Done} done */
export function trimQueue(queue, done) {
  confirm({
    title: "Trim the ring",
    text: html`<p>This evicts the oldest messages of <b class="name">${queue.name}</b> until ${count(queue.ringSize)} are pending. ${queue.ringPolicy === "DEAD_LETTER" ? "They go to the dead-letter address." : "They are dropped."}</p>`,
    name: queue.ringPolicy === "DEAD_LETTER" ? undefined : queue.name,
    action: "Trim",
    run: async () => {
      const { replaced } = await api.post(["queues", queue.name, "trim"], {});
      notify(`Queue ${queue.name}: ${amount(replaced, "message")} evicted.`);
      done();
    },
  });
}

/** @param {any} queue */
export function deleteQueue(queue) {
  const consumers = queue.consumerCount;
  confirm({
    title: "Delete the queue",
    text: html`<p>This deletes <b class="name">${queue.name}</b> with ${amount(queue.messageCount, "message")}. They cannot be brought back.</p>
      ${consumers > 0 && html`<p><strong>${amount(consumers, "consumer")} will get an ERROR</strong> and lose the connection.</p>`}
      ${queue.configured && html`<p>broker.xml defines the queue: the next reload or start creates it again, empty.</p>`}`,
    name: queue.name,
    action: "Delete",
    run: async () => {
      await api.delete(["queues", queue.name], {}, consumers > 0 ? { force: true } : {});
      notify(`Queue ${queue.name} is deleted.`);
      navigate(link("queues"));
    },
  });
}

/** @param {any} queue @param {Done} done */
export function retryQueue(queue, done) {
  operate({
    title: html`Retry messages of <span class="name">${queue.name}</span>`,
    text: html`<p>Dead letters and expired messages go back to the queue they came from, or to its address if the queue no longer exists. Their delivery counts begin at 0. Messages without an origin stay.</p>`,
    queue: queue.name,
    operation: "retry",
    selection: {},
    action: "Retry",
    narrow: true,
    onDone: done,
  });
}

/** @param {any} queue @param {"move" | "copy"} operation @param {Done} done */
export function transferQueue(queue, operation, done) {
  const verb = operation === "move" ? "Move" : "Copy";
  operate({
    title: html`${verb} messages of <span class="name">${queue.name}</span>`,
    text: html`<p class="muted">${count(queue.messageCount - queue.deliveringCount)} messages are pending or scheduled. Those in delivery are skipped. Each message is in one queue or in the other at any time, also after a crash.</p>`,
    queue: queue.name,
    operation,
    selection: {},
    action: verb,
    narrow: true,
    onDone: done,
  });
}

/**
 * A name of a queue or an address, with suggestions of the broker.
 * @param {{label: string, kind: "queues" | "addresses", value: string, onInput: (value: string) => void, [property: string]: any}} props
 */
export function NameField({ kind, value, onInput, ...rest }) {
  const names = useSuggestions(true, kind === "queues" ? "queue" : "address", value);
  return html`<${TextField} ...${rest} value=${value} onInput=${onInput} mono list=${names} />`;
}

// ---- create and change

/**
 * @typedef {object} Attribute
 * @property {string} name in the API
 * @property {string} label
 * @property {"text" | "number" | "boolean" | string[]} type
 * @property {string} [hint]
 * @property {boolean} [createOnly]
 * @property {boolean} [advanced]
 */

/** @type {Attribute[]} */
const ATTRIBUTES = [
  { name: "routingType", label: "Routing type", type: ["ANYCAST", "MULTICAST"], createOnly: true, hint: "ANYCAST: each message goes to one queue of the address. MULTICAST: to all." },
  { name: "ringSize", label: "Ring size", type: "number", hint: "A full ring evicts its oldest message. -1: not a ring." },
  { name: "ringPolicy", label: "Evicted messages", type: ["DISCARD", "DEAD_LETTER"], hint: "Dropped, or moved to the dead-letter address." },
  { name: "filter", label: "Filter", type: "text", hint: "A selector: only messages that match enter the queue." },
  { name: "durable", label: "Durable", type: "boolean", createOnly: true, hint: "Survives a restart with its durable messages." },
  { name: "enabled", label: "Enabled", type: "boolean", hint: "Off: no message is routed to the queue." },
  { name: "maxConsumers", label: "Consumers at most", type: "number", advanced: true, hint: "-1: any number" },
  { name: "consumersBeforeDispatch", label: "Consumers before dispatch", type: "number", advanced: true },
  { name: "delayBeforeDispatch", label: "Delay before dispatch (ms)", type: "number", advanced: true, hint: "-1: without limit" },
  { name: "user", label: "Owner", type: "text", advanced: true },
  { name: "exclusive", label: "Exclusive", type: "boolean", advanced: true, hint: "One consumer receives all messages." },
  { name: "nonDestructive", label: "Non-destructive", type: "boolean", createOnly: true, advanced: true, hint: "Acknowledged messages stay." },
  { name: "purgeOnNoConsumers", label: "Purge without consumers", type: "boolean", advanced: true },
  { name: "ringCountsPaged", label: "Ring counts paged messages", type: "boolean", advanced: true },
];

/** @param {{address?: string}} [given] */
export function createQueue({ address = "" } = {}) {
  openDialog(() => html`<${QueueDialog} queue=${null} address=${address} done=${() => {}} />`);
}

/** @param {any} queue @param {Done} done */
export function editQueue(queue, done) {
  openDialog(() => html`<${QueueDialog} queue=${queue} address=${queue.address} done=${done} />`);
}

/** @param {any} value */
const textOf = (value) => (value === null || value === undefined ? "" : String(value));

/**
 * The form of an existing queue, or of a new one, whose empty fields the address-settings fill.
 * @param {{queue: any, address: string, done: Done}} props
 */
function QueueDialog({ queue, address: givenAddress, done }) {
  const [name, setName] = useState("");
  const [address, setAddress] = useState(givenAddress);
  const attributes = ATTRIBUTES.filter((attribute) => !queue || !attribute.createOnly);
  const first = Object.fromEntries(attributes.map((attribute) => [attribute.name, queue ? textOf(queue[attribute.name]) : ""]));
  const [values, setValues] = useState(/** @type {Record<string, string>} */ (first));
  const { busy, error, start } = useAction(async () => {
    const body = Object.fromEntries(
      attributes.filter((attribute) => values[attribute.name] !== first[attribute.name]).map((attribute) => [attribute.name, parse(attribute, values[attribute.name])]),
    );
    if (queue) {
      if (Object.keys(body).length > 0) await api.patch(["queues", queue.name], body);
      notify(`Queue ${queue.name} is changed.`);
    } else {
      const created = name.trim();
      await api.post("queues", { name: created, ...(address.trim() ? { address: address.trim() } : {}), ...body });
      notify(`Queue ${created} is created.`);
      navigate(link("queues", created));
    }
    closeDialog();
    done();
  });
  const control = (/** @type {Attribute} */ attribute) => {
    const value = values[attribute.name];
    const onInput = (/** @type {string} */ text) => setValues({ ...values, [attribute.name]: text });
    const common = { label: attribute.label, name: attribute.name, hint: attribute.hint, value, onInput, error };
    if (Array.isArray(attribute.type)) return html`<${Select} ...${common} options=${queue ? attribute.type : [["", "Default"], ...attribute.type]} />`;
    if (attribute.type === "boolean" && queue) {
      return html`<${Checkbox} label=${attribute.label} hint=${attribute.hint} name=${attribute.name} checked=${value === "true"} onChange=${(/** @type {boolean} */ on) => onInput(String(on))} />`;
    }
    if (attribute.type === "boolean") return html`<${Select} ...${common} options=${[["", "Default"], ["true", "Yes"], ["false", "No"]]} />`;
    return html`<${TextField} ...${common} type=${attribute.type} mono=${attribute.name === "filter"} placeholder=${queue ? "" : "Default"} />`;
  };
  const shown = error && !(error.field && [...attributes.map((attribute) => attribute.name), "name", "address"].includes(error.field));
  return html`<${Dialog} wide title=${queue ? html`Change <span class="name">${queue.name}</span>` : "Create a queue"} onSubmit=${() => (queue || name.trim()) && start()} footer=${html`
      <button type="button" class="button" onClick=${closeDialog}>Cancel</button>
      <button type="submit" class="button primary" disabled=${busy || (!queue && !name.trim())}>${busy ? "Working …" : queue ? "Apply" : "Create"}</button>`}>
    ${queue?.configured && html`<p class="muted">broker.xml defines this queue: a reload resets it to the file.</p>`}
    ${!queue && html`<div class="fields"><${TextField} label="Name" name="name" value=${name} onInput=${setName} mono required autofocus error=${error} />
      <${NameField} label="Address" name="address" kind="addresses" value=${address} onInput=${setAddress} placeholder=${name || "The name of the queue"} hint="Messages are sent to an address, which routes them to its queues." error=${error} /></div>`}
    <div class="fields">${attributes.filter((attribute) => !attribute.advanced).map(control)}</div>
    <details class="more"><summary>More settings</summary><div class="fields">${attributes.filter((attribute) => attribute.advanced).map(control)}</div></details>
    ${!queue && html`<p class="hint">Default: the value of the address-settings.</p>`}
    ${shown && html`<${FormError} error=${error} />`}
  <//>`;
}

/** @param {Attribute} attribute @param {string} value */
function parse(attribute, value) {
  if (attribute.type === "number") return value === "" ? -1 : Number(value);
  if (attribute.type === "boolean") return value === "true";
  return value === "" ? null : value;
}
