/**
 * One queue: state, plots, ring, consumers, bindings, settings, actions.
 */
import { api, may } from "../api.js";
import { spanOf, useHistory } from "../history.js";
import { AddressLink, QueueLink, QueueState, Verdict } from "../parts.js";
import { usePermissions } from "../permissions.js";
import { usePoll } from "../poll.js";
import { deleteQueue, editQueue, pauseQueue, purgeQueue, retryQueue, transferQueue, trimQueue } from "../queue-actions.js";
import { link } from "../router.js";
import { SettingsTable } from "../settings.js";
import { useRemembered } from "../store.js";
import { Badge, Card, Empty, ErrorBox, Loading, Stat, Values } from "../ui/badge.js";
import { Charted, DepthPlot, RatesPlot, WindowChoice } from "../ui/charts.js";
import { brief, bytes, count, duration, rate, short } from "../ui/format.js";
import { html } from "../ui/html.js";
import { Menu } from "../ui/menu.js";
import { DURATIONS, Plot } from "../ui/plot.js";
import { Ring } from "../ui/ring.js";
import { DataTable } from "../ui/table.js";

/** @param {{params: Record<string, string>}} props */
export default function QueuePage({ params }) {
  const { name } = params;
  const poll = usePoll((signal) => api.get(["queues", name], {}, signal), [name], { interval: 2000 });
  const queue = poll.data;
  if (!queue) {
    const gone = poll.error?.missing && !poll.error.unknownRoute;
    return html`<div class="page-head"><h1 class="name">${name}</h1></div>
      ${gone
        ? html`<${Empty} title="This queue does not exist">It may have been deleted, or no client has used it yet. <a href=${link("queues", { search: name })}>Search for queues with this name</a><//>`
        : poll.error
          ? html`<${ErrorBox} error=${poll.error} what="The queue could not be loaded" again=${poll.refresh} />`
          : html`<${Loading} what="the queue" />`}`;
  }
  if (poll.error?.missing) {
    return html`<div class="page-head"><h1 class="name">${name}</h1></div><${Empty} title="This queue no longer exists">It was deleted while you looked at it. <a href=${link("queues")}>All queues</a><//>`;
  }
  return html`<${Head} queue=${queue} refresh=${poll.refresh} />
    ${poll.error && poll.error.status !== 0 && html`<${ErrorBox} error=${poll.error} what="The queue could not be refreshed" again=${poll.refresh} />`}
    <${Verdict} of=${queue} />
    <${Figures} queue=${queue} />
    <${Plots} name=${name} queue=${queue} time=${poll.time} />
    <${Consumers} queue=${queue} />
    <div class="grid">
      <${Bindings} queue=${queue} />
      ${queue.ringSize > 0 && html`<${Totals} queue=${queue} />`}
    </div>
    <${Settings} queue=${queue} />`;
}

/** @param {{queue: any, refresh: () => Promise<void>}} props */
function Head({ queue, refresh }) {
  const can = usePermissions(queue.address, queue.name);
  const { name } = queue;
  const edit = can("edit");
  const remove = edit && can(queue.durable ? "deleteDurableQueue" : "deleteNonDurableQueue");
  const done = () => void refresh();
  return html`<div><p class="crumb"><a href=${link("queues")}>Queues</a> / </p>
    <div class="page-head"><h1 class="name">${name}</h1><${QueueState} queue=${queue} all /><span class="spacer"></span>
      ${can("browse") && html`<a class="button primary" href=${link(["queues", name, "messages"])}>Browse messages</a>`}
      ${can("send") && html`<a class="button" href=${link(["messages", "send"], { queue: name, address: queue.address, routingType: queue.routingType })}>Send</a>`}
      ${edit && html`<button type="button" class="button" onClick=${() => pauseQueue(name, !queue.paused, done)}>${queue.paused ? "Resume" : "Pause"}</button>
        <button type="button" class="button" onClick=${() => editQueue(queue, done)}>Change</button>
        <${Menu} label="More" actions=${[
          { label: "Move messages …", hint: "To another queue or address", run: () => transferQueue(queue, "move", done) },
          { label: "Copy messages …", hint: "To another queue or address", run: () => transferQueue(queue, "copy", done) },
          { label: "Retry messages …", hint: "Dead letters back to where they came from", run: () => retryQueue(queue, done) },
          "-",
          queue.ringSize > 0 && { label: "Trim …", hint: "Evict what exceeds the ring size", run: () => trimQueue(queue, done) },
          { label: "Purge …", hint: "Remove all pending and scheduled messages", danger: true, run: () => purgeQueue(queue, done) },
          remove && { label: "Delete …", hint: "The queue with its messages", danger: true, run: () => deleteQueue(queue) },
        ]} />`}
    </div></div>`;
}

