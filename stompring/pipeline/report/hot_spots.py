"""Which queues gave messages back, gave up on them, or lost them in another way: counted events of durable messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import functions as F

from stompring.pipeline.report.arrays import columns, groups
from stompring.pipeline.report.period import Grid

#: What is counted step by step.
HOT = ("redelivered", "dead-lettered")

#: How many single messages are named.
NAMED = 15


@dataclass(frozen=True, slots=True)
class HotMessage:
    """One that came back again and again."""

    queue: str
    message_id: int
    redelivered: int
    deliveries: int


class Facts:
    """Events counted by queue, kind and step; `close` gives back what Spark keeps of that."""

    def __init__(self, events: Any, grid: Grid) -> None:
        self._grid, self._events = grid, events
        place = F.expr(grid.place("time"))
        # Of most kinds no plot is made: they are counted as if there were one step.
        step = F.when(F.col("event").isin(*HOT), place).otherwise(0)
        self._counts = (
            events.groupBy("queue", "event", step.alias("step"))
            .agg(
                F.count("*").alias("count"),
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
        found = self._counts.groupBy("queue", "event").agg(F.sum("count")).collect()
        answer: dict[str, dict[str, int]] = {}
        for queue, event, count in found:
            answer.setdefault(queue, {})[event] = count
        return answer

    def paged(self) -> list[str]:
        """Queues that had something to tell of messages in pages: be they read back before anybody took a sample."""
        return [row.queue for row in self._counts.where("in_page").select("queue").distinct().collect()]

    def most_deliveries(self) -> dict[str, int]:
        """Of queues to which messages came back: how often one of them had gone out."""
        found = self._counts.where("event = 'redelivered'").groupBy("queue").agg(F.max("deliveries"))
        return {queue: deliveries or 0 for queue, deliveries in found.collect()}

    def steps(self, event: str) -> dict[str, Any]:
        """Events of one of the kinds in `HOT` in each step, by queue."""
        found = columns(self._counts.where(F.col("event") == event).select("queue", "step", "count"))
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
