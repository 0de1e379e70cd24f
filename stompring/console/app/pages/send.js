/**
 * Send messages: destination, headers, body, schedule, count.
 */
import { api, ApiError } from "../api.js";
import { useSuggestions } from "../operations.js";
import { usePermissions } from "../permissions.js";
import { link } from "../router.js";
import { Card } from "../ui/badge.js";
import { asApiError, FormError } from "../ui/dialog.js";
import { amount } from "../ui/format.js";
import { Checkbox, Choice, Select, TextArea, TextField } from "../ui/form.js";
import { html, useId, useState } from "../ui/html.js";

const CONTENT_TYPES = ["", "text/plain", "application/json", "application/xml", "application/octet-stream"];

/** @param {{query: Record<string, string>}} props */
export default function Send({ query }) {
  const [target, setTarget] = useState({ kind: query.queue ? "queue" : "address", name: query.queue ?? query.address ?? "", routingType: query.routingType ?? "" });
  const [form, setForm] = useState({ body: "", encoding: "text", contentType: "", persistent: true, priority: "", expires: "", schedule: "now", delay: "60", time: "", cron: "", period: "", repeat: "", count: "1" });
  const [headers, setHeaders] = useState([{ name: "", value: "" }]);
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const [busy, setBusy] = useState(false);
  const [result, setResult] = useState(/** @type {{sent: number, rejected: number, reason: string | null, ids: string[], target: typeof target} | null} */ (null));
  const suggestions = useSuggestions(true, target.kind, target.name);
  const access = usePermissions(target.kind === "address" && target.name ? target.name : undefined, target.kind === "queue" && target.name ? target.name : undefined);
  const set = (/** @type {Partial<typeof form>} */ changes) => setForm((before) => ({ ...before, ...changes }));
  const setHeader = (/** @type {number} */ index, /** @type {Partial<{name: string, value: string}>} */ changes) =>
    setHeaders(headers.map((each, at) => (at === index ? { ...each, ...changes } : each)));
  const allowed = !target.name || access("send");

  const send = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (busy || !target.name) return;
    setBusy(true);
    setError(null);
    setResult(null);
    try {
      const answer = await api.post("messages", document_(target, form, headers));
      setResult({ sent: answer.sent, rejected: answer.rejected ?? 0, reason: answer.reason ?? null, ids: answer.messageIDs ?? [], target });
    } catch (fault) {
      setError(asApiError(fault));
    }
    setBusy(false);
  };
  return html`<div class="page-head"><h1>Send messages</h1></div>
    <form class="send" onSubmit=${send} novalidate>
      <div class="grid">
      <div class="span-7 stack">
        <${Card} title="Message">
          <div class="stack">
          <${Choice} label="Send to" value=${target.kind} onInput=${(/** @type {string} */ kind) => setTarget({ ...target, kind })} options=${[["address", "To an address"], ["queue", "To one queue"]]} />
          <div class="fields">
            <${TextField} label=${target.kind === "queue" ? "Queue" : "Address"} name=${target.kind} mono required error=${error} value=${target.name} list=${suggestions}
              onInput=${(/** @type {string} */ name) => setTarget({ ...target, name })} hint=${target.kind === "queue" ? "A queue that exists." : "It is created where a SEND would create it."} />
            ${target.kind === "address" && html`<${Select} label="Routing type" name="routingType" error=${error} value=${target.routingType} onInput=${(/** @type {string} */ routingType) => setTarget({ ...target, routingType })}
              options=${[["", "As the address has it"], ["ANYCAST", "ANYCAST: to one queue"], ["MULTICAST", "MULTICAST: to every queue"]]} />`}
          </div>
          <${TextArea} label="Body" name="body" rows=${10} error=${error} value=${form.body} onInput=${(/** @type {string} */ body) => set({ body })}
            hint=${form.encoding === "text" ? jsonHint(form) : form.encoding === "hex" ? "Two digits for each byte; spaces and line breaks are allowed." : undefined} />
          <div class="fields">
            <${Select} label="The body is" name="encoding" error=${error} value=${form.encoding} onInput=${(/** @type {string} */ encoding) => set({ encoding })} options=${[["text", "Text (UTF-8)"], ["base64", "Base64"], ["hex", "Hex"]]} />
            <${TextField} label="Content type" mono list=${CONTENT_TYPES.filter(Boolean)} value=${form.contentType} onInput=${(/** @type {string} */ contentType) => set({ contentType })} placeholder="application/json" />
          </div></div>
        <//>
        <${Card} title="Headers" note="as in a SEND frame">
          <ul class="header-rows">${headers.map((header, index) => html`<li key=${index}>
            <input class="input mono" aria-label=${`Name of header ${index + 1}`} placeholder="name" value=${header.name} autocomplete="off" spellcheck=${false} onInput=${(/** @type {any} */ event) => setHeader(index, { name: event.currentTarget.value })} />
            <input class="input mono" aria-label=${`Value of header ${index + 1}`} placeholder="value" value=${header.value} autocomplete="off" spellcheck=${false} onInput=${(/** @type {any} */ event) => setHeader(index, { value: event.currentTarget.value })} />
            <button type="button" class="icon-button" aria-label=${`Remove header ${index + 1}`} onClick=${() => setHeaders(headers.length > 1 ? headers.filter((_, at) => at !== index) : [{ name: "", value: "" }])}>✕</button></li>`)}</ul>
          <button type="button" class="button small" onClick=${() => setHeaders([...headers, { name: "", value: "" }])}>Add a header</button>
        <//>
      </div>
      <div class="span-5 stack">
        <${Card} title="Delivery"><div class="stack">
          <${Checkbox} label="Persistent: survives a restart of the broker" checked=${form.persistent} onChange=${(/** @type {boolean} */ persistent) => set({ persistent })} />
          <div class="fields">
            <${TextField} label="Priority" name="priority" type="number" min=${0} max=${9} placeholder="4" error=${error} value=${form.priority} onInput=${(/** @type {string} */ priority) => set({ priority })} hint="0 to 9" />
            <${TextField} label="Expires after" name="expires" type="number" min=${0} placeholder="never" error=${error} value=${form.expires} onInput=${(/** @type {string} */ expires) => set({ expires })} hint="Seconds from now" />
            <${TextField} label="Count" name="count" type="number" min=${1} error=${error} value=${form.count} onInput=${(/** @type {string} */ value) => set({ count: value })} hint="Messages to send" />
          </div></div><//>
        <${Card} title="Schedule"><div class="stack">
          <${Choice} label="Deliver" value=${form.schedule} onInput=${(/** @type {string} */ schedule) => set({ schedule })} options=${[["now", "Now"], ["delay", "After"], ["time", "At"], ["cron", "Cron"]]} />
          ${form.schedule === "delay" && html`<${TextField} label="Seconds from now" type="number" min=${0} value=${form.delay} onInput=${(/** @type {string} */ delay) => set({ delay })} />`}
          ${form.schedule === "time" && html`<${TextField} label="Time" type="datetime-local" value=${form.time} onInput=${(/** @type {string} */ time) => set({ time })} hint="In the time zone of this browser" />`}
          ${form.schedule === "cron" && html`<${TextField} label="Cron expression" mono placeholder="*/5 * * * *" value=${form.cron} onInput=${(/** @type {string} */ cron) => set({ cron })} hint="Minute, hour, day of month, month, day of week, in the time zone of the broker" />`}
          <div class="fields">
            <${TextField} label="Repeat every" type="number" min=${0} placeholder="once" value=${form.period} onInput=${(/** @type {string} */ period) => set({ period })} hint="Seconds" />
            <${TextField} label="Repeats" type="number" min=${-1} placeholder="0" value=${form.repeat} onInput=${(/** @type {string} */ repeat) => set({ repeat })} hint="After the first delivery; -1: without end" />
          </div></div><//>
      </div></div>
      <div class="send-foot" aria-live="polite">
        <button type="submit" class="button primary" disabled=${busy || !target.name || !allowed}>${busy ? "Sending …" : Number(form.count) > 1 ? `Send ${amount(Number(form.count), "message")}` : "Send"}</button>
        ${!allowed && html`<p class="hint">You may not send to ${target.name}. <a href=${link("admin", "permissions", { [target.kind]: target.name })}>Why?</a></p>`}
        ${error && html`<${FormError} error=${error} />`}
        ${result && html`<p class=${result.rejected || !result.sent ? "form-error" : "form-ok"}>${result.sent ? `${amount(result.sent, "message")} sent.` : "Nothing sent."}${result.rejected ? ` ${amount(result.rejected, "message")} rejected` : ""}${result.reason ? `: ${result.reason}` : ""}
          ${result.sent > 0 && html` <a href=${result.target.kind === "queue" ? link("queues", result.target.name, "messages") : link("addresses", result.target.name)}>Show ${result.target.kind === "queue" ? "the messages" : "the address"}</a>`}</p>`}
      </div>
    </form>`;
}

