/**
 * Retention of the journal, and how far lakes have ingested it.
 */
import { api } from "../api.js";
import { usePoll } from "../poll.js";
import { Badge, Card, Empty, Meter, Polled, Stat, StateIcon, Values } from "../ui/badge.js";
import { ago, amount, bytes, count, dateTime, duration } from "../ui/format.js";
import { html } from "../ui/html.js";
import { DataTable } from "../ui/table.js";

export default function Retention() {
  const poll = usePoll((signal) => api.get("retention", {}, signal), [], { interval: 10000 });
  return html`<div class="page-head"><h1>Retention</h1></div>
    <${Polled} poll=${poll} what="the state of the retention">${(/** @type {any} */ state) => {
      if (!state.enabled) return html`<${Empty} title="Retention is off."><p>With <code>journal-retention-directory</code> in broker.xml the broker keeps the journal and page files that it no longer needs, so that a lake can ingest every message.</p><//>`;
      const lost = state.deletedNotIngested ?? 0;
      return html`${state.fault && html`<p class="form-error" role="alert"><${StateIcon} tone="error" /><span>${state.fault}</span></p>`}
        <div class="stats"><${Stat} label="Retained" value=${bytes(state.bytes)} note=${amount(state.files, "file")} />
          <${Stat} label="Oldest" value=${ago(state.oldest)} note=${state.oldest ? dateTime(state.oldest) : undefined} /><${Stat} label="Newest" value=${ago(state.newest)} note=${state.newest ? dateTime(state.newest) : undefined} />
          <${Stat} label="Deleted before a lake had them" value=${count(lost)} tone=${lost ? "error" : "ok"} note=${`of ${amount(state.deleted ?? 0, "deleted file")}`} /></div>
        <${Card} title="Directory"><div class="stack"><${Meter} label="Size" value=${state.bytes} max=${state.storageLimit} format=${bytes} />
          <${Values} items=${[["Directory", html`<code class="name">${state.directory}</code>`], ["Retained for", duration(state.period)], ["Size limit", bytes(state.storageLimit)]]} /></div><//>
        <${Card} title="Lakes" note=${count(state.lakes.length)}><${DataTable} label="Lakes" rows=${state.lakes} columns=${LAKES} rowKey=${(/** @type {any} */ lake) => lake.lakeID} empty="No lake has ingested the files yet." /><//>`;
    }}<//>`;
}

/** @type {import("../ui/table.js").Column[]} */
const LAKES = [
  { key: "path", label: "Lake", sort: true, render: (lake) => html`<code class="name" title=${lake.lakeID}>${lake.path ?? lake.lakeID}</code>` },
  { key: "ingestedUpTo", label: "Last ingest", sort: true, width: "140px", render: (lake) => html`<span title=${dateTime(lake.ingestedUpTo)}>${ago(lake.ingestedUpTo)}</span>` },
  { key: "lag", label: "Behind", sort: true, number: true, width: "120px", title: "Age of the oldest file that it lacks", render: (lake) => (lake.filesNotIngested ? duration(lake.lag) : html`<${Badge} tone="ok">up to date<//>`) },
  { key: "filesNotIngested", label: "Files to ingest", sort: true, number: true, width: "130px", render: (lake) => count(lake.filesNotIngested) },
  { key: "bytesNotIngested", label: "Bytes to ingest", sort: true, number: true, width: "130px", render: (lake) => bytes(lake.bytesNotIngested) },
];
