/**
 * One address: state, plots, queues, settings, actions.
 */
import { deleteAddress, editAddress, forgetDuplicates, pauseAddress } from "../address-actions.js";
import { api } from "../api.js";
import { useHistory } from "../history.js";
import { AddressLink, QueueLink, QueueState, Verdict } from "../parts.js";
import { usePermissions } from "../permissions.js";
import { usePoll } from "../poll.js";
import { createQueue } from "../queue-actions.js";
import { link } from "../router.js";
import { SettingsTable } from "../settings.js";
import { useRemembered } from "../store.js";
import { Card, Empty, ErrorBox, Loading, Meter, Polled, Stat, Values } from "../ui/badge.js";
import { Charted, DepthPlot, RatesPlot, WindowChoice } from "../ui/charts.js";
import { amount, bytes, count, duration, rate, short } from "../ui/format.js";
import { html } from "../ui/html.js";
import { Menu } from "../ui/menu.js";
import { DataTable } from "../ui/table.js";
import { AddressState } from "./addresses.js";

/** @param {{params: Record<string, string>}} props */
export default function AddressPage({ params }) {
  const { name } = params;
  const poll = usePoll((signal) => api.get(["addresses", name], {}, signal), [name], { interval: 3000 });
  const address = poll.data;
  if (!address) {
    const gone = poll.error?.missing && !poll.error.unknownRoute;
    return html`<div class="page-head"><h1 class="name">${name}</h1></div>
      ${gone
        ? html`<${Empty} title="This address does not exist">It may have been deleted, or no client has used it yet. <a href=${link("addresses", { search: name })}>Search for addresses with this name</a><//>`
        : poll.error
          ? html`<${ErrorBox} error=${poll.error} what="The address could not be loaded" again=${poll.refresh} />`
          : html`<${Loading} what="the address" />`}`;
  }
  if (poll.error?.missing) {
    return html`<div class="page-head"><h1 class="name">${name}</h1></div><${Empty} title="This address no longer exists">It was deleted while you looked at it. <a href=${link("addresses")}>All addresses</a><//>`;
  }
  return html`<${Head} address=${address} refresh=${poll.refresh} />
    ${poll.error && poll.error.status !== 0 && html`<${ErrorBox} error=${poll.error} what="The address could not be refreshed" again=${poll.refresh} />`}
    <${Verdict} of=${address} />
    <div class="stats">
      <${Stat} label="Messages" value=${short(address.messageCount)} note="in its queues" />
      <${Stat} label="Queues" value=${count(address.queueCount)} />
      <${Stat} label="In" value=${rate(address.addedRate)} />
      <${Stat} label="Routed" value=${short(address.routedMessageCount)} note="since the start" />
      <${Stat} label="Not routed" value=${short(address.unRoutedMessageCount)} note="no queue accepted them" tone=${address.unRoutedMessageCount > 0 ? "warning" : "neutral"} />
      <${Stat} label="Dropped" value=${short(address.droppedMessageCount)} note="full, or by a policy" tone=${address.droppedMessageCount > 0 ? "warning" : "neutral"} />
      <${Stat} label="Blocked producers" value=${count(address.blockedProducers)} tone=${address.blockedProducers > 0 ? "error" : "neutral"} />
    </div>
    <${Plots} name=${name} />
    <div class="grid start">
      <${Queues} address=${address} />
      <${Memory} address=${address} />
    </div>
    <${Settings} name=${name} />`;
}

/** @param {{address: any, refresh: () => Promise<void>}} props */
function Head({ address, refresh }) {
  const can = usePermissions(address.name);
  const done = () => void refresh();
  const edit = can("edit");
  return html`<div><p class="crumb"><a href=${link("addresses")}>Addresses</a> / </p>
    <div class="page-head"><h1 class="name">${address.name}</h1><${AddressState} address=${address} all /><span class="spacer"></span>
      ${can("send") && html`<a class="button primary" href=${link(["messages", "send"], { address: address.name, routingType: address.routingTypes.length === 1 ? address.routingTypes[0] : "" })}>Send</a>`}
      ${edit && html`<button type="button" class="button" onClick=${() => pauseAddress(address.name, !address.paused, done)}>${address.paused ? "Resume" : "Pause"}</button>
        <${Menu} label="More" actions=${[
          { label: "Create a queue …", run: () => createQueue({ address: address.name }) },
          { label: "Change routing types …", run: () => editAddress(address, done) },
          { label: "Forget duplicate ids …", run: () => forgetDuplicates(address.name, done) },
          "-",
          can("deleteAddress") && { label: "Delete …", hint: "The address with its queues", danger: true, run: () => deleteAddress(address) },
        ]} />`}
    </div></div>`;
}

