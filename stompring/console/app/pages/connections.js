/**
 * Connections: who is there, who is slow, who holds unacknowledged messages; close one.
 */
import { api, may, session } from "../api.js";
import { link, setQuery } from "../router.js";
import { useStore } from "../store.js";
import { Badge, Empty } from "../ui/badge.js";
import { confirm, notify } from "../ui/dialog.js";
import { ago, bytes, count, dateTime, rate } from "../ui/format.js";
import { Choice, SearchField } from "../ui/form.js";
import { html, useState } from "../ui/html.js";
import { ServerTable, useColumns } from "../ui/table.js";

/** @param {any} row */
export const connectionBadges = (row) => html`<span class="badges">${row.slow && html`<${Badge} tone="warning" title="The client reads or settles too slowly">slow<//>`}
  ${row.blocked && html`<${Badge} tone="warning" title="Blocked by a full address or disk">blocked<//>`}</span>`;

/**
 * @param {any} row a connection, or a consumer with its connection
 * @param {() => void} done
 */
export function closeConnection(row, done) {
  confirm({
    title: "Close the connection",
    text: html`<p>The client <span class="name">${row.remoteAddress}</span>${row.user ? html` of user <span class="name">${row.user}</span>` : ""} gets an ERROR. Its unsettled messages return to their queues.</p>`,
    action: "Close the connection",
    run: async () => {
      await api.delete(["connections", row.connectionID]);
      notify(`The connection of ${row.remoteAddress} is closed.`);
      done();
    },
  });
}

/** @type {import("../ui/table.js").Column[]} */
const COLUMNS = [
  { key: "connectionID", label: "Connection", sort: true, fixed: true, width: "110px", render: (row) => html`<a class="name" href=${link("connections", row.connectionID)}>${row.connectionID}</a>` },
  { key: "remoteAddress", label: "Client", sort: true, width: "145px", render: (row) => html`<span class="mono">${row.remoteAddress}</span>` },
  { key: "state", label: "State", width: "85px", render: connectionBadges },
  { key: "user", label: "User", sort: true, width: "90px", render: (row) => row.user ?? "–" },
  { key: "clientID", label: "Client id", sort: true, width: "110px", render: (row) => row.clientID ?? "–" },
  { key: "protocol", label: "Protocol", sort: true, optional: true, width: "130px", render: (row) => row.protocol },
  { key: "subscriptionCount", label: "Subscriptions", sort: true, number: true, width: "110px", render: (row) => count(row.subscriptionCount) },
  { key: "deliveringCount", label: "Unacked", sort: true, number: true, width: "95px", title: "Messages delivered and not yet settled", render: (row) => count(row.deliveringCount) },
  { key: "messagesSent", label: "Sent", sort: true, number: true, optional: true, width: "90px", title: "SEND frames received from the client", render: (row) => count(row.messagesSent) },
  { key: "sentRate", label: "In", sort: true, number: true, width: "75px", title: "Messages per second from the client", render: (row) => rate(row.sentRate) },
  { key: "messagesDelivered", label: "Delivered", sort: true, number: true, width: "100px", optional: true, render: (row) => count(row.messagesDelivered) },
  { key: "deliveredRate", label: "Out", sort: true, number: true, width: "75px", title: "Messages per second to the client", render: (row) => rate(row.deliveredRate) },
  { key: "outgoingBytes", label: "Outbox", sort: true, number: true, width: "100px", title: "Bytes that the client has not read yet", render: (row) => bytes(row.outgoingBytes) },
  { key: "queues", label: "Queues", width: "200px", optional: true, render: (row) => (row.queues ?? []).join(", ") || "–" },
  { key: "transactionCount", label: "Transactions", sort: true, number: true, width: "110px", optional: true, render: (row) => count(row.transactionCount) },
  { key: "acceptor", label: "Acceptor", sort: true, width: "110px", optional: true, render: (row) => row.acceptor },
  { key: "creationTime", label: "Since", sort: true, width: "100px", render: (row) => html`<span title=${dateTime(row.creationTime)}>${ago(row.creationTime)}</span>` },
];

/** @param {{query: Record<string, string>}} props */
export default function Connections({ query }) {
  const [changes, setChanges] = useState(0);
  const secured = useStore(session).whoami?.securityEnabled !== false;
  const close = { key: "close", label: "Close", fixed: true, width: "90px", render: (/** @type {any} */ row) => html`<button type="button" class="button small danger-quiet" aria-label=${`Close ${row.connectionID}`} onClick=${() => closeConnection(row, () => setChanges(changes + 1))}>Close</button>` };
  const { columns, open } = useColumns("connections", [...COLUMNS.filter((column) => column.key !== "user" || secured), ...(may("edit") ? [close] : [])]);
  const only = query.only ?? "";
  return html`<div class="page-head"><h1>Connections</h1></div>
    <div class="toolbar"><${SearchField} label="Search connections" value=${query.search ?? ""} onInput=${(/** @type {string} */ search) => setQuery({ search })} />
      <${Choice} label="Show" value=${only} onInput=${(/** @type {string} */ value) => setQuery({ only: value })} options=${[["", "All"], ["slow", "Slow"], ["blocked", "Blocked"]]} />
      <span class="spacer"></span><button type="button" class="button" onClick=${open}>Columns</button></div>
    <${ServerTable} label="Connections" path="connections" query=${{ search: query.search, ...(only ? { [only]: true } : {}) }} columns=${columns} rowKey=${(/** @type {any} */ row) => row.connectionID}
      sort=${query.sort ?? "-deliveringCount"} onSort=${(/** @type {string} */ sort) => setQuery({ sort })} refreshKey=${changes}
      empty=${html`<${Empty} title=${only || query.search ? "No connection matches." : "No client is connected."}>${only || query.search ? html`<button type="button" class="button" onClick=${() => setQuery({ only: undefined, search: undefined })}>Show all</button>` : ""}<//>`} />`;
}
