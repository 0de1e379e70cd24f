/**
 * Operations on many messages: they run as tasks of the broker, and a dialog shows their progress.
 *
 *   operate({ title, queue, operation: "retry", selection: { filter }, action: "Retry", onDone })
 *   retryNow(queue, selection, onDone)      at once, with a note
 */
import { api } from "./api.js";
import { closeDialog, Dialog, FormError, asApiError, notify, notifyError, openDialog } from "./ui/dialog.js";
import { amount, count } from "./ui/format.js";
import { Select, TextField } from "./ui/form.js";
import { html, useEffect, useRef, useState } from "./ui/html.js";

/** @typedef {"move" | "copy" | "retry" | "remove" | "expire" | "purge"} Operation */

/** @typedef {{messages?: string[], filter?: string | null, limit?: number}} Selection */

/**
 * @typedef {object} Task
 * @property {string} taskID
 * @property {string} state
 * @property {number} done
 * @property {number} skipped
 * @property {number} failed
 * @property {number | null} total
 * @property {string | null} error
 */

/** @type {Record<Operation, {done: string, working: string}>} */
const WORDS = {
  move: { done: "moved", working: "Moving" },
  copy: { done: "copied", working: "Copying" },
  retry: { done: "sent back to where they came from", working: "Retrying" },
  remove: { done: "deleted", working: "Deleting" },
  expire: { done: "expired", working: "Expiring" },
  purge: { done: "removed", working: "Purging" },
};

/**
 * Starts a task and follows it to its end.
 * @param {string} queue
 * @param {Operation} operation
 * @param {Record<string, any>} body
 * @param {(task: Task) => void} onProgress
 * @param {AbortSignal} [signal] stops following, not the task
 * @returns {Promise<Task>}
 */
export async function runTask(queue, operation, body, onProgress, signal) {
  let task = await api.post(["queues", queue, operation], { ...body, wait: false });
  onProgress(task);
  for (let wait = 60; task.state === "running" && !signal?.aborted; wait = Math.min(2 * wait, 1000)) {
    await new Promise((resolve) => setTimeout(resolve, wait));
    task = await api.get(["tasks", String(task.taskID)]);
    onProgress(task);
  }
  return task;
}

/**
 * What a task has done, as a sentence.
 * @param {Operation} operation
 * @param {Task} task
 */
function summary(operation, task) {
  const parts = [`${amount(task.done, "message")} ${WORDS[operation].done}`];
  if (task.skipped) parts.push(`${count(task.skipped)} skipped because they were in delivery or gone`);
  if (task.failed) parts.push(`${count(task.failed)} not`);
  const text = parts.join(", ");
  return task.error ? `${text}: ${task.error}` : `${text}.`;
}

/**
 * Without a question, for what can be undone: a note tells the result.
 * @param {string} queue
 * @param {Operation} operation
 * @param {Selection} selection
 * @param {() => void} [onDone]
 */
export async function operateNow(queue, operation, selection, onDone) {
  try {
    const task = await runTask(queue, operation, selection, () => undefined);
    notify(summary(operation, task), task.state === "completed" && !task.failed ? "ok" : "error");
  } catch (fault) {
    notifyError(fault, `${WORDS[operation].working} failed`);
  }
  onDone?.();
}

/**
 * @typedef {object} Plan
 * @property {any} title
 * @property {any} [text]
 * @property {string} queue
 * @property {Operation} operation
 * @property {Selection} selection
 * @property {string} action label of the button
 * @property {string} [name] has to be typed
 * @property {boolean} [narrow] a selector and a number may narrow the selection down
 * @property {() => void} [onDone]
 */

/** Asks, runs and shows the progress. @param {Plan} plan */
export function operate(plan) {
  openDialog(() => html`<${OperationDialog} ...${plan} />`);
}

