/**
 * Permissions: may X do Y on Z, and by which rule; and the whole matrix.
 */
import { api, may, session, userName } from "../api.js";
import { usePoll } from "../poll.js";
import { setQuery } from "../router.js";
import { useStore } from "../store.js";
import { useSuggestions } from "../operations.js";
import { Badge, Card, Empty, ErrorBox, Polled, StateIcon } from "../ui/badge.js";
import { Choice, TextField } from "../ui/form.js";
import { html, useEffect, useState } from "../ui/html.js";

/** What each permission is for. @type {Record<string, string>} */
export const MEANINGS = {
  send: "send messages",
  consume: "receive messages",
  browse: "see messages",
  createAddress: "create the address",
  deleteAddress: "delete the address",
  createDurableQueue: "create durable queues",
  deleteDurableQueue: "delete durable queues",
  createNonDurableQueue: "create non-durable queues",
  deleteNonDurableQueue: "delete non-durable queues",
  manage: "do everything over HTTP (on activemq.management)",
  view: "see it over HTTP",
  edit: "change it over HTTP",
};

/** @param {{query: Record<string, string>}} props */
export default function Permissions({ query }) {
  const { whoami } = useStore(session);
  const own = userName() ?? "";
  const [form, setForm] = useState({ user: query.user ?? own, kind: query.queue ? "queue" : "address", name: query.queue ?? query.address ?? "" });
  useEffect(() => setForm({ user: query.user ?? own, kind: query.queue ? "queue" : "address", name: query.queue ?? query.address ?? "" }), [query.user, query.queue, query.address]);
  const suggestions = useSuggestions(may("view"), form.kind, form.name);
  const users = usePoll((signal) => api.get("users", { size: 1000, sort: "name" }, signal), [], { interval: 60000, enabled: may("manage") && Boolean(whoami?.securityEnabled) });
  const user = query.user && query.user !== own ? query.user : undefined;
  const thing = query.queue ? { queue: query.queue } : { address: query.address };
  const poll = usePoll((signal) => api.get("permissions", { user, ...thing }, signal), [user, thing], { interval: 60000 });
  const ask = (/** @type {Event} */ event) => {
    event.preventDefault();
    setQuery({ user: form.user === own ? undefined : form.user, queue: form.kind === "queue" ? form.name : undefined, address: form.kind === "address" ? form.name : undefined });
  };
  const others = may("manage") && whoami?.securityEnabled;
  const about = query.queue || query.address || "activemq.management";
  return html`<div class="page-head"><h1>Permissions</h1></div>
    ${whoami && !whoami.securityEnabled && html`<p class="note-line"><${StateIcon} tone="warning" /> Security is disabled: every client may do everything. <code>security-enabled</code> in broker.xml enables it.</p>`}
    <${Card} title="May this user do that?">
      <form class="ask" onSubmit=${ask} novalidate>
        <${TextField} label="User" disabled=${!others} value=${form.user} list=${users.data?.data.map((/** @type {any} */ each) => each.name) ?? []} onInput=${(/** @type {string} */ name) => setForm({ ...form, user: name })} placeholder=${others ? "" : own || "every client"}
          hint=${others || !whoami?.securityEnabled ? undefined : "To ask about others needs the permission manage."} />
        <div class="field"><span class="field-label" id="ask-kind">On</span><${Choice} label="Kind" value=${form.kind} onInput=${(/** @type {string} */ kind) => setForm({ ...form, kind })} options=${[["address", "Address"], ["queue", "Queue"]]} /></div>
        <${TextField} label=${form.kind === "queue" ? "Queue" : "Address"} mono value=${form.name} list=${suggestions} onInput=${(/** @type {string} */ name) => setForm({ ...form, name })} placeholder="activemq.management" />
        <button type="submit" class="button primary">Show</button>
      </form>
      ${poll.error && poll.error.status !== 0 ? html`<${ErrorBox} error=${poll.error} what="The permissions could not be loaded" />` : poll.data && html`
        <p class="answer-head"><strong>${poll.data.user ?? "Every client"}</strong>${poll.data.roles?.length ? html` (roles: ${poll.data.roles.join(", ")})` : ""} on <span class="name">${about}</span>:</p>
        <ul class="answers">${poll.data.data.map((/** @type {any} */ each) => html`<li><${StateIcon} tone=${each.allowed ? "ok" : each.allowedOverHTTP ? "warning" : "error"} />
          <div><p><strong>${each.allowed ? "may" : each.allowedOverHTTP ? "may over HTTP only" : "may not"}</strong> <span title=${each.permission}>${MEANINGS[each.permission] ?? each.permission}</span> <code class="muted">${each.permission}</code></p>
          <p class="hint">${each.reason}</p></div></li>`)}</ul>`}
    <//>
    ${may("view") && html`<${Matrix} highlight=${about} />`}`;
}

/** @param {{highlight: string}} props */
function Matrix({ highlight }) {
  const poll = usePoll((signal) => api.get("security-settings", { size: 1000 }, signal), [], { interval: 60000 });
  return html`<${Polled} poll=${poll} what="the security-settings">${(/** @type {any} */ list) => {
    /** @type {Map<string, Record<string, string[]>>} */
    const rows = new Map();
    for (const { match, permission, roles } of list.data) {
      const row = rows.get(match) ?? {};
      if (permission) row[permission] = roles;
      rows.set(match, row);
    }
    const types = Object.keys(MEANINGS);
    return html`<${Card} title="Matrix" note="An address is decided by its most specific match alone.">
      ${rows.size === 0 ? html`<${Empty} title="broker.xml has no security-settings." />` : html`<div class="table-box" tabindex="0" role="group" aria-label="Security-settings"><table class="table matrix">
        <thead><tr><th scope="col">Match</th>${types.map((type) => html`<th scope="col" title=${MEANINGS[type]}>${type}</th>`)}</tr></thead>
        <tbody>${[...rows].map(([match, row]) => html`<tr class=${match === highlight ? "selected" : ""}><th scope="row"><code class="name">${match}</code></th>${types.map((type) => html`<td>${row[type]?.length ? html`<span class="badges">${row[type].map((role) => html`<${Badge} tone="accent">${role}<//>`)}</span>` : html`<span class="muted" aria-label="no role">–</span>`}</td>`)}</tr>`)}</tbody></table></div>`}
    <//>`;
  }}<//>`;
}
