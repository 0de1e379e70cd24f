/**
 * Tables. `DataTable` shows rows that the page has; `ServerTable` shows a list of the API of any length: the broker sorts,
 * filters and searches, and the page fetches only what is visible.
 */
import { api } from "../api.js";
import { usePoll } from "../poll.js";
import { useRemembered } from "../store.js";
import { Empty, ErrorBox, Loading } from "./badge.js";
import { Dialog, closeDialog, openDialog } from "./dialog.js";
import { count } from "./format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";

/**
 * @typedef {object} Column
 * @property {string} key
 * @property {string} label
 * @property {(row: any) => any} render
 * @property {string | boolean} [sort] field to sort by; true: the key; absent: not sortable
 * @property {boolean} [number] aligned right; first sorted descending
 * @property {string} [width] CSS; absent: shares what is left
 * @property {string} [title] explanation
 * @property {boolean} [optional] not shown until it is chosen
 * @property {boolean} [fixed] always shown
 * @property {(row: any) => any} [value] to sort by, in a `DataTable`
 */

const ROW = 34;
/** Least width of a column that has none. */
const REST = 210;
/** Rows fetched above and below the visible ones. */
const MARGIN = 8;

/** @param {Column} column */
const sortField = (column) => (column.sort === true ? column.key : column.sort || "");

/**
 * Head of a table with buttons for sorting.
 * @param {{columns: Column[], sort: string, onSort?: (sort: string) => void}} props
 */
function Head({ columns, sort, onSort }) {
  const field = sort.replace(/^-/, "");
  const descending = sort.startsWith("-");
  return html`<thead><tr>${columns.map((column) => {
    const own = sortField(column);
    const sorted = own !== "" && own === field;
    const next = sorted ? (descending ? own : `-${own}`) : column.number ? `-${own}` : own;
    return html`<th scope="col" class=${classOf(column)} title=${column.title} aria-sort=${sorted ? (descending ? "descending" : "ascending") : undefined}>
      ${own && onSort
        ? html`<button type="button" class="sort" onClick=${() => onSort(next)}>${column.label}${sorted && html`<span class="sort-mark" aria-hidden="true">${descending ? "▼" : "▲"}</span>`}</button>`
        : column.label}</th>`;
  })}</tr></thead>`;
}

/** The class of a column in its header and its width. @param {Column} column */
const classOf = (column) => (column.key === "actions" ? "col-actions" : column.number ? "number" : "");

/** @param {{columns: Column[]}} props */
const Widths = ({ columns }) => html`<colgroup>${columns.map((column) => html`<col class=${classOf(column)} style=${{ width: column.width ?? "auto" }} />`)}</colgroup>`;

/** @param {Column[]} columns */
const leastWidth = (columns) => columns.reduce((sum, column) => sum + (column.width ? Number.parseFloat(column.width) : REST), 0);

/** Arrow keys move between the first links or controls of the rows. @param {KeyboardEvent} event */
function moveInRows(event) {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const target = /** @type {HTMLElement} */ (event.target);
  if (target.closest("input:not([type=checkbox]), select, textarea")) return;
  const table = /** @type {HTMLElement} */ (event.currentTarget);
  const rows = [...table.querySelectorAll("tbody tr[data-row]")];
  const at = rows.findIndex((row) => row.contains(target));
  const next = rows[at < 0 ? 0 : at + (event.key === "ArrowDown" ? 1 : -1)];
  const focusable = next?.querySelector("a[href], button, input");
  if (focusable instanceof HTMLElement) {
    event.preventDefault();
    focusable.focus();
  }
}

/**
 * A table of rows that the page has.
 * @param {{label: string, columns: Column[], rows: any[], rowKey: (row: any) => string, sort?: string, empty?: any, note?: any}} props
 */
export function DataTable({ label, columns, rows, rowKey, sort: first = "", empty = "Nothing here." }) {
  const [sort, setSort] = useState(first);
  if (rows.length === 0) return typeof empty === "string" ? html`<p class="none muted">${empty}</p>` : empty;
  const column = sort ? columns.find((each) => sortField(each) === sort.replace(/^-/, "")) : undefined;
  const shown = column ? sorted(rows, column, sort.startsWith("-")) : rows;
  return html`<div class="table-box" tabindex="0" role="group" aria-label=${label} onKeyDown=${moveInRows}>
    <table class="table" style=${{ minWidth: `${leastWidth(columns)}px` }}><${Widths} columns=${columns} /><${Head} columns=${columns} sort=${sort} onSort=${setSort} />
      <tbody>${shown.map((row) => html`<tr key=${rowKey(row)} data-row>${columns.map((each) => html`<td class=${each.number ? "number" : ""}>${each.render(row)}</td>`)}</tr>`)}</tbody>
    </table></div>`;
}

