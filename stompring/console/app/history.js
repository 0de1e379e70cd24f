/**
 * Series for plots, from `…/history`: the whole window once, then only what is new.
 */
import { api, ApiError } from "./api.js";
import { usePoll } from "./poll.js";
import { useMemo, useRef } from "./ui/html.js";

/** @typedef {"1s" | "10s" | "1m"} Resolution */

/** Points shown at each resolution: 5 minutes, an hour, a day. @type {Record<Resolution, {points: number, label: string, poll: number}>} */
export const WINDOWS = {
  "1s": { points: 300, label: "5 min", poll: 2000 },
  "10s": { points: 360, label: "1 h", poll: 10000 },
  "1m": { points: 1440, label: "24 h", poll: 60000 },
};

/** Time shown, in ms. @param {Resolution} resolution */
export const spanOf = (resolution) => WINDOWS[resolution].points * { "1s": 1000, "10s": 10_000, "1m": 60_000 }[resolution];

/**
 * @typedef {object} History
 * @property {number[]} times epoch ms, ascending
 * @property {Record<string, (number | null)[]>} series
 */

/**
 * @param {string[]} path of the thing: ["queues", name]
 * @param {Resolution} resolution
 * @returns {import("./poll.js").Poll<History>}
 */
export function useHistory(path, resolution) {
  const before = useRef(/** @type {{key: string, history: History} | null} */ (null));
  const key = JSON.stringify([path, resolution]);
  const { points, poll } = WINDOWS[resolution];
  return usePoll(
    async (signal) => {
      const old = before.current?.key === key ? before.current.history : null;
      const since = old?.times.at(-1);
      const answer = await api.get([...path, "history"], { resolution, since }, signal);
      const history = merged(old, answer, points);
      before.current = { key, history };
      return history;
    },
    [path, resolution],
    { interval: poll },
  );
}

/**
 * @param {History | null} old
 * @param {{resolution: number, start: number, series: Record<string, (number | null)[]>}} answer
 * @param {number} points
 * @returns {History}
 */
export function merged(old, answer, points) {
  const names = Object.keys(answer.series);
  const length = Math.max(0, ...names.map((name) => answer.series[name].length));
  const keep = old ? old.times.filter((time) => time < answer.start) : [];
  // A restart of the broker leaves a gap that no point fills: a point without values interrupts the line.
  const gap = keep.length > 0 && length > 0 && answer.start - keep[keep.length - 1] > 2 * answer.resolution;
  const times = [...keep, ...(gap ? [keep[keep.length - 1] + answer.resolution] : []), ...Array.from({ length }, (_, index) => answer.start + index * answer.resolution)];
  /** @type {Record<string, (number | null)[]>} */
  const series = {};
  for (const name of names) {
    const kept = old?.series[name]?.slice(0, keep.length) ?? keep.map(() => null);
    series[name] = [...kept, ...(gap ? [null] : []), ...answer.series[name]].slice(-points);
  }
  return { times: times.slice(-points), series };
}

/** Whether the broker has no history: an older version. @param {ApiError | null} error */
export const withoutHistory = (error) => Boolean(error?.unknownRoute);

/** The last `length` values of a series. @param {History | undefined} history @param {string} name */
export function useLast(history, name) {
  return useMemo(() => history?.series[name]?.at(-1) ?? null, [history, name]);
}
