"""What a ring of another size would have thrown away: simulated, for many sizes at once.

A ring is given how many messages came and how many went in each of many short buckets of time. Within a bucket those
that went are spread evenly between those that came: when ``i`` of ``a`` have come, ``floor(i * r / a)`` of ``r`` have
gone. A message that comes to a full ring evicts one; where nothing waits none goes. With that the outcome of a bucket
is arithmetic, and exactly what a simulation message by message gives:

- While more come than go, nobody leaves an empty ring, and it is fullest when the last one comes. `Flow.peak` is how
  much fuller than at the beginning that is; evicted is what is beyond the size.
- While more go than come, the first one to come may find the ring full, and none after it.

Consumers take no more of a larger ring than they took, but for one thing: who emptied the ring as it was would have
emptied a larger one too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

#: Sizes tried in one go; the least one that is good enough is found in a few of them.
AT_ONCE = 33


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages that came to some rings and went from them: a row for each ring, a column for each bucket.

    ``depth`` has how many waited in each ring at the beginning. ``emptied`` tells in which buckets consumers left
    nothing in the ring as it was, and so would not in a larger one; None where that is not known.
    """

    came: Any
    went: Any
    depth: Any
    emptied: Any = None

    @property
    def peak(self) -> Any:
        """How much fuller each ring gets within a bucket, if it may."""
        most = np.maximum(1, self.came - np.maximum(self.went - 1, 0))
        return np.where(self.came > 0, most, 0)

    @property
    def most(self) -> Any:
        """A size for each ring at which it evicts nothing, whatever goes when."""
        return np.maximum(1, self.depth + self.came.sum(axis=1))

    def busy(self) -> Flow:
        """Without the buckets in which nothing happens to any ring."""
        some = ((self.came > 0) | (self.went > 0)).any(axis=0)
        emptied = None if self.emptied is None else self.emptied[:, some]
        return Flow(self.came[:, some], self.went[:, some], self.depth, emptied)

    def with_sizes(self, sizes: Any) -> Flow:
        """The same, and when rings of the sizes that they have were ``emptied``."""
        levels = np.empty(self.came.shape, bool)
        _run(replace(self, emptied=None), np.asarray(sizes, np.int64)[:, None], levels)
        return replace(self, emptied=levels & (self.went > 0))


def evicted(flow: Flow, sizes: Any) -> Any:
    """How many messages each ring evicts with each of its sizes: a row of ``sizes`` for each ring, all >= 1."""
    return _run(flow, np.asarray(sizes, np.int64))


def _run(flow: Flow, sizes: Any, empty: Any = None) -> Any:
    """The same; ``empty`` takes for each bucket whether nothing was left at its end, with the first of the sizes."""
    peak, net = flow.peak.T[:, :, None], (flow.came - flow.went).T[:, :, None]
    level = np.minimum(np.asarray(flow.depth, np.int64)[:, None], sizes)
    total, over = np.zeros_like(level), np.empty_like(level)
    for at in range(len(peak)):  # in place: there are many buckets, and few rings
        np.add(level, peak[at], out=over)
        np.subtract(over, sizes, out=over)
        np.maximum(over, 0, out=over)
        np.add(total, over, out=total)
        np.subtract(level, over, out=level)
        np.add(level, net[at], out=level)
        np.maximum(level, 0, out=level)
        if flow.emptied is not None:
            level[flow.emptied[:, at]] = 0
        if empty is not None:
            empty[:, at] = level[:, 0] == 0
    return total


def least_sizes(flow: Flow, sizes: Any, allowed: Any) -> Any:
    """The least size for each ring, from ``sizes`` on, with which it evicts no more than ``allowed``."""
    low = np.asarray(sizes, np.int64)
    allowed = np.asarray(allowed, np.int64)
    good = evicted(flow, low[:, None])[:, 0] <= allowed
    high = np.where(good, low, np.maximum(low, flow.most))
    while (high - low > 1).any():
        tried = np.stack([candidates(a, b, AT_ONCE) for a, b in zip(low, high, strict=True)])
        enough = evicted(flow, tried) <= allowed[:, None]
        # The more room, the less is evicted: candidates go up, and so from some one on all are enough.
        first = np.argmax(enough, axis=1)
        rows = np.arange(len(low))
        low, high = (
            np.where(high - low > 1, np.where(first > 0, tried[rows, np.maximum(first - 1, 0)], low), low),
            np.where(high - low > 1, tried[rows, first], high),
        )
    return high


def candidates(low: int, high: int, count: int) -> Any:
    """``count`` sizes from ``low`` to ``high``, both included, each about as many times the one before."""
    if high > 4 * low:
        found = np.geomspace(low, high, count)
    else:
        found = np.linspace(low, high, count)
    found = np.rint(found).astype(np.int64)
    found[0], found[-1] = low, high
    return found
