/**
 * Files: downloads with the login (a plain link would have none), and uploads in parts.
 */
import { request } from "./api.js";

/**
 * Fetches and saves a file.
 * @param {string[]} path
 * @param {Record<string, any>} query
 * @param {string} name of the file
 */
export async function download(path, query, name) {
  const response = await request("GET", path, { query, headers: { Accept: "*/*" } });
  save(await response.blob(), name);
}

/**
 * @param {Blob} content
 * @param {string} name
 */
export function save(content, name) {
  const url = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = fileName(name);
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

/** A name without characters that file systems or shells treat specially. @param {string} name */
export function fileName(name) {
  return name.replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^[.-]+/, "").slice(0, 120) || "download";
}

/** Bytes of the lines sent in one request. */
const PART = 512 * 1024;

/**
 * The lines of a file in parts that one request each can carry.
 * @param {Blob} file
 * @returns {AsyncGenerator<{lines: Uint8Array, first: number, read: number}>} `first`: number of the first line, from 1
 */
export async function* partsOf(file) {
  const NEWLINE = 10;
  /** @type {Uint8Array} */
  let rest = new Uint8Array(0);
  let first = 1;
  for (let read = 0; read < file.size; ) {
    const more = new Uint8Array(await file.slice(read, read + PART).arrayBuffer());
    read += more.length;
    const joined = new Uint8Array(rest.length + more.length);
    joined.set(rest);
    joined.set(more, rest.length);
    const end = read >= file.size ? joined.length : joined.lastIndexOf(NEWLINE) + 1;
    rest = joined.slice(end);
    if (end === 0) continue;
    const lines = joined.slice(0, end);
    yield { lines, first, read };
    first += lines.reduce((sum, byte) => sum + (byte === NEWLINE ? 1 : 0), 0);
  }
}
