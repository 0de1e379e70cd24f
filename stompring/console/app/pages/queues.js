/**
 * The list of queues: search, filters, sorting, columns.
 */
import { may } from "../api.js";
import { AddressLink, QueueLink, QueueState } from "../parts.js";
import { createQueue } from "../queue-actions.js";
import { setQuery, useSearch } from "../router.js";
import { Badge, Empty } from "../ui/badge.js";
import { Filter, SearchField } from "../ui/form.js";
import { amount, bytes, count, duration, rate, short } from "../ui/format.js";
import { html, useEffect, useState } from "../ui/html.js";
import { ServerTable, useColumns } from "../ui/table.js";

/**
 * @param {string} key
 * @param {string} label
 * @param {(value: any, row: any) => any} format
 * @param {Partial<import("../ui/table.js").Column>} [more]
 * @returns {import("../ui/table.js").Column}
 */
const figure = (key, label, format, more = {}) => ({ key, label, number: true, sort: true, width: "78px", render: (row) => (row[key] ? format(row[key], row) : html`<span class="zero">${format(row[key], row)}</span>`), ...more });

/** @type {import("../ui/table.js").Column[]} */
const COLUMNS = [
  { key: "name", label: "Queue", sort: true, fixed: true, render: (queue) => html`<span class="name-cell"><${QueueLink} name=${queue.name} /><${QueueState} queue=${queue} /></span>` },
  { key: "address", label: "Address", sort: true, optional: true, width: "180px", render: (queue) => html`<${AddressLink} name=${queue.address} />` },
  { key: "routingType", label: "Routing", sort: true, optional: true, width: "104px", render: (queue) => queue.routingType },
  figure("messageCount", "Messages", short, { width: "86px", title: "Pending, delivering, scheduled and paged" }),
  figure("deliveringCount", "Delivering", short, { width: "90px", title: "Delivered to a consumer and not yet settled" }),
  figure("scheduledCount", "Scheduled", short, { width: "96px", title: "Not due yet, including delayed redeliveries" }),
  figure("pagedCount", "Paged", short, { title: "On disk only" }),
  figure("consumerCount", "Consumers", count, { width: "96px" }),
  figure("addedRate", "In", rate, { title: "Messages added per second, mean of 10 s" }),
  figure("deliveredRate", "Out", rate, { optional: true, title: "Messages delivered per second, mean of 10 s" }),
  figure("acknowledgedRate", "Ack", rate, { title: "Messages acknowledged per second, mean of 10 s" }),
  figure("oldestMessageAge", "Oldest", (value) => (value === null ? "–" : duration(value)), { width: "102px", title: "Age of the next message to be delivered" }),
  figure("ringSize", "Ring", (value, queue) => (value > 0 ? html`<${Fill} queue=${queue} />` : "–"), { width: "106px", title: "Pending messages of a ring, and its size" }),
  figure("messagesReplaced", "Evicted", short, { title: "Messages evicted because the ring was full" }),
  figure("evictedRate", "Evicted/s", rate, { optional: true }),
  figure("expiredRate", "Expired/s", rate, { optional: true }),
  figure("redeliveredRate", "Redelivered/s", rate, { optional: true, width: "116px" }),
  figure("pagedRate", "Paged/s", rate, { optional: true }),
  figure("messagesAdded", "Added", short, { optional: true, title: "Since the broker started" }),
  figure("messagesAcknowledged", "Acknowledged", short, { optional: true, width: "116px", title: "Since the broker started" }),
  figure("messagesExpired", "Expired", short, { optional: true, title: "Since the broker started" }),
  figure("messagesKilled", "Killed", short, { optional: true, title: "Removed after max-delivery-attempts, by a purge or with the queue, since the broker started" }),
  figure("persistentSize", "Memory", bytes, { optional: true }),
  { key: "filter", label: "Filter", optional: true, width: "180px", render: (queue) => html`<code>${queue.filter ?? "–"}</code>` },
  { key: "user", label: "Owner", sort: true, optional: true, width: "110px", render: (queue) => queue.user ?? "–" },
];

