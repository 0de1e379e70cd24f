"""Depth and rates of queues, from the counters in samples: all messages, durable or not.

Counters begin anew with each start of the broker, and with a queue that is deleted and made again: where one of them
is lower than before, all of them have begun anew, and what they show is what has come since. But for ``added``: a
start counts the messages that it finds on disk as added. They were in the queue before, so that many are no new ones.
(It is known by its first sample, which is taken before anybody connects: no consumer, and nothing acknowledged.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
from pyspark.sql import Window
from pyspark.sql import functions as F

from stompring.pipeline.report.period import HOUR, MINUTE, SECOND, Grid
from stompring.pipeline.report.tables import COUNTERS, LOOKBACK, by_broker, groups, numpy_columns

#: Every queue is in a sample that often, while the broker runs.
FULL_SAMPLE_INTERVAL = HOUR


def present_from_start(begin: int | None, first: int) -> int:
    """A queue that is first sampled later than that is new; others may have been there before the samples.

    The arguments are those of `counter_changes`. Where older samples are left out, a queue that rests is seen for the
    first time in the next one with all of them.
    """
    return first if begin is None else max(first, begin - LOOKBACK + FULL_SAMPLE_INTERVAL)


def counter_changes(samples: Any, begin: int | None, first: int) -> Any:
    """The samples, with the counters as differences from the row before.

    ``first`` is the time of the first sample, and ``begin`` where the period of the report begins, None where it has no
    such end: samples before it are those of `LOOKBACK`. Both are µs. The first row of a queue has nothing before it. If
    the queue is new, its counters are differences; if the samples began when it was there already, they are from before
    the samples, and its differences are 0.
    """
    early = present_from_start(begin, first)
    rows = Window.partitionBy("queue").orderBy("time")
    before = {name: F.lag(name).over(rows) for name in COUNTERS}
    fallen = reduce(or_, (F.col(name) < before[name] for name in COUNTERS))
    flagged = samples.withColumns(
        {
            **{f"{name}_before": before[name] for name in COUNTERS},
            "anew": F.when(before["added"].isNull(), F.col("time") > early).otherwise(fallen),
            "waited": F.when(
                (F.col("consumers") == 0) & (F.col("acknowledged") == 0), F.lag("messages").over(rows)
            ),
        }
    )
    since = {name: F.col(name) for name in COUNTERS}
    since["added"] = F.greatest(F.col("added") - F.coalesce("waited", F.lit(0)), F.lit(0))
    return flagged.withColumns(
        {
            name: F.when(F.col("anew"), since[name]).otherwise(
                F.coalesce(F.col(name) - F.col(f"{name}_before"), F.lit(0))
            )
            for name in COUNTERS
        }
    ).drop("anew", "waited", *(f"{name}_before" for name in COUNTERS))


#: Each queue is in a sample at least once an hour. One that is not for longer is gone, or the broker is.
SAMPLE_VALIDITY = 2 * HOUR

#: The end of the period is the last of so many parts of it, and a minute or more.
TAIL_PARTS = 10


@dataclass(frozen=True, slots=True)
class QueueTraffic:
    """One queue over the whole period. ``size`` is the most bytes in memory, ``average`` those of a message."""

    address: str
    queue: str
    ring_size: int
    depth: int  # at the end
    most: int
    paged: int  # at most
    size: int
    average: float
    added: int
    acknowledged: int
    expired: int
    killed: int
    replaced: int
    begin: int = 0  # messages when the period began
    consumers: int = 0  # at most
    counted: int = 0  # of those added, those after the first sample of the period
    rate_in: float = (
        math.nan
    )  # messages a second at the end of the period; NaN where there are too few samples
    rate_out: float = math.nan

    @property
    def out(self) -> int:
        """All that left it."""
        return self.acknowledged + self.expired + self.killed + self.replaced

    @property
    def growth(self) -> int:
        """How many messages more it held at the end of the period than at its beginning."""
        return self.depth - self.begin

    @property
    def drain(self) -> float:
        """Seconds until it is empty, at the rates of the end of the period.

        Infinite if it never is; 0 if it is; NaN where that is not known.
        """
        if not self.depth or math.isnan(self.rate_in):
            return math.nan if self.depth else 0.0
        falls = self.rate_out - self.rate_in
        return self.depth / falls if falls > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Series:
    """One queue, step by step: ``depth`` is the greatest in each step, NaN where it is not known."""

    depth: Any
    added: Any
    replaced: Any
    consumers: Any = None  # the most in each step


@dataclass(frozen=True, slots=True)
class SampleTimes:
    """When a broker took samples: the first one of the period and the last one, and where the end of the period begins,
    of which rates are told. All of them are times of samples, so that counters have what came between them.
    """

    first: int
    last: int
    tail: int

    @classmethod
    def of(cls, times: Any) -> SampleTimes:
        """``times`` in µs, sorted, one or more."""
        first, last = int(times[0]), int(times[-1])
        length = min(max((last - first) // TAIL_PARTS, MINUTE), last - first)
        return cls(first, last, int(times[np.searchsorted(times, last - length, side="right") - 1]))


class Traffic:
    """Samples in steps. ``rows`` are those of `counter_changes`; `close` frees what Spark has cached."""

    def __init__(self, rows: Any, grid: Grid, sampled: Mapping[str, SampleTimes]) -> None:
        self._grid, self._sampled = grid, sampled
        known = F.when(F.col("step") >= 0, F.col("messages"))
        first = by_broker({broker: one.first for broker, one in sampled.items()})
        tail = F.col("time") > by_broker({broker: one.tail for broker, one in sampled.items()})
        out = sum(F.col(name) for name in COUNTERS[1:])
        self._steps = (
            rows.withColumn("step", F.expr(grid.step_sql("time")))
            .groupBy("broker", "address", "queue", "step")
            .agg(
                F.max("time").alias("time"),
                F.max_by("messages", "time").alias("last"),
                F.max_by("ring_size", "time").alias("ring_size"),
                F.max(known).alias("most"),
                F.max("paged").alias("paged"),
                F.max("size").alias("size"),
                F.sum("size").alias("bytes"),
                F.sum(F.greatest(F.col("messages") - F.col("paged"), F.lit(0))).alias("held"),
                *(F.sum(name).alias(name) for name in COUNTERS),
                F.min("time").alias("since"),
                F.min_by("messages", "time").alias("head"),
                F.max("consumers").alias("consumers"),
                F.max_by("consumers", "time").alias("last_consumers"),
                F.sum(F.when(F.col("time") > first, F.col("added"))).alias("counted"),
                F.sum(F.when(tail, F.col("added"))).alias("tail_in"),
                F.sum(F.when(tail, out)).alias("tail_out"),
            )
            .persist()
        )

    def close(self) -> None:
        """Forget the steps."""
        self._steps.unpersist()

    def queues(self, early: int) -> list[QueueTraffic]:
        """Every queue of the period, and those that were there when it began; one that is first seen later than
        ``early`` was empty then.
        """
        within = F.col("step") >= 0
        rows = (
            self._steps.groupBy("broker", "address", "queue")
            .agg(
                F.max_by("ring_size", "step").alias("ring_size"),
                F.max_by("last", "step").alias("depth"),
                F.greatest(F.max("most"), F.max(F.when(~within, F.col("last")))).alias("most"),
                F.max(F.when(within, F.col("paged"))).alias("paged"),
                F.max(F.when(within, F.col("size"))).alias("size"),
                F.when(F.sum("held") > 0, F.sum("bytes") / F.sum("held")).alias("average"),
                *(F.sum(F.when(within, F.col(name))).alias(name) for name in COUNTERS),
                F.max(F.when(~within, F.col("last"))).alias("before"),
                F.min("since").alias("since"),
                F.min_by("head", "step").alias("head"),
                F.greatest(
                    F.max(F.when(within, F.col("consumers"))), F.max(F.when(~within, F.col("last_consumers")))
                ).alias("consumers"),
                *(F.sum(name).alias(name) for name in ("counted", "tail_in", "tail_out")),
            )
            .orderBy("address", "queue")
            .collect()
        )
        return [self._queue(row, early) for row in rows]

    def _queue(self, row: Any, early: int) -> QueueTraffic:
        begin = row.before
        if begin is None:
            begin = row.head if row.since <= early else 0
        one = self._sampled.get(row.broker)
        seconds = 0.0 if one is None else (one.last - one.tail) / SECOND
        rates = [(row[name] or 0) / seconds if seconds else math.nan for name in ("tail_in", "tail_out")]
        return QueueTraffic(
            address=row.address,
            queue=row.queue,
            average=row.average or 0.0,
            **{name: row[name] or 0 for name in _NUMBERS},
            begin=begin,
            consumers=row.consumers or 0,
            counted=row.counted or 0,
            rate_in=rates[0],
            rate_out=rates[1],
        )

    def totals(self) -> dict[str, Any]:
        """What went in and out of all queues in each step, by the name of the counter."""
        found = numpy_columns(
            self._steps.where("step >= 0")
            .groupBy("step")
            .agg(*(F.sum(name).alias(name) for name in COUNTERS))
        )
        totals = {name: np.zeros(self._grid.count) for name in COUNTERS}
        for name in COUNTERS:
            totals[name][found["step"]] = found[name]
        return totals

    def series(self, queues: Iterable[str]) -> dict[str, Series]:
        """Some queues, step by step."""
        found = numpy_columns(
            self._steps.where(F.col("queue").isin(sorted(set(queues)))).select(
                "queue", "step", "time", "last", "most", "added", "replaced", "consumers", "last_consumers"
            )
        )
        return {
            queue: self._one({name: found[name][rows] for name in found})
            for queue, rows in groups(found["queue"])
        }

    def remainder(self, name: str, shown: Sequence[str]) -> Any:
        """The sum of one of the `Series` over all queues but those ``shown``, step by step."""
        others = self._steps.where(~F.col("queue").isin(list(shown)))
        if name in ("added", "replaced"):
            found = numpy_columns(others.where("step >= 0").groupBy("step").agg(F.sum(name).alias(name)))
            values = np.zeros(self._grid.count)
            values[found["step"]] = found[name]
            return values
        gauge = {"depth": ("last", "most"), "consumers": ("last_consumers", "consumers")}[name]
        # A number for each queue does: names take room, and there may be many.
        found = numpy_columns(
            others.select(F.xxhash64("queue").alias("queue"), "step", "time", *map(F.col, gauge))
        )
        return forward_filled_sum(
            {
                "queue": found["queue"],
                "step": found["step"],
                "time": found["time"],
                "last": found[gauge[0]],
                "most": found[gauge[1]],
            },
            self._grid,
        )

    def _one(self, rows: dict[str, Any]) -> Series:
        within = rows["step"] >= 0
        steps = rows["step"][within]
        added, replaced = np.zeros(self._grid.count), np.zeros(self._grid.count)
        added[steps], replaced[steps] = rows["added"][within], rows["replaced"][within]
        consumers = {**rows, "last": rows["last_consumers"], "most": rows["consumers"]}
        return Series(
            forward_filled(rows, self._grid), added, replaced, forward_filled(consumers, self._grid)
        )


def forward_filled(rows: dict[str, Any], grid: Grid) -> Any:
    """The greatest depth in each step, from the steps in which a queue was sampled.

    ``rows`` has their ``step`` (-1: before the grid), the ``time`` of the last sample in it, and of the depth the
    ``last`` and the ``most``. Where there is no sample nothing changed, and it is as deep as it was; for
    `SAMPLE_VALIDITY`.
    """
    depth = np.full(grid.count, np.nan)
    order = np.argsort(rows["step"])
    steps = rows["step"][order]
    for at, step in enumerate(steps):
        last, known = rows["last"][order[at]], rows["time"][order[at]] + max(SAMPLE_VALIDITY, grid.step)
        if step >= 0:
            depth[step] = np.fmax(depth[step], rows["most"][order[at]])
        # It is that deep up to the next sample, which may be in the middle of its step.
        until = steps[at + 1] + 1 if at + 1 < len(steps) else grid.count
        until = min(until, max(0, (known - grid.start) // grid.step + 1))
        depth[step + 1 : until] = np.fmax(depth[step + 1 : until], last)
    return depth


def forward_filled_sum(rows: dict[str, Any], grid: Grid) -> Any:
    """The sum of `forward_filled` over many queues, numbered in ``queue`` of ``rows``; NaN where none is known."""
    order = np.lexsort((rows["step"], rows["queue"]))
    queue, steps, last, time, most = (rows[name][order] for name in ("queue", "step", "last", "time", "most"))
    known = np.maximum(0, (time + max(SAMPLE_VALIDITY, grid.step) - grid.start) // grid.step + 1)
    same = np.append(queue[1:] == queue[:-1], False)  # whether the next row is of the same queue
    until = np.minimum(np.where(same, np.append(steps[1:], 0) + 1, grid.count), np.minimum(known, grid.count))
    before = np.append(False, same[:-1]) & (np.append(0, until[:-1]) > steps)
    inside = steps >= 0
    value = np.where(before, np.maximum(most, np.append(0, last[:-1])), most)
    total, some = np.zeros((2, grid.count))
    np.add.at(total, steps[inside], value[inside])
    np.add.at(some, steps[inside], 1)
    # From the step behind a row to the one before the next row it is as deep as the last sample says.
    begin, end = steps + 1, np.where(same, np.minimum(until, np.append(steps[1:], 0)), until)
    runs = end > begin
    for target, amount in ((total, last[runs]), (some, np.ones(runs.sum()))):
        change = np.zeros(grid.count + 1)
        np.add.at(change, begin[runs], amount)
        np.add.at(change, end[runs], -amount)
        target += np.cumsum(change)[:-1]
    return np.where(some > 0, total, np.nan)


_NUMBERS = ("ring_size", "depth", "most", "paged", "size", *COUNTERS)
