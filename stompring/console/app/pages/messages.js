/**
 * Messages of a queue: browse with a selector, open, select, move, copy, retry, expire, delete, download, upload.
 */
import { api, ApiError, may, request } from "../api.js";
import { bytesOf, hexDump, prettyJson, preview, visible } from "../body.js";
import { download, fileName, partsOf } from "../download.js";
import { operate, operateNow } from "../operations.js";
import { usePermissions } from "../permissions.js";
import { usePoll } from "../poll.js";
import { link, setQuery } from "../router.js";
import { Badge, Card, CopyButton, Empty, ErrorBox, Loading, Values } from "../ui/badge.js";
import { asApiError, closeDialog, Dialog, FormError, notify, notifyError, openDialog } from "../ui/dialog.js";
import { ago, amount, bytes, count, dateTime, duration } from "../ui/format.js";
import { Choice } from "../ui/form.js";
import { html, useEffect, useRef, useState } from "../ui/html.js";

const SIZE = 50;
/** Bytes of a body that the page shows first, and at most. */
const SHOWN = 64 * 1024;
const MOST = 1024 * 1024;

const STATE_TONES = { pending: "neutral", scheduled: "accent", delivering: "warning" };

/** @param {{params: {name: string}, query: Record<string, string>}} props */
export default function Messages({ params, query }) {
  const queue = params.name;
  const filter = query.filter ?? "";
  const page = Math.max(1, Number(query.page) || 1);
  const [typed, setTyped] = useState(filter);
  const [selected, setSelected] = useState(/** @type {Set<string>} */ (new Set()));
  const access = usePermissions(undefined, queue);
  useEffect(() => setTyped(filter), [filter]);
  useEffect(() => setSelected(new Set()), [queue, filter]);
  const poll = usePoll((signal) => api.get(["queues", queue, "messages"], { filter, page, size: SIZE, bodyLimit: 256 }, signal), [queue, filter, page], {
    interval: 60000,
    keep: true,
  });
  const list = poll.data;
  /** @type {any[]} */
  const rows = list?.data ?? [];
  const wrong = poll.error?.status === 400 && filter ? poll.error : null;
  const refresh = () => {
    setSelected(new Set());
    void poll.refresh();
  };
  const search = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (typed === filter) refresh();
    setQuery({ filter: typed, page: undefined });
  };
  const ids = [...selected];
  const all = ids.length === 0;
  const what = all ? (filter ? "all that match the selector" : "all messages") : amount(ids.length, "selected message");
  /** @type {import("../operations.js").Selection} */
  const selection = all ? (filter ? { filter } : {}) : { messages: ids };
  /** @param {import("../operations.js").Operation} operation @param {string} verb @param {any} text */
  const start = (operation, verb, text) =>
    operate({ title: `${verb} ${what}`, text, queue, operation, selection, action: verb, name: all && (operation === "remove" || operation === "expire") ? queue : undefined, onDone: refresh });
  const offer = {
    browse: access("browse"),
    edit: access("edit"),
  };
  const retryable = rows.some((row) => (all || selected.has(row.messageID)) && (row.originAddress || row.originQueue));
  const scope = list ? (all ? `${list.count === 1 ? "" : "All "}${amount(list.count, "message")}${filter ? " that match" : ""}` : `${count(ids.length)} of ${amount(list.count, "message")} selected`) : "";
  return html`
    <div class="page-head"><div><p class="crumb"><a href=${link("queues")}>Queues</a> / <a href=${link("queues", queue)}>${queue}</a></p><h1>Messages of <span class="name">${queue}</span></h1></div>
      <span class="spacer"></span>
      <a class="button" href=${link("messages", "send", { queue })}>Send</a>
      ${may("manage") && html`<button type="button" class="button" onClick=${() => openDialog(() => html`<${UploadDialog} queue=${queue} onDone=${refresh} />`)}>Upload</button>`}
      ${offer.browse && html`<${DownloadButton} queue=${queue} filter=${filter} />`}
    </div>
    <form class="toolbar" onSubmit=${search} role="search">
      <input class="input mono search selector" type="search" aria-label="Selector" placeholder="Selector: colour = 'red' AND size > 3" value=${typed} autocomplete="off" autocapitalize="off"
        spellcheck=${false} data-search aria-invalid=${wrong ? "true" : undefined} aria-describedby=${wrong ? "selector-error" : undefined} onInput=${(/** @type {any} */ event) => setTyped(event.currentTarget.value)} />
      <button type="submit" class="button">Apply</button>
      <button type="button" class="button" onClick=${refresh}>Refresh</button>
      <span class="muted">${list ? `as of ${dateTime(poll.time).slice(11)}` : ""}</span>
    </form>
    ${wrong && html`<p class="field-error" id="selector-error" role="alert">${wrong.detail}</p>`}
    ${poll.error && !wrong && poll.error.status !== 0 && html`<${ErrorBox} error=${poll.error} what="The messages could not be loaded" again=${poll.refresh} />`}
    ${list && list.count > 0 && html`<div class="toolbar actions" role="group" aria-label="Actions">
      <span class="scope">${scope}</span>
      ${ids.length > 0 && html`<button type="button" class="button small quiet" onClick=${() => setSelected(new Set())}>Clear the selection</button>`}
      ${offer.edit && retryable && html`<button type="button" class="button small" onClick=${() => start("retry", "Retry", "Each goes back to the queue it came from, or to its address if that queue is gone. Messages without an origin stay.")}>Retry</button>`}
      ${offer.edit && offer.browse && html`<button type="button" class="button small" onClick=${() => start("move", "Move", null)}>Move</button>`}
      ${offer.browse && html`<button type="button" class="button small" onClick=${() => start("copy", "Copy", null)}>Copy</button>`}
      ${offer.edit && html`
        <button type="button" class="button small" onClick=${() => start("expire", "Expire", "Each goes to the expiry-address of its address; without one it is deleted.")}>Expire</button>
        <button type="button" class="button small danger-quiet" onClick=${() => start("remove", "Delete", "Deleted messages cannot be restored. Messages in delivery stay.")}>Delete</button>`}
    </div>`}
    ${!list ? !poll.error && html`<${Loading} what="the messages" />` : list.count === 0
      ? html`<${Empty} title=${filter ? "No message matches the selector." : "The queue has no messages."}>
          ${filter ? html`<button type="button" class="button" onClick=${() => setQuery({ filter: undefined, page: undefined })}>Show all messages</button>` : html`<a href=${link("messages", "send", { queue })}>Send one</a>`}<//>`
      : html`<${MessageTable} queue=${queue} rows=${rows} selected=${selected} setSelected=${setSelected} refresh=${refresh} access=${access} busy=${poll.changing} />
        <${Pages} page=${page} size=${SIZE} total=${list.count} />`}`;
}

/** @param {{page: number, size: number, total: number}} props */
function Pages({ page, size, total }) {
  const last = Math.max(1, Math.ceil(total / size));
  if (last === 1 && page === 1) return null;
  const go = (/** @type {number} */ number) => setQuery({ page: number === 1 ? undefined : number });
  return html`<nav class="toolbar pages" aria-label="Pages of messages">
    <button type="button" class="button small" disabled=${page <= 1} onClick=${() => go(1)}>First</button>
    <button type="button" class="button small" disabled=${page <= 1} onClick=${() => go(page - 1)}>Previous</button>
    <span>${count((page - 1) * size + 1)} to ${count(Math.min(page * size, total))} of ${count(total)}</span>
    <button type="button" class="button small" disabled=${page >= last} onClick=${() => go(page + 1)}>Next</button>
    <button type="button" class="button small" disabled=${page >= last} onClick=${() => go(last)}>Last</button>
  </nav>`;
}

/**
 * @param {{queue: string, rows: any[], selected: Set<string>, setSelected: (ids: Set<string>) => void, refresh: () => void, access: (permission: string) => boolean, busy: boolean}} props
 */
function MessageTable({ queue, rows, selected, setSelected, refresh, access, busy }) {
  const toggle = (/** @type {string} */ id) => {
    const next = new Set(selected);
    if (!next.delete(id)) next.add(id);
    setSelected(next);
  };
  const shown = rows.map((row) => row.messageID);
  const every = shown.length > 0 && shown.every((id) => selected.has(id));
  const toggleAll = () => {
    const next = new Set(selected);
    for (const id of shown) every ? next.delete(id) : next.add(id);
    setSelected(next);
  };
  const origins = rows.some((row) => row.originAddress || row.originQueue || row.reason);
  const open = (/** @type {number} */ index) =>
    openDialog(() => html`<${MessageDialog} queue=${queue} ids=${shown} first=${index} access=${access} refresh=${refresh} />`);
  return html`<div class=${busy ? "table-box changing" : "table-box"} tabindex="0" role="group" aria-label="Messages" aria-busy=${busy ? "true" : "false"}>
    <table class="table messages"><thead><tr>
      <th scope="col"><input type="checkbox" aria-label="Select all messages of this page" checked=${every} onChange=${toggleAll} /></th>
      <th scope="col">Message</th><th scope="col">State</th><th scope="col">Body</th>${origins && html`<th scope="col">From</th><th scope="col">Reason</th>`}
      <th scope="col" class="number">Size</th><th scope="col" class="number">Priority</th><th scope="col" class="number">Deliveries</th><th scope="col">Sent</th></tr></thead>
    <tbody>${rows.map((row, index) => html`<tr key=${row.messageID} data-row class=${selected.has(row.messageID) ? "selected" : ""}>
      <td><input type="checkbox" aria-label=${`Select ${row.messageID}`} checked=${selected.has(row.messageID)} onChange=${() => toggle(row.messageID)} /></td>
      <td><button type="button" class="link mono" onClick=${() => open(index)}>${row.messageID}</button></td>
      <td><${Badge} tone=${STATE_TONES[/** @type {keyof STATE_TONES} */ (row.state)]}>${row.state}<//></td>
      <td class="preview mono" title=${bytes(row.bodySize)}>${preview(row)}</td>
      ${origins && html`<td class="origin">${row.originQueue ?? row.originAddress ?? ""}</td><td>${row.reason && html`<${Badge} tone="warning">${row.reason}<//>`}</td>`}
      <td class="number">${bytes(row.bodySize)}</td><td class="number">${row.priority}</td><td class="number">${count(row.deliveryCount)}</td>
      <td title=${dateTime(row.timestamp)}>${row.state === "scheduled" && row.dueTime ? html`due ${dateTime(row.dueTime)}` : ago(row.timestamp)}</td></tr>`)}</tbody></table></div>`;
}

/**
 * One message. The keys ← and → open the previous and the next one.
 * @param {{queue: string, ids: string[], first: number, access: (permission: string) => boolean, refresh: () => void}} props
 */
function MessageDialog({ queue, ids, first, access, refresh }) {
  const [index, setIndex] = useState(first);
  const [format, setFormat] = useState("auto");
  const [limit, setLimit] = useState(SHOWN);
  const id = ids[index];
  const poll = usePoll((signal) => api.get(["queues", queue, "messages", id], { bodyFormat: format === "hex" ? "hex" : "auto", bodyLimit: limit }, signal), [queue, id, format === "hex", limit], { interval: 60000 });
  const message = poll.data;
  const step = (/** @type {number} */ by) => {
    const next = index + by;
    if (next < 0 || next >= ids.length) return;
    setLimit(SHOWN);
    setIndex(next);
  };
  const done = () => {
    closeDialog();
    refresh();
  };
  const selection = { messages: [id] };
  const start = (/** @type {import("../operations.js").Operation} */ operation, /** @type {string} */ verb, /** @type {any} */ text) =>
    operate({ title: `${verb} message ${id}`, text, queue, operation, selection, action: verb, onDone: refresh });
  const retryable = message && (message.originAddress || message.originQueue);
  const keys = (/** @type {KeyboardEvent} */ event) => {
    if (/** @type {HTMLElement} */ (event.target).closest("input, textarea, select, pre")) return;
    if (event.key === "ArrowLeft") step(-1);
    else if (event.key === "ArrowRight") step(1);
  };
  return html`<div onKeyDown=${keys}><${Dialog} wide title=${html`Message <span class="mono">${id}</span>`} footer=${html`
      <button type="button" class="button" disabled=${index === 0} onClick=${() => step(-1)}>Previous</button>
      <button type="button" class="button" disabled=${index === ids.length - 1} onClick=${() => step(1)}>Next</button><span class="spacer"></span>
      ${message && html`
        ${retryable && access("edit") && html`<button type="button" class="button primary" onClick=${() => operateNow(queue, "retry", selection, done)}>Retry</button>`}
        ${access("edit") && access("browse") && html`<button type="button" class="button" onClick=${() => start("move", "Move", null)}>Move</button>`}
        ${access("browse") && html`<button type="button" class="button" onClick=${() => start("copy", "Copy", null)}>Copy</button>`}
        ${access("edit") && html`<button type="button" class="button" onClick=${() => start("expire", "Expire", "It goes to the expiry-address of its address; without one it is deleted.")}>Expire</button>
          <button type="button" class="button danger-quiet" onClick=${() => start("remove", "Delete", "A deleted message cannot be restored.")}>Delete</button>`}`}`}>
    ${poll.error ? html`<${ErrorBox} error=${poll.error} what="The message could not be loaded" again=${poll.refresh} />` : !message ? html`<${Loading} what="the message" />` : html`
      <${Values} items=${facts(message)} />
      <section><h3>Body</h3>
        <div class="toolbar"><${Choice} label="Show the body as" value=${format} onInput=${setFormat} options=${[["auto", "Automatic"], ["text", "As it is"], ["hex", "Hex"]]} />
          <span class="muted">${bytes(message.bodySize)}</span><span class="spacer"></span>
          ${message.encoding !== "base64" && message.encoding !== "hex" && html`<${CopyButton} text=${message.body} />`}
          <button type="button" class="button small" onClick=${() => saveBody(queue, id)}>Download</button></div>
        <${Body} message=${message} format=${format} />
        ${message.bodyTruncated && html`<p class="hint">The first ${bytes(limit)} of ${bytes(message.bodySize)}.
          ${limit < MOST ? html` <button type="button" class="button small" onClick=${() => setLimit(MOST)}>Show up to ${bytes(MOST)}</button>` : " Download it to see the rest."}</p>`}
      </section>
      <section><h3>Headers</h3><dl class="headers">${Object.entries(message.headers).map(([name, value]) => html`<div><dt class="mono">${visible(name)}</dt><dd class="mono">${visible(String(value))}</dd></div>`)}</dl></section>`}
  <//></div>`;
}

