/**
 * Observable values, and values that the browser remembers.
 */
import { useEffect, useState } from "../vendor/hooks.js";

/**
 * @template T
 * @typedef {object} Store
 * @property {() => T} get
 * @property {(value: T) => void} set notifies the subscribers if the value is another one
 * @property {(changes: Partial<T>) => void} update sets some members of an object
 * @property {(listener: () => void) => () => void} subscribe returns the function that ends it
 */

/**
 * @template T
 * @param {T} initial
 * @returns {Store<T>}
 */
export function createStore(initial) {
  let value = initial;
  /** @type {Set<() => void>} */
  const listeners = new Set();
  /** @type {Store<T>} */
  const store = {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of [...listeners]) listener();
    },
    update: (changes) => store.set({ ...value, ...changes }),
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
  return store;
}

/**
 * The value of a store; the component is rendered again when it changes.
 * @template T
 * @param {Store<T>} store
 * @returns {T}
 */
export function useStore(store) {
  const [, render] = useState(/** @type {unknown} */ (store.get()));
  useEffect(() => {
    render(store.get());
    return store.subscribe(() => render(store.get()));
  }, [store]);
  return store.get();
}

const PREFIX = "stompring.";

/**
 * What the browser remembers under a name; `fallback` without an entry or without storage.
 * @template T
 * @param {string} name
 * @param {T} fallback
 * @returns {T}
 */
export function remembered(name, fallback) {
  try {
    const text = localStorage.getItem(PREFIX + name);
    return text === null ? fallback : JSON.parse(text);
  } catch {
    return fallback;
  }
}

/**
 * @param {string} name
 * @param {unknown} value
 */
export function remember(name, value) {
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Storage is not available or full: the choice lasts as long as the page.
  }
}

/**
 * A state that the browser remembers. It holds choices of the display only, never a login or data of the broker.
 * @template T
 * @param {string} name
 * @param {T} fallback
 * @returns {[T, (value: T) => void]}
 */
export function useRemembered(name, fallback) {
  const [value, setValue] = useState(() => remembered(name, fallback));
  return [
    value,
    (next) => {
      remember(name, next);
      setValue(() => next);
    },
  ];
}
