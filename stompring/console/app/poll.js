/**
 * Data that is fetched again and again.
 *
 *   const queues = usePoll((signal) => api.get("queues", { search }, signal), [search]);
 *   queues.data, queues.error, queues.stale, queues.refresh()
 *
 * One poll runs at a time. A poll that costs the broker more time comes less often. There are none while the tab is
 * hidden, the broker is away or nobody is logged in.
 */
import { ApiError, costOf, reach, session } from "./api.js";
import { useEffect, useRef, useState } from "./ui/html.js";

/** Share of the time that the answers of one poll may take: 1 / FACTOR. */
const FACTOR = 60;
const LONGEST = 60_000;

/** @type {Promise<unknown>} */
let last = Promise.resolve();

/**
 * Runs after all that were enqueued before.
 * @template T
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
function enqueue(work) {
  const run = last.then(work, work);
  last = run.catch(() => undefined);
  return run;
}

const paused = () => document.hidden || reach.get().away || session.get().state !== "ready";

/**
 * @template T
 * @typedef {object} Poll
 * @property {T | undefined} data the last answer
 * @property {ApiError | null} error why the last poll failed; the data stays
 * @property {boolean} loading whether there is neither data nor an error yet
 * @property {boolean} changing whether the data is of other parameters than those asked for
 * @property {number} time epoch ms of the data
 * @property {() => Promise<void>} refresh polls now
 */

/**
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @param {unknown[]} inputs a change polls at once
 * @param {{interval?: number, enabled?: boolean, keep?: boolean}} [options] `interval` in ms; `keep` shows the old data until
 *   those of new inputs arrive
 * @returns {Poll<T>}
 */
export function usePoll(load, inputs, { interval = 3000, enabled = true, keep = false } = {}) {
  /** @typedef {{data: T | undefined, error: ApiError | null, time: number, inputs: string}} State */
  const key = JSON.stringify(inputs);
  const [state, setState] = useState(/** @type {State} */ ({ data: undefined, error: null, time: 0, inputs: key }));
  const current = useRef({ load, refresh: async () => {} });
  current.current.load = load;

  useEffect(() => {
    if (!enabled) return undefined;
    const abort = new AbortController();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    let running = false;
    let again = false;
    let due = 0;
    let costBefore = 0;

    const schedule = (/** @type {number} */ delay) => {
      clearTimeout(timer);
      due = performance.now() + delay;
      if (!paused() && !abort.signal.aborted) timer = setTimeout(run, delay);
    };
    const run = async () => {
      if (abort.signal.aborted || paused()) return;
      if (running) {
        again = true;
        return;
      }
      running = true;
      clearTimeout(timer);
      let cost = 0;
      let offered = true;
      try {
        const data = await enqueue(async () => {
          abort.signal.throwIfAborted();
          const begun = performance.now();
          try {
            return await current.current.load(abort.signal);
          } finally {
            cost = costOf(performance.now() - begun);
          }
        });
        if (!abort.signal.aborted) setState({ data, error: null, time: Date.now(), inputs: key });
      } catch (fault) {
        if (!abort.signal.aborted) {
          const error = fault instanceof ApiError ? fault : new ApiError(-1, "Error of the page", String(fault));
          if (!(fault instanceof ApiError)) console.error(fault);
          offered = !error.unknownRoute;
          setState((before) => ({ ...(before.inputs === key || keep ? before : { data: undefined, time: 0 }), error, inputs: key }));
        }
      } finally {
        running = false;
      }
      if (!offered) {
        due = Infinity; // the broker has to be another version first
        return;
      }
      // One slow answer may be due to the browser: the cheaper one of the last two counts.
      const delay = again ? 0 : Math.min(Math.max(interval, FACTOR * Math.min(cost, costBefore)), LONGEST);
      costBefore = cost;
      again = false;
      schedule(delay);
    };
    const wake = () => {
      clearTimeout(timer);
      if (!paused() && due < Infinity) schedule(Math.max(0, due - performance.now()));
    };
    const returned = reach.get().returned;
    const ends = [
      reach.subscribe(() => {
        if (reach.get().returned !== returned) due = 0;
        wake();
      }),
      session.subscribe(wake),
    ];
    document.addEventListener("visibilitychange", wake);
    current.current.refresh = run;
    void run();
    return () => {
      abort.abort();
      clearTimeout(timer);
      for (const end of ends) end();
      document.removeEventListener("visibilitychange", wake);
    };
  }, [key, enabled, interval]);

  const own = state.inputs === key;
  const data = own || keep ? state.data : undefined;
  const error = own ? state.error : null;
  return {
    data,
    error,
    loading: data === undefined && !error,
    changing: !own,
    time: state.time,
    refresh: () => current.current.refresh(),
  };
}
