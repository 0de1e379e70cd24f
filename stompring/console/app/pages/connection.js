/**
 * One connection and its subscriptions.
 */
import { api, may } from "../api.js";
import { Verdict } from "../parts.js";
import { usePoll } from "../poll.js";
import { link, navigate } from "../router.js";
import { Card, Polled, Stat, Values } from "../ui/badge.js";
import { ago, bytes, count, dateTime, rate } from "../ui/format.js";
import { html } from "../ui/html.js";
import { DataTable } from "../ui/table.js";
import { closeConnection, connectionBadges } from "./connections.js";
import { CONSUMER_COLUMNS } from "./consumers.js";

/** @param {{params: {id: string}}} props */
export default function Connection({ params }) {
  const poll = usePoll((signal) => api.get(["connections", params.id], {}, signal), [params.id], { interval: 3000 });
  return html`<div class="page-head"><div><p class="crumb"><a href=${link("connections")}>Connections</a></p><h1>Connection <span class="name">${params.id}</span></h1></div>
      ${poll.data && connectionBadges(poll.data)}<span class="spacer"></span>
      ${poll.data && may("edit") && html`<button type="button" class="button danger-quiet" onClick=${() => closeConnection(poll.data, () => navigate(link("connections")))}>Close</button>`}</div>
    <${Polled} poll=${poll} what="the connection">${(/** @type {any} */ one) => html`<${Verdict} of=${one} />
      <div class="stats"><${Stat} label="Unacknowledged" value=${count(one.deliveringCount)} tone=${one.slow ? "warning" : "neutral"} /><${Stat} label="In" value=${rate(one.sentRate)} note=${`${count(one.messagesSent)} in all`} />
        <${Stat} label="Out" value=${rate(one.deliveredRate)} note=${`${count(one.messagesDelivered)} in all`} /><${Stat} label="Outbox" value=${bytes(one.outgoingBytes)} note="not yet read by the client" /></div>
      <${Card} title="Client"><${Values} items=${[
        ["Address", html`<span class="mono">${one.remoteAddress}</span>`],
        ["User", one.user ?? "–"],
        ["Client id", one.clientID ?? "–"],
        ["Protocol", one.protocol],
        ["Acceptor", one.acceptor],
        ["Connected", html`<span title=${dateTime(one.creationTime)}>${ago(one.creationTime)}</span>`],
        ["Open transactions", count(one.transactionCount)],
      ]} /><//>
      <${Card} title="Subscriptions" note=${count(one.subscriptions.length)}>
        <${DataTable} label="Subscriptions" columns=${CONSUMER_COLUMNS.filter((column) => !["connectionID", "remoteAddress", "user", "clientID", "protocol"].includes(column.key))}
          rows=${one.subscriptions} rowKey=${(/** @type {any} */ row) => row.subscription} empty="The connection has no subscriptions." /><//>`}<//>`;
}
