/**
 * The plots that broker, queues and addresses have in common.
 */
import { spanOf, WINDOWS, withoutHistory } from "../history.js";
import { ErrorBox, Loading } from "./badge.js";
import { Choice } from "./form.js";
import { rate, short } from "./format.js";
import { html, useMemo } from "./html.js";
import { Plot } from "./plot.js";

/** @typedef {import("../history.js").History} History */
/** @typedef {import("../poll.js").Poll<History>} HistoryPoll */

/** @param {{value: import("../history.js").Resolution, onInput: (value: any) => void}} props */
export function WindowChoice({ value, onInput }) {
  return html`<${Choice} label="Time shown" value=${value} onInput=${onInput} options=${Object.entries(WINDOWS).map(([key, { label }]) => [key, label])} />`;
}

/** @type {[string, string, string, boolean][]} series, label, colour, whether it is shown while it is zero */
const RATES = [
  ["added", "in", "--c1", true],
  ["delivered", "out", "--c2", true],
  ["acknowledged", "ack", "--c3", true],
  ["redelivered", "redelivered", "--c4", false],
  ["evicted", "evicted", "--c5", false],
  ["expired", "expired", "--c6", false],
  ["paged", "paged", "--muted", false],
];

/** Messages per second. @param {{history: History, height?: number, resolution?: import("../history.js").Resolution}} props */
export function RatesPlot({ history, height, resolution = "1s" }) {
  const series = useMemo(
    () =>
      RATES.filter(([name, , , always]) => history.series[name] && (always || history.series[name].some((value) => value !== null && value > 0))).map(
        ([name, label, color]) => ({ label, color, values: history.series[name] }),
      ),
    [history],
  );
  return html`<${Plot} label="Messages per second" times=${history.times} series=${series} format=${rate} span=${spanOf(resolution)} height=${height} />`;
}

/** Messages by state, stacked. @param {{history: History, height?: number, resolution?: import("../history.js").Resolution}} props */
export function DepthPlot({ history, height, resolution = "1s" }) {
  const series = useMemo(() => depth(history), [history]);
  return html`<${Plot} label="Messages by state" times=${history.times} series=${series} stacked format=${short} span=${spanOf(resolution)} height=${height} />`;
}

/** @param {History} history */
function depth({ times, series }) {
  const none = times.map(() => null);
  const total = series.messageCount ?? none;
  const delivering = series.deliveringCount ?? none;
  const scheduled = series.scheduledCount ?? none;
  const paged = series.pagedCount ?? none;
  const pending = total.map((value, index) =>
    value === null ? null : Math.max(0, value - (delivering[index] ?? 0) - (scheduled[index] ?? 0) - (paged[index] ?? 0)),
  );
  return [
    { label: "pending", color: "--c1", values: pending },
    { label: "delivering", color: "--c2", values: delivering },
    { label: "scheduled", color: "--c4", values: scheduled },
    { label: "paged", color: "--c6", values: paged },
  ];
}

/**
 * The content of a card with plots: `children` is called with the history.
 * @param {{poll: HistoryPoll, children: (history: History) => any}} props
 */
export function Charted({ poll, children }) {
  if (poll.data) return children(poll.data);
  if (!poll.error) return html`<${Loading} what="the history" />`;
  if (withoutHistory(poll.error)) return html`<p class="none muted">This broker records no history: it is an older version than this page.</p>`;
  return html`<${ErrorBox} error=${poll.error} what="The history could not be loaded" again=${poll.refresh} />`;
}