/** @param {any} message @returns {[any, any][]} */
function facts(message) {
  /** @type {[any, any][]} */
  const items = [
    ["State", html`<${Badge} tone=${STATE_TONES[/** @type {keyof STATE_TONES} */ (message.state)]}>${message.state}<//>`],
    ["Address", html`<a class="name" href=${link("addresses", message.address)}>${message.address}</a>`],
    ["Sent", html`<span title=${ago(message.timestamp)}>${dateTime(message.timestamp)}</span>`],
    ["Sent by", message.user ?? "–"],
    ["Priority", message.priority],
    ["Persistent", message.durable ? "yes" : "no"],
    ["Deliveries", `${count(message.deliveryCount)}, of which failed ${count(message.failedAttempts)}`],
    ["Memory", bytes(message.size)],
  ];
  if (message.expires) items.push(["Expires", dateTime(message.expires)]);
  if (message.dueTime) items.push(["Due", dateTime(message.dueTime)]);
  if (message.recurrence) items.push(["Repeats", recurrenceText(message.recurrence)]);
  if (message.group) items.push(["Group", html`<span class="name">${message.group}</span>`]);
  if (message.originQueue) items.push(["From queue", html`<a class="name" href=${link("queues", message.originQueue)}>${message.originQueue}</a>`]);
  if (message.originAddress) items.push(["From address", html`<span class="name">${message.originAddress}</span>`]);
  if (message.reason) items.push(["Reason", html`<${Badge} tone="warning">${message.reason}<//>`]);
  return items;
}

