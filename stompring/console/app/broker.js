/**
 * The broker and its health, polled once for all pages.
 */
import { api, ApiError, may, request, ROOT } from "./api.js";
import { usePoll } from "./poll.js";
import { createStore, useStore } from "./store.js";
import { useEffect } from "./ui/html.js";

/**
 * @typedef {object} Problem
 * @property {"error" | "warning"} severity
 * @property {string} text
 * @property {string} [address]
 * @property {string} [queue]
 */

/**
 * @typedef {object} BrokerState
 * @property {Record<string, any> | null} broker null: no permission, or not known yet
 * @property {{ready: boolean, [member: string]: any} | null} health
 * @property {Problem[]} problems
 * @property {ApiError | null} error
 * @property {() => Promise<void>} refresh
 */

/** @type {import("./store.js").Store<BrokerState>} */
const state = createStore(
  /** @type {BrokerState} */ ({ broker: null, health: null, problems: [], error: null, refresh: async () => {} }),
);

export const useBroker = () => useStore(state);

/** Polls; once, in the shell. */
export function useBrokerPoll() {
  const poll = usePoll(load, [may("view")], { interval: 5000 });
  useEffect(() => {
    if (poll.data) state.set({ ...poll.data, error: poll.error, refresh: poll.refresh });
    else if (poll.error) state.update({ error: poll.error, refresh: poll.refresh });
  }, [poll.data, poll.error]);
}

/**
 * @param {AbortSignal} signal
 * @returns {Promise<Omit<BrokerState, "error" | "refresh">>}
 */
async function load(signal) {
  const health = await ready(signal);
  const broker = may("view") ? await api.get("broker", {}, signal) : null;
  return { broker, health, problems: broker?.problems ?? problemsOf(health) };
}

/** @param {AbortSignal} signal */
async function ready(signal) {
  try {
    const response = await request("GET", new URL("health/ready", ROOT), { signal });
    return { ready: true, ...(await response.json()) };
  } catch (fault) {
    if (!(fault instanceof ApiError) || fault.status !== 503) throw fault;
    return { ...fault.members, ready: false };
  }
}

/**
 * Problems of a broker that lists none itself.
 * @param {Record<string, any>} health
 * @returns {Problem[]}
 */
function problemsOf(health) {
  /** @type {Problem[]} */
  const problems = [];
  for (const name of health.missingListeners ?? []) problems.push({ severity: "error", text: `Listener ${name} is not open` });
  for (const fault of [health.diskFault, health.storeFault, health.replicationFault, health.loginFault]) if (fault) problems.push({ severity: "error", text: fault });
  if (!health.ready && problems.length === 0) problems.push({ severity: "error", text: health.detail ?? "The broker is not ready" });
  return problems;
}
