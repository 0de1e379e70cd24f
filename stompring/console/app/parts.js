/**
 * Parts that several pages show: names of queues and addresses, their states.
 */
import { link } from "./router.js";
import { Badge, CopyButton } from "./ui/badge.js";
import { html } from "./ui/html.js";

/** @param {{name: string}} props */
export const QueueLink = ({ name }) => html`<a class="name" href=${link("queues", name)} title=${name}>${name}</a>`;

/** @param {{name: string}} props */
export const AddressLink = ({ name }) => html`<a class="name" href=${link("addresses", name)} title=${name}>${name}</a>`;

/** What is going on, and the next command. @param {{of: any}} props */
export const Verdict = ({ of }) => of.verdict && html`<div class="card verdict" role="note" aria-label="What is going on"><p>${of.verdict}</p>
    ${of.nextCommand && html`<p class="muted">Next: <code>${of.nextCommand}</code> <${CopyButton} text=${of.nextCommand} /></p>`}</div>`;

/** What is not ordinary about a queue, as badges. @param {{queue: any, all?: boolean}} props `all`: also its kind */
export function QueueState({ queue, all = false }) {
  return html`<span class="badges">
    ${queue.paused && html`<${Badge} tone="warning" title="Messages are accepted and not delivered">paused<//>`}
    ${queue.enabled === false && html`<${Badge} tone="warning" title="No message is routed to the queue">disabled<//>`}
    ${queue.ringSize > 0 && html`<${Badge} tone="accent" title="A full ring evicts its oldest message">ring<//>`}
    ${queue.nonDestructive && html`<${Badge} title="Acknowledged messages stay">non-destructive<//>`}
    ${all && queue.exclusive && html`<${Badge} title="One consumer receives all messages">exclusive<//>`}
    ${queue.temporary && html`<${Badge} title="Deleted with its connection">temporary<//>`}
    ${all && html`<${Badge} title=${queue.durable ? "Survives a restart with its durable messages" : "Ends with the broker"}>${queue.durable ? "durable" : "not durable"}<//>`}
    ${all && queue.autoCreated && html`<${Badge} title="Created by the broker for a client">auto-created<//>`}
    ${all && queue.configured && html`<${Badge} title="Defined in broker.xml: a reload resets it to the file">broker.xml<//>`}
  </span>`;
}

/** Where a divert, a bridge, an address-setting or a security-setting is defined. @param {{of: any}} props */
export const DefinedIn = ({ of }) =>
  html`<${Badge} tone=${of.definedIn === "broker.xml" ? "neutral" : of.definedIn === "memory" ? "warning" : "accent"} title=${of.line ? `Line ${of.line}` : of.definedIn === "memory" ? "The broker has no store: a restart loses it" : undefined}>${of.definedIn}<//>`;

/**
 * What a change or the deletion of something that broker.xml defines means.
 * @param {any} row with `definedIn`
 * @param {string} kind
 * @param {boolean} [changed] it is changed, not deleted
 */
export const kept = (row, kind, changed = false) => row.definedIn === "broker.xml" && html`<p class="hint">broker.xml defines the ${kind}. The file does not change: the ${kind} ${changed ? "has these values" : "stays deleted"}, also after a restart, until its element there changes.</p>`;
