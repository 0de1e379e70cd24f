/**
 * Client of the HTTP API, with the login in memory and the state of the connection to the broker.
 *
 *   await api.get("queues", { search: "orders", size: 50 })      GET  /api/v1/queues?search=orders&size=50
 *   await api.get(["queues", name])                               names are percent-encoded
 *   await api.post(["queues", name, "purge"], { filter: null })
 *
 * A failure is thrown as `ApiError`.
 */
import { createStore } from "./store.js";

/** Root of the broker's HTTP listener, as this page reached it (a proxy may add a path). */
export const ROOT = new URL("../../", import.meta.url);

/**
 * @typedef {object} Login
 * @property {string} user
 * @property {string} authorization
 */

/**
 * @typedef {object} Whoami
 * @property {boolean} securityEnabled
 * @property {string | null} user
 * @property {string[]} roles
 * @property {Record<string, boolean>} permissions on activemq.management
 */

/**
 * @typedef {object} Session
 * @property {"starting" | "login" | "ready"} state
 * @property {Whoami | null} whoami null: the broker does not tell
 * @property {string} message why the page asks for a login
 */

/**
 * @typedef {object} Reach
 * @property {boolean} away whether the broker does not answer
 * @property {number} since epoch ms of the first failure
 * @property {number} nextTry epoch ms of the next attempt
 * @property {string} cause
 * @property {number} returned how often it came back: polls run again then
 */

/** @type {import("./store.js").Store<Session>} */
export const session = createStore(/** @type {Session} */ ({ state: "starting", whoami: null, message: "" }));

/** @type {import("./store.js").Store<Reach>} */
export const reach = createStore(/** @type {Reach} */ ({ away: false, since: 0, nextTry: 0, cause: "", returned: 0 }));

/** @type {Login | null} */
let login = null;

/** Shortest time an answer took, in ms: the cost of the network alone. */
let fastest = Infinity;

/** A request that failed: `status` 0 if there was no answer. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} title
   * @param {string} detail
   * @param {Record<string, any>} [members] of the problem document
   */
  constructor(status, title, detail, members = {}) {
    super(detail || title);
    this.name = "ApiError";
    this.status = status;
    this.title = title;
    this.detail = detail;
    /** @type {string | undefined} name of the invalid field */
    this.field = members.field ?? (status === 400 ? /^(filter): /.exec(detail)?.[1] : undefined);
    /** @type {string | undefined} name of the invalid parameter */
    this.parameter = members.parameter;
    this.members = members;
  }

  /** Whether the broker has no such route, queue, address, message or connection. */
  get missing() {
    return this.status === 404;
  }

  /** Whether the broker does not know the route: an older version. */
  get unknownRoute() {
    return this.status === 405 || (this.status === 404 && /^Path \/.* does not exist$/.test(this.detail));
  }

  /** Whether the user lacks a permission. */
  get forbidden() {
    return this.status === 403;
  }
}

/** A request that only reads and takes longer has failed, in ms: a broker that hangs is away. */
const READ_TIMEOUT = 20_000;
/** The same of the question whether it is back. */
const RETRY_TIMEOUT = 5_000;

/**
 * @param {string | string[]} path
 * @param {Record<string, any>} [query] members that are undefined, null or "" are left out; a list repeats its name
 */
export function apiUrl(path, query = {}) {
  if (Array.isArray(path) && path.some((segment) => segment === "." || segment === "..")) {
    // A browser resolves them, however they are encoded: the request would be for something else.
    throw new ApiError(-1, "Name", "A browser cannot request the names . and ..; the command line can.");
  }
  const segments = Array.isArray(path) ? path.map(encodeURIComponent).join("/") : path;
  const url = new URL(`api/v1/${segments}`, ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) url.searchParams.append(name, String(each));
  }
  return url;
}

/** Headers of every request: the login, and the mark that keeps the browser from asking for a password itself. */
export function requestHeaders() {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json", "X-Requested-With": "stompring-console" };
  if (login) headers.Authorization = login.authorization;
  return headers;
}

