"""What an address that paged would have held in memory without paging, over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import Window
from pyspark.sql import functions as F

from stompring.pipeline.report.arrays import columns, groups
from stompring.pipeline.report.period import Grid

#: Buckets of the whole period. Of what is in one the last value counts.
BUCKETS = 20_000


@dataclass(frozen=True, slots=True)
class Held:
    """One address: ``bytes`` for so many ``seconds`` each, and for how long of that it had messages in pages.

    ``average`` is the size of a message, by which the ones in pages are counted; 0 where none was ever in memory, and
    then there is nothing to go by.
    """

    address: str
    bytes: Any
    seconds: Any
    paging: float
    average: float


def held(rows: Any, addresses: Sequence[str], grid: Grid) -> list[Held]:
    """Some addresses, one or more. ``rows`` are samples, or those of `changes`."""
    chosen = rows.where(F.col("address").isin(list(addresses)))
    averages = _averages(chosen)
    # A queue is as it was in its last sample until the next one: what an address holds changes by what its queues do.
    last = (
        chosen.withColumn("bucket", F.expr(grid.place("time")))
        .groupBy("address", "queue", "bucket")
        .agg(F.max_by("size", "time").alias("size"), F.max_by("paged", "time").alias("paged"))
    )
    order = Window.partitionBy("queue").orderBy("bucket")
    moved = {name: F.col(name) - F.coalesce(F.lag(name).over(order), F.lit(0)) for name in ("size", "paged")}
    found = columns(
        last.withColumns(moved)
        .groupBy("address", "bucket")
        .agg(F.sum("size").alias("size"), F.sum("paged").alias("paged"))
    )
    answer = []
    for address, places in groups(found["address"]):
        places = places[np.argsort(found["bucket"][places])]
        starts = np.maximum(found["bucket"][places], 0)  # what was before is there when it begins
        seconds = np.diff(np.append(starts, grid.count)) * grid.seconds
        size, paged = (np.cumsum(found[name][places]) for name in ("size", "paged"))
        average = averages[address]
        paging = float(seconds[paged > 0].sum())
        answer.append(Held(address, size + paged * average, seconds, paging, average))
    return answer


def _averages(rows: Any) -> dict[str, float]:
    inside = F.greatest(F.col("messages") - F.col("paged"), F.lit(0))
    sums = rows.groupBy("address").agg(F.sum("size"), F.sum(inside))
    return {address: size / count if count else 0.0 for address, size, count in sums.collect()}
