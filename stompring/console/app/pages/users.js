/**
 * Users and their roles.
 */
import { api, getAll, session, userName } from "../api.js";
import { usePoll } from "../poll.js";
import { link } from "../router.js";
import { useStore } from "../store.js";
import { Badge, Card, Empty, Polled } from "../ui/badge.js";
import { asApiError, closeDialog, confirm, Dialog, FormError, notify, openDialog } from "../ui/dialog.js";
import { count } from "../ui/format.js";
import { SearchField, TextField } from "../ui/form.js";
import { html, useState } from "../ui/html.js";
import { DataTable } from "../ui/table.js";

export default function Users() {
  const { whoami } = useStore(session);
  if (whoami && !whoami.securityEnabled) {
    return html`<div class="page-head"><h1>Users and roles</h1></div>
      <${Empty} title="Security is disabled."><p>The broker uses no users and roles: every client may do everything. <code>security-enabled</code> in broker.xml enables it, from the next start on.</p><//>`;
  }
  return html`<${UsersAndRoles} />`;
}

function UsersAndRoles() {
  const [search, setSearch] = useState("");
  const poll = usePoll(async (signal) => {
    const [users, roles] = await Promise.all([getAll("users", { sort: "name" }), api.get("roles", { size: 1000, sort: "name" }, signal)]);
    return { users, roles: roles.data };
  }, [], { interval: 15000 });
  const edit = (/** @type {any} */ user) => openDialog(() => html`<${UserDialog} user=${user} roles=${poll.data?.roles.map((/** @type {any} */ each) => each.name) ?? []} onDone=${poll.refresh} />`);
  const remove = (/** @type {any} */ user) =>
    confirm({
      title: `Delete the user ${user.name}`,
      text: "The user can no longer log in. Connections that exist stay open.",
      name: user.name,
      action: "Delete",
      run: async () => {
        await api.delete(["users", user.name]);
        notify(`User ${user.name} is deleted.`);
        await poll.refresh();
      },
    });
  const own = userName();
  const columns = [
    { key: "name", label: "User", sort: true, width: "200px", render: (/** @type {any} */ user) => html`<span class="name">${user.name}</span>${user.name === own ? html` <${Badge} tone="accent">you<//>` : ""}` },
    { key: "roles", label: "Roles", render: (/** @type {any} */ user) => html`<span class="badges">${user.roles.map((/** @type {string} */ role) => html`<${Badge}>${role}<//>`)}${user.roles.length === 0 ? html`<span class="muted">none: may log in and nothing else</span>` : ""}</span>` },
    { key: "login", label: "Logs in with", width: "180px", render: (/** @type {any} */ user) => [user.hasPassword !== false && "password", user.certificate && "certificate"].filter(Boolean).join(", ") || "nothing" },
    { key: "actions", label: "Actions", width: "260px", render: (/** @type {any} */ user) => html`<span class="row-actions">
      <button type="button" class="button small" aria-label=${`Change ${user.name}`} onClick=${() => edit(user)}>Change</button>
      <a class="button small" aria-label=${`Permissions of ${user.name}`} href=${link("admin", "permissions", { user: user.name })}>Permissions</a>
      <button type="button" class="button small danger-quiet" aria-label=${`Delete ${user.name}`} onClick=${() => remove(user)}>Delete</button></span>` },
  ];
  return html`<div class="page-head"><h1>Users and roles</h1><span class="spacer"></span><button type="button" class="button primary" onClick=${() => edit(null)}>Add a user</button></div>
    <${Polled} poll=${poll} what="the users">${(/** @type {{users: any[], roles: any[]}} */ { users, roles }) => {
      const words = search.toLowerCase();
      const shown = users.filter((user) => !words || user.name.toLowerCase().includes(words) || user.roles.some((/** @type {string} */ role) => role.toLowerCase().includes(words)));
      return html`<div class="toolbar"><${SearchField} label="Search users and roles" value=${search} onInput=${setSearch} /></div>
        ${users.length === 0 ? html`<${Empty} title="There are no users."><button type="button" class="button" onClick=${() => edit(null)}>Add a user</button><//>`
          : html`<${Card} title="Users" note=${count(users.length)}><${DataTable} label="Users" columns=${columns} rows=${shown} rowKey=${(/** @type {any} */ user) => user.name} sort="name" empty="No user matches." /><//>`}
        <${Card} title="Roles" note=${count(roles.length)}><${DataTable} label="Roles" rows=${roles} rowKey=${(/** @type {any} */ role) => role.name} sort="name" empty="No user has a role."
          columns=${[
            { key: "name", label: "Role", sort: true, width: "200px", render: (/** @type {any} */ role) => html`<span class="name">${role.name}</span>` },
            { key: "users", label: "Users", render: (/** @type {any} */ role) => (role.users.length ? html`<span class="wrap">${role.users.join(", ")}</span>` : html`<span class="muted">none</span>`) },
          ]} /><//>`;
    }}<//>`;
}