/** User and password for a STOMP connection of this page; null without a login. */
export function stompLogin() {
  if (!login) return null;
  if (login.authorization.startsWith("Bearer ")) return { login: "", passcode: login.authorization.slice("Bearer ".length) };
  const bytes = Uint8Array.from(atob(login.authorization.slice("Basic ".length)), (char) => char.charCodeAt(0));
  const text = new TextDecoder().decode(bytes);
  return { login: login.user, passcode: text.slice(login.user.length + 1) };
}

/**
 * @typedef {object} Options
 * @property {Record<string, any>} [query]
 * @property {any} [body] sent as JSON; a string with `contentType` as it is
 * @property {string} [contentType]
 * @property {AbortSignal} [signal]
 * @property {Record<string, string>} [headers]
 */

/**
 * The response of a request that succeeded. Throws `ApiError`, and `DOMException` (AbortError) if it was aborted.
 * @param {string} method
 * @param {string | URL | string[]} path
 * @param {Options} [options]
 */
export async function request(method, path, options = {}) {
  const url = path instanceof URL ? path : apiUrl(path, options.query);
  const headers = { ...requestHeaders(), ...options.headers };
  /** @type {RequestInit} */
  const init = { method, headers, signal: options.signal ?? null, cache: "no-store", redirect: "error" };
  if (method === "GET") {
    const timeout = AbortSignal.timeout(READ_TIMEOUT);
    init.signal = options.signal ? AbortSignal.any([options.signal, timeout]) : timeout;
  }
  if (method !== "GET" && method !== "HEAD") {
    headers["Content-Type"] = options.contentType ?? "application/json";
    init.body = options.contentType ? options.body : JSON.stringify(options.body ?? {});
  }
  const begun = performance.now();
  let response;
  try {
    response = await fetch(url, init);
  } catch (fault) {
    if (/** @type {any} */ (fault)?.name === "AbortError") throw fault;
    const cause = "The broker does not answer.";
    broken(cause);
    throw new ApiError(0, "No answer", cause);
  }
  fastest = Math.min(fastest, performance.now() - begun);
  if (response.ok) {
    answered();
    return response;
  }
  throw await failure(response);
}

/** @param {Response} response */
async function failure(response) {
  /** @type {Record<string, any>} */
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // Not from the broker: a proxy before it, for example.
  }
  const own = typeof problem.status === "number" || response.headers.get("content-type")?.includes("json");
  if (!own && [502, 503, 504].includes(response.status)) {
    const cause = `The proxy before the broker answers ${response.status} ${response.statusText}.`;
    broken(cause);
    return new ApiError(0, "No answer", cause);
  }
  answered();
  if (response.status === 401) {
    const message = login ? "The broker no longer accepts this login." : "";
    login = null;
    session.set({ state: "login", whoami: null, message });
  }
  const title = problem.title ?? `${response.status} ${response.statusText}`;
  return new ApiError(response.status, title, problem.detail ?? title, problem);
}

/**
 * @param {string | string[]} path
 * @param {Record<string, any>} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
async function get(path, query, signal) {
  return read(await request("GET", path, { query, signal }));
}

/**
 * The JSON of a response. Throws `ApiError` if it breaks off or is not JSON.
 * @param {Response} response
 */
async function read(response) {
  try {
    return await response.json();
  } catch (fault) {
    const { name } = /** @type {Error} */ (fault);
    if (name === "AbortError") throw fault;
    if (name === "SyntaxError") throw new ApiError(-1, "No JSON", "The answer is not JSON: something between the page and the broker changes it.");
    const cause = "The broker does not answer.";
    broken(cause);
    throw new ApiError(0, "No answer", cause);
  }
}

/**
 * @param {string} method
 * @returns {(path: string | string[], body?: any, query?: Record<string, any>) => Promise<any>}
 */
function change(method) {
  return async (path, body, query) => {
    const response = await request(method, path, { body, query });
    return response.status === 204 ? null : read(response);
  };
}

