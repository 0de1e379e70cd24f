"""Which queues gave messages back, gave up on them, or lost them in another way: counted events of durable messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pyspark.sql import functions as F

from stompring.pipeline.report.arrays import columns, groups
from stompring.pipeline.report.period import Grid
from stompring.pipeline.report.tables import DOUBTFUL, by_broker
from stompring.pipeline.report.traffic import Sampled

#: What is counted step by step.
HOT = ("redelivered", "dead-lettered")

#: How many single messages are named.
NAMED = 15

#: Of how many consumers of queues the report tells more than that they are there.
CONSUMERS = 100


@dataclass(frozen=True, slots=True)
class Taken:
    """How many messages one consumer acknowledged in one queue."""

    queue: str
    consumer: str
    count: int


@dataclass(frozen=True, slots=True)
class HotMessage:
    """One that came back again and again."""

    queue: str
    message_id: int
    redelivered: int
    deliveries: int


class Facts:
    """Events counted by queue, kind and step; `close` gives back what Spark keeps of that."""

    def __init__(self, events: Any, grid: Grid, sampled: Mapping[str, Sampled]) -> None:
        self._grid, self._events = grid, events
        place = F.expr(grid.place("time"))
        # Of most kinds no plot is made: they are counted as if there were one step.
        step = F.when(F.col("event").isin(*HOT), place).otherwise(0)
        consumer = F.when(F.col("event") == "acknowledged", F.col("consumer"))
        first = by_broker({broker: one.first for broker, one in sampled.items()})
        last = by_broker({broker: one.last for broker, one in sampled.items()})
        counted = (F.col("event") == "added") & (F.col("time") > first) & (F.col("time") <= last)
        self._counts = (
            events.groupBy("queue", "event", step.alias("step"), consumer.alias("consumer"))
            .agg(
                F.count("*").alias("count"),
                F.count(F.when(counted, 1)).alias("counted"),
                F.count(F.when(F.col("uncertain"), 1)).alias("uncertain"),
                F.max("deliveries").alias("deliveries"),
                F.max("in_page").alias("in_page"),
            )
            .coalesce(1)
            .persist()
        )

    def close(self) -> None:
        """Forget the counts."""
        self._counts.unpersist()

    def counts(self) -> dict[str, dict[str, int]]:
        """How many events of each kind each queue has."""
        answer: dict[str, dict[str, int]] = {}
        for row in self._totals:
            if row.event != DOUBTFUL:
                answer.setdefault(row.queue, {})[row.event] = row["count"]
        return answer

    def counted(self) -> dict[str, int]:
        """By queue: how many were added while counters were sampled, after the first sample and up to the last one."""
        return {row.queue: row.counted for row in self._totals if row.counted}

    def uncertain(self) -> dict[str, int]:
        """By kind: how many events are told by records of which it is not sure that they tell events.

        Of `redelivered` these are not among the `counts`.
        """
        found: Counter[str] = Counter()
        for row in self._totals:
            found["redelivered" if row.event == DOUBTFUL else row.event] += row.uncertain
        return {event: count for event, count in found.items() if count}

    def paged(self) -> list[str]:
        """Queues that had something to tell of messages in pages: be they read back before anybody took a sample."""
        return sorted({row.queue for row in self._totals if row.in_page})

    def most_deliveries(self) -> dict[str, int]:
        """Of queues to which messages came back: how often one of them had gone out."""
        return {row.queue: row.deliveries or 0 for row in self._totals if row.event == "redelivered"}

    @cached_property
    def _totals(self) -> list[Any]:
        return list(
            self._counts.groupBy("queue", "event")
            .agg(
                F.sum("count").alias("count"),
                F.sum("counted").alias("counted"),
                F.sum("uncertain").alias("uncertain"),
                F.max("in_page").alias("in_page"),
                F.max("deliveries").alias("deliveries"),
            )
            .collect()
        )

    def consumers(self) -> tuple[list[Taken], int, int]:
        """Who acknowledged most, in each queue by itself; how many consumers of queues there are in all, and how many
        messages they acknowledged.
        """
        named = self._counts.where(F.col("consumer").isNotNull())
        found = named.groupBy("queue", "consumer").agg(F.sum("count").alias("count"))
        rows = found.orderBy(F.desc("count"), "queue", "consumer").limit(CONSUMERS).collect()
        most = [Taken(*row) for row in rows]
        if len(most) < CONSUMERS:
            return most, len(most), sum(one.count for one in most)
        return most, *found.agg(F.count("*"), F.sum("count")).first()

    def steps(self, event: str) -> dict[str, Any]:
        """Events of one of the kinds in `HOT` in each step, by queue."""
        found = columns(
            self._counts.where(F.col("event") == event)
            .groupBy("queue", "step")
            .agg(F.sum("count").alias("count"))
        )
        answer = {}
        for queue, rows in groups(found["queue"]):
            answer[queue] = np.zeros(self._grid.count)
            answer[queue][found["step"][rows]] = found["count"][rows]
        return answer

    def hottest(self) -> list[HotMessage]:
        """The messages that came back most often, of those that did more than once."""
        found = (
            self._events.where((F.col("event") == "redelivered") & F.col("message_id").isNotNull())
            .groupBy("queue", "message_id")
            .agg(F.count("*").alias("count"), F.max("deliveries").alias("deliveries"))
            .where("count > 1")
            .orderBy(F.desc("count"), "queue", "message_id")
            .limit(NAMED)
            .collect()
        )
        return [HotMessage(queue, number, count, most or 0) for queue, number, count, most in found]
