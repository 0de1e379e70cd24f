/**
 * Live: subscribe to a destination over WebSocket, as any client would.
 *
 * The page acknowledges a message when it shows it. While it is paused it acknowledges nothing, so that the broker stops
 * after `WINDOW` messages, and they return to their queue if the page leaves.
 */
import { Client } from "../../vendor/stomp.js";
import { stompLogin } from "../api.js";
import { hexDump, prettyJson, visible } from "../body.js";
import { useBroker } from "../broker.js";
import { setQuery } from "../router.js";
import { Badge, Card, Empty, Values } from "../ui/badge.js";
import { Dialog, openDialog } from "../ui/dialog.js";
import { amount, bytes, clock, count } from "../ui/format.js";
import { Choice, SearchField, Select, TextField } from "../ui/form.js";
import { html, useEffect, useRef, useState } from "../ui/html.js";

/** Messages that the page keeps. */
const MOST = 500;
/** Messages that the broker sends ahead. */
const WINDOW = 50;
/** Bytes of a body that the page shows. */
const SHOWN = 256 * 1024;

/**
 * @typedef {object} Received
 * @property {number} number
 * @property {number} time
 * @property {Record<string, string>} headers
 * @property {Uint8Array} body
 * @property {string | null} text null: the body is not UTF-8
 */

/** @param {Record<string, any> | null} broker @returns {[string, string][]} URL and label of each listener that accepts WebSocket */
export function webSockets(broker) {
  const secure = window.location.protocol === "https:";
  const found = (broker?.listeners ?? []).filter((/** @type {any} */ each) => typeof each.webSocket === "string" && (each.tls || !secure));
  // First the listener made for WebSocket, and the one with the security of this page.
  found.sort((/** @type {any} */ one, /** @type {any} */ other) => Number(Boolean(other.tls) === secure) - Number(Boolean(one.tls) === secure) || Number((one.protocols ?? []).length) - Number((other.protocols ?? []).length));
  return found.map((/** @type {any} */ each) => {
    const url = `${each.tls ? "wss" : "ws"}://${window.location.hostname}:${each.port}${each.webSocket}`;
    return [url, `${each.acceptor}: ${url}`];
  });
}