/** Pending messages in memory. @param {any} queue */
const pendingOf = (queue) => Math.max(0, queue.messageCount - queue.deliveringCount - queue.scheduledCount - queue.pagedCount);

/** Age of the oldest pending message in ms, or null. @param {any} queue */
const oldestOf = (queue) => queue.oldestAge ?? queue.oldestMessageAge;

/** @param {{queue: any}} props */
function Figures({ queue }) {
  const idle = queue.messageCount > 0 && queue.consumerCount === 0;
  return html`<div class="stats">
    <${Stat} label="Messages" value=${short(queue.messageCount)} note=${bytes(queue.persistentSize)} />
    <${Stat} label="Pending" value=${short(pendingOf(queue))} note=${queue.paused ? "paused" : "in memory"} tone=${queue.paused ? "warning" : "neutral"} />
    <${Stat} label="Delivering" value=${short(queue.deliveringCount)} note="not settled" />
    <${Stat} label="Scheduled" value=${short(queue.scheduledCount)} note="not due yet" />
    <${Stat} label="Paged" value=${short(queue.pagedCount)} note="on disk only" />
    <${Stat} label="Oldest" value=${brief(oldestOf(queue))} note="pending" title=${duration(oldestOf(queue))} />
    <${Stat} label="In" value=${rate(queue.addedRate)} note=${`${rate(queue.deliveredRate)} delivered`} />
    <${Stat} label="Consumers" value=${count(queue.consumerCount)} note=${idle ? "messages wait" : queue.maxConsumers >= 0 ? `at most ${count(queue.maxConsumers)}` : "any number"} tone=${idle ? "warning" : "neutral"} />
  </div>`;
}

