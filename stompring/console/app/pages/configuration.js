/**
 * Configuration: what a reload would change, reload, drain.
 */
import { api, ApiError, may } from "../api.js";
import { useBroker } from "../broker.js";
import { usePoll } from "../poll.js";
import { Badge, Card, ErrorBox, Polled, Stat, StateIcon, Values } from "../ui/badge.js";
import { asApiError, confirm, notify, notifyError } from "../ui/dialog.js";
import { ago, amount, count, dateTime } from "../ui/format.js";
import { html, useState } from "../ui/html.js";
import { DataTable } from "../ui/table.js";

/**
 * @typedef {{applied: string[], restartRequired: string[], failed: string[], warnings?: string[],
 *   changes?: {what: string, name: string, setting: string, before: any, after: any, restart: boolean}[]}} Changes
 */

export default function Configuration() {
  const { broker } = useBroker();
  return html`<div class="page-head"><h1>Configuration</h1></div>
    ${broker && html`<${Card} title="Broker"><${Values} items=${[
      ["Name", broker.name],
      ["Version", broker.version],
      ["Running since", html`<span title=${dateTime(broker.started)}>${ago(broker.started)}</span>`],
      ["Configuration", html`<code class="name">${broker.configurationFile ?? "–"}</code>`],
      ["Security", broker.securityEnabled ? "enabled" : html`<${Badge} tone="warning">disabled<//> every client may do everything`],
      ["Persistence", broker.persistenceEnabled ? "enabled" : html`<${Badge} tone="warning">disabled<//> messages are lost at the next restart`],
      ["Listeners", broker.listeners.map((/** @type {any} */ each) => html`<div><span class="name">${each.acceptor}</span> <span class="mono muted">${each.host}:${each.port}</span>${each.tls ? html` <${Badge} tone="ok">TLS<//>` : ""}</div>`)],
    ]} /><//>`}
    <${Reload} />
    <${Drain} />`;
}

function Reload() {
  const [plan, setPlan] = useState(/** @type {Changes | null} */ (null));
  const [result, setResult] = useState(/** @type {Changes | null} */ (null));
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const [busy, setBusy] = useState(false);
  const run = async (/** @type {boolean} */ dryRun) => {
    setBusy(true);
    setError(null);
    try {
      const answer = await api.post("reload", dryRun ? { dryRun: true } : {});
      setPlan(dryRun ? answer : null);
      setResult(dryRun ? null : answer);
      if (!dryRun) notify("The configuration is reloaded.", answer.failed.length ? "error" : "ok");
    } catch (fault) {
      setPlan(null);
      setResult(null);
      setError(asApiError(fault));
    }
    setBusy(false);
  };
  if (!may("edit")) return null;
  const nothing = plan && !plan.applied.length && !plan.restartRequired.length && !plan.failed.length;
  return html`<${Card} title="Reload" note="broker.xml, plugins, users, roles and certificates" actions=${html`
      <button type="button" class="button" disabled=${busy} onClick=${() => run(true)}>Show what would change</button>
      ${plan && !nothing && html`<button type="button" class="button primary" disabled=${busy} onClick=${() => run(false)}>Reload now</button>`}`}>
    <div aria-live="polite" class="stack">
    ${!plan && !result && !error && html`<p class="muted">Nothing is applied before you have seen it.</p>`}
    ${error && html`<div class="form-error" role="alert"><${StateIcon} tone="error" /><div><p><strong>The configuration has a fault; the current one stays in force.</strong></p><p class="pre">${error.message}</p></div></div>`}
    ${nothing && html`<p><${StateIcon} tone="ok" /> The running configuration is that of the files: a reload changes nothing.</p>`}
    ${plan?.warnings?.map((text) => html`<p class="note-line"><${StateIcon} tone="warning" /> ${text}</p>`)}
    ${plan && !nothing && html`${plan.changes && plan.changes.length > 0 && html`<${Differences} changes=${plan.changes} />`}<${ChangeList} title="A reload would apply" tone="accent" changes=${plan.applied} /><${ChangeList} title="Only after a restart" tone="warning" changes=${plan.restartRequired} /><${ChangeList} title="Would fail" tone="error" changes=${plan.failed} />`}
    ${result && html`<${ChangeList} title="Applied" tone="ok" changes=${result.applied} /><${ChangeList} title="Only after a restart" tone="warning" changes=${result.restartRequired} /><${ChangeList} title="Failed" tone="error" changes=${result.failed} />
      ${!result.applied.length && !result.failed.length && !result.restartRequired.length && html`<p><${StateIcon} tone="ok" /> Nothing had changed.</p>`}`}
    </div><//>`;
}

/** @param {{changes: NonNullable<Changes["changes"]>}} props */
function Differences({ changes }) {
  const text = (/** @type {any} */ value) => (value === null || value === undefined ? html`<span class="muted">not set</span>` : html`<code class="wrap name">${typeof value === "string" ? value : JSON.stringify(value)}</code>`);
  return html`<${DataTable} label="Differences" rows=${changes} rowKey=${(/** @type {any} */ each) => JSON.stringify([each.what, each.name, each.setting])} columns=${[
    { key: "what", label: "Where", sort: true, width: "220px", render: (/** @type {any} */ each) => html`${each.what} <span class="name">${each.name ?? ""}</span>` },
    { key: "setting", label: "Setting", sort: true, width: "200px", render: (/** @type {any} */ each) => html`<code>${each.setting}</code>` },
    { key: "before", label: "Now", width: "150px", render: (/** @type {any} */ each) => html`<span class="diff-before">${text(each.before)}</span>` },
    { key: "after", label: "After", width: "150px", render: (/** @type {any} */ each) => html`<span class="diff-after">${text(each.after)}</span>` },
    { key: "restart", label: "Takes effect", sort: true, width: "160px", render: (/** @type {any} */ each) => (each.restart ? html`<${Badge} tone="warning">at the next start<//>` : html`<${Badge} tone="accent">with the reload<//>`) },
  ]} />`;
}

/** @param {{title: string, tone: import("../ui/badge.js").Tone, changes: any[]}} props */
function ChangeList({ title, tone, changes }) {
  if (!changes.length) return null;
  return html`<section><h3>${title} <${Badge} tone=${tone}>${count(changes.length)}<//></h3><ul class="changes">${changes.map((each) => html`<li class="name">${typeof each === "string" ? each : JSON.stringify(each)}</li>`)}</ul></section>`;
}

