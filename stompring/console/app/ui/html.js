/**
 * `html` makes elements of a template; every value in it becomes text or a property, never markup. Hooks of Preact.
 */
import { h, render, Component, createContext } from "../../vendor/preact.js";
import htm from "../../vendor/htm.js";

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(/** @type {any} */ (h));
export { h, render, Component, createContext };
export {
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useId,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "../../vendor/hooks.js";