/** @param {{name: string, queue: any, time: number}} props */
function Plots({ name, queue, time }) {
  const [resolution, setResolution] = useRemembered("window", /** @type {import("../history.js").Resolution} */ ("1s"));
  const poll = useHistory(["queues", name], resolution);
  const samples = agesOf(name, oldestOf(queue), time);
  const ring = queue.ringSize > 0;
  const ages = poll.data?.series.oldestAge
    ? { times: poll.data.times, values: poll.data.series.oldestAge }
    : samples;
  const choice = html`<${WindowChoice} value=${resolution} onInput=${setResolution} />`;
  return html`<div class="grid">
    <${Card} title="Depth" class=${ring ? "span-8" : "span-6"} actions=${choice}><${Charted} poll=${poll}>${(/** @type {any} */ history) => html`<${DepthPlot} history=${history} resolution=${resolution} height=${ring ? 290 : 180} />`}<//><//>
    ${ring && html`<${Card} title="Ring" class="span-4" note=${`ring-size ${count(queue.ringSize)}`}>
      <${Ring} size=${queue.ringSize} pending=${pendingOf(queue) + (queue.ringCountsPaged ? queue.pagedCount : 0)} delivering=${queue.deliveringCount} evicted=${queue.messagesReplaced}
        evictedRate=${queue.evictedRate ?? null} policy=${queue.ringPolicy} answer=${queue} /><//>`}
    <${Card} title="Rates" class="span-6"><${Charted} poll=${poll}>${(/** @type {any} */ history) => html`<${RatesPlot} history=${history} resolution=${resolution} height=${180} />`}<//><//>
    <${Card} title="Age of the oldest message" class="span-6" note=${poll.data?.series.oldestAge ? "" : "while this page showed it"}>
      <${Plot} label="Age of the oldest message" times=${ages.times} series=${[{ label: "age", color: "--c4", values: ages.values }]} format=${age} steps=${DURATIONS} least=${1000} span=${ages === samples ? 60_000 : spanOf(resolution)} height=${180} /><//>
    ${!ring && html`<${Totals} queue=${queue} />`}
  </div>`;
}

/** @param {number | null} value */
const age = (value) => (value === null ? "–" : value === 0 ? "0" : duration(value));

/** @typedef {{times: number[], values: (number | null)[]}} Ages */

/** The ages seen of the queues shown last: the history of the broker has none. @type {Map<string, Ages>} */
const seen = new Map();
const MOST_QUEUES = 50;
const MOST_AGES = 900;
/** Two ages further apart than this, in ms, are not joined by a line. */
const GAP = 30_000;

/**
 * @param {string} name of the queue
 * @param {number | null} value
 * @param {number} time
 * @returns {Ages}
 */
function agesOf(name, value, time) {
  const known = seen.get(name) ?? { times: [], values: [] };
  const last = known.times.at(-1) ?? 0;
  if (time <= last) return known;
  const gap = last > 0 && time - last > GAP;
  const ages = {
    times: [...known.times, ...(gap ? [last + 1] : []), time].slice(-MOST_AGES),
    values: [...known.values, ...(gap ? [null] : []), value].slice(-MOST_AGES),
  };
  seen.delete(name);
  seen.set(name, ages);
  if (seen.size > MOST_QUEUES) seen.delete([...seen.keys()][0]);
  return ages;
}

/** @type {import("../ui/table.js").Column[]} */
const CONSUMERS = [
  { key: "clientID", label: "Client", sort: true, render: (row) => html`<a href=${link("connections", { search: row.connectionID ?? "" })} title=${row.connectionID}><span class="name">${row.clientID || row.connectionID || row.subscription}</span></a>
      ${row.slow && html` <${Badge} tone="error">slow<//>`}` },
  { key: "remoteAddress", label: "Peer", sort: true, width: "150px", render: (row) => html`<span class="mono">${row.remoteAddress ?? "–"}</span>` },
  { key: "user", label: "User", sort: true, width: "90px", render: (row) => row.user ?? "–" },
  { key: "ack", label: "Ack mode", sort: true, width: "130px", render: (row) => row.ack },
  { key: "deliveringCount", label: "Unsettled", sort: true, number: true, width: "90px", render: (row) => short(row.deliveringCount) },
  { key: "credit", label: "Credit", sort: true, number: true, width: "130px", title: "Messages it may still get before it acknowledges", render: (row) => html`<${Credit} row=${row} />` },
  { key: "oldestDelivering", label: "Oldest unsettled", sort: true, number: true, width: "120px", render: (row) => (row.oldestDelivering === null || row.oldestDelivering === undefined ? "–" : duration(row.oldestDelivering)) },
  { key: "deliveredRate", label: "Delivered", sort: true, number: true, width: "90px", render: (row) => (row.deliveredRate === undefined ? short(row.messagesDelivered) : rate(row.deliveredRate)) },
  { key: "acknowledgedRate", label: "Acknowledged", sort: true, number: true, width: "116px", render: (row) => (row.acknowledgedRate === undefined ? short(row.messagesAcknowledged) : rate(row.acknowledgedRate)) },
  { key: "filter", label: "Selector", width: "140px", render: (row) => html`<code class="wrap">${row.filter ?? "–"}</code>` },
];

/** @param {{row: any}} props */
function Credit({ row }) {
  if (row.credit === undefined) return "–";
  if (row.credit === null) return "no limit";
  if (row.credit === 0) return html`<${Badge} tone="warning" title="It receives nothing until it acknowledges">none left<//>`;
  return row.prefetchCount > 0 ? `${short(row.credit)} of ${short(row.prefetchCount)}` : short(row.credit);
}

