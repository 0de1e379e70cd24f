/**
 * Bodies of messages as text, JSON and hex. Everything here returns text; nothing becomes markup.
 */

/**
 * JSON with line breaks and indentation. Tokens stay as they are: numbers keep all their digits, and duplicate members stay.
 * null if the text is not JSON.
 * @param {string} text
 * @returns {string | null}
 */
export function prettyJson(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let depth = 0;
  let out = "";
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/gu)) {
    if (token === "{" || token === "[") {
      depth += 1;
      out += token + line();
    } else if (token === "}" || token === "]") {
      depth -= 1;
      out = /[{[]\s*$/.test(out) ? out.trimEnd() + token : out + line() + token;
    } else if (token === ",") out += token + line();
    else out += token === ":" ? ": " : token;
  }
  return out;
}

/** Rows of 16 bytes: offset, hex, characters. @param {Uint8Array} bytes @param {number} [offset] */
export function hexDump(bytes, offset = 0) {
  const rows = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = bytes.subarray(at, at + 16);
    const hex = Array.from(row, (byte) => byte.toString(16).padStart(2, "0"));
    const left = hex.slice(0, 8).join(" ").padEnd(23);
    const right = hex.slice(8).join(" ").padEnd(23);
    const text = Array.from(row, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    rows.push(`${(offset + at).toString(16).padStart(8, "0")}  ${left}  ${right}  ${text}`);
  }
  return rows.join("\n");
}

/**
 * The bytes of a body as the API sends it.
 * @param {string} body
 * @param {string} encoding text, json, hex or base64
 */
export function bytesOf(body, encoding) {
  if (encoding === "base64") return Uint8Array.from(atob(body), (char) => char.charCodeAt(0));
  if (encoding === "hex") return Uint8Array.from(body.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
  return new TextEncoder().encode(body);
}

/**
 * Text in which control characters and those that change the direction of the text are visible.
 * @param {string} text
 */
export function visible(text) {
  return text
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (char) => String.fromCharCode(0x2400 + char.charCodeAt(0)))
    .replace(/\u007f/g, "\u2421")
    .replace(/[\u0080-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, (char) => `<U+${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}>`);
}

/** The beginning of a body in one line. @param {any} message */
export function preview(message) {
  if (message.bodySize === 0) return "";
  if (message.encoding === "text" || message.encoding === "json") return visible(message.body.slice(0, 200).replace(/\s+/g, " "));
  return hexDump(bytesOf(message.body, message.encoding).subarray(0, 16)).slice(10, 58).trim();
}
