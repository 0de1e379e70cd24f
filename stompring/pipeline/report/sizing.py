"""Sizing advice: how large rings and addresses would have had to be.

A ring of another size is simulated, many sizes at once. A ring is given how many messages came and how many went in
each of many short buckets of time. Within a bucket those that went are spread evenly between those that came: when
``i`` of ``a`` have come, ``floor(i * r / a)`` of ``r`` have gone. A message that comes to a full ring evicts one;
where nothing waits none goes. With that the outcome of a bucket is arithmetic, and exactly what a simulation message
by message gives:

- While more come than go, nobody leaves an empty ring, and it is fullest when the last one comes. `Flow.peak` is how
  much fuller than at the beginning that is; evicted is what is beyond the size.
- While more go than come, the first one to come may find the ring full, and none after it.

Consumers take no more of a larger ring than they took, with one exception: consumers that emptied the ring as it was
would have emptied a larger one too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyspark.sql import Window
from pyspark.sql import functions as F

from stompring.pipeline.report.period import Grid
from stompring.pipeline.report.tables import groups, numpy_columns
from stompring.pipeline.report.traffic import QueueTraffic


def weighted_quantile(values: Any, weights: Any, shares: Sequence[float]) -> list[int]:
    """For each share of the weight (0 to 1) the least value that so much of it does not exceed, as whole bytes."""
    values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    least = np.asarray(shares) * reached[-1] * (1 - 1e-12)  # sums of weights are not exact
    at = np.minimum(np.searchsorted(reached, least), len(values) - 1)
    return [int(np.ceil(value)) for value in values[order][at]]


def share_within(values: Any, weights: Any, limits: Any) -> Any:
    """For each limit the share of the weight (0 to 1) where values do not exceed it."""
    values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    order = np.argsort(values, kind="stable")
    reached = np.concatenate(([0.0], np.cumsum(weights[order])))
    return reached[np.searchsorted(values[order], np.asarray(limits), side="right")] / reached[-1]


#: Sizes tried in one go; the least one that is good enough is found in a few of them.
SIZES_PER_ROUND = 33


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
        tried = np.stack([candidates(a, b, SIZES_PER_ROUND) for a, b in zip(low, high, strict=True)])
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


#: Buckets of the whole period. Of what is in one the last value counts.
BUCKETS = 20_000


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """One address: ``bytes`` for so many ``seconds`` each, and for how long of that it had messages in pages.

    ``average`` is the size of a message, by which the ones in pages are counted; 0 where none was ever in memory, and
    then there is nothing to go by.
    """

    address: str
    bytes: Any
    seconds: Any
    paging: float
    average: float


def memory_demand(rows: Any, addresses: Sequence[str], grid: Grid) -> list[MemoryDemand]:
    """Some addresses, one or more. ``rows`` are samples, or those of `counter_changes`."""
    selected = rows.where(F.col("address").isin(list(addresses)))
    averages = _averages(selected)
    # A queue is as it was in its last sample until the next one: what an address holds changes by what its queues do.
    last = (
        selected.withColumn("bucket", F.expr(grid.step_sql("time")))
        .groupBy("address", "queue", "bucket")
        .agg(F.max_by("size", "time").alias("size"), F.max_by("paged", "time").alias("paged"))
    )
    order = Window.partitionBy("queue").orderBy("bucket")
    moved = {name: F.col(name) - F.coalesce(F.lag(name).over(order), F.lit(0)) for name in ("size", "paged")}
    found = numpy_columns(
        last.withColumns(moved)
        .groupBy("address", "bucket")
        .agg(F.sum("size").alias("size"), F.sum("paged").alias("paged"))
    )
    answer = []
    for address, positions in groups(found["address"]):
        positions = positions[np.argsort(found["bucket"][positions])]
        starts = np.maximum(found["bucket"][positions], 0)  # what was before is there when it begins
        seconds = np.diff(np.append(starts, grid.count)) * grid.seconds
        size, paged = (np.cumsum(found[name][positions]) for name in ("size", "paged"))
        average = averages[address]
        paging = float(seconds[paged > 0].sum())
        answer.append(MemoryDemand(address, size + paged * average, seconds, paging, average))
    return answer


def _averages(rows: Any) -> dict[str, float]:
    inside = F.greatest(F.col("messages") - F.col("paged"), F.lit(0))
    sums = rows.groupBy("address").agg(F.sum("size"), F.sum(inside))
    return {address: size / count if count else 0.0 for address, size, count in sums.collect()}


#: Buckets of the whole period.


ARRIVAL_EVENTS, DEPARTURE_EVENTS = ("added",), ("acknowledged", "expired", "killed")

#: Events are taken where they have this share of what the counters say came, or more.
MIN_EVENT_SHARE = 0.98


def is_durable(queue: QueueTraffic, counts: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether the events of a queue have what went through it; else its samples must do."""
    return counts.get(queue.queue, {}).get("added", 0) >= MIN_EVENT_SHARE * queue.added


