/**
 * Plots of time series, drawn by uPlot.
 */
import uPlot from "../../vendor/uplot.js";
import { short, clock, dateTime } from "./format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";

/**
 * @typedef {object} Series
 * @property {string} label
 * @property {(number | null)[]} values
 * @property {string} color a custom property: "--c1"
 * @property {boolean} [dashed]
 */

/**
 * @param {{label: string, times: number[], series: Series[], stacked?: boolean, format?: (value: number | null) => string, height?: number,
 *   limit?: number | null, limitLabel?: string, span?: number, least?: number, steps?: number[]}} props `times` in epoch ms; `limit` is drawn as a line; the axis
 *   shows `span` ms, and at least 0 to `least`, with a multiple of
 *   one of `steps` at each mark
 */
export function Plot({ label, times, series, stacked = false, format = short, height = 170, limit = null, limitLabel = "limit", span = 60_000, least = 1, steps }) {
  const area = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {uPlot | null} */ (null));
  const [cursor, setCursor] = useState(/** @type {number | null} */ (null));
  const [theme, setTheme] = useState(0);
  const formatter = useRef(format);
  formatter.current = format;
  const shape = JSON.stringify([series.map((one) => [one.label, one.color, one.dashed, stacked && isEmpty(one)]), stacked, height, limit !== null, theme, span]);

  useEffect(() => {
    const changed = () => setTheme((before) => before + 1);
    const media = window.matchMedia("(prefers-color-scheme: dark)");
    media.addEventListener("change", changed);
    window.addEventListener("themechange", changed);
    return () => {
      media.removeEventListener("change", changed);
      window.removeEventListener("themechange", changed);
    };
  }, []);

  useLayoutEffect(() => {
    const element = area.current;
    if (!element) return undefined;
    const made = new uPlot(options(element, series, { stacked, height, limit, span, least, steps, format: (value) => formatter.current(value), onCursor: setCursor }), data(times, series, stacked, limit), element);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: Math.max(120, element.clientWidth), height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);

  useLayoutEffect(() => {
    plot.current?.setData(data(times, series, stacked, limit));
  }, [times, series, limit]);

  const at = cursor === null || cursor >= times.length ? times.length - 1 : cursor;
  const text = series.map((one) => `${one.label} ${format(one.values[at] ?? null)}`).join(", ");
  return html`<figure class="plot">
    <figcaption class="plot-legend">${series.map((one) => html`<span><i class="plot-swatch" style=${{ background: `var(${one.color})` }}></i>${one.label} <b>${format(one.values[at] ?? null)}</b></span>`)}
      ${limit !== null && html`<span>${limitLabel} <b>${format(limit)}</b></span>`}
      ${cursor !== null && times[at] && html`<span class="plot-time">${times.length > 1 && times[times.length - 1] - times[0] > 7_200_000 ? dateTime(times[at]) : clock(times[at])}</span>`}</figcaption>
    <div class="plot-area" ref=${area} role="img" aria-label=${`${label}: ${text}`} style=${{ minHeight: `${height}px` }}></div>
    ${times.length < 2 && html`<p class="plot-none muted">Collecting …</p>`}
  </figure>`;
}

/**
 * Times in seconds, and the values; stacked ones as sums from the bottom.
 * @param {number[]} times
 * @param {Series[]} series
 * @param {boolean} stacked
 * @param {number | null} limit
 * @returns {uPlot.AlignedData}
 */
function data(times, series, stacked, limit) {
  const seconds = times.map((time) => time / 1000);
  const values = stacked ? sums(series.map((one) => one.values)) : series.map((one) => one.values);
  const lines = limit === null ? [] : [times.map(() => limit)];
  return /** @type {uPlot.AlignedData} */ ([seconds, ...values, ...lines]);
}

/** @param {Series} series */
const isEmpty = (series) => series.values.every((value) => !value);

/** @param {(number | null)[][]} rows @returns {(number | null)[][]} */
function sums(rows) {
  /** @type {(number | null)[]} */
  let below = [];
  return rows.map((row) => {
    below = row.map((value, index) => (value === null ? null : value + (below[index] ?? 0)));
    return below;
  });
}