/** @param {{name: string}} props */
function Plots({ name }) {
  const [resolution, setResolution] = useRemembered("window", /** @type {import("../history.js").Resolution} */ ("1s"));
  const poll = useHistory(["addresses", name], resolution);
  return html`<div class="grid">
    <${Card} title="Rates" class="span-6" actions=${html`<${WindowChoice} value=${resolution} onInput=${setResolution} />`}><${Charted} poll=${poll}>${(/** @type {any} */ history) => html`<${RatesPlot} history=${history} resolution=${resolution} />`}<//><//>
    <${Card} title="Messages of its queues" class="span-6"><${Charted} poll=${poll}>${(/** @type {any} */ history) => html`<${DepthPlot} history=${history} resolution=${resolution} />`}<//><//>
  </div>`;
}

/** @type {import("../ui/table.js").Column[]} */
const QUEUES = [
  { key: "name", label: "Queue", render: (queue) => html`<${QueueLink} name=${queue.name} /> <${QueueState} queue=${queue} />` },
  { key: "filter", label: "Filter", width: "150px", render: (queue) => html`<code class="wrap">${queue.filter ?? "–"}</code>` },
  { key: "messageCount", label: "Messages", number: true, sort: true, width: "88px", render: (queue) => short(queue.messageCount) },
  { key: "consumerCount", label: "Consumers", number: true, sort: true, width: "92px", render: (queue) => count(queue.consumerCount) },
  { key: "oldestMessageAge", label: "Oldest", number: true, sort: true, width: "100px", render: (queue) => (queue.oldestMessageAge === null ? "–" : duration(queue.oldestMessageAge)) },
];
const SHOWN = 50;

/** @param {{address: any}} props */
function Queues({ address }) {
  const poll = usePoll((signal) => api.get("queues", { address: address.name, size: SHOWN, sort: "-messageCount" }, signal), [address.name], { interval: 5000 });
  return html`<${Card} title="Queues" class="span-8" note=${poll.data ? count(poll.data.count) : ""} actions=${html`<a href=${link("queues", { address: address.name })}>In the list of queues</a>`}>
    <${Polled} poll=${poll} what="the queues">${(/** @type {any} */ list) => html`<${DataTable} label="Queues of the address" columns=${QUEUES} rows=${list.data} rowKey=${(/** @type {any} */ queue) => queue.name}
      empty=${html`<${Empty} title="No queue">Messages sent to this address go nowhere. <button type="button" class="button" onClick=${() => createQueue({ address: address.name })}>Create a queue</button><//>`} />`}<//>
  <//>`;
}

/** @param {{address: any}} props */
function Memory({ address }) {
  const { settings = {} } = address;
  const policy = settings.addressFullPolicy;
  return html`<${Card} title="Memory and pages" class="span-4"><div class="meters">
    <${Meter} label="Memory of messages" value=${address.addressSize} max=${settings.maxSizeBytes ?? null} format=${bytes} note="max-size-bytes" />
    ${settings.maxSizeMessages > 0 && html`<${Meter} label="Messages" value=${Math.round((address.limitPercent * settings.maxSizeMessages) / 100)} max=${settings.maxSizeMessages} note="max-size-messages" />`}
    <${Values} items=${[
      ["When full", policy ?? "–"],
      ["Pages", `${count(address.numberOfPages)}, ${bytes(address.pagesSize)}`],
      ["Started paging", amount(address.timesPaged, "time")],
      ["Duplicates discarded", count(address.duplicateMessageCount)],
      ["Policies", address.policies.join(", ") || "none"],
      ["Dead letters go to", settings.deadLetterAddress ? html`<${AddressLink} name=${settings.deadLetterAddress} />` : "nowhere: dropped"],
    ]} />
  </div><//>`;
}

/** @param {{name: string}} props */
function Settings({ name }) {
  const poll = usePoll((signal) => api.get(["addresses", name, "settings"], {}, signal), [name], { interval: 15000 });
  return html`<${SettingsTable} poll=${poll} what="address" link=${html`<a href=${link(["admin", "settings"], { address: name })}>Settings and security</a>`} />`;
}
