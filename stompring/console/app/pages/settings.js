/**
 * Address-settings and security-settings: which are in force for an address, and where they are defined; set and unset values.
 */
import { api, getAll, may, session } from "../api.js";
import { useSuggestions } from "../operations.js";
import { DefinedIn, kept } from "../parts.js";
import { usePoll } from "../poll.js";
import { link, setQuery } from "../router.js";
import { plain, SettingsTable, valueOf } from "../settings.js";
import { useStore } from "../store.js";
import { Badge, Card, Empty, Polled, StateIcon } from "../ui/badge.js";
import { closeDialog, confirm, Dialog, FormError, notify, openDialog, useAction } from "../ui/dialog.js";
import { count } from "../ui/format.js";
import { TextField } from "../ui/form.js";
import { html, useEffect, useState } from "../ui/html.js";
import { DataTable } from "../ui/table.js";
import { MEANINGS } from "./permissions.js";

/** Address-settings, and permissions of security-settings, that are shown. */
const SHOWN = 2000;
/** @typedef {{match: string, definedIn: string, line: number | null, permissions: Record<string, string[]>}} Rule */
/** @typedef {() => Promise<void>} Done */

/** The grants of the API by match. @param {any[]} grants @returns {Rule[]} */
function rulesOf(grants) {
  /** @type {Map<string, Rule>} */
  const rules = new Map();
  for (const { match, definedIn, line, permission, roles } of grants) {
    const rule = rules.get(match) ?? /** @type {Rule} */ ({ match, definedIn, line, permissions: {} });
    if (permission) rule.permissions[permission] = roles;
    rules.set(match, rule);
  }
  return [...rules.values()];
}

/** @param {{query: Record<string, string>}} props */
export default function Settings({ query }) {
  const { address = "" } = query;
  const { whoami } = useStore(session);
  const [name, setName] = useState(address);
  useEffect(() => setName(address), [address]);
  const suggestions = useSuggestions(true, "address", name);
  const entries = usePoll(() => getAll("address-settings", { sort: "match" }, SHOWN), [], { interval: 15000 });
  const grants = usePoll(() => getAll("security-settings", { sort: "match" }, SHOWN), [], { interval: 15000 });
  const values = usePoll((signal) => api.get(["addresses", address, "settings"], {}, signal), [address], { interval: 15000, enabled: Boolean(address) });
  const access = usePoll((signal) => api.get("permissions", { address }, signal), [address], { interval: 15000, enabled: Boolean(address) });
  const done = async () => {
    await Promise.all([entries, grants, ...(address ? [values, access] : [])].map((poll) => poll.refresh()));
  };
  const set = (/** @type {string} */ match, /** @type {any} */ row = null) => openDialog(() => html`<${ValueDialog} match=${match} row=${row} known=${entries.data ?? []} done=${done} />`);
  const rule = (/** @type {string} */ match) => openDialog(() => html`<${RuleDialog} match=${match} rules=${rulesOf(grants.data ?? [])} secure=${Boolean(whoami?.securityEnabled)} done=${done} />`);
  const ask = (/** @type {Event} */ event) => {
    event.preventDefault();
    setQuery({ address: name.trim() || undefined });
  };
  return html`<div class="page-head"><h1>Settings and security</h1><span class="spacer"></span>
      ${may("manage") && html`<button type="button" class="button primary" onClick=${() => set(address)}>Set a value</button>
        <button type="button" class="button primary" onClick=${() => rule(address)}>Set permissions</button>`}</div>
    ${whoami && !whoami.securityEnabled && html`<p class="note-line"><${StateIcon} tone="warning" /> Security is disabled: every client may do everything, and security-settings have no effect.</p>`}
    <${Card} title="What is in force for an address?"><form class="ask" onSubmit=${ask} novalidate>
      <${TextField} label="Address" mono value=${name} list=${suggestions} onInput=${setName} />
      <button type="submit" class="button primary">Show</button></form><//>
    ${address && html`${values.error?.missing
        ? html`<${Empty} title="This address does not exist.">Its settings are shown once a client or an operator has created it. Its permissions are below.<//>`
        : html`<${SettingsTable} poll=${values} what="address" more=${may("manage") ? [{ key: "actions", label: "Actions", width: "160px", render: (/** @type {any} */ row) => html`<span class="row-actions">
            <button type="button" class="button small" aria-label=${`Set ${row.element}`} onClick=${() => set(address, row)}>Set</button>
            ${row.match !== null && html`<button type="button" class="button small danger-quiet" aria-label=${`Unset ${row.element}`} onClick=${() => unset(row, entries.data ?? [], done)}>Unset</button>`}</span>` }] : []} />`}
      <${Card} title="Permissions in force" note=${html`for <span class="name">${address}</span>`} actions=${html`<a href=${link(["admin", "permissions"], { address })}>May a user do that?</a>`}>
        <${Polled} poll=${access} what="the permissions">${(/** @type {any} */ answer) => html`<${DataTable} label="Permissions in force" columns=${IN_FORCE} rows=${answer.data} rowKey=${(/** @type {any} */ row) => row.permission} />`}<//><//>`}
    <${Card} title="Address-settings" note=${entries.data && `${count(entries.data.length)}; the most specific match that sets a value decides`}><${Polled} poll=${entries} what="the address-settings">${(/** @type {any[]} */ list) => html`
      <${DataTable} label="Address-settings" rows=${list} rowKey=${(/** @type {any} */ row) => row.match} empty="There are none." columns=${[...ENTRY,
        { key: "settings", label: "Values", render: (/** @type {any} */ row) => html`<span class="wrap">${Object.entries(row.settings).map(([key, value]) => html`<div><code>${key}</code> ${valueOf({ value, unit: "" })}</div>`)}</span>` },
        ...actions("address-setting", set, done)]} />`}<//><//>
    <${Card} title="Security-settings" note="an address is decided by its most specific match alone"><${Polled} poll=${grants} what="the security-settings">${(/** @type {any[]} */ list) => html`
      <${DataTable} label="Security-settings" rows=${rulesOf(list)} rowKey=${(/** @type {Rule} */ row) => row.match} empty="There are none." columns=${[...ENTRY,
        { key: "permissions", label: "Roles by permission", render: (/** @type {Rule} */ row) => html`<span class="wrap">${Object.entries(row.permissions).map(([kind, roles]) => html`<div><code>${kind}</code> ${roles.join(", ") || html`<span class="muted">no role</span>`}</div>`)}</span>` },
        ...actions("security-setting", rule, done)]} />`}<//><//>`;
}