/**
 * @param {HTMLElement} element
 * @param {Series[]} series
 * @param {{stacked: boolean, height: number, limit: number | null, span: number, least: number, steps?: number[], format: (value: number | null) => string, onCursor: (index: number | null) => void}} choices
 * @returns {uPlot.Options}
 */
function options(element, series, { stacked, height, limit, span, least, steps, format, onCursor }) {
  const style = getComputedStyle(element);
  const color = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  const axis = { stroke: color("--muted"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: `11px ${style.fontFamily}` };
  const lines = series.map((one) => ({
    label: one.label,
    stroke: color(one.color),
    // The line of an empty layer would cover that of the layer below.
    width: stacked && isEmpty(one) ? 0 : 1.5,
    fill: stacked || series.length === 1 ? `${color(one.color)}${stacked ? "55" : "22"}` : undefined,
    dash: one.dashed ? [4, 4] : undefined,
    points: { show: false },
  }));
  return {
    width: Math.max(120, element.clientWidth),
    height,
    padding: [8, 16, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: "plots" }, drag: { x: false, y: false }, points: { size: 6 } },
    hooks: { setCursor: [(/** @type {uPlot} */ one) => onCursor(one.cursor.left === undefined || one.cursor.left < 0 ? null : (one.cursor.idx ?? null))] },
    scales: { x: { time: true, range: (plot, low) => timeRange(plot.data[0], low, span) }, y: { range: (_, _low, high) => [0, Math.max(least, (high ?? 0) * 1.08)] } },
    series: [{}, ...lines, ...(limit === null ? [] : [{ label: "limit", stroke: color("--error"), width: 1, dash: [3, 4], points: { show: false } }])],
    bands: stacked ? series.slice(1).map((_, index) => ({ series: /** @type {[number, number]} */ ([index + 2, index + 1]) })) : [],
    axes: [
      { ...axis, space: 70, size: 26, values: TIMES },
      { ...axis, size: (_, values) => Math.max(40, 14 + 6.4 * Math.max(0, ...(values ?? []).map((text) => text.length))), space: 34, ...(steps ? { incrs: steps } : {}), values: (_, splits) => splits.map((value) => format(value)) },
    ],
  };
}

/**
 * The range of the time axis: it ends at the last point. uPlot would let it end years after a single one.
 * @param {ArrayLike<number>} seconds
 * @param {number | null} first
 * @param {number} span in ms
 * @returns {[number, number]}
 */
function timeRange(seconds, first, span) {
  const last = seconds[seconds.length - 1] ?? Date.now() / 1000;
  return [Math.min(first ?? last, last - span / 1000), last];
}

/** Steps of an axis of durations, in ms. */
export const DURATIONS = [1, 2, 5, 10, 20, 50, 100, 200, 500]
  .concat([1, 2, 5, 10, 15, 30].map((seconds) => 1000 * seconds))
  .concat([1, 2, 5, 10, 15, 30].map((minutes) => 60_000 * minutes))
  .concat([1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 720, 1440, 2880, 8760].map((hours) => 3_600_000 * hours));

/** 24-hour labels of the time axis, finer or coarser by the distance of the marks. @type {uPlot.Axis.Values} */
const TIMES = [
  [86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1],
  [3600, "{HH}:{mm}", null, null, null, null, null, null, 1],
  [60, "{HH}:{mm}", null, null, null, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
];

/**
 * A line without axes, beside a figure.
 * @param {{values: (number | null)[], color?: string, width?: number, height?: number}} props
 */
export function Sparkline({ values, color = "--c1", width = 96, height = 22 }) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return html`<svg class="sparkline" width=${width} height=${height} aria-hidden="true"></svg>`;
  const high = Math.max(...known, 1e-9);
  const step = width / (values.length - 1);
  const points = values.flatMap((value, index) => (value === null ? [] : [`${(index * step).toFixed(1)},${(height - 1 - (value / high) * (height - 3)).toFixed(1)}`]));
  return html`<svg class="sparkline" width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} aria-hidden="true">
    <polyline points=${points.join(" ")} fill="none" stroke-width="1.5" stroke-linejoin="round" style=${{ stroke: `var(${color})` }} /></svg>`;
}
