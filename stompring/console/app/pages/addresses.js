/**
 * The list of addresses.
 */
import { AddressLink } from "../parts.js";
import { createAddress } from "../address-actions.js";
import { may } from "../api.js";
import { link, setQuery, useSearch } from "../router.js";
import { Badge, Empty } from "../ui/badge.js";
import { Filter, SearchField } from "../ui/form.js";
import { amount, bytes, count, percent, rate, short } from "../ui/format.js";
import { html, useState } from "../ui/html.js";
import { ServerTable, useColumns } from "../ui/table.js";

/**
 * @param {string} key
 * @param {string} label
 * @param {(value: any, row: any) => any} format
 * @param {Partial<import("../ui/table.js").Column>} [more]
 * @returns {import("../ui/table.js").Column}
 */
const figure = (key, label, format, more = {}) => ({ key, label, number: true, sort: true, width: "96px", render: (row) => (row[key] ? format(row[key], row) : html`<span class="zero">${format(row[key], row)}</span>`), ...more });

/** @type {import("../ui/table.js").Column[]} */
const COLUMNS = [
  { key: "name", label: "Address", sort: true, fixed: true, render: (address) => html`<span class="name-cell"><${AddressLink} name=${address.name} /><${AddressState} address=${address} /></span>` },
  { key: "routingTypes", label: "Routing", width: "180px", render: (address) => address.routingTypes.join(", ") },
  figure("queueCount", "Queues", (value, address) => html`<a href=${link("queues", { address: address.name })}>${count(value)}</a>`),
  figure("messageCount", "Messages", short),
  figure("addedRate", "In", rate, { title: "Messages sent per second, mean of 10 s" }),
  figure("routedMessageCount", "Routed", short, { title: "Since the broker started" }),
  figure("unRoutedMessageCount", "Not routed", short, { title: "Messages that no queue accepted, since the broker started" }),
  figure("addressSize", "Memory", bytes),
  figure("limitPercent", "Of limit", (value) => (value > 0 ? percent(value / 100) : "–"), { title: "Use of max-size-bytes or max-size-messages" }),
  figure("numberOfPages", "Pages", short, { optional: true }),
  figure("pagesSize", "Paged", bytes, { optional: true }),
  figure("blockedProducers", "Blocked", count, { title: "Connections blocked because the address, the disk or the store is full" }),
  figure("droppedMessageCount", "Dropped", short, { optional: true }),
  figure("duplicateMessageCount", "Duplicates", short, { optional: true }),
  { key: "policies", label: "Policies", optional: true, width: "160px", render: (address) => address.policies.join(", ") || "–" },
];

/** @param {{address: any, all?: boolean}} props */
export function AddressState({ address, all = false }) {
  return html`<span class="badges">
    ${address.paused && html`<${Badge} tone="warning" title="Its queues deliver nothing">paused<//>`}
    ${address.paging && html`<${Badge} tone="warning" title="New messages are written to pages on disk">paging<//>`}
    ${address.blockedProducers > 0 && html`<${Badge} tone="error" title="Producers wait for memory or disk">blocking<//>`}
    ${all && address.routingTypes.map((/** @type {string} */ type) => html`<${Badge}>${type}<//>`)}
    ${address.policies.length > 0 && html`<${Badge} tone="accent" title=${address.policies.join(", ")}>${amount(address.policies.length, "policy", "policies")}<//>`}
    ${all && address.autoCreated && html`<${Badge} title="Created by the broker for a client">auto-created<//>`}
    ${all && address.configured && html`<${Badge} title="Defined in broker.xml: a reload resets it to the file">broker.xml<//>`}
  </span>`;
}

/** @type {[string, string, Record<string, any>][]} */
const STATES = [
  ["", "All states", {}],
  ["paging", "Paging", { paging: true }],
  ["paused", "Paused", { paused: true }],
  ["no-queues", "Without queues", { queueCount: 0 }],
  ["auto", "Auto-created", { autoCreated: true }],
  ["configured", "In broker.xml", { configured: true }],
];

/** @param {{query: Record<string, string>}} props */
export default function Addresses({ query }) {
  const [total, setTotal] = useState(/** @type {number | null} */ (null));
  const [search, setSearch] = useSearch(query.search ?? "");
  const { columns, open } = useColumns("addresses", COLUMNS);
  const state = STATES.find(([key]) => key === query.state) ?? STATES[0];
  const filters = { search: query.search, routingTypes: query.type, ...state[2] };
  const filtered = Object.values(filters).some((value) => value !== undefined && value !== "");
  const clear = () => {
    setSearch("");
    setQuery({ search: "", type: "", state: "" });
  };
  return html`<div class="page-head"><h1>Addresses</h1>${total !== null && html`<span class="muted" role="status">${amount(total, "address", "addresses")}${filtered ? " found" : ""}</span>`}
      <span class="spacer"></span>${may("edit") && html`<button type="button" class="button primary" onClick=${() => createAddress()}>Create an address</button>`}</div>
    <div class="toolbar">
      <${SearchField} label="Search addresses by name" value=${search} onInput=${setSearch} />
      <${Filter} label="State" value=${state[0]} onInput=${(/** @type {string} */ value) => setQuery({ state: value })} options=${STATES.map(([key, label]) => [key, label])} />
      <${Filter} label="Routing type" value=${query.type ?? ""} onInput=${(/** @type {string} */ value) => setQuery({ type: value })} options=${[["", "All routing types"], "ANYCAST", "MULTICAST"]} />
      ${filtered && html`<button type="button" class="button quiet" onClick=${clear}>Clear filters</button>`}
      <span class="spacer"></span><button type="button" class="button" onClick=${open}>Columns</button>
    </div>
    <${ServerTable} label="Addresses" path="addresses" query=${filters} columns=${columns} rowKey=${(/** @type {any} */ address) => address.name} sort=${query.sort ?? "name"}
      onSort=${(/** @type {string} */ value) => setQuery({ sort: value })} onData=${(/** @type {any} */ list) => setTotal(list.count)} empty=${filtered
        ? html`<${Empty} title="No address matches"><button type="button" class="button" onClick=${clear}>Clear filters</button><//>`
        : html`<${Empty} title="No addresses yet">Clients create them with their first SEND or SUBSCRIBE.<//>`} />`;
}
