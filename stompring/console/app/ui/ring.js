/**
 * A ring queue drawn as a ring: each segment is a part of its capacity; the head, where messages are evicted, is at the top.
 */
import { amount, count, percent, rate, short } from "./format.js";
import { html, useEffect, useRef, useState } from "./html.js";

const SIZE = 220;
const CENTRE = SIZE / 2;
const OUTER = 98;
const INNER = 74;
const MOST_SEGMENTS = 60;

/**
 * @param {{size: number, pending: number, delivering: number, evicted: number, evictedRate: number | null, policy?: string, answer: object}} props
 */
export function Ring({ size, pending, delivering, evicted, evictedRate, policy, answer }) {
  const segments = Math.min(size, MOST_SEGMENTS);
  const fill = Math.min(1, pending / size);
  const since = useSince(evicted, answer);
  const full = pending >= size || since.growing;
  const filled = fill * segments;
  const turn = useTurn(evicted, size, segments);
  const label = `Ring: ${count(pending)} of ${count(size)} pending, ${percent(fill)} full; ${amount(evicted, "message")} evicted since the broker started`;
  return html`<figure class=${full ? "ring ring-full" : "ring"}>
    <svg viewBox=${`0 0 ${SIZE} ${SIZE}`} role="img" aria-label=${label}>
      <g class="ring-segments" style=${{ transform: `rotate(${turn}deg)` }}>
        ${Array.from({ length: segments }, (_, index) => {
          const part = Math.max(0, Math.min(1, filled - index));
          return html`<path key=${index} class=${part >= 1 ? "ring-segment filled" : part > 0 ? "ring-segment partly" : "ring-segment"} d=${segment(index, segments)} />`;
        })}
      </g>
      <path class="ring-head" d=${`M ${CENTRE - 6} 2 L ${CENTRE + 6} 2 L ${CENTRE} 11 Z`}><title>Head: the oldest message, which a full ring evicts</title></path>
      <text class="ring-value" x=${CENTRE} y=${CENTRE - 4}>${short(pending)}</text>
      <text class="ring-label" x=${CENTRE} y=${CENTRE + 16}>of ${short(size)} pending</text>
      <text class="ring-label" x=${CENTRE} y=${CENTRE + 34}>${percent(fill)}</text>
      ${since.rounds > 0 && html`<circle key=${evicted} class="ring-evicted" cx=${CENTRE} cy="22" r="5" />`}
    </svg>
    <figcaption>
      <p><b class=${evicted > 0 ? "ring-count" : ""}>${count(evicted)}</b> evicted ${evictedRate !== null && html`<span class="muted">(${rate(evictedRate)})</span>`}</p>
      ${since.rounds > 0 && html`<p class="muted">${count(since.count)} since you opened this page</p>`}
      <p class="muted">${full ? "Full: a new message evicts the oldest one." : `Room for ${amount(size - pending, "message")}.`}
        ${policy === "DEAD_LETTER" ? " Evicted messages go to the dead-letter address." : policy ? " Evicted messages are dropped." : ""}
        ${delivering > 0 ? ` ${amount(delivering, "message")} delivering, outside the ring.` : ""}</p>
    </figcaption>
  </figure>`;
}

/**
 * The angle that grows with each eviction: one segment for each that the ring evicts, at most a whole turn at a time.
 * @param {number} evicted
 * @param {number} size
 * @param {number} segments
 */
function useTurn(evicted, size, segments) {
  const before = useRef({ evicted, turn: 0 });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const more = evicted - before.current.evicted;
    if (more > 0) {
      const share = Math.max(more / size, 1 / segments);
      before.current.turn -= Math.min(360, 360 * share);
      setTurn(before.current.turn);
    }
    before.current.evicted = evicted;
  }, [evicted]);
  return turn;
}

/**
 * What the ring has evicted since the page was opened, and whether it evicted between the last two answers.
 * @param {number} evicted
 * @param {object} answer the queue as the broker sent it
 */
function useSince(evicted, answer) {
  const seen = useRef({ first: evicted, last: evicted, answer, rounds: 0, growing: false });
  const now = seen.current;
  if (answer !== now.answer) {
    if (evicted < now.first) now.first = evicted;
    now.growing = evicted > now.last;
    if (now.growing) now.rounds += 1;
    now.last = evicted;
    now.answer = answer;
  }
  return { count: evicted - now.first, rounds: now.rounds, growing: now.growing };
}

/** The outline of a segment, clockwise from the top. @param {number} index @param {number} segments */
function segment(index, segments) {
  const gap = segments > 1 ? Math.min(0.03, 1 / segments) : 0;
  const from = ((index + gap) / segments) * 2 * Math.PI;
  // A whole circle cannot be one arc.
  const to = Math.min(((index + 1 - gap) / segments) * 2 * Math.PI, from + 2 * Math.PI - 0.001);
  const large = to - from > Math.PI ? 1 : 0;
  const at = (/** @type {number} */ angle, /** @type {number} */ radius) => `${(CENTRE + radius * Math.sin(angle)).toFixed(2)} ${(CENTRE - radius * Math.cos(angle)).toFixed(2)}`;
  return `M ${at(from, OUTER)} A ${OUTER} ${OUTER} 0 ${large} 1 ${at(to, OUTER)} L ${at(to, INNER)} A ${INNER} ${INNER} 0 ${large} 0 ${at(from, INNER)} Z`;
}
