/**
 * Scheduled messages of all queues: a timeline, and a list by due time.
 */
import { api } from "../api.js";
import { usePermissions } from "../permissions.js";
import { usePoll } from "../poll.js";
import { link } from "../router.js";
import { Card, Empty, Polled, Stat } from "../ui/badge.js";
import { confirm, notify, notifyError } from "../ui/dialog.js";
import { amount, bytes, clock, count, dateTime, duration } from "../ui/format.js";
import { Choice } from "../ui/form.js";
import { html, useEffect, useState } from "../ui/html.js";
import { DataTable } from "../ui/table.js";
import { preview } from "../body.js";
import { recurrenceText } from "./messages.js";

/** Queues whose messages are fetched, and messages of each. */
const QUEUES = 20;
const MESSAGES = 100;

/** @type {Record<string, [string, number]>} */
const RANGES = { "5m": ["5 min", 300e3], "1h": ["1 h", 3600e3], "1d": ["24 h", 86400e3], "7d": ["7 days", 7 * 86400e3], all: ["All", 0] };

export default function Schedules() {
  const [range, setRange] = useState("all");
  const poll = usePoll(load, [], { interval: 10000 });
  return html`<div class="page-head"><h1>Schedules</h1><span class="spacer"></span>
      <${Choice} label="Period" value=${range} onInput=${setRange} options=${Object.entries(RANGES).map(([key, [label]]) => [key, label])} />
      <a class="button" href=${link("messages", "send")}>Send</a></div>
    <${Polled} poll=${poll} what="the scheduled messages">${(/** @type {Awaited<ReturnType<typeof load>>} */ { queues, messages, total, skipped }) => {
      if (total === 0) return html`<${Empty} title="No message is scheduled."><a href=${link("messages", "send")}>Send one with a schedule</a><//>`;
      const now = Date.now();
      const length = RANGES[range][1];
      const shown = length ? messages.filter((each) => each.dueTime <= now + length) : messages;
      return html`<div class="stats"><${Stat} label="Scheduled" value=${count(total)} /><${Stat} label="Queues" value=${count(queues.length)} />
          <${Stat} label="Next" value=${messages.length ? due(messages[0].dueTime, now) : "–"} note=${messages.length ? dateTime(messages[0].dueTime) : undefined} />
          <${Stat} label="Recurring" value=${count(messages.filter((each) => each.recurrence).length)} /></div>
        ${(skipped > 0 || messages.length < total) && html`<p class="hint">The next ${count(MESSAGES)} of each queue${skipped > 0 ? `, and ${amount(skipped, "queue")} are left out` : ""}: ${count(messages.length)} of ${amount(total, "message")}.</p>`}
        <${Card} title="Timeline" note=${`${amount(shown.length, "message")}${length ? ` in the next ${RANGES[range][0]}` : ""}`}><${Timeline} messages=${shown} now=${now} end=${length ? now + length : Math.max(now + 60e3, ...shown.map((each) => each.dueTime))} /><//>
        <${Card} title="By time"><${ScheduleTable} messages=${shown} now=${now} refresh=${poll.refresh} /><//>`;
    }}<//>`;
}

/** @param {number} time @param {number} now */
const due = (time, now) => (time <= now ? "now" : `in ${duration(time - now)}`);

/** @param {AbortSignal} signal */
async function load(signal) {
  const list = await api.get("queues", { sort: "-scheduledCount", size: QUEUES }, signal);
  const queues = list.data.filter((/** @type {any} */ each) => each.scheduledCount > 0);
  const found = [];
  for (const queue of queues) {
    try {
      const part = await api.get(["queues", queue.name, "scheduled"], { size: MESSAGES, bodyLimit: 128 }, signal);
      found.push(...part.data.map((/** @type {any} */ each) => ({ ...each, queue: queue.name })));
    } catch (fault) {
      if (/** @type {any} */ (fault).status !== 403 && /** @type {any} */ (fault).status !== 404) throw fault;
    }
  }
  found.sort((one, other) => one.dueTime - other.dueTime);
  const total = queues.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.scheduledCount, 0);
  return { queues, messages: found, total, skipped: queues.length === QUEUES && list.count > QUEUES ? list.count - QUEUES : 0 };
}

const STEPS = 24;

/**
 * A row for each queue; a mark for each period with messages, larger where there are more.
 * @param {{messages: any[], now: number, end: number}} props
 */
