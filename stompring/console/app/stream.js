/**
 * Server-Sent Events by fetch: EventSource cannot send the login.
 */
import { ApiError, reach, request, session } from "./api.js";

/** @typedef {{id: string, type: string, data: string}} ServerEvent */

/**
 * Takes the events out of a stream's text: `push` returns those that are complete.
 */
export function eventParser() {
  let rest = "";
  let id = "";
  return {
    /** @param {string} text @returns {ServerEvent[]} */
    push(text) {
      rest += text;
      const events = [];
      for (;;) {
        const end = /\r?\n\r?\n/.exec(rest);
        if (!end) return events;
        const block = rest.slice(0, end.index);
        rest = rest.slice(end.index + end[0].length);
        let type = "message";
        /** @type {string[]} */
        const data = [];
        for (const line of block.split(/\r?\n/)) {
          const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
          if (name === "id") id = value;
          else if (name === "event") type = value;
          else if (name === "data") data.push(value);
        }
        if (data.length > 0) events.push({ id, type, data: data.join("\n") });
      }
    },
  };
}

const FIRST_WAIT = 1000;
const LONGEST_WAIT = 15000;

/** Waits until the tab is visible. @param {AbortSignal} signal */
async function visible(signal) {
  while (document.hidden && !signal.aborted) {
    await new Promise((resolve) => {
      document.addEventListener("visibilitychange", resolve, { once: true });
      signal.addEventListener("abort", resolve, { once: true });
    });
  }
}

/**
 * Follows a stream, and again after it breaks, from the last event on. There is none while the tab is hidden: a browser opens few
 * connections to a host, and tabs that nobody looks at would use them up.
 * @param {string} path
 * @param {{onEvents: (events: ServerEvent[]) => void, onState: (state: "open" | "closed", error: ApiError | null) => void}} listener
 * @returns {() => void} ends it
 */
export function follow(path, { onEvents, onState }) {
  const abort = new AbortController();
  let last = "";
  let wait = FIRST_WAIT;
  /** @type {(() => void) | null} */
  let wake = null;
  const returned = reach.subscribe(() => {
    if (!reach.get().away) wake?.();
  });
  const run = async () => {
    while (!abort.signal.aborted) {
      await visible(abort.signal);
      if (abort.signal.aborted) return;
      /** @type {ApiError | null} */
      let error = null;
      const attempt = new AbortController();
      const hide = () => document.hidden && attempt.abort();
      document.addEventListener("visibilitychange", hide);
      try {
        /** @type {Record<string, string>} */
        const headers = { Accept: "text/event-stream" };
        if (last) headers["Last-Event-ID"] = last;
        const response = await request("GET", path, { headers, signal: AbortSignal.any([abort.signal, attempt.signal]), query: last ? {} : { since: 0 } });
        onState("open", null);
        wait = FIRST_WAIT;
        await read(response, (events) => {
          last = events.at(-1)?.id || last;
          onEvents(events);
        });
      } catch (fault) {
        if (abort.signal.aborted) return;
        if (fault instanceof ApiError) error = fault;
      } finally {
        document.removeEventListener("visibilitychange", hide);
      }
      if (abort.signal.aborted) return;
      onState("closed", error);
      if (attempt.signal.aborted) continue;
      if (error && (error.forbidden || error.missing || error.status === 401 || session.get().state !== "ready")) return;
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, wait);
        wake = () => {
          clearTimeout(timer);
          resolve(undefined);
        };
      });
      wait = Math.min(2 * wait, LONGEST_WAIT);
    }
  };
  void run();
  return () => {
    abort.abort();
    returned();
    wake?.();
  };
}

/**
 * @param {Response} response
 * @param {(events: ServerEvent[]) => void} onEvents
 */
async function read(response, onEvents) {
  const reader = response.body?.getReader();
  if (!reader) return;
  const decoder = new TextDecoder();
  const parser = eventParser();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = parser.push(decoder.decode(value, { stream: true }));
    if (events.length > 0) onEvents(events);
  }
}