/**
 * @param {any[]} rows
 * @param {Column} column
 * @param {boolean} descending
 */
function sorted(rows, column, descending) {
  const value = column.value ?? ((/** @type {any} */ row) => row[column.key]);
  const sign = descending ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === b) return 0;
    if (a === null || a === undefined) return 1;
    if (b === null || b === undefined) return -1;
    return (a < b ? -1 : 1) * sign;
  });
}

/**
 * The page and size of the one request that contains rows `from` to `to` (exclusive).
 * @param {number} from
 * @param {number} to
 */
export function pageOf(from, to) {
  for (let size = Math.max(1, to - from); size < 1000; size++) {
    const page = Math.floor(from / size);
    if (Math.floor((to - 1) / size) === page) return { page: page + 1, size };
  }
  return { page: Math.floor(from / 1000) + 1, size: 1000 };
}

/** What is visible before the box is measured. */
const TOP = { from: 0, to: 40 };

/**
 * The visible rows once scrolling pauses: rows that only rush past are not fetched.
 * @param {number} from
 * @param {number} to
 * @param {string} list a new list is fetched at once
 */
function useSettled(from, to, list) {
  const [settled, setSettled] = useState({ from, to, list });
  const last = useRef(0);
  useEffect(() => {
    if (settled.from === from && settled.to === to && settled.list === list) return undefined;
    const change = () => {
      last.current = performance.now();
      setSettled({ from, to, list });
    };
    // Continuous scrolling fetches three times a second.
    const overdue = performance.now() - last.current > 300;
    const timer = setTimeout(change, overdue ? 0 : 80);
    return () => clearTimeout(timer);
  }, [from, to, list]);
  return settled.list === list ? settled : { from, to };
}

/**
 * A list of the API in a box that scrolls.
 * @param {{label: string, path: string | string[], query?: Record<string, any>, columns: Column[], rowKey: (row: any) => string,
 *   sort: string, onSort: (sort: string) => void, empty: any, interval?: number, refreshKey?: any, onData?: (list: any) => void,
 *   rowClass?: (row: any) => string, maxSize?: number}} props `query` has filters and search; `refreshKey` changes to load again at once
 */
