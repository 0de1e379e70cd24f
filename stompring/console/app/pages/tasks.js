/**
 * Tasks: work on many messages that requests have started.
 */
import { api, may } from "../api.js";
import { usePoll } from "../poll.js";
import { link } from "../router.js";
import { Badge, Polled } from "../ui/badge.js";
import { notify, notifyError } from "../ui/dialog.js";
import { ago, count, dateTime, duration } from "../ui/format.js";
import { html } from "../ui/html.js";
import { DataTable } from "../ui/table.js";

/** @type {Record<string, import("../ui/badge.js").Tone>} */
const TONES = { running: "accent", completed: "ok", failed: "error", cancelled: "neutral" };

export default function Tasks() {
  const poll = usePoll((signal) => api.get("tasks", { size: 200 }, signal), [], { interval: 1500 });
  const cancel = async (/** @type {any} */ task) => {
    try {
      await api.delete(["tasks", String(task.taskID)]);
      notify("The task stops.");
    } catch (fault) {
      notifyError(fault, "The task could not be stopped");
    }
    await poll.refresh();
  };
  const columns = [
    { key: "operation", label: "Task", sort: true, width: "110px", render: (/** @type {any} */ task) => task.operation },
    { key: "queue", label: "Queue", sort: true, render: (/** @type {any} */ task) => html`<a class="name" href=${link("queues", task.queue)}>${task.queue}</a>` },
    { key: "state", label: "State", sort: true, width: "110px", render: (/** @type {any} */ task) => html`<${Badge} tone=${TONES[task.state]}>${task.state}<//>` },
    { key: "done", label: "Done", sort: true, number: true, width: "150px", render: (/** @type {any} */ task) => `${count(task.done)}${task.total === null ? "" : ` of ${count(task.total)}`}` },
    { key: "skipped", label: "Skipped", sort: true, number: true, width: "90px", render: (/** @type {any} */ task) => count(task.skipped) },
    { key: "failed", label: "Failed", sort: true, number: true, width: "90px", render: (/** @type {any} */ task) => count(task.failed) },
    { key: "user", label: "User", sort: true, width: "110px", render: (/** @type {any} */ task) => task.user ?? "–" },
    { key: "started", label: "Started", sort: true, width: "130px", render: (/** @type {any} */ task) => html`<span title=${dateTime(task.started)}>${ago(task.started)}</span>` },
    { key: "duration", label: "Took", width: "90px", render: (/** @type {any} */ task) => duration((task.ended ?? Date.now()) - task.started) },
    { key: "error", label: "Error", render: (/** @type {any} */ task) => html`<span class="wrap">${task.error ?? ""}</span>` },
    { key: "stop", label: "Stop", width: "80px", render: (/** @type {any} */ task) => task.state === "running" && may("edit") && html`<button type="button" class="button small danger-quiet" aria-label=${`Stop ${task.operation} of ${task.queue}`} onClick=${() => cancel(task)}>Stop</button>` },
  ];
  return html`<div class="page-head"><h1>Tasks</h1></div>
    <p class="muted">Moves, retries, deletions and other work on many messages: what runs, and the last 100 that have ended.</p>
    <${Polled} poll=${poll} what="the tasks">${(/** @type {any} */ list) => html`<${DataTable} label="Tasks" columns=${columns} rows=${list.data} rowKey=${(/** @type {any} */ task) => String(task.taskID)} sort="-started" empty="No task has run since the broker started." />`}<//>`;
}