/** @param {{period: number, repeat: number, cron: string | null}} recurrence */
export function recurrenceText({ period, repeat, cron }) {
  if (cron) return `cron ${cron}${repeat > 0 ? `, then ${count(repeat)} times every ${duration(period)}` : ""}`;
  return `every ${duration(period)}, ${repeat < 0 ? "without end" : `${amount(repeat, "time")} more`}`;
}

/** @param {{message: any, format: string}} props */
function Body({ message, format }) {
  if (message.bodySize === 0) return html`<p class="none muted">The body is empty.</p>`;
  const binary = message.encoding === "hex" || message.encoding === "base64";
  const pretty = format === "auto" && !binary && /^\s*[[{]/.test(message.body) ? prettyJson(message.body) : null;
  const text = binary ? hexDump(bytesOf(message.body, message.encoding)) : visible(pretty ?? message.body);
  return html`<pre class="body" tabindex="0" role="group" aria-label="Body" dir="ltr">${text}</pre>`;
}

/** @param {string} queue @param {string} id */
async function saveBody(queue, id) {
  try {
    await download(["queues", queue, "messages", id, "body"], {}, `${queue}-${id}.bin`);
  } catch (fault) {
    notifyError(fault, "The body could not be downloaded");
  }
}

/** @param {{queue: string, filter: string}} props */
function DownloadButton({ queue, filter }) {
  const [busy, setBusy] = useState(false);
  const start = async () => {
    setBusy(true);
    try {
      await download(["queues", queue, "export"], { filter }, `${fileName(queue)}.ndjson`);
    } catch (fault) {
      notifyError(fault, "The messages could not be downloaded");
    }
    setBusy(false);
  };
  return html`<button type="button" class="button" disabled=${busy} title="As JSON lines, for Upload and stompring data import" onClick=${start}>${busy ? "Downloading …" : filter ? "Download matching" : "Download"}</button>`;
}

/** @param {{queue: string, onDone: () => void}} props */
function UploadDialog({ queue, onDone }) {
  const [file, setFile] = useState(/** @type {File | null} */ (null));
  const [state, setState] = useState(/** @type {{imported: number, ratio: number} | null} */ (null));
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const closed = useRef(false);
  useEffect(() => () => {
    closed.current = true;
  }, []);
  const start = async () => {
    if (!file || state) return;
    setError(null);
    let imported = 0;
    let first = 1;
    try {
      for await (const part of partsOf(file)) {
        if (closed.current) break;
        first = part.first;
        setState({ imported, ratio: part.read / file.size });
        const response = await request("POST", ["queues", queue, "import"], { body: part.lines, contentType: "application/x-ndjson" });
        imported += (await response.json()).imported;
      }
      if (!closed.current) closeDialog();
      notify(`${amount(imported, "message")} uploaded.`);
    } catch (fault) {
      const problem = asApiError(fault);
      const line = problem.members.line ? `Line ${first + problem.members.line - 1}: ` : "";
      setError(new ApiError(problem.status, problem.title, `${line}${problem.message} ${imported ? `The ${amount(imported, "message")} before are in the queue.` : "Nothing was uploaded."}`));
      setState(null);
    }
    onDone();
  };
  return html`<${Dialog} title=${html`Upload messages to <span class="name">${queue}</span>`} onSubmit=${start} footer=${html`
      <button type="button" class="button" onClick=${closeDialog}>${state ? "Stop" : "Cancel"}</button>
      <button type="submit" class="button primary" disabled=${!file || state !== null}>${state ? "Uploading …" : "Upload"}</button>`}>
    <div class="field"><label for="upload-file">File of JSON lines, as Download makes it</label>
      <input id="upload-file" class="input" type="file" accept=".ndjson,.jsonl,application/x-ndjson" data-autofocus onChange=${(/** @type {any} */ event) => setFile(event.currentTarget.files[0] ?? null)} /></div>
    ${state && html`<div class="meter-bar meter-ok" role="progressbar" aria-label="Upload" aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(100 * state.ratio)}><div style=${{ width: `${100 * state.ratio}%` }}></div></div>
      <p class="muted">${amount(state.imported, "message")} so far</p>`}
    ${error && html`<${FormError} error=${error} />`}
  <//>`;
}