/** @param {{queue: any}} props */
function Consumers({ queue }) {
  const rows = queue.consumers ?? [];
  const columns = CONSUMERS.filter((column) => !["user", "filter"].includes(column.key) || rows.some((/** @type {any} */ row) => row[column.key]));
  return html`<${Card} title="Consumers" note=${rows.length ? count(rows.length) : ""} actions=${rows.length > 0 && may("view") && html`<a href=${link("consumers", { search: queue.name })}>In the list of consumers</a>`}>
    <${DataTable} label="Consumers of the queue" columns=${columns} rows=${rows} rowKey=${(/** @type {any} */ row) => row.consumerID ?? `${row.connectionID}/${row.subscription}`} sort="-deliveringCount"
      empty=${html`<p class="none muted">No consumer. Clients subscribe to <code>${destination(queue)}</code>${queue.messageCount > 0 ? "; the messages wait until one does" : ""}.</p>`} /><//>`;
}

/** How a client addresses the queue, with the prefixes of the shipped configuration. @param {any} queue */
function destination(queue) {
  return queue.address === queue.name ? queue.address : `${queue.address}::${queue.name}`;
}

/** @param {{queue: any}} props */
function Bindings({ queue }) {
  const poll = usePoll((signal) => api.get(["addresses", queue.address], {}, signal), [queue.address], { interval: 10000 });
  const others = (poll.data?.queues ?? []).filter((/** @type {string} */ name) => name !== queue.name);
  const settings = poll.data?.settings ?? {};
  const route = (/** @type {string | null | undefined} */ name) => (name ? html`<${AddressLink} name=${name} />` : html`<span class="muted">none: dropped</span>`);
  return html`<${Card} title="Bindings" class=${queue.ringSize > 0 ? "span-6" : "span-12"}><${Values} items=${[
    ["Address", html`<${AddressLink} name=${queue.address} />`],
    ["Routing type", queue.routingType],
    ["Filter", queue.filter ? html`<code>${queue.filter}</code>` : "none: every message"],
    ["Other queues of the address", others.length === 0 ? "none" : html`${others.slice(0, 5).map((/** @type {string} */ name, /** @type {number} */ index) => html`${index > 0 && ", "}<${QueueLink} name=${name} />`)}${others.length > 5 && html`, <a href=${link("queues", { address: queue.address })}>${count(others.length - 5)} more</a>`}`],
    ["Dead letters go to", poll.data ? route(settings.deadLetterAddress) : "–"],
    ["Expired messages go to", poll.data ? route(settings.expiryAddress) : "–"],
  ]} /><//>`;
}

/** @param {{queue: any}} props */
function Totals({ queue }) {
  return html`<${Card} title="Since the broker started" class="span-6"><${Values} items=${[
    ["Added", count(queue.messagesAdded)],
    ["Acknowledged", count(queue.messagesAcknowledged)],
    ["Expired", count(queue.messagesExpired)],
    ["Killed", html`<span title="After max-delivery-attempts, by a purge, or with the queue">${count(queue.messagesKilled)}</span>`],
    ["Evicted", count(queue.messagesReplaced)],
    ["Memory", bytes(queue.persistentSize)],
  ]} /><//>`;
}

/** @param {{queue: any}} props */
function Settings({ queue }) {
  const poll = usePoll((signal) => api.get(["queues", queue.name, "settings"], {}, signal), [queue.name], { interval: 15000 });
  return html`<${SettingsTable} poll=${poll} what="queue" />`;
}