export const api = { get, post: change("POST"), patch: change("PATCH"), delete: change("DELETE") };

/**
 * The whole list of a route with pages, at most `limit` items.
 * @param {string | string[]} path
 * @param {Record<string, any>} [query]
 * @param {number} [limit]
 * @returns {Promise<any[]>}
 */
export async function getAll(path, query = {}, limit = 10000) {
  /** @type {any[]} */
  const items = [];
  for (let page = 1; items.length < limit; page++) {
    const list = await get(path, { size: 1000, ...query, page });
    items.push(...list.data);
    if (list.data.length === 0 || items.length >= list.count) break;
  }
  return items.slice(0, limit);
}

/** What an answer of `duration` ms cost beyond the network, in ms. */
export function costOf(/** @type {number} */ duration) {
  return Math.max(0, duration - fastest);
}

// ---- login

/** Finds out who the user is: with security a login form follows. Throws nothing. */
export async function start() {
  try {
    session.set({ state: "ready", whoami: await whoami(), message: "" });
  } catch {
    // 401: the session asks for a login already; no answer: the page tries again.
  }
}

/** @returns {Promise<Whoami | null>} */
async function whoami() {
  try {
    return await get("whoami");
  } catch (fault) {
    if (!(fault instanceof ApiError)) throw fault;
    if (fault.status === 403) return null;
    if (!fault.missing) throw fault;
    await get("openapi.json"); // needs a login and nothing else
    return null;
  }
}

/**
 * Logs in. Throws `ApiError` if the broker refuses.
 * @param {string} user empty for a login by token
 * @param {string} password or the token
 */
export async function logIn(user, password) {
  const bytes = new TextEncoder().encode(`${user}:${password}`);
  login = { user, authorization: user ? `Basic ${btoa(String.fromCharCode(...bytes))}` : `Bearer ${password.trim()}` };
  try {
    const known = await whoami();
    session.set({ state: "ready", whoami: known, message: "" });
  } catch (fault) {
    login = null;
    if (session.get().state === "login") session.update({ message: "" });
    throw fault;
  }
}

/** Forgets the login. */
export function logOut() {
  login = null;
  session.set({ state: "login", whoami: null, message: "" });
}

/** Name of the user who is logged in; null without security. */
export function userName() {
  return session.get().whoami?.user ?? login?.user ?? null;
}

/**
 * Whether the user has a permission on activemq.management. Unknown counts as granted: the broker decides.
 * @param {string} permission
 */
export function may(permission) {
  const known = session.get().whoami;
  if (!known || !known.securityEnabled) return true;
  return Boolean(known.permissions.manage || known.permissions[permission]);
}

// ---- whether the broker answers

const FIRST_WAIT = 1000;
const LONGEST_WAIT = 10000;
let wait = FIRST_WAIT;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** @param {string} cause */
function broken(cause) {
  const now = Date.now();
  const before = reach.get();
  if (before.away) return;
  wait = FIRST_WAIT;
  reach.set({ ...before, away: true, since: now, nextTry: now + wait, cause });
  timer = setTimeout(retry, wait);
}

function answered() {
  const before = reach.get();
  if (!before.away) return;
  clearTimeout(timer);
  reach.set({ away: false, since: 0, nextTry: 0, cause: "", returned: before.returned + 1 });
  if (session.get().state === "starting") void start();
}

/** Asks whether the broker is back; called by a timer and by the user. */
export async function retry() {
  clearTimeout(timer);
  try {
    const response = await fetch(new URL("health/live", ROOT), { cache: "no-store", signal: AbortSignal.timeout(RETRY_TIMEOUT) });
    if (response.ok) {
      answered();
      return;
    }
  } catch {
    // still away
  }
  if (!reach.get().away) return;
  wait = Math.min(2 * wait, LONGEST_WAIT);
  reach.update({ nextTry: Date.now() + wait });
  timer = setTimeout(retry, wait);
}