export function ServerTable({ label, path, query = {}, columns, rowKey, sort, onSort, empty, interval = 3000, refreshKey, onData, rowClass }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const list = JSON.stringify([path, query, sort]);
  const [scrolled, setScrolled] = useState({ list, ...TOP });
  const visible = scrolled.list === list ? scrolled : TOP;
  const known = useRef({ list, rows: /** @type {Map<number, any>} */ (new Map()), count: -1 });
  const settled = useSettled(visible.from, visible.to, list);
  const wanted = pageOf(Math.max(0, settled.from - MARGIN), settled.to + MARGIN);
  const poll = usePoll((signal) => api.get(path, { ...query, sort, ...wanted }, signal).then((answer) => ({ list, answer })), [list, wanted.page, wanted.size], {
    interval,
    keep: true,
  });
  const measure = () => {
    const element = box.current;
    if (!element) return;
    const from = Math.floor(element.scrollTop / ROW);
    const to = from + Math.ceil(element.clientHeight / ROW) + 1;
    // In steps, so that scrolling by a row is no new request.
    const next = { from: Math.floor(from / 10) * 10, to: Math.ceil(to / 10) * 10 };
    setScrolled((before) => (before.list === list && before.from === next.from && before.to === next.to ? before : { list, ...next }));
  };
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [poll.data === undefined, list]);
  useEffect(() => {
    if (!box.current) return;
    box.current.scrollTop = 0;
    measure();
  }, [list]);
  useEffect(() => {
    if (refreshKey !== undefined) void poll.refresh();
  }, [refreshKey]);
  useEffect(() => {
    if (poll.data) onData?.(poll.data.answer);
  }, [poll.data]);

  if (poll.data && poll.data.list === list) {
    const { answer } = poll.data;
    if (known.current.list !== list || known.current.count !== answer.count) known.current = { list, rows: new Map(), count: answer.count };
    const first = (answer.page - 1) * answer.size;
    answer.data.forEach((/** @type {any} */ row, /** @type {number} */ index) => known.current.rows.set(first + index, row));
  }
  if (known.current.count < 0) {
    return poll.error ? html`<${ErrorBox} error=${poll.error} what="The list could not be loaded" again=${poll.refresh} />` : html`<${Loading} />`;
  }
  const { rows, count: total } = known.current;
  const changing = known.current.list !== list;
  const problem = poll.error && poll.error.status !== 0 && html`<${ErrorBox} error=${poll.error} what="The list could not be loaded" again=${poll.refresh} />`;
  if (total === 0 && !changing) return html`${problem}${typeof empty === "string" ? html`<${Empty} title=${empty} />` : empty}`;
  const from = Math.min(Math.max(0, visible.from - MARGIN), Math.max(0, total - 1));
  const to = Math.min(total, visible.to + MARGIN);
  const numbers = Array.from({ length: Math.max(0, to - from) }, (_, index) => from + index);
  return html`${problem}<div ref=${box} class=${changing ? "table-box server changing" : "table-box server"} tabindex="0" role="group" aria-label=${`${label}, ${count(total)}`}
      aria-busy=${changing ? "true" : "false"} onScroll=${measure} onKeyDown=${moveInRows}>
    <table class="table fixed" aria-rowcount=${total + 1} style=${{ minWidth: `${leastWidth(columns)}px` }}>
      <${Widths} columns=${columns} /><${Head} columns=${columns} sort=${sort} onSort=${onSort} />
      <tbody>
        ${from > 0 && html`<tr key="above" class="space" aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${from * ROW}px` }}></td></tr>`}
        ${numbers.map((number) => {
          const row = rows.get(number);
          if (!row) return html`<tr key=${`#${number}`} class="row-loading" aria-rowindex=${number + 2}><td colspan=${columns.length}>…</td></tr>`;
          return html`<tr key=${rowKey(row)} data-row class=${rowClass?.(row) ?? ""} aria-rowindex=${number + 2}>
            ${columns.map((column) => html`<td class=${column.number ? "number" : ""}>${column.render(row)}</td>`)}</tr>`;
        })}
        ${to < total && html`<tr key="below" class="space" aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${(total - to) * ROW}px` }}></td></tr>`}
      </tbody>
    </table></div>`;
}

/**
 * The columns that the user has chosen; the browser remembers them.
 * @param {string} name of the table
 * @param {Column[]} columns
 * @returns {{columns: Column[], open: () => void}}
 */
export function useColumns(name, columns) {
  const [chosen, setChosen] = useRemembered(`columns.${name}`, /** @type {string[] | null} */ (null));
  const shown = (/** @type {Column} */ column) => column.fixed || (Array.isArray(chosen) ? chosen.includes(column.key) : !column.optional);
  const open = () => openDialog(() => html`<${ColumnsDialog} columns=${columns} shown=${columns.filter(shown).map((column) => column.key)} onDone=${setChosen} />`);
  return { columns: columns.filter(shown), open };
}

/** @param {{columns: Column[], shown: string[], onDone: (keys: string[] | null) => void}} props */
function ColumnsDialog({ columns, shown, onDone }) {
  const [keys, setKeys] = useState(new Set(shown));
  const toggle = (/** @type {string} */ key) => {
    const next = new Set(keys);
    if (!next.delete(key)) next.add(key);
    setKeys(next);
  };
  const done = (/** @type {string[] | null} */ value) => {
    onDone(value);
    closeDialog();
  };
  return html`<${Dialog} title="Columns" onSubmit=${() => done([...keys])} footer=${html`
      <button type="button" class="button" onClick=${() => done(null)}>Default</button><button type="submit" class="button primary">Apply</button>`}>
    <div class="checks">${columns.filter((column) => !column.fixed).map((column) => html`<label title=${column.title}>
      <input type="checkbox" checked=${keys.has(column.key)} onChange=${() => toggle(column.key)} /><span>${column.label}</span></label>`)}</div>
  <//>`;
}