def flows(events: Any, rows: Any, rings: Sequence[QueueTraffic], durable: Sequence[bool], grid: Grid) -> Flow:
    """The flow of some rings, one of them or more. ``rows`` are those of `counter_changes`."""
    by_events = [ring.queue for ring, good in zip(rings, durable, strict=True) if good]
    by_samples = [ring.queue for ring, good in zip(rings, durable, strict=True) if not good]
    index = {ring.queue: at for at, ring in enumerate(rings)}
    came, went = np.zeros((2, len(rings), grid.count), np.int64)
    if by_events:
        selected = F.col("queue").isin(by_events) & F.col("event").isin(*ARRIVAL_EVENTS, *DEPARTURE_EVENTS)
        _fill(index, came, went, _counted(events.where(selected), F.col("event").isin(*ARRIVAL_EVENTS), grid))
    if by_samples:
        _fill(index, came, went, _sampled(rows.where(F.col("queue").isin(by_samples)), grid))
    # What waited when the period began. Where nothing is known of that time the rings begin empty.
    before = rows.where(F.col("queue").isin(list(index)) & (F.col("time") < grid.start))
    depth = np.zeros(len(rings), np.int64)
    for queue, messages in before.groupBy("queue").agg(F.max_by("messages", "time")).collect():
        depth[index[queue]] = messages
    return Flow(came, went, depth).busy()


def _counted(events: Any, is_new: Any, grid: Grid) -> Any:
    return (
        events.withColumn("bucket", F.expr(grid.step_sql("time")))
        .groupBy("queue", "bucket")
        .agg(
            F.sum(F.when(is_new, 1).otherwise(0)).alias("came"),
            F.sum(F.when(is_new, 0).otherwise(1)).alias("went"),
        )
    )


def _sampled(rows: Any, grid: Grid) -> Any:
    return (
        rows.withColumn("bucket", F.expr(grid.step_sql("time")))
        .where("bucket >= 0")
        .groupBy("queue", "bucket")
        .agg(F.sum("added").alias("came"), F.sum(sum(F.col(name) for name in DEPARTURE_EVENTS)).alias("went"))
    )


def _fill(index: Mapping[str, int], came: Any, went: Any, frame: Any) -> None:
    found = numpy_columns(frame)
    for queue, rows in groups(found["queue"]):
        at = index[queue]
        came[at, found["bucket"][rows]] = found["came"][rows]
        went[at, found["bucket"][rows]] = found["went"][rows]


#: Points of a curve.
POINTS = 41


@dataclass(frozen=True, slots=True)
class RingAdvice:
    """One ring. ``modelled`` is what the model says that it threw away with the size it has: the nearer to what it
    really did (``ring.replaced``), the better is the advice. 0: the model sees no reason for advice.

    ``size`` is the least that keeps the share that was asked for, ``enough`` the least that throws nothing away, and
    ``kept`` has the share for each of ``sizes``.
    """

    ring: QueueTraffic
    by_events: bool
    modelled: int
    size: int
    enough: int
    sizes: Any
    retained: Any

    def bytes(self, size: int) -> float:
        """What so many messages take; 0 where nothing is known of their size."""
        return size * self.ring.average


def ring_advice(
    rings: Sequence[QueueTraffic], durable: Sequence[bool], flow: Flow, keep: float
) -> list[RingAdvice]:
    """For each ring, a row of the flow; ``keep`` (per cent) of what it threw away would not have been."""
    now = np.array([max(1, ring.ring_size) for ring in rings])
    flow = flow.with_sizes(now)
    modelled = evicted(flow, now[:, None])[:, 0]
    size = least_sizes(flow, now, np.floor(modelled * (1 - keep / 100) + 1e-9))
    enough = least_sizes(flow, now, np.zeros_like(modelled))
    sizes = np.stack([candidates(int(a), int(b), POINTS) for a, b in zip(now, enough, strict=True)])
    retained = 1 - evicted(flow, sizes) / np.maximum(modelled, 1)[:, None]
    rows = zip(
        rings, durable, modelled.tolist(), size.tolist(), enough.tolist(), sizes, retained, strict=True
    )
    return [RingAdvice(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class AddressAdvice:
    """One address that paged. ``size`` bytes would have been enough for the share of time that was asked for, and
    ``enough`` for all of it; ``unpaged`` has the share for each of ``sizes``.
    """

    demand: MemoryDemand
    size: int
    enough: int
    sizes: Any
    unpaged: Any

    @property
    def paging(self) -> float:
        """The share of time in which it had messages in pages."""
        return self.demand.paging / float(self.demand.seconds.sum())


def address_advice(demand: MemoryDemand, unpaged: float) -> AddressAdvice:
    """How large it would have had to be; ``unpaged`` is per cent of the time."""
    size, enough = weighted_quantile(demand.bytes, demand.seconds, (unpaged / 100, 1.0))
    least = max(1, min(size, int(demand.bytes.min())), enough // 1000)
    sizes = np.unique(np.append(candidates(least, max(least + 1, enough), POINTS), size))
    return AddressAdvice(demand, size, enough, sizes, share_within(demand.bytes, demand.seconds, sizes))