/** @param {{query: Record<string, string>}} props */
export default function Live({ query }) {
  const { broker } = useBroker();
  const urls = webSockets(broker);
  const [form, setForm] = useState({ destination: query.destination ?? "", selector: query.selector ?? "", mode: query.mode ?? "", url: "" });
  const [state, setState] = useState(/** @type {{name: "idle" | "connecting" | "open" | "lost", error: string, ended: boolean}} */ ({ name: "idle", error: "", ended: false }));
  const [view, setView] = useState({ messages: /** @type {Received[]} */ ([]), total: 0, waiting: 0, rate: 0 });
  const [paused, setPaused] = useState(false);
  const [search, setSearch] = useState("");
  const live = useRef(/** @type {Subscriber | null} */ (null));
  useEffect(() => () => live.current?.stop(), []);
  const set = (/** @type {Partial<typeof form>} */ changes) => setForm((before) => ({ ...before, ...changes }));
  const url = form.url || urls[0]?.[0];
  // a queue is only shown unless the user wants to consume it; a topic loses nothing
  const mode = form.mode || (form.destination.startsWith("/topic/") ? "consume" : "browse");
  const running = state.name !== "idle";

  const start = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (running || !form.destination || !url) return;
    setQuery({ destination: form.destination, selector: form.selector, mode: form.mode || undefined });
    setPaused(false);
    live.current = new Subscriber({ ...form, mode, url }, setView, setState);
  };
  const stop = () => {
    live.current?.stop();
    live.current = null;
    setState({ name: "idle", error: "", ended: false });
  };
  const pause = () => {
    live.current?.pause(!paused);
    setPaused(!paused);
  };
  const words = search.toLowerCase();
  const shown = words ? view.messages.filter((each) => textOf(each).toLowerCase().includes(words)) : view.messages;
  const tones = /** @type {const} */ ({ idle: "neutral", connecting: "neutral", open: "ok", lost: "warning" });
  const names = { idle: "not subscribed", connecting: "connecting", open: paused ? "paused" : state.ended ? "all messages shown" : "live", lost: "connection lost, trying again" };
  return html`<div class="page-head"><h1>Live</h1><${Badge} tone=${paused && state.name === "open" ? "warning" : tones[state.name]}>${names[state.name]}<//></div>
    ${broker && urls.length === 0
      ? html`<${Empty} title="No listener accepts WebSocket.">Add an acceptor ${html`<code>ws://…</code>`} to broker.xml. On a page over https it needs TLS.<//>`
      : html`
    <${Card} title="Subscription">
      <form class="live-form" onSubmit=${start} novalidate>
        <${TextField} label="Destination" mono required disabled=${running} value=${form.destination} placeholder="/topic/prices.#" onInput=${(/** @type {string} */ destination) => set({ destination })} />
        <${TextField} label="Selector" mono disabled=${running} value=${form.selector} placeholder="all messages" onInput=${(/** @type {string} */ selector) => set({ selector })} />
        <${Select} label="Messages are" disabled=${running} value=${mode} onInput=${(/** @type {string} */ mode) => set({ mode })} options=${[["browse", "Only shown"], ["consume", "Consumed"]]} />
        ${urls.length > 1 && html`<${Select} label="Listener" disabled=${running} value=${url} onInput=${(/** @type {string} */ value) => set({ url: value })} options=${urls} />`}
        <div class="live-buttons">${running ? html`<button key="stop" type="button" class="button danger-quiet" onClick=${stop}>Unsubscribe</button>` : html`<button key="start" type="submit" class="button primary" disabled=${!form.destination || !url}>Subscribe</button>`}</div>
      </form>
      <p class="hint">${mode === "browse" ? "The messages that wait in the queue now. They stay there." : "Messages of a queue are consumed: other consumers do not get them. On a topic every subscriber gets all."}</p>
      ${state.error && html`<p class="form-error" role="alert">${state.error}</p>`}
    <//>
    ${(running || view.total > 0) && html`<div class="toolbar">
      <${SearchField} label="Filter what is shown" value=${search} onInput=${setSearch} />
      <span class="muted">${amount(view.total, "message")}${view.total > MOST ? `, the last ${count(MOST)} kept` : ""}${view.waiting ? `, ${count(view.waiting)} waiting` : ""} · ${count(view.rate)}/s</span>
      <span class="spacer"></span>
      <button type="button" class="button" disabled=${state.name !== "open"} aria-pressed=${paused ? "true" : "false"} onClick=${pause}>${paused ? "Resume" : "Pause"}</button>
      <button type="button" class="button" onClick=${() => (live.current ? live.current.clear() : setView({ messages: [], total: 0, waiting: 0, rate: 0 }))}>Clear</button></div>`}
    ${shown.length > 0
      ? html`<div class="table-box server" tabindex="0" role="group" aria-label="Received messages"><table class="table">
        <thead><tr><th scope="col">Received</th><th scope="col">Message</th><th scope="col">Destination</th><th scope="col">Body</th><th scope="col" class="number">Size</th></tr></thead>
        <tbody>${shown.map((each) => html`<tr key=${each.number} data-row><td class="nowrap">${clock(each.time)}</td>
          <td><button type="button" class="link mono" onClick=${() => openDialog(() => html`<${ReceivedDialog} message=${each} />`)}>${visible(each.headers["message-id"] ?? String(each.number))}</button></td>
          <td class="wrap name">${visible(each.headers.destination ?? "")}</td><td class="preview mono">${visible(textOf(each).slice(0, 200).replace(/\s+/g, " "))}</td><td class="number">${bytes(each.body.length)}</td></tr>`)}</tbody></table></div>`
      : running && html`<${Empty} title=${view.messages.length ? "No message matches the filter." : state.name === "open" ? (state.ended ? "The queue has no messages." : "Subscribed. Messages appear here as they come.") : "Connecting …"} />`}`}`;
}

/** @param {Received} message */
const textOf = (message) => message.text ?? hexDump(message.body.subarray(0, 16)).slice(10, 58).trim();

/** @param {{message: Received}} props */
function ReceivedDialog({ message }) {
  const [format, setFormat] = useState("auto");
  const part = message.body.subarray(0, SHOWN);
  const text = message.text === null || format === "hex" ? hexDump(part.subarray(0, 16 * 1024)) : visible((format === "auto" && message.body.length <= SHOWN && prettyJson(message.text)) || message.text.slice(0, SHOWN));
  return html`<${Dialog} wide title=${html`Message <span class="mono">${visible(message.headers["message-id"] ?? "")}</span>`}>
    <${Values} items=${[["Received", clock(message.time)], ["Destination", html`<span class="name">${visible(message.headers.destination ?? "")}</span>`], ["Size", bytes(message.body.length)]]} />
    <section><h3>Body</h3><div class="toolbar"><${Choice} label="Show the body as" value=${format} onInput=${setFormat} options=${[["auto", "Automatic"], ["text", "As it is"], ["hex", "Hex"]]} /></div>
      ${message.body.length === 0 ? html`<p class="none muted">The body is empty.</p>` : html`<pre class="body" tabindex="0" role="group" aria-label="Body" dir="ltr">${text}</pre>`}
      ${message.body.length > SHOWN && html`<p class="hint">The first ${bytes(SHOWN)} of ${bytes(message.body.length)}.</p>`}</section>
    <section><h3>Headers</h3><dl class="headers">${Object.entries(message.headers).map(([name, value]) => html`<div><dt class="mono">${visible(name)}</dt><dd class="mono">${visible(value)}</dd></div>`)}</dl></section>
  <//>`;
}

