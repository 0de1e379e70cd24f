/**
 * High availability: the role of this broker and its replicated log.
 */
import { api } from "../api.js";
import { usePoll } from "../poll.js";
import { Badge, Card, Empty, Meter, Polled, Stat, StateIcon, Values } from "../ui/badge.js";
import { ago, amount, bytes, count, dateTime, duration } from "../ui/format.js";
import { html } from "../ui/html.js";

/** @type {Record<string, "ok" | "warning" | "error" | "neutral">} */
const TONES = { active: "ok", standby: "neutral", suspended: "error", fenced: "error", failed: "error", connecting: "warning", released: "warning" };

export default function HighAvailability() {
  const poll = usePoll((signal) => api.get("ha", {}, signal), [], { interval: 2000 });
  return html`<div class="page-head"><h1>High availability</h1></div>
    <${Polled} poll=${poll} what="the replicated log">${(/** @type {any} */ state) => {
      if (!state.enabled) return html`<${Empty} title="There is no replicated log."><p>With <code>replicated-log</code> in broker.xml another broker takes over when this one or its machine is lost, and no confirmed message is lost.</p><//>`;
      const standby = state.role !== "active" && state.role !== "suspended";
      const each = state.appendCount ? state.appendTime / state.appendCount : null;
      return html`${state.fault && html`<p class="form-error" role="alert"><${StateIcon} tone="error" /><span>${state.fault}</span></p>`}
        ${state.missingEntries > 0 && html`<p class="form-error" role="alert"><${StateIcon} tone="error" /><span>The log has lost at least ${amount(state.missingEntries, "entry", "entries")} that this standby lacks: no takeover until they are written again.</span></p>`}
        <div class="stats"><${Stat} label="Role" value=${html`<${Badge} tone=${TONES[state.role] ?? "neutral"}>${state.role}<//>`} note=${state.broker} />
          <${Stat} label="Active broker" value=${state.activeBroker ?? "none"} note=${state.lastBeat ? `beat ${ago(state.lastBeat)}` : undefined} tone=${state.activeBroker ? "ok" : "error"} />
          ${standby
            ? html`<${Stat} label="Behind" value=${duration(state.lagTime)} note=${`${amount(state.lagEntries, "entry", "entries")}, ${bytes(state.lagBytes)}`} />`
            : html`<${Stat} label="Append" value=${each === null ? "–" : `${each.toFixed(1)} ms`} note=${`${amount(state.appendCount, "append")}, ${bytes(state.appendedBytes)}`} />`}
          <${Stat} label="Active since" value=${ago(state.lastTakeover)} note=${state.lastTakeover ? dateTime(state.lastTakeover) : undefined} /></div>
        <${Card} title="Replicated log"><div class="stack"><${Meter} label="Size" value=${state.logSize} max=${state.logMaxSize} format=${bytes} />
          <${Values} items=${[
            ["Log", html`<code class="name">${state.stream}</code>`], ["Engine", html`${state.engine ?? "–"} <code class="name">${state.url}</code>`],
            ["Copies", html`${count(state.replicas)} ${state.logHealthy === false && html`<${Badge} tone="error">too few nodes answer<//>`}`], ["Leader", state.leader || "–"],
            ["Entries", count(state.logEntries)], ["Last entry", html`${count(state.sequence)} of ${count(state.lastSequence)}`],
            ["Became active because", state.takeoverReason ?? "–"], ["Ready after", duration(state.lastTakeoverDuration)],
            ["A standby takes over after", duration(state.takeoverTimeout)], ["Version of the active broker", state.activeVersion ?? "–"],
          ]} /></div><//>
        <p class="muted">A standby is listed nowhere: it only reads the log. Its own <code>/api/v1/ha</code> and <code>stompring status</code> show how far it is.</p>`;
    }}<//>`;
}
