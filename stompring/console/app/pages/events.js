/**
 * Events of the broker as they happen: the last 1,000, then new ones.
 */
import { link } from "../router.js";
import { follow } from "../stream.js";
import { useRemembered } from "../store.js";
import { Badge, Empty, ErrorBox, Loading } from "../ui/badge.js";
import { clock, count, dateTime } from "../ui/format.js";
import { SearchField, Select } from "../ui/form.js";
import { html, useEffect, useRef, useState } from "../ui/html.js";

const MOST = 1000;

/** @param {string} type @returns {import("../ui/badge.js").Tone} */
export function eventTone(type) {
  if (/FULL|FAILED|VIOLATION|ERROR/.test(type)) return "error";
  if (/SLOW|PAGING|DRAIN|BLOCK|REMOVED|DESTROYED|EXPIRED/.test(type)) return "warning";
  return /CREATED|ADDED|RELOADED|OPENED/.test(type) ? "ok" : "neutral";
}

export default function Events() {
  const [events, setEvents] = useState(/** @type {any[]} */ ([]));
  const [state, setState] = useState(/** @type {{open: boolean, error: import("../api.js").ApiError | null, known: boolean}} */ ({ open: false, error: null, known: false }));
  const [type, setType] = useRemembered("events.type", "");
  const [search, setSearch] = useState("");
  const [paused, setPaused] = useState(false);
  const all = useRef(/** @type {any[]} */ ([]));
  const pausedNow = useRef(false);
  pausedNow.current = paused;
  useEffect(() => {
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const end = follow("events", {
      onEvents: (received) => {
        const seen = new Set(all.current.slice(-received.length - 1).map((each) => each.id));
        all.current = [...all.current, ...received.map(parsed).filter((each) => each?.id !== undefined && !seen.has(each.id))].slice(-MOST);
        if (pausedNow.current) return;
        timer ??= setTimeout(() => {
          timer = undefined;
          setEvents(all.current);
        }, 150);
      },
      onState: (name, error) => setState({ open: name === "open", error, known: true }),
    });
    return () => {
      clearTimeout(timer);
      end();
    };
  }, []);
  const pause = () => {
    if (paused) setEvents(all.current);
    setPaused(!paused);
  };
  const words = search.toLowerCase();
  const types = [...new Set(events.map((each) => each.type))].sort();
  const shown = events.filter((each) => (!type || each.type === type) && (!words || JSON.stringify(each).toLowerCase().includes(words))).reverse();
  return html`<div class="page-head"><h1>Events</h1><${Badge} tone=${state.open ? (paused ? "warning" : "ok") : "neutral"}>${state.open ? (paused ? "paused" : "live") : state.known ? "not connected" : "connecting"}<//></div>
    <div class="toolbar"><${SearchField} label="Filter events" value=${search} onInput=${setSearch} />
      <div class="inline-field"><${Select} label="Type" value=${type} onInput=${setType} options=${[["", "All types"], ...(type && !types.includes(type) ? [type] : []), ...types]} /></div>
      <span class="spacer"></span><button type="button" class="button" aria-pressed=${paused ? "true" : "false"} onClick=${pause}>${paused ? "Resume" : "Pause"}</button></div>
    ${state.error && state.error.status !== 0 && html`<${ErrorBox} error=${state.error} what="The events could not be loaded" />`}
    ${!state.known ? html`<${Loading} what="the events" />` : shown.length === 0
      ? !state.error && html`<${Empty} title=${events.length ? "No event matches." : "Nothing has happened since the broker started."} />`
      : html`<div class="table-box server" tabindex="0" role="group" aria-label=${`Events, ${count(shown.length)}`}>
        <table class="table fixed events"><colgroup><col class="col-time" /><col class="col-type" /><col /><col class="col-about" /></colgroup><thead><tr><th scope="col">Time</th><th scope="col">Type</th><th scope="col">Event</th><th scope="col">About</th></tr></thead>
        <tbody>${shown.map((each) => html`<tr key=${each.id} data-row><td class="nowrap" title=${dateTime(each.time)}>${clock(each.time)}</td><td><${Badge} tone=${eventTone(each.type)}>${each.type}<//></td>
          <td class="text">${each.text}</td><td class="about">${about(each)}</td></tr>`)}</tbody></table></div>`}`;
}

/** @param {import("../stream.js").ServerEvent} event */
function parsed(event) {
  try {
    return JSON.parse(event.data);
  } catch {
    return null;
  }
}

/** Links to what an event is about. @param {any} event */
export function about(event) {
  const parts = [];
  if (event.queue) parts.push(html`<a class="name" href=${link("queues", event.queue)}>${event.queue}</a>`);
  else if (event.address) parts.push(html`<a class="name" href=${link("addresses", event.address)}>${event.address}</a>`);
  if (event.user) parts.push(html`<span title="User">${event.user}</span>`);
  if (event.remoteAddress) parts.push(html`<span class="mono" title="Client">${event.remoteAddress}</span>`);
  return html`<span class="badges">${parts}</span>`;
}
