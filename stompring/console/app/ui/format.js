/**
 * Numbers, sizes, durations and times as people read them. All return text; "–" for what is unknown.
 */
export const UNKNOWN = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** 12,345 @param {number | null | undefined} value */
export function count(value) {
  return value === null || value === undefined ? UNKNOWN : whole.format(value);
}

/** 12.3K @param {number | null | undefined} value */
export function short(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return Math.abs(value) < 10000 ? count(value) : compact.format(value);
}

/** 1,234/s, 0.25/s @param {number | null | undefined} value */
export function rate(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (value === 0) return "0/s";
  return `${value >= 100 ? short(value) : precise.format(value)}/s`;
}

/** -1 as "no limit". @param {number | null | undefined} value */
export function limit(value) {
  return value === -1 ? "no limit" : count(value);
}

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** 1.5 MiB @param {number | null | undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (value === -1) return "no limit";
  let amount = value;
  let unit = 0;
  while (Math.abs(amount) >= 1024 && unit < BYTE_UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? whole.format(amount) : precise.format(amount)} ${BYTE_UNITS[unit]}`;
}

/** @param {number | null | undefined} ratio 0 to 1 */
export function percent(ratio) {
  if (ratio === null || ratio === undefined) return UNKNOWN;
  if (ratio > 0 && ratio < 0.001) return "< 0.1 %";
  return `${ratio > 0 && ratio < 0.1 ? (100 * ratio).toFixed(1) : Math.round(100 * ratio)} %`;
}

/** 850 ms, 12 s, 5 min 3 s, 2 h 10 min, 3 d 4 h @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined) return UNKNOWN;
  if (ms === -1) return "no limit";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  /** @type {[number, string, number, string][]} */
  const steps = [
    [60, "min", 1, "s"],
    [3600, "h", 60, "min"],
    [86400, "d", 3600, "h"],
  ];
  const [size, unit, smaller, smallerUnit] = seconds < 3600 ? steps[0] : seconds < 86400 ? steps[1] : steps[2];
  const rest = Math.floor((seconds % size) / smaller);
  return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${smallerUnit}` : ""}`;
}

/** The same in its largest unit: 24 min, 1.5 h, 3 d @param {number | null | undefined} ms */
export function brief(ms) {
  if (ms === null || ms === undefined || ms < 60_000) return duration(ms);
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  return ms < 172_800_000 ? `${Number((ms / 3_600_000).toFixed(1))} h` : `${Math.floor(ms / 86_400_000)} d`;
}

/** How long ago a time was. @param {number | null | undefined} time epoch ms */
export function ago(time, now = Date.now()) {
  if (!time) return UNKNOWN;
  return `${duration(Math.max(0, now - time))} ago`;
}

/** 2026-11-23 03:59:01 in the browser's time zone @param {number | null | undefined} time epoch ms */
export function dateTime(time) {
  if (!time) return UNKNOWN;
  const at = new Date(time);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(time)}`;
}

/** 03:59:01 @param {number | null | undefined} time epoch ms */
export function clock(time) {
  if (!time) return UNKNOWN;
  const at = new Date(time);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** @param {number} number */
const two = (number) => String(number).padStart(2, "0");

/** "1 queue", "3 queues" @param {number} number @param {string} noun @param {string} [plural] */
export function amount(number, noun, plural = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : plural}`;
}
