/**
 * The broker in one glance: health with reasons, rates and depth, memory and disk, top queues, recent events.
 */
import { api, may } from "../api.js";
import { useBroker } from "../broker.js";
import { useHistory } from "../history.js";
import { usePoll } from "../poll.js";
import { link } from "../router.js";
import { useRemembered } from "../store.js";
import { Badge, Card, Empty, ErrorBox, Loading, Meter, Polled, Stat, StateIcon } from "../ui/badge.js";
import { Charted, DepthPlot, RatesPlot, WindowChoice } from "../ui/charts.js";
import { Choice } from "../ui/form.js";
import { amount, bytes, clock, count, dateTime, duration, rate, short } from "../ui/format.js";
import { html } from "../ui/html.js";
import { DataTable } from "../ui/table.js";
import { QueueLink, QueueState } from "../parts.js";

export default function Overview() {
  const { broker, health, problems, error, refresh } = useBroker();
  const [resolution, setResolution] = useRemembered("window", /** @type {import("../history.js").Resolution} */ ("1s"));
  if (!may("view")) {
    return html`<${Head} broker=${null} /><${Health} health=${health} problems=${problems} broker=${null} />
      <${Empty} title="No permission to see the broker">Your roles lack the permission view on activemq.management. Queues of which you know the name open with the address #/queues/NAME.<//>`;
  }
  return html`<${Head} broker=${broker}><${WindowChoice} value=${resolution} onInput=${setResolution} /><//>
    <${Health} health=${health} problems=${problems} broker=${broker} />
    ${broker
      ? html`<${Figures} broker=${broker} resolution=${resolution} />
          <div class="grid">
            <${Resources} broker=${broker} />
            <${TopQueues} />
            <${Events} />
            <${Listeners} broker=${broker} health=${health} />
          </div>
          <p class="hint"><a href="docs/">Documentation</a> · <a href="docs/runbook">Runbook</a>${broker.buildAdvice && ` · ${broker.buildAdvice}`}</p>`
      : error
        ? html`<${ErrorBox} error=${error} what="The broker could not be loaded" again=${refresh} />`
        : html`<${Loading} what="the broker" />`}`;
}

/** @param {{broker: any, children?: any}} props */
function Head({ broker, children }) {
  return html`<div class="page-head"><h1>Overview</h1>
    ${broker && html`<span class="muted">${broker.name} · up ${duration(broker.uptime)} · since ${dateTime(broker.started)}</span>`}
    <span class="spacer"></span>${children}</div>`;
}

/** @param {{health: any, problems: import("../broker.js").Problem[], broker: any}} props */
function Health({ health, problems, broker }) {
  if (!health) return null;
  const draining = Boolean(health.draining || broker?.draining);
  const errors = problems.filter((problem) => problem.severity === "error");
  const tone = errors.length || (!health.ready && !draining) ? "error" : problems.length || draining ? "warning" : "ok";
  const title = draining
    ? "Draining: the broker refuses new connections"
    : !health.ready
      ? "Not ready: the broker cannot serve every client"
      : errors.length
        ? `Ready, with ${amount(errors.length, "problem")}`
        : problems.length
          ? `Ready, with ${amount(problems.length, "warning")}`
          : "Healthy";
  return html`<section class=${`health-card health-card-${tone}`} aria-label="Health">
    <p class="health-title"><${StateIcon} tone=${tone} /><strong>${title}</strong>
      ${tone === "ok" && html`<span class="muted">Ready: ${amount((health.listeners ?? []).length, "listener")} open, the store is writable, no address is full.</span>`}</p>
    ${problems.length > 0 && html`<ul>${problems.map((problem) => html`<li><${Badge} tone=${problem.severity}>${problem.severity}<//>
      <span>${problem.text}</span>
      ${problem.queue ? html` <a href=${link("queues", problem.queue)}>Open the queue</a>` : problem.address ? html` <a href=${link("addresses", problem.address)}>Open the address</a>` : ""}</li>`)}</ul>`}
  </section>`;
}

