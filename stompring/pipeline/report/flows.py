"""What came to rings and went from them, in short buckets of time, for the simulation of `ring`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pyspark.sql import functions as F

from stompring.pipeline.report.arrays import columns, groups
from stompring.pipeline.report.period import Grid
from stompring.pipeline.report.ring import Flow
from stompring.pipeline.report.traffic import QueueTraffic

#: Buckets of the whole period.
BUCKETS = 20_000

CAME, WENT = ("added",), ("acknowledged", "expired", "killed")

#: Events are taken where they have this share of what the counters say came, or more.
AGREES = 0.98


def is_durable(queue: QueueTraffic, counts: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether the events of a queue have what went through it; else its samples must do."""
    return counts.get(queue.queue, {}).get("added", 0) >= AGREES * queue.added


def flows(events: Any, rows: Any, rings: Sequence[QueueTraffic], durable: Sequence[bool], grid: Grid) -> Flow:
    """The flow of some rings, one of them or more. ``rows`` are those of `changes`."""
    by_events = [ring.queue for ring, good in zip(rings, durable, strict=True) if good]
    by_samples = [ring.queue for ring, good in zip(rings, durable, strict=True) if not good]
    place = {ring.queue: at for at, ring in enumerate(rings)}
    came, went = np.zeros((2, len(rings), grid.count), np.int64)
    if by_events:
        chosen = F.col("queue").isin(by_events) & F.col("event").isin(*CAME, *WENT)
        _fill(place, came, went, _counted(events.where(chosen), F.col("event").isin(*CAME), grid))
    if by_samples:
        _fill(place, came, went, _sampled(rows.where(F.col("queue").isin(by_samples)), grid))
    # What waited when the period began. Where nothing is known of that time the rings begin empty.
    before = rows.where(F.col("queue").isin(list(place)) & (F.col("time") < grid.start))
    depth = np.zeros(len(rings), np.int64)
    for queue, messages in before.groupBy("queue").agg(F.max_by("messages", "time")).collect():
        depth[place[queue]] = messages
    return Flow(came, went, depth).busy()


def _counted(events: Any, is_new: Any, grid: Grid) -> Any:
    return (
        events.withColumn("bucket", F.expr(grid.place("time")))
        .groupBy("queue", "bucket")
        .agg(
            F.sum(F.when(is_new, 1).otherwise(0)).alias("came"),
            F.sum(F.when(is_new, 0).otherwise(1)).alias("went"),
        )
    )


def _sampled(rows: Any, grid: Grid) -> Any:
    return (
        rows.withColumn("bucket", F.expr(grid.place("time")))
        .where("bucket >= 0")
        .groupBy("queue", "bucket")
        .agg(F.sum("added").alias("came"), F.sum(sum(F.col(name) for name in WENT)).alias("went"))
    )


def _fill(place: Mapping[str, int], came: Any, went: Any, frame: Any) -> None:
    found = columns(frame)
    for queue, rows in groups(found["queue"]):
        at = place[queue]
        came[at, found["bucket"][rows]] = found["came"][rows]
        went[at, found["bucket"][rows]] = found["went"][rows]
