/**
 * The address of the page: `#/queues/orders?tab=settings`. Names in it are percent-encoded.
 */
import { createStore, useStore } from "./store.js";
import { useEffect, useRef, useState } from "./ui/html.js";

/**
 * @typedef {object} Location
 * @property {string} path "/queues/orders", still encoded
 * @property {string[]} segments decoded
 * @property {Record<string, string>} query
 */

/** @returns {Location} */
function read() {
  const hash = window.location.hash.replace(/^#/, "") || "/";
  const mark = hash.indexOf("?");
  const path = mark < 0 ? hash : hash.slice(0, mark);
  const segments = path.split("/").filter(Boolean).map(decode);
  const query = Object.fromEntries(new URLSearchParams(mark < 0 ? "" : hash.slice(mark + 1)));
  return { path, segments, query };
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const location = createStore(read());
window.addEventListener("hashchange", () => location.set(read()));

export const useLocation = () => useStore(location);

/**
 * The link to a page: `link("queues", name)`, `link(["queues", name], { tab: "settings" })`.
 * @param {string | string[]} first
 * @param {...(string | Record<string, any>)} rest
 * @returns {string}
 */
export function link(first, ...rest) {
  const segments = Array.isArray(first) ? first : [first];
  /** @type {Record<string, any>} */
  let query = {};
  for (const each of rest) {
    if (typeof each === "string") segments.push(each);
    else query = each;
  }
  const path = `#/${segments.map(encodeURIComponent).join("/")}`;
  const parameters = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(parameters.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

/** @param {string} href made by `link` */
export function navigate(href) {
  window.location.hash = href.replace(/^#/, "");
}

/**
 * Changes parameters of the current page without a new entry in the history. undefined or "" removes one.
 * @param {Record<string, any>} changes
 */
export function setQuery(changes) {
  const { segments, query } = location.get();
  window.history.replaceState(null, "", link([...segments], { ...query, ...changes }));
  location.set(read());
}

/**
 * The text of a search field, which becomes the parameter `search` of the page after a pause in typing.
 * @param {string} current
 * @returns {[string, (text: string) => void]}
 */
export function useSearch(current) {
  const [text, setText] = useState(current);
  const timer = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
  // what this field has put into the URL: it must not come back, since more may have been typed meanwhile
  const sent = useRef(current);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    if (current === sent.current) return;
    sent.current = current;
    clearTimeout(timer.current);
    setText(current);
  }, [current]);
  return [
    text,
    (value) => {
      setText(value);
      clearTimeout(timer.current);
      timer.current = setTimeout(() => {
        sent.current = value.trim();
        setQuery({ search: sent.current });
      }, 250);
    },
  ];
}