/** @param {{user: any, roles: string[], onDone: () => Promise<void>}} props `user` null: a new one */
function UserDialog({ user, roles, onDone }) {
  const [form, setForm] = useState({ name: user?.name ?? "", password: "", again: "", roles: new Set(/** @type {string[]} */ (user?.roles ?? [])), more: "" });
  const [error, setError] = useState(/** @type {import("../api.js").ApiError | null} */ (null));
  const [busy, setBusy] = useState(false);
  const set = (/** @type {Partial<typeof form>} */ changes) => setForm((before) => ({ ...before, ...changes }));
  const differs = form.password !== form.again;
  const ready = !busy && form.name && !differs && (user || form.password);
  const toggle = (/** @type {string} */ role) => {
    const next = new Set(form.roles);
    if (!next.delete(role)) next.add(role);
    set({ roles: next });
  };
  const save = async () => {
    if (!ready) return;
    setBusy(true);
    setError(null);
    const chosen = [...new Set([...form.roles, ...form.more.split(/[\s,]+/).filter(Boolean)])];
    try {
      /** @type {Record<string, any>} */
      const changes = { roles: chosen };
      if (form.password) changes.password = form.password;
      if (user) await api.patch(["users", user.name], changes);
      else await api.post("users", { name: form.name, ...changes });
      closeDialog();
      notify(user ? `User ${user.name} is changed.` : `User ${form.name} is added.`);
      await onDone();
    } catch (fault) {
      setError(asApiError(fault));
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${user ? html`User <span class="name">${user.name}</span>` : "Add a user"} onSubmit=${save} footer=${html`
      <button type="button" class="button" onClick=${closeDialog}>Cancel</button><button type="submit" class="button primary" disabled=${!ready}>${busy ? "Working …" : user ? "Save" : "Add"}</button>`}>
    ${!user && html`<${TextField} label="Name" name="name" required autofocus error=${error} value=${form.name} onInput=${(/** @type {string} */ name) => set({ name })} />`}
    <${TextField} label=${user ? "New password" : "Password"} name="password" type="password" autocomplete="new-password" required=${!user} error=${error} value=${form.password} onInput=${(/** @type {string} */ password) => set({ password })}
      hint=${user ? "Leave it empty to keep the password." : undefined} />
    <${TextField} label="Password again" type="password" autocomplete="new-password" value=${form.again} onInput=${(/** @type {string} */ again) => set({ again })} hint=${differs && form.again ? "The passwords differ." : undefined} />
    ${roles.length > 0 && html`<fieldset class="fieldset"><legend>Roles</legend><div class="checks">${[...new Set([...roles, ...form.roles])].sort().map((role) => html`<label><input type="checkbox" checked=${form.roles.has(role)} onChange=${() => toggle(role)} /><span class="name">${role}</span></label>`)}</div></fieldset>`}
    <${TextField} label="More roles" name="roles" error=${error} value=${form.more} onInput=${(/** @type {string} */ more) => set({ more })} hint="Separated by commas. What a role may do is in the security-settings of broker.xml." />
    ${error && !["name", "password", "roles"].includes(error.field ?? "") && html`<${FormError} error=${error} />`}
  <//>`;
}