/** @param {Plan} props */
function OperationDialog({ title, text, queue, operation, selection, action, name, narrow, onDone }) {
  const targeted = operation === "move" || operation === "copy";
  const [target, setTarget] = useState({ kind: "queue", name: "", routingType: "" });
  const [typed, setTyped] = useState("");
  const [filter, setFilter] = useState("");
  const [limit, setLimit] = useState("");
  const [task, setTask] = useState(/** @type {Task | null} */ (null));
  const [error, setError] = useState(/** @type {import("./api.js").ApiError | null} */ (null));
  const suggestions = useSuggestions(targeted, target.kind, target.name);
  const leaving = useRef(new AbortController());
  useEffect(() => () => leaving.current.abort(), []);
  const running = task !== null && task.state === "running";
  const ended = task !== null && !running;
  const ready = !task && (name === undefined || typed === name) && (!targeted || target.name !== "");
  const start = async () => {
    if (!ready) return;
    setError(null);
    /** @type {Record<string, any>} */
    const body = { ...selection };
    if (filter.trim()) body.filter = filter.trim();
    if (limit) body.limit = Number(limit);
    if (targeted) {
      body[target.kind] = target.name;
      if (target.kind === "address" && target.routingType) body.routingType = target.routingType;
    }
    try {
      const last = await runTask(queue, operation, body, setTask, leaving.current.signal);
      if (leaving.current.signal.aborted) return;
      if (last.state === "completed" && !last.failed) {
        closeDialog();
        notify(summary(operation, last), "ok");
      }
    } catch (fault) {
      setTask(null);
      setError(asApiError(fault));
    }
    onDone?.();
  };
  const cancel = async () => {
    try {
      if (task) await api.delete(["tasks", String(task.taskID)]);
    } catch (fault) {
      setError(asApiError(fault));
    }
  };
  const dangerous = ["remove", "expire", "purge"].includes(operation);
  return html`<${Dialog} title=${title} onSubmit=${start} footer=${running
    ? html`<button key="background" type="button" class="button" onClick=${closeDialog}>Continue in the background</button>
        <button key="stop" type="button" class="button danger-quiet" onClick=${cancel}>Stop</button>`
    : ended
      ? html`<button key="close" type="button" class="button primary" onClick=${closeDialog}>Close</button>`
      : html`<button key="cancel" type="button" class="button" onClick=${closeDialog}>Cancel</button>
        <button key="start" type="submit" class=${dangerous ? "button danger" : "button primary"} disabled=${!ready}>${action}</button>`}>
    ${text && !task && html`<div class="dialog-text">${text}</div>`}
    ${targeted && !task && html`
      <${Select} label="To" value=${target.kind} onInput=${(/** @type {string} */ kind) => setTarget({ ...target, kind })}
        options=${[["queue", "A queue"], ["address", "An address: all its queues"]]} />
      <${TextField} label=${target.kind === "queue" ? "Queue" : "Address"} name=${target.kind} mono required autofocus error=${error} value=${target.name}
        list=${suggestions} onInput=${(/** @type {string} */ value) => setTarget({ ...target, name: value })} hint=${target.kind === "queue" ? "A queue that exists." : "It is created where a SEND would create it."} />
      ${target.kind === "address" && html`<${Select} label="Routing type" name="routingType" error=${error} value=${target.routingType}
        onInput=${(/** @type {string} */ routingType) => setTarget({ ...target, routingType })}
        options=${[["", "As the address has it"], ["ANYCAST", "ANYCAST: each message to one queue"], ["MULTICAST", "MULTICAST: to every queue"]]} />`}`}
    ${narrow && !task && html`
      <${TextField} label="Only messages that match" name="filter" value=${filter} onInput=${setFilter} mono placeholder="colour = 'red'" hint="A selector; empty: all" error=${error} />
      <${TextField} label="At most" name="limit" type="number" min=${1} value=${limit} onInput=${setLimit} placeholder="all" error=${error} />`}
    ${name !== undefined && !task && html`<${TextField} label=${html`Type <code class="name">${name}</code> to confirm`} mono autofocus value=${typed} onInput=${setTyped} />`}
    ${task && html`<${Progress} operation=${operation} task=${task} />`}
    ${error && html`<${FormError} error=${error} />`}
  <//>`;
}

/** @param {{operation: Operation, task: Task}} props */
function Progress({ operation, task }) {
  const seen = task.done + task.skipped + task.failed;
  const ratio = task.total ? Math.min(1, seen / task.total) : task.state === "running" ? 0 : 1;
  return html`<div class="task" role="status">
    <p>${task.state === "running" ? `${WORDS[operation].working} …` : task.state === "cancelled" ? "Stopped." : task.state === "failed" ? "Failed." : "Done."}</p>
    <div class=${`meter-bar ${task.failed || task.state === "failed" ? "meter-error" : "meter-ok"}`} role="progressbar" aria-label="Progress" aria-valuemin="0" aria-valuemax="100"
      aria-valuenow=${task.total || task.state !== "running" ? Math.round(100 * ratio) : undefined}><div style=${{ width: `${100 * ratio}%` }}></div></div>
    <p class="muted">${count(task.done)}${task.total ? ` of ${count(task.total)}` : ""} ${WORDS[operation].done}${task.skipped ? `, ${count(task.skipped)} skipped` : ""}${task.failed ? `, ${count(task.failed)} failed` : ""}</p>
    ${task.error && html`<p class="field-error">${task.error}</p>`}
  </div>`;
}

/**
 * Names of queues or addresses that contain a text.
 * @param {boolean} enabled
 * @param {string} kind "queue" or "address"
 * @param {string} search
 * @returns {string[]}
 */
export function useSuggestions(enabled, kind, search) {
  const [names, setNames] = useState(/** @type {string[]} */ ([]));
  useEffect(() => {
    if (!enabled) return undefined;
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const list = await api.get(kind === "queue" ? "queues" : "addresses", { search, size: 20, sort: "name" }, abort.signal);
        setNames(list.data.map((/** @type {any} */ each) => each.name));
      } catch {
        setNames([]);
      }
    }, 200);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [enabled, kind, search]);
  return names;
}