/** How full a ring is. @param {{queue: any}} props */
function Fill({ queue }) {
  const pending = Math.max(0, queue.messageCount - queue.deliveringCount - queue.scheduledCount - queue.pagedCount);
  const share = Math.min(1, pending / queue.ringSize);
  return html`<span class="fill-cell" title=${`${count(pending)} of ${count(queue.ringSize)} pending`}><span class="fill-bar"><span style=${{ width: `${100 * share}%` }}></span></span>${short(queue.ringSize)}</span>`;
}

/** @type {[string, string, Record<string, any>][]} key, label, parameters of the API */
const STATES = [
  ["", "All states", {}],
  ["paused", "Paused", { paused: true }],
  ["disabled", "Disabled", { enabled: false }],
  ["no-consumers", "Without consumers", { consumerCount: 0 }],
  ["temporary", "Temporary", { temporary: true }],
  ["auto", "Auto-created", { autoCreated: true }],
  ["configured", "In broker.xml", { configured: true }],
  ["not-durable", "Not durable", { durable: false }],
];

/** @param {{query: Record<string, string>}} props */
export default function Queues({ query }) {
  const [total, setTotal] = useState(/** @type {number | null} */ (null));
  const [search, setSearch] = useSearch(query.search ?? "");
  const { columns, open } = useColumns("queues", COLUMNS);
  const sort = query.sort ?? "name";
  const state = STATES.find(([key]) => key === query.state) ?? STATES[0];
  const filters = { search: query.search, routingType: query.type, address: query.address, ...state[2] };
  const filtered = Object.values(filters).some((value) => value !== undefined && value !== "");
  useEffect(() => {
    if (query.create) {
      setQuery({ create: "" });
      createQueue();
    }
  }, []);
  const clear = () => {
    setSearch("");
    setQuery({ search: "", type: "", state: "", address: "" });
  };
  return html`<div class="page-head"><h1>Queues</h1>${total !== null && html`<span class="muted" role="status">${amount(total, "queue")}${filtered ? " found" : ""}</span>`}
      <span class="spacer"></span>${may("edit") && html`<button type="button" class="button primary" onClick=${() => createQueue({ address: query.address })}>Create a queue</button>`}</div>
    <div class="toolbar">
      <${SearchField} label="Search queues by name" value=${search} onInput=${setSearch} />
      <${Filter} label="State" value=${state[0]} onInput=${(/** @type {string} */ value) => setQuery({ state: value })} options=${STATES.map(([key, label]) => [key, label])} />
      <${Filter} label="Routing type" value=${query.type ?? ""} onInput=${(/** @type {string} */ value) => setQuery({ type: value })} options=${[["", "All routing types"], "ANYCAST", "MULTICAST"]} />
      ${query.address && html`<${Badge} tone="accent">address: ${query.address}<//>`}
      ${filtered && html`<button type="button" class="button quiet" onClick=${clear}>Clear filters</button>`}
      <span class="spacer"></span><button type="button" class="button" onClick=${open}>Columns</button>
    </div>
    <${ServerTable} label="Queues" path="queues" query=${filters} columns=${columns} rowKey=${(/** @type {any} */ queue) => queue.name} sort=${sort} onSort=${(/** @type {string} */ value) => setQuery({ sort: value })}
      onData=${(/** @type {any} */ list) => setTotal(list.count)} empty=${filtered
        ? html`<${Empty} title="No queue matches"><button type="button" class="button" onClick=${clear}>Clear filters</button><//>`
        : html`<${Empty} title="No queues yet">Clients create them with their first SEND or SUBSCRIBE. ${may("edit") && html`<button type="button" class="button" onClick=${() => createQueue()}>Create a queue</button>`}<//>`} />`;
}