/** @param {{body: string, contentType: string}} form */
function jsonHint({ body, contentType }) {
  if (!body || !/json/.test(contentType)) return undefined;
  try {
    JSON.parse(body);
    return "Valid JSON.";
  } catch (fault) {
    return `Not JSON: ${/** @type {Error} */ (fault).message}`;
  }
}

/**
 * The request.
 * @param {{kind: string, name: string, routingType: string}} target
 * @param {Record<string, any>} form
 * @param {{name: string, value: string}[]} rows
 */
function document_(target, form, rows) {
  /** @type {Record<string, string>} */
  const headers = {};
  if (form.contentType) headers["content-type"] = form.contentType;
  if (form.persistent) headers.persistent = "true";
  if (form.priority !== "") headers.priority = form.priority;
  if (form.expires !== "") headers.expires = String(Date.now() + Math.round(1000 * Number(form.expires)));
  if (form.schedule === "delay") headers.AMQ_SCHEDULED_DELAY = String(Math.round(1000 * Number(form.delay)));
  if (form.schedule === "time" && form.time) headers.AMQ_SCHEDULED_TIME = String(new Date(form.time).getTime());
  if (form.schedule === "cron") headers.AMQ_SCHEDULED_CRON = form.cron;
  if (form.period !== "") headers.AMQ_SCHEDULED_PERIOD = String(Math.round(1000 * Number(form.period)));
  if (form.repeat !== "") headers.AMQ_SCHEDULED_REPEAT = form.repeat;
  for (const { name, value } of rows) if (name) headers[name] = value;
  /** @type {Record<string, any>} */
  const request = { headers, body: form.encoding === "text" ? form.body : form.body.replace(/\s+/g, ""), encoding: form.encoding, count: Number(form.count) || 1 };
  request[target.kind] = target.name;
  if (target.kind === "address" && target.routingType) request.routingType = target.routingType;
  return request;
}
