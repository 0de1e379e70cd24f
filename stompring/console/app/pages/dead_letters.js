/**
 * Dead letters and expired messages of all queues, grouped by where they came from and why.
 */
import { api } from "../api.js";
import { operate, operateNow } from "../operations.js";
import { usePermissions } from "../permissions.js";
import { usePoll } from "../poll.js";
import { link } from "../router.js";
import { Badge, Empty, Polled, Stat } from "../ui/badge.js";
import { ago, amount, count, dateTime } from "../ui/format.js";
import { html, useState } from "../ui/html.js";
import { DataTable } from "../ui/table.js";

/** @param {any} group */
const keyOf = (group) => JSON.stringify([group.queue, group.originAddress, group.originQueue, group.reason]);

export default function DeadLetters() {
  const poll = usePoll((signal) => api.get("dead-letters", { size: 1000, sort: "-count" }, signal), [], { interval: 15000 });
  const [busy, setBusy] = useState("");
  const retry = async (/** @type {any} */ group) => {
    setBusy(keyOf(group));
    await operateNow(group.queue, "retry", { filter: group.filter }, poll.refresh);
    setBusy("");
  };
  const from = (/** @type {any} */ group) => group.originQueue ?? group.originAddress ?? "unknown";
  const remove = (/** @type {any} */ group) =>
    operate({
      title: `Delete ${amount(group.count, "message")}`,
      text: html`<p>All messages in <span class="name">${group.queue}</span> that came from <span class="name">${from(group)}</span>${group.reason ? ` (${group.reason})` : ""}. They cannot be restored.</p>`,
      queue: group.queue,
      operation: "remove",
      selection: { filter: group.filter },
      action: "Delete",
      name: group.queue,
      onDone: poll.refresh,
    });
  const move = (/** @type {any} */ group) =>
    operate({ title: `Move ${amount(group.count, "message")}`, queue: group.queue, operation: "move", selection: { filter: group.filter }, action: "Move", onDone: poll.refresh });
  const columns = [
    { key: "origin", label: "Came from", sort: true, value: from, render: (/** @type {any} */ group) => html`${group.originQueue ? html`<a class="name" href=${link("queues", group.originQueue)}>${group.originQueue}</a>` : html`<span class="name">${group.originAddress ?? "unknown"}</span>`}
      ${group.originQueue && group.originAddress && group.originAddress !== group.originQueue ? html`<span class="muted"> of address <span class="name">${group.originAddress}</span></span>` : ""}` },
    { key: "reason", label: "Reason", sort: true, width: "165px", render: (/** @type {any} */ group) => html`<${Badge} tone=${group.reason === "expired" ? "neutral" : "warning"}>${group.reason ?? "unknown"}<//>` },
    { key: "queue", label: "Is in", sort: true, width: "130px", render: (/** @type {any} */ group) => html`<a class="name" href=${link("queues", group.queue)}>${group.queue}</a>` },
    { key: "count", label: "Messages", sort: true, number: true, width: "95px", render: (/** @type {any} */ group) => html`<a href=${link("queues", group.queue, "messages", { filter: group.filter })}>${count(group.count)}${group.complete === false ? "+" : ""}</a>` },
    { key: "oldest", label: "Oldest", sort: true, width: "95px", render: (/** @type {any} */ group) => html`<span title=${dateTime(group.oldest)}>${ago(group.oldest)}</span>` },
    { key: "newest", label: "Newest", sort: true, width: "95px", render: (/** @type {any} */ group) => html`<span title=${dateTime(group.newest)}>${ago(group.newest)}</span>` },
    { key: "actions", label: "Actions", width: "205px", render: (/** @type {any} */ group) => html`<${Actions} group=${group} from=${from(group)} busy=${busy === keyOf(group)} retry=${retry} move=${move} remove=${remove} />` },
  ];
  // On a phone what one does comes before what one may want to know.
  const shown = window.matchMedia("(max-width: 560px)").matches ? [{ ...columns[0], width: "110px" }, columns[columns.length - 1], ...columns.slice(1, -1)] : columns;
  return html`<div class="page-head"><h1>Dead letters</h1><span class="spacer"></span><button type="button" class="button" onClick=${poll.refresh}>Refresh</button></div>
    <p class="muted">Messages that the broker moved because they failed too often, expired or had no queue. Retry sends each back to the queue it came from.</p>
    <${Polled} poll=${poll} what="the dead letters">${(/** @type {any} */ list) => {
      const groups = list.data;
      if (groups.length === 0) return html`<${Empty} title="No dead letters."><a href=${link("queues")}>Queues</a><//>`;
      const total = groups.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.count, 0);
      const complete = groups.every((/** @type {any} */ each) => each.complete !== false);
      return html`<div class="stats"><${Stat} label="Messages" value=${`${count(total)}${complete ? "" : "+"}`} tone="warning" />
          <${Stat} label="Came from" value=${count(new Set(groups.map(from)).size)} note="queues or addresses" /><${Stat} label="Oldest" value=${ago(Math.min(...groups.map((/** @type {any} */ each) => each.oldest ?? Infinity)))} /></div>
        ${!complete && html`<p class="hint">+: only the first 10,000 messages of a queue are examined. Retry and delete apply to all.</p>`}
        <${DataTable} label="Dead letters by origin and reason" columns=${shown} rows=${groups} rowKey=${keyOf} sort="-count" />`;
    }}<//>`;
}

/**
 * @param {{group: any, from: string, busy: boolean, retry: (group: any) => void, move: (group: any) => void, remove: (group: any) => void}} props
 */
function Actions({ group, from, busy, retry, move, remove }) {
  const access = usePermissions(undefined, group.queue);
  if (!access("edit")) return html`<span class="muted">no permission</span>`;
  return html`<span class="row-actions">
    <button type="button" class="button small primary" disabled=${busy} aria-label=${`Retry the messages from ${from}`} onClick=${() => retry(group)}>${busy ? "Retrying …" : "Retry"}</button>
    ${access("browse") && html`<button type="button" class="button small" aria-label=${`Move the messages from ${from}`} onClick=${() => move(group)}>Move</button>`}
    <button type="button" class="button small danger-quiet" aria-label=${`Delete the messages from ${from}`} onClick=${() => remove(group)}>Delete</button></span>`;
}