/** @param {{broker: any, resolution: import("../history.js").Resolution}} props */
function Figures({ broker, resolution }) {
  const poll = useHistory(["broker"], resolution);
  const last = (/** @type {string} */ name) => poll.data?.series[name]?.at(-1) ?? null;
  const messages = last("messageCount");
  return html`<div class="stats">
      <${Stat} label="Messages" value=${short(messages ?? broker.heldMessageCount)} note=${messages === null ? "in memory" : `${short(last("pagedCount"))} paged`} href="#/queues" />
      <${Stat} label="In" value=${rate(last("added"))} />
      <${Stat} label="Delivered" value=${rate(last("delivered"))} />
      <${Stat} label="Acknowledged" value=${rate(last("acknowledged"))} />
      <${Stat} label="Delivering" value=${short(last("deliveringCount"))} note=${broker.exhaustedConsumers ? `${amount(broker.exhaustedConsumers, "consumer")} without credit` : "not settled"} />
      <${Stat} label="Connections" value=${count(broker.connectionCount)} note=${broker.slowConnections ? `${count(broker.slowConnections)} slow` : `${short(broker.totalConnectionCount)} so far`}
        tone=${broker.slowConnections ? "warning" : "neutral"} href="#/connections" />
      <${Stat} label="Queues" value=${count(broker.queueCount)} note=${`${count(broker.addressCount)} addresses`} href="#/queues" />
    </div>
    <div class="grid">
      <${Card} title="Rates" class="span-6"><${Charted} poll=${poll}>${(/** @type {any} */ history) => html`<${RatesPlot} history=${history} resolution=${resolution} height=${190} />`}<//><//>
      <${Card} title="Messages" class="span-6"><${Charted} poll=${poll}>${(/** @type {any} */ history) => html`<${DepthPlot} history=${history} resolution=${resolution} height=${190} />`}<//><//>
    </div>`;
}

/** @param {{broker: any}} props */
function Resources({ broker }) {
  const disk = broker.diskUsage !== null && broker.diskUsage < 1 ? broker.diskFree / (1 - broker.diskUsage) : null;
  return html`<${Card} title="Limits" class="span-4"><div class="meters">
    <${Meter} label="Memory of messages" value=${broker.addressMemoryUsage} max=${broker.globalMaxSize} format=${bytes} note="global-max-size" />
    ${broker.persistenceEnabled
      ? html`<${Meter} label="Disk" value=${disk === null ? null : disk * broker.diskUsage} max=${disk} format=${bytes} warnAt=${0.8} errorAt=${0.9} note=${`${bytes(broker.diskFree)} free`} />`
      : html`<p class="muted">No disk: persistence-enabled is false. Messages end with the broker.</p>`}
    <${Meter} label="Connections" value=${broker.connectionCount} max=${broker.globalMaxConnections} />
    ${broker.globalMaxQueues > 0 && html`<${Meter} label="Queues" value=${broker.queueCount} max=${broker.globalMaxQueues} />`}
    ${broker.globalMaxMessages > 0 && html`<${Meter} label="Messages in memory" value=${broker.heldMessageCount} max=${broker.globalMaxMessages} />`}
    ${broker.persistenceEnabled && html`<${Store} broker=${broker} />`}
  </div><//>`;
}

/** @param {{broker: any}} props */
function Store({ broker }) {
  const batch = broker.storeBatches ? broker.storeTime / broker.storeBatches : null;
  return html`<dl class="values"><div><dt>Journal</dt><dd>${bytes(broker.journalSize)}, ${bytes(broker.journalLiveSize)} needed</dd></div>
    <div><dt>Waiting for the disk</dt><dd>${bytes(broker.storeWaitingSize)}</dd></div>
    <div><dt>Mean write with sync</dt><dd>${batch === null ? "–" : duration(batch)}</dd></div></dl>`;
}

const RANKINGS = /** @type {[string, string][]} */ ([
  ["-messageCount", "Messages"],
  ["-addedRate", "In"],
  ["-oldestMessageAge", "Oldest"],
  ["-deliveringCount", "Delivering"],
]);

