/**
 * Log levels at run time.
 */
import { api, may } from "../api.js";
import { usePoll } from "../poll.js";
import { Badge, Polled } from "../ui/badge.js";
import { notify, notifyError } from "../ui/dialog.js";
import { Choice, SearchField } from "../ui/form.js";
import { html, useState } from "../ui/html.js";
import { DataTable } from "../ui/table.js";

const LEVELS = ["debug", "info", "warn", "error"];

export default function Logging() {
  const [search, setSearch] = useState("");
  const poll = usePoll((signal) => api.get("loggers", { size: 1000 }, signal), [], { interval: 15000 });
  const set = async (/** @type {string} */ name, /** @type {string} */ level) => {
    try {
      await api.patch(["loggers", name], { level });
      notify(`Logger ${name} logs from ${level} on, until the broker restarts.`);
    } catch (fault) {
      notifyError(fault, "The level could not be changed");
    }
    await poll.refresh();
  };
  const columns = [
    { key: "name", label: "Logger", sort: true, width: "260px", render: (/** @type {any} */ logger) => html`<code class="name">${logger.name}</code>` },
    { key: "level", label: "Level", width: "280px", render: (/** @type {any} */ logger) => may("edit")
      ? html`<${Choice} label=${`Level of ${logger.name}`} value=${logger.effectiveLevel} options=${LEVELS} onInput=${(/** @type {string} */ level) => set(logger.name, level)} />`
      : logger.effectiveLevel },
    { key: "note", label: "From", render: (/** @type {any} */ logger) => (logger.configured === false ? html`<${Badge} tone="accent">set at run time<//>` : html`<span class="muted">${logger.level === null ? "its parent" : "configuration"}</span>`) },
  ];
  return html`<div class="page-head"><h1>Logging</h1></div>
    <p class="muted">Changes hold until the broker restarts. <code>debug</code> logs much: reset it afterwards.</p>
    <${Polled} poll=${poll} what="the loggers">${(/** @type {any} */ list) => html`
      <div class="toolbar"><${SearchField} label="Search loggers" value=${search} onInput=${setSearch} /></div>
      <${DataTable} label="Loggers" columns=${columns} rows=${list.data.filter((/** @type {any} */ logger) => logger.name.includes(search))} rowKey=${(/** @type {any} */ logger) => logger.name} empty="No logger matches." />`}<//>`;
}
