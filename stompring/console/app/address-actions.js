/**
 * What an operator can do with an address.
 */
import { api } from "./api.js";
import { link, navigate } from "./router.js";
import { Dialog, FormError, closeDialog, confirm, notify, notifyError, openDialog, useAction } from "./ui/dialog.js";
import { Checkbox, TextField } from "./ui/form.js";
import { amount } from "./ui/format.js";
import { html, useState } from "./ui/html.js";

/** @typedef {() => void} Done */
const TYPES = ["ANYCAST", "MULTICAST"];

/** @param {string} name @param {boolean} paused @param {Done} done */
export async function pauseAddress(name, paused, done) {
  try {
    await api.patch(["addresses", name], { paused });
    notify(paused ? `Address ${name} is paused: its queues deliver nothing.` : `Address ${name}: all its queues deliver again.`);
    done();
  } catch (fault) {
    notifyError(fault, `Address ${name} could not be ${paused ? "paused" : "resumed"}`);
  }
}

export function createAddress() {
  openDialog(() => html`<${AddressDialog} address=${null} done=${() => {}} />`);
}

/** @param {any} address @param {Done} done */
export function editAddress(address, done) {
  openDialog(() => html`<${AddressDialog} address=${address} done=${done} />`);
}

/** @param {{address: any, done: Done}} props */
function AddressDialog({ address, done }) {
  const [name, setName] = useState("");
  const [types, setTypes] = useState(/** @type {string[]} */ (address?.routingTypes ?? []));
  const { busy, error, start } = useAction(async () => {
    if (address) {
      await api.patch(["addresses", address.name], { routingTypes: types });
      notify(`Address ${address.name} is changed.`);
    } else {
      await api.post("addresses", { name: name.trim(), ...(types.length ? { routingTypes: types } : {}) });
      notify(`Address ${name.trim()} is created.`);
      navigate(link("addresses", name.trim()));
    }
    closeDialog();
    done();
  });
  const ready = address ? types.length > 0 : name.trim() !== "";
  return html`<${Dialog} title=${address ? html`Change <span class="name">${address.name}</span>` : "Create an address"} onSubmit=${() => ready && start()} footer=${html`
      <button type="button" class="button" onClick=${closeDialog}>Cancel</button>
      <button type="submit" class="button primary" disabled=${busy || !ready}>${busy ? "Working …" : address ? "Apply" : "Create"}</button>`}>
    ${!address && html`<${TextField} label="Name" name="name" value=${name} onInput=${setName} mono required autofocus error=${error} />`}
    <fieldset class="group"><legend>Routing types</legend>
      ${TYPES.map((type) => html`<${Checkbox} label=${type} hint=${type === "ANYCAST" ? "Each message goes to one of its queues." : "Each message goes to every queue."} checked=${types.includes(type)}
        onChange=${(/** @type {boolean} */ on) => setTypes(TYPES.filter((each) => (each === type ? on : types.includes(each))))} />`)}
      ${!address && html`<p class="hint">None: default-address-routing-type.</p>`}
    </fieldset>
    ${error && error.field !== "name" && html`<${FormError} error=${error} />`}
  <//>`;
}

/** @param {any} address */
export function deleteAddress(address) {
  const queues = address.queues?.length ?? address.queueCount;
  confirm({
    title: "Delete the address",
    text: html`<p>This deletes the address <b class="name">${address.name}</b>${queues > 0 ? html` with ${amount(queues, "queue")} and ${amount(address.messageCount, "message")}. They cannot be brought back.` : "."}</p>
      ${address.configured && html`<p>broker.xml defines the address: the next reload or start creates it again.</p>`}`,
    name: address.name,
    action: "Delete",
    run: async () => {
      await api.delete(["addresses", address.name], {}, queues > 0 ? { force: true } : {});
      notify(`Address ${address.name} is deleted.`);
      navigate(link("addresses"));
    },
  });
}

/** @param {string} name @param {Done} done */
export function forgetDuplicates(name, done) {
  confirm({
    title: "Forget duplicate ids",
    text: html`<p>Messages to <b class="name">${name}</b> whose <code>_AMQ_DUPL_ID</code> is known are discarded. This forgets all known ids: the same messages can then be sent again.</p>`,
    name,
    action: "Forget",
    run: async () => {
      const { forgotten } = await api.post(["addresses", name, "forget-duplicates"], {});
      notify(`Address ${name}: ${amount(forgotten, "duplicate id")} forgotten.`);
      done();
    },
  });
}