/** A STOMP connection with one subscription. */
class Subscriber {
  /**
   * @param {{destination: string, selector: string, mode: string, url: string}} terms
   * @param {(view: any) => void} onView
   * @param {(state: any) => void} onState
   */
  constructor(terms, onView, onState) {
    /** @type {Received[]} */
    this.messages = [];
    /** @type {{message: Received, ack: () => void}[]} */
    this.waiting = [];
    this.total = 0;
    this.paused = false;
    this.stopped = false;
    this.ended = false;
    /** @type {number[]} */
    this.times = [];
    this.onView = onView;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    const browse = terms.mode === "browse";
    const login = stompLogin();
    let before = false; // whether a subscription has been accepted
    let pending = false; // whether one waits for its receipt
    this.client = new Client({
      brokerURL: terms.url,
      connectHeaders: login ? { login: login.login, passcode: login.passcode } : {},
      reconnectDelay: 2000,
      heartbeatIncoming: 20000,
      heartbeatOutgoing: 20000,
      onConnect: () => {
        pending = true;
        const receipt = `console-${(numbers += 1)}`;
        this.client.watchForReceipt(receipt, () => {
          before = true;
          pending = false;
          if (!this.stopped && !this.ended) onState({ name: "open", error: "", ended: false });
        });
        /** @type {Record<string, string>} */
        const headers = { id: "console", receipt, ack: browse ? "auto" : "client-individual" };
        if (browse) headers.browser = "true";
        else headers["prefetch-count"] = String(WINDOW);
        if (terms.selector) headers.selector = terms.selector;
        this.waiting = [];
        this.client.subscribe(terms.destination, (message) => {
          if (message.headers.browser === "end") {
            this.ended = true;
            onState({ name: "open", error: "", ended: true });
            return;
          }
          this.receive(message, browse);
        }, headers);
      },
      // An ERROR ends the connection. Trying again helps if the broker stops, not if it refuses the login or the subscription.
      onStompError: (frame) => {
        const message = frame.headers.message ?? "The broker closed the connection.";
        const detail = frame.body && frame.body.trim() !== message.trim() ? `: ${frame.body}` : "";
        const error = visible(`${message}${detail}`).slice(0, 1000);
        if (before && !pending) {
          onState({ name: "lost", error, ended: false });
          return;
        }
        this.stop();
        onState({ name: "idle", error, ended: false });
      },
      onWebSocketClose: () => {
        pending = false;
        if (!this.stopped) onState((/** @type {any} */ state) => ({ name: "lost", error: state.error, ended: false }));
      },
    });
    onState({ name: "connecting", error: "", ended: false });
    this.beat = setInterval(() => this.times.length > 0 && this.show(), 1000);
    this.client.activate();
  }

  /**
   * @param {import("../../vendor/stomp.js").IMessage} frame
   * @param {boolean} browse
   */
  receive(frame, browse) {
    const body = frame.binaryBody;
    let text = null;
    try {
      text = new TextDecoder("utf-8", { fatal: true }).decode(body);
    } catch {
      // Not UTF-8: shown as hex.
    }
    const entry = { message: { number: (numbers += 1), time: Date.now(), headers: { ...frame.headers }, body, text }, ack: () => !browse && this.client.connected && frame.ack() };
    if (this.paused) this.waiting.push(entry);
    else this.take(entry);
    this.show();
  }

  /** @param {{message: Received, ack: () => void}} entry */
  take({ message, ack }) {
    this.messages.unshift(message);
    if (this.messages.length > MOST) this.messages.length = MOST;
    this.total += 1;
    this.times.push(message.time);
    ack();
  }

  /** @param {boolean} paused */
  pause(paused) {
    this.paused = paused;
    if (!paused) {
      for (const entry of this.waiting.splice(0)) this.take(entry);
    }
    this.show();
  }

  clear() {
    this.messages = [];
    this.total = 0;
    this.show();
  }

  show() {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      const since = Date.now() - 5000;
      this.times = this.times.filter((time) => time > since);
      this.onView({ messages: [...this.messages], total: this.total, waiting: this.waiting.length, rate: Math.round(this.times.length / 5) });
    }, 150);
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    clearInterval(this.beat);
    void this.client.deactivate();
  }
}

let numbers = 0;