function Timeline({ messages, now, end }) {
  const names = [...new Set(messages.map((each) => each.queue))];
  if (names.length === 0) return html`<p class="none muted">No message is due in this period.</p>`;
  const width = Math.max(1, end - now);
  const cells = (/** @type {string} */ name) => {
    const numbers = Array(STEPS).fill(0);
    for (const each of messages) {
      if (each.queue === name) numbers[Math.min(STEPS - 1, Math.max(0, Math.floor(((each.dueTime - now) / width) * STEPS)))] += 1;
    }
    return numbers;
  };
  const rows = names.map((name) => ({ name, numbers: cells(name) }));
  const most = Math.max(...rows.flatMap((row) => row.numbers));
  const at = (/** @type {number} */ step) => now + (width * step) / STEPS;
  const label = (/** @type {number} */ time) => (width > 86400e3 ? dateTime(time).slice(5, 16) : clock(time).slice(0, width > 3600e3 ? 5 : 8));
  return html`<div class="timeline" role="img" aria-label=${`Scheduled messages from now to ${dateTime(end)}; the table below lists them`}>
    ${rows.map((row) => html`<div class="timeline-row"><span class="timeline-name name" title=${row.name}>${row.name}</span>
      <span class="timeline-cells">${row.numbers.map((number, step) => html`<span class="timeline-cell" title=${number ? `${amount(number, "message")} from ${clock(at(step))} to ${clock(at(step + 1))}` : undefined}>
        ${number > 0 && html`<span class="timeline-mark" style=${{ height: `${25 + 75 * (Math.log1p(number) / Math.log1p(most))}%` }}>${number > 1 ? html`<b>${number < 1000 ? number : "…"}</b>` : ""}</span>`}</span>`)}</span></div>`)}
    <div class="timeline-row timeline-axis"><span class="timeline-name">${""}</span><span class="timeline-times"><span>now</span><span>${label(at(STEPS / 2))}</span><span>${label(end)}</span></span></div>
  </div>`;
}

/** @param {{messages: any[], now: number, refresh: () => Promise<void>}} props */
function ScheduleTable({ messages, now, refresh }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((before) => before + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const at = Math.max(now, Date.now());
  const columns = [
    { key: "dueTime", label: "Due", sort: true, width: "160px", render: (/** @type {any} */ row) => html`<span title=${due(row.dueTime, at)}>${dateTime(row.dueTime)}</span>` },
    { key: "in", label: "In", width: "110px", render: (/** @type {any} */ row) => due(row.dueTime, at) },
    { key: "queue", label: "Queue", sort: true, width: "140px", render: (/** @type {any} */ row) => html`<a class="name" href=${link("queues", row.queue)}>${row.queue}</a>` },
    { key: "body", label: "Body", width: "170px", render: (/** @type {any} */ row) => html`<span class="preview mono">${preview(row)}</span>` },
    { key: "bodySize", label: "Size", sort: true, number: true, width: "80px", render: (/** @type {any} */ row) => bytes(row.bodySize) },
    { key: "recurrence", label: "Repeats", width: "150px", render: (/** @type {any} */ row) => (row.recurrence ? recurrenceText(row.recurrence) : "") },
    { key: "actions", label: "Actions", width: "180px", render: (/** @type {any} */ row) => html`<${ScheduleActions} row=${row} refresh=${refresh} />` },
  ];
  return html`<${DataTable} label="Scheduled messages" columns=${columns} rows=${messages.slice(0, 500)} rowKey=${(/** @type {any} */ row) => `${row.queue} ${row.messageID}`} sort="dueTime" empty="No message is due in this period." />
    ${messages.length > 500 && html`<p class="hint">The next 500 of ${count(messages.length)}.</p>`}`;
}

/** @param {{row: any, refresh: () => Promise<void>}} props */
function ScheduleActions({ row, refresh }) {
  const access = usePermissions(undefined, row.queue);
  if (!access("edit")) return null;
  const deliver = async () => {
    try {
      await api.post(["queues", row.queue, "scheduled", row.messageID, "deliver"]);
      notify(row.recurrence ? "A copy is delivered now; the schedule continues." : "The message is delivered now.");
    } catch (fault) {
      notifyError(fault, "The message could not be delivered");
    }
    await refresh();
  };
  const cancel = () =>
    confirm({
      title: `Cancel message ${row.messageID}`,
      text: row.recurrence ? "The message is deleted, with all its repetitions." : "The message is deleted and never delivered.",
      action: "Cancel the message",
      run: async () => {
        await api.delete(["queues", row.queue, "scheduled", row.messageID]);
        notify("The message is cancelled.");
        await refresh();
      },
    });
  return html`<span class="row-actions"><button type="button" class="button small" aria-label=${`Deliver now: ${row.messageID}`} onClick=${deliver}>Deliver now</button>
    <button type="button" class="button small danger-quiet" aria-label=${`Cancel ${row.messageID}`} onClick=${cancel}>Cancel</button></span>`;
}