function Drain() {
  const { refresh: refreshBroker } = useBroker();
  const poll = usePoll((signal) => api.get("drain", {}, signal), [], { interval: 2000 });
  const change = async (/** @type {"drain" | "undrain"} */ what) => {
    await api.post(what);
    notify(what === "drain" ? "The broker drains: it refuses new connections." : "The broker accepts connections again.");
    await Promise.all([poll.refresh(), refreshBroker()]);
  };
  const drain = () =>
    confirm({
      title: "Drain the broker",
      text: html`<p>New STOMP connections are refused, and <code>/health/ready</code> answers 503, so that load balancers send clients elsewhere. Connections that exist go on.</p>`,
      action: "Drain",
      run: () => change("drain"),
    });
  const undrain = () => change("undrain").catch((fault) => notifyError(fault, "The drain could not be ended"));
  return html`<${Card} title="Drain" note="before a restart or an upgrade" actions=${may("edit") && poll.data && (poll.data.draining
      ? html`<button type="button" class="button primary" onClick=${undrain}>Accept connections again</button>`
      : html`<button type="button" class="button danger-quiet" onClick=${drain}>Drain</button>`)}>
    ${poll.error?.missing ? html`<${ErrorBox} error=${poll.error} />` : html`<${Polled} poll=${poll} what="the state of the drain">${(/** @type {any} */ state) => html`
      <div class="stack"><p aria-live="polite">${state.draining ? html`<${StateIcon} tone="warning" /> Draining since ${dateTime(state.since)}: new connections are refused.` : html`<${StateIcon} tone="ok" /> The broker accepts connections.`}</p>
      <div class="stats"><${Stat} label="Connections" value=${count(state.connections)} /><${Stat} label="In delivery" value=${count(state.deliveringCount)} note="not yet acknowledged" /><${Stat} label="Messages" value=${count(state.messageCount)} note="in all queues" /></div>
      ${state.draining && html`<p class="hint">${state.connections === 0 ? "No client is connected: the broker can be stopped." : `${amount(state.connections, "connection")} left.`}</p>`}</div>`}<//>`}
  <//>`;
}
