"""How deep queues were, and what went in and out of them: from samples, so of all messages, durable or not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import functions as F

from stompring.pipeline.report.arrays import columns, groups
from stompring.pipeline.report.period import HOUR, Grid
from stompring.pipeline.report.tables import COUNTERS

#: Each queue is in a sample at least once an hour. One that is not for longer is gone, or the broker is.
LASTS = 2 * HOUR


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

    @property
    def out(self) -> int:
        """All that left it."""
        return self.acknowledged + self.expired + self.killed + self.replaced


@dataclass(frozen=True, slots=True)
class Series:
    """One queue, step by step: ``depth`` is the greatest in each step, NaN where it is not known."""

    depth: Any
    added: Any
    replaced: Any


class Traffic:
    """Samples in steps. ``rows`` are those of `changes`; `close` gives back what Spark keeps of them meanwhile."""

    def __init__(self, rows: Any, grid: Grid) -> None:
        self._grid = grid
        known = F.when(F.col("step") >= 0, F.col("messages"))
        self._steps = (
            rows.withColumn("step", F.expr(grid.place("time")))
            .groupBy("address", "queue", "step")
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
            )
            .persist()
        )

    def close(self) -> None:
        """Forget the steps."""
        self._steps.unpersist()

    def queues(self) -> list[QueueTraffic]:
        """Every queue of the period, and those that were there when it began."""
        within = F.col("step") >= 0
        rows = (
            self._steps.groupBy("address", "queue")
            .agg(
                F.max_by("ring_size", "step").alias("ring_size"),
                F.max_by("last", "step").alias("depth"),
                F.greatest(F.max("most"), F.max(F.when(~within, F.col("last")))).alias("most"),
                F.max(F.when(within, F.col("paged"))).alias("paged"),
                F.max(F.when(within, F.col("size"))).alias("size"),
                F.when(F.sum("held") > 0, F.sum("bytes") / F.sum("held")).alias("average"),
                *(F.sum(F.when(within, F.col(name))).alias(name) for name in COUNTERS),
            )
            .orderBy("address", "queue")
            .collect()
        )
        return [
            QueueTraffic(
                address=row.address,
                queue=row.queue,
                average=row.average or 0.0,
                **{name: row[name] or 0 for name in _NUMBERS},
            )
            for row in rows
        ]

    def totals(self) -> dict[str, Any]:
        """What went in and out of all queues in each step, by the name of the counter."""
        found = columns(
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
        found = columns(
            self._steps.where(F.col("queue").isin(sorted(set(queues)))).select(
                "queue", "step", "time", "last", "most", "added", "replaced"
            )
        )
        return {
            queue: self._one({name: found[name][rows] for name in found})
            for queue, rows in groups(found["queue"])
        }

    def _one(self, rows: dict[str, Any]) -> Series:
        within = rows["step"] >= 0
        steps = rows["step"][within]
        added, replaced = np.zeros(self._grid.count), np.zeros(self._grid.count)
        added[steps], replaced[steps] = rows["added"][within], rows["replaced"][within]
        return Series(carried(rows, self._grid), added, replaced)


def carried(rows: dict[str, Any], grid: Grid) -> Any:
    """The greatest depth in each step, from the steps in which a queue was sampled.

    ``rows`` has their ``step`` (-1: before the grid), the ``time`` of the last sample in it, and of the depth the
    ``last`` and the ``most``. Where there is no sample nothing changed, and it is as deep as it was; for `LASTS`.
    """
    depth = np.full(grid.count, np.nan)
    order = np.argsort(rows["step"])
    steps = rows["step"][order]
    for at, step in enumerate(steps):
        last, known = rows["last"][order[at]], rows["time"][order[at]] + max(LASTS, grid.step)
        if step >= 0:
            depth[step] = np.fmax(depth[step], rows["most"][order[at]])
        # It is that deep up to the next sample, which may be in the middle of its step.
        until = steps[at + 1] + 1 if at + 1 < len(steps) else grid.count
        until = min(until, max(0, (known - grid.start) // grid.step + 1))
        depth[step + 1 : until] = np.fmax(depth[step + 1 : until], last)
    return depth


_NUMBERS = ("ring_size", "depth", "most", "paged", "size", *COUNTERS)