function TopQueues() {
  const [sort, setSort] = useRemembered("top", "-messageCount");
  const poll = usePoll((signal) => api.get("queues", { sort, size: 8 }, signal), [sort], { interval: 5000, keep: true });
  return html`<${Card} title="Top queues" class="span-8" actions=${html`<${Choice} label="Sort by" value=${sort} options=${RANKINGS} onInput=${setSort} />
      <a href=${link("queues", { sort })}>All queues</a>`}>
    <${Polled} poll=${poll} what="the queues">${(/** @type {any} */ list) => html`<${DataTable} label="Top queues" rows=${list.data} rowKey=${(/** @type {any} */ queue) => queue.name}
      empty=${html`<${Empty} title="No queues yet">Clients create them with their first SEND or SUBSCRIBE. ${may("edit") && html`<a href=${link("queues", { create: "1" })}>Create a queue</a>`}<//>`}
      columns=${TOP} />`}<//>
  <//>`;
}

/** @type {import("../ui/table.js").Column[]} */
const TOP = [
  { key: "name", label: "Queue", render: (queue) => html`<${QueueLink} name=${queue.name} /> <${QueueState} queue=${queue} />` },
  { key: "messageCount", label: "Messages", number: true, width: "80px", render: (queue) => short(queue.messageCount) },
  { key: "deliveringCount", label: "Delivering", number: true, width: "86px", render: (queue) => short(queue.deliveringCount) },
  { key: "addedRate", label: "In", number: true, width: "74px", render: (queue) => rate(queue.addedRate) },
  { key: "acknowledgedRate", label: "Ack", number: true, width: "74px", render: (queue) => rate(queue.acknowledgedRate) },
  { key: "consumerCount", label: "Consumers", number: true, width: "90px", render: (queue) => count(queue.consumerCount) },
  { key: "oldestMessageAge", label: "Oldest", number: true, width: "96px", render: (queue) => (queue.oldestMessageAge === null ? "–" : duration(queue.oldestMessageAge)) },
];

function Events() {
  const poll = usePoll((signal) => api.get("events", { size: 12 }, signal), [], { interval: 5000 });
  const all = poll.data?.data ?? poll.data?.events ?? [];
  const events = all.slice(-12).reverse();
  return html`<${Card} title="Recent events" class="span-8" actions=${html`<a href="#/events">All events</a>`}>
    <${Polled} poll=${poll} what="the events">${() =>
      events.length === 0
        ? html`<p class="none muted">Nothing has happened since the broker started.</p>`
        : html`<ol class="events" tabindex="0" aria-label="Recent events, the newest first">${events.map((/** @type {any} */ event) => html`<li key=${event.id}><time class="muted" title=${dateTime(event.time)}>${clock(event.time)}</time>
            <${Badge} tone=${toneOf(event.type)}>${event.type}<//><span class="event-text">${event.text}</span></li>`)}</ol>`}<//>
  <//>`;
}

/** @param {string} type @returns {import("../ui/badge.js").Tone} */
function toneOf(type) {
  if (/FAILED|VIOLATION|ERROR|DISK_FULL/.test(type)) return "error";
  return /FULL|SLOW|PAGING|DRAIN/.test(type) ? "warning" : "neutral";
}

/** @param {{broker: any, health: any}} props */
function Listeners({ broker, health }) {
  const missing = new Set((health?.missingListeners ?? []).map((/** @type {any} */ each) => each.acceptor ?? each));
  return html`<${Card} title="Listeners" class="span-4"><ul class="listeners">
    ${broker.listeners.map((/** @type {any} */ each) => html`<li><${StateIcon} tone="ok" /><span><strong>${each.name ?? each.acceptor ?? String(each)}</strong>
      <span class="muted"> ${[each.protocols?.join?.(", ") ?? each.protocol, each.tls && "TLS", each.webSocket && `at ${each.webSocket}`].filter(Boolean).join(" · ")}</span><br />
      <span class="mono">${each.host !== undefined ? `${each.host}:${each.port}` : (each.address ?? "")}</span></span></li>`)}
    ${[...missing].map((name) => html`<li><${StateIcon} tone="error" /><span><strong>${name}</strong> is not open</span></li>`)}
  </ul><//>`;
}
