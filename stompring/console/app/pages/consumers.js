/**
 * Consumers: who is slow, who holds unacknowledged messages.
 */
import { may, session } from "../api.js";
import { link, setQuery } from "../router.js";
import { useStore } from "../store.js";
import { Badge, Empty } from "../ui/badge.js";
import { ago, count, dateTime, duration, rate } from "../ui/format.js";
import { Choice, SearchField } from "../ui/form.js";
import { html, useState } from "../ui/html.js";
import { ServerTable, useColumns } from "../ui/table.js";
import { closeConnection } from "./connections.js";

/** @type {import("../ui/table.js").Column[]} */
export const CONSUMER_COLUMNS = [
  { key: "queue", label: "Queue", sort: true, fixed: true, width: "150px", render: (row) => html`<a class="name" href=${link("queues", row.queue)}>${row.queue}</a>` },
  { key: "slow", label: "State", sort: true, width: "70px", render: (row) => row.slow && html`<${Badge} tone="warning" title="Below slow-consumer-threshold, or its client does not read">slow<//>` },
  { key: "clientID", label: "Client id", sort: true, width: "130px", render: (row) => row.clientID ?? "–" },
  { key: "deliveringCount", label: "Unacked", sort: true, number: true, width: "95px", title: "Messages delivered and not yet settled", render: (row) => count(row.deliveringCount) },
  { key: "oldestDelivering", label: "Oldest", sort: true, number: true, width: "80px", title: "Time since the oldest unsettled message was delivered", render: (row) => duration(row.oldestDelivering) },
  { key: "credit", label: "Credit", sort: true, number: true, width: "85px", title: "Messages that it may be sent before it settles one", render: (row) => (row.credit === null ? "no limit" : count(row.credit)) },
  { key: "deliveredRate", label: "Delivered", sort: true, number: true, width: "90px", render: (row) => rate(row.deliveredRate) },
  { key: "acknowledgedRate", label: "Acked", sort: true, number: true, width: "80px", title: "Acknowledged per second", render: (row) => rate(row.acknowledgedRate) },
  { key: "ack", label: "Ack", sort: true, width: "135px", render: (row) => row.ack },
  { key: "filter", label: "Selector", sort: true, optional: true, width: "120px", render: (row) => (row.filter ? html`<code title=${row.filter}>${row.filter}</code>` : "–") },
  { key: "subscription", label: "Subscription", sort: true, width: "120px", optional: true, render: (row) => html`<span class="name">${row.subscription}</span>` },
  { key: "destination", label: "Destination", sort: true, width: "180px", optional: true, render: (row) => html`<span class="name">${row.destination}</span>` },
  { key: "messagesDelivered", label: "Delivered in all", sort: true, number: true, width: "130px", optional: true, render: (row) => count(row.messagesDelivered) },
  { key: "messagesAcknowledged", label: "Acknowledged in all", sort: true, number: true, width: "150px", optional: true, render: (row) => count(row.messagesAcknowledged) },
  { key: "connectionID", label: "Connection", sort: true, optional: true, width: "120px", render: (row) => html`<a class="name" href=${link("connections", row.connectionID)}>${row.connectionID}</a>` },
  { key: "remoteAddress", label: "Client", sort: true, width: "145px", render: (row) => html`<a class="mono" href=${link("connections", row.connectionID)}>${row.remoteAddress}</a>` },
  { key: "user", label: "User", sort: true, width: "90px", render: (row) => row.user ?? "–" },
  { key: "verdict", label: "What is going on", optional: true, width: "260px", render: (row) => row.verdict },
  { key: "protocol", label: "Protocol", sort: true, width: "120px", optional: true, render: (row) => row.protocol },
  { key: "creationTime", label: "Since", sort: true, optional: true, width: "120px", render: (row) => html`<span title=${dateTime(row.creationTime)}>${ago(row.creationTime)}</span>` },
];

/** @param {{query: Record<string, string>}} props */
export default function Consumers({ query }) {
  const [changes, setChanges] = useState(0);
  const secured = useStore(session).whoami?.securityEnabled !== false;
  const close = { key: "close", label: "Close", fixed: true, width: "90px", render: (/** @type {any} */ row) => html`<button type="button" class="button small danger-quiet" aria-label=${`Close the connection of ${row.consumerID}`} onClick=${() => closeConnection(row, () => setChanges(changes + 1))}>Close</button>` };
  const { columns, open } = useColumns("consumers", [...CONSUMER_COLUMNS.filter((column) => column.key !== "user" || secured), ...(may("edit") ? [close] : [])]);
  const only = query.only ?? "";
  return html`<div class="page-head"><h1>Consumers</h1></div>
    <div class="toolbar"><${SearchField} label="Search by queue" value=${query.search ?? ""} onInput=${(/** @type {string} */ search) => setQuery({ search })} />
      <${Choice} label="Show" value=${only} onInput=${(/** @type {string} */ value) => setQuery({ only: value })} options=${[["", "All"], ["slow", "Slow"]]} />
      <span class="spacer"></span><button type="button" class="button" onClick=${open}>Columns</button></div>
    <${ServerTable} label="Consumers" path="consumers" query=${{ search: query.search, ...(only ? { slow: true } : {}) }} columns=${columns} rowKey=${(/** @type {any} */ row) => row.consumerID}
      sort=${query.sort ?? "-deliveringCount"} onSort=${(/** @type {string} */ sort) => setQuery({ sort })} refreshKey=${changes}
      empty=${html`<${Empty} title=${only || query.search ? "No consumer matches." : "No client has a subscription."}>${only || query.search ? html`<button type="button" class="button" onClick=${() => setQuery({ only: undefined, search: undefined })}>Show all</button>` : html`<a href=${link("live")}>Subscribe in this page</a>`}<//>`} />`;
}