/** @type {import("../ui/table.js").Column[]} */
const ENTRY = [
  { key: "match", label: "Match", sort: true, width: "200px", render: (row) => html`<code class="name">${row.match}</code>` },
  { key: "definedIn", label: "Source", sort: true, width: "110px", render: (row) => html`<${DefinedIn} of=${row} />` },
];

/** @type {import("../ui/table.js").Column[]} */
const IN_FORCE = [
  { key: "permission", label: "Permission", width: "200px", render: (row) => html`<code>${row.permission}</code>` },
  { key: "roles", label: "Roles", render: (row) => (row.roles.length ? html`<span class="badges">${row.roles.map((/** @type {string} */ role) => html`<${Badge} tone="accent">${role}<//>`)}</span>` : html`<span class="muted">no role</span>`) },
  { key: "match", label: "From", width: "220px", render: (row) => (row.match === null ? html`<span class="muted">no match</span>` : html`<span class="badges"><${Badge} tone="accent">match <span class="mono">${row.match}</span><//><${DefinedIn} of=${row} /></span>`) },
];

/**
 * @param {"address-setting" | "security-setting"} kind
 * @param {(match: string) => void} edit
 * @param {Done} done
 * @returns {import("../ui/table.js").Column[]}
 */
const actions = (kind, edit, done) =>
  may("manage") ? [{ key: "actions", label: "Actions", width: "160px", render: (row) => html`<span class="row-actions">
    <button type="button" class="button small" aria-label=${`Change the ${kind} ${row.match}`} onClick=${() => edit(row.match)}>Change</button>
    <button type="button" class="button small danger-quiet" aria-label=${`Delete the ${kind} ${row.match}`} onClick=${() => remove(kind, row, done)}>Delete</button></span>` }] : [];

/** @param {"address-setting" | "security-setting"} kind @param {any} row @param {Done} done */
function remove(kind, row, done) {
  confirm({
    title: `Delete the ${kind} ${row.match}`,
    text: html`<p>${kind === "address-setting" ? "Its addresses have the values of less specific matches, or the defaults." : "Its addresses are decided by the next less specific match. Without one, no role may do anything there."}</p>${kept(row, kind)}`,
    name: row.match,
    action: "Delete",
    run: async () => {
      await api.delete([`${kind}s`, row.match]);
      notify(`The ${kind} ${row.match} is deleted.`);
      await done();
    },
  });
}

/** @param {any} row of the settings in force @param {any[]} entries @param {Done} done */
function unset(row, entries, done) {
  confirm({
    title: `Unset ${row.element}`,
    text: html`<p>The address-setting <code class="name">${row.match}</code> no longer sets it. All its addresses have the value of a less specific match, or the default. Queues that exist keep their attributes.</p>
      ${kept(entries.find((each) => each.match === row.match) ?? row, "address-setting", true)}`,
    action: "Unset",
    run: async () => {
      await api.patch(["address-settings", row.match], { settings: { [row.name]: null } });
      notify(`${row.element} is unset for ${row.match}.`);
      await done();
    },
  });
}

/** @param {{match: string, row: any, known: any[], done: Done}} props `row`: the setting, null for any; `known`: address-settings that exist */
function ValueDialog({ match, row, known, done }) {
  const text = row?.value === null || row?.value === undefined || typeof row.value === "object" ? "" : String(row.value);
  const [form, setForm] = useState({ match, element: row?.element ?? "", value: text });
  const set = (/** @type {Partial<typeof form>} */ changes) => setForm((before) => ({ ...before, ...changes }));
  const [all, setAll] = useState(/** @type {any[]} */ (row ? [row] : []));
  useEffect(() => {
    // The broker tells all settings with their meanings for an address only: any will do.
    const load = async () => {
      const { data } = await api.get("addresses", { size: 1 });
      if (data.length) setAll((await api.get(["addresses", data[0].name, "settings"])).data);
    };
    if (!row) load().catch(() => undefined);
  }, []);
  const found = all.find((each) => each.element === form.element.trim() || each.name === form.element.trim());
  const { busy, error, start } = useAction(async () => {
    await api.patch(["address-settings", form.match.trim()], { settings: { [found?.name ?? form.element.trim()]: form.value.trim() } });
    closeDialog();
    notify(`${form.element.trim()} is set for ${form.match.trim()}.`);
    await done();
  });
  const ready = form.match.trim() && form.element.trim() && form.value.trim();
  return html`<${Dialog} title="Set a value" onSubmit=${() => ready && start()} footer=${html`
      <button type="button" class="button" onClick=${closeDialog}>Cancel</button>
      <button type="submit" class="button primary" disabled=${!ready || busy}>${busy ? "Working …" : "Set"}</button>`}>
    <${TextField} label="Match" mono required autofocus=${!row} value=${form.match} list=${known.map((each) => each.match)} onInput=${(/** @type {string} */ value) => set({ match: value })} hint="An address, or a wildcard address: orders.# is orders and all addresses below it." />
    <${TextField} label="Setting" mono required disabled=${Boolean(row)} value=${form.element} list=${all.map((each) => each.element)} onInput=${(/** @type {string} */ element) => set({ element })} hint=${found ? plain(found.meaning) : "As in broker.xml: max-size-messages"} />
    <${TextField} label="Value" mono required autofocus=${Boolean(row)} value=${form.value} onInput=${(/** @type {string} */ value) => set({ value })} hint=${found?.unit ? `In ${found.unit}` : undefined} />
    ${kept(known.find((each) => each.match === form.match.trim()) ?? {}, "address-setting", true)}
    ${error && html`<${FormError} error=${error} />`}
  <//>`;
}

/** @param {{match: string, rules: Rule[], secure: boolean, done: Done}} props */
function RuleDialog({ match: first, rules, secure, done }) {
  const [match, setMatch] = useState(first);
  const rule = rules.find((each) => each.match === match.trim());
  // A new rule begins with the roles that are in force, so that only those lose a permission that the operator removes.
  const fresh = secure && !rule && Boolean(match.trim());
  const access = usePoll((signal) => api.get("permissions", { address: match.trim() }, signal), [match], { interval: 15000, enabled: fresh });
  const inForce = fresh ? (access.data?.data ?? []) : [];
  const ready = match.trim() && !(fresh && !access.data && !access.error);
  const begun = (/** @type {string} */ kind) => (rule ? (rule.permissions[kind] ?? []) : (inForce.find((/** @type {any} */ each) => each.permission === kind)?.roles ?? [])).join(", ");
  const [typed, setTyped] = useState(/** @type {Record<string, string>} */ ({}));
  const { busy, error, start } = useAction(async () => {
    // The others of a rule that exists stay; a new one begins with all roles that the dialog shows.
    const sent = Object.keys(MEANINGS).filter((kind) => typed[kind] !== undefined || (!rule && begun(kind)));
    const permissions = Object.fromEntries(sent.map((kind) => {
      const roles = (typed[kind] ?? begun(kind)).split(/[\s,]+/).filter(Boolean);
      return [kind, roles.length ? roles : null];
    }));
    await api.patch(["security-settings", match.trim()], { permissions });
    closeDialog();
    notify(`The permissions on ${match.trim()} are set.`);
    await done();
  });
  return html`<${Dialog} title="Set permissions" onSubmit=${() => ready && start()} footer=${html`
      <button type="button" class="button" onClick=${closeDialog}>Cancel</button>
      <button type="submit" class="button primary" disabled=${!ready || busy}>${busy ? "Working …" : "Set"}</button>`}>
    <${TextField} label="Match" mono required autofocus value=${match} list=${rules.map((each) => each.match)} onInput=${setMatch} hint="An address, or a wildcard address. This entry alone decides for its addresses, unless a more specific one matches." />
    ${inForce.length > 0 && html`<p class="hint">The fields begin with the roles that are in force for this address.</p>`}
    <fieldset class="fieldset"><legend>Roles by permission</legend><p class="hint">Separated by commas. Empty: no role has the permission.</p>
      ${Object.entries(MEANINGS).map(([kind, meaning]) => html`<${TextField} label=${kind} hint=${meaning} mono value=${typed[kind] ?? begun(kind)} onInput=${(/** @type {string} */ value) => setTyped({ ...typed, [kind]: value })} />`)}</fieldset>
    ${rule && kept(rule, "security-setting", true)}
    ${error && html`<${FormError} error=${error} />`}
  <//>`;
}
