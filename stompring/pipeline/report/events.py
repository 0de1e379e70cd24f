"""Events of durable messages: counted by queue and kind, and how long messages were in their queues.

Times in queues join events with the messages that they are about: the one expensive job of a report. Both sides are
split by message into pieces that fit into little memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pyspark.sql import functions as F

from stompring.pipeline.report.period import SECOND, Grid
from stompring.pipeline.report.tables import UNCERTAIN_REDELIVERY, by_broker, groups, numpy_columns
from stompring.pipeline.report.traffic import SampleTimes

#: Bins by which a duration becomes e times as long.
BINS = 50

#: What a report tells.
PERCENTILES = (50.0, 90.0, 99.0, 99.9)


def bin_sql(column: str) -> str:
    """SQL: the bin of a duration in µs; -1 for none, and for less than none (clocks may step back)."""
    return f"IF({column} < 1, -1, CAST(FLOOR(LN({column}) * {BINS}) AS INT))"


def seconds_of(bins: Any) -> Any:
    """The middle of bins: no duration in one is more than one per cent off."""
    return np.where(np.asarray(bins) < 0, 0.0, np.exp((np.asarray(bins) + 0.5) / BINS) / 1e6)


def percentiles(bins: Any, counts: Any, wanted: Sequence[float] = PERCENTILES) -> list[float]:
    """Seconds that so many per cent of the durations do not exceed. The same bin may be there more than once."""
    order = np.argsort(bins, kind="stable")
    reached = np.cumsum(np.asarray(counts)[order])
    # Nearest rank: the least duration that at least that many are not longer than. The 1e-9 is for 99.9 % of 1000.
    ranks = [max(1, int(np.ceil(reached[-1] * each / 100 - 1e-9))) for each in wanted]
    return [float(value) for value in seconds_of(np.asarray(bins)[order][np.searchsorted(reached, ranks)])]


#: What is counted step by step.
STEPPED_EVENTS = ("redelivered", "dead-lettered")

#: How many single messages are named.
HOTTEST_MESSAGES = 15

#: Of how many consumers of queues the report tells more than that they are there.
LISTED_CONSUMERS = 100


@dataclass(frozen=True, slots=True)
class ConsumerCount:
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


class EventCounts:
    """Events counted by queue, kind and step; `close` gives back what Spark keeps of that."""

    def __init__(self, events: Any, grid: Grid, sampled: Mapping[str, SampleTimes]) -> None:
        self._grid, self._events = grid, events
        index = F.expr(grid.step_sql("time"))
        # Of most kinds no plot is made: they are counted as if there were one step.
        step = F.when(F.col("event").isin(*STEPPED_EVENTS), index).otherwise(0)
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
            if row.event != UNCERTAIN_REDELIVERY:
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
            found["redelivered" if row.event == UNCERTAIN_REDELIVERY else row.event] += row.uncertain
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

    def consumers(self) -> tuple[list[ConsumerCount], int, int]:
        """Who acknowledged most, in each queue by itself; how many consumers of queues there are in all, and how many
        messages they acknowledged.
        """
        named = self._counts.where(F.col("consumer").isNotNull())
        found = named.groupBy("queue", "consumer").agg(F.sum("count").alias("count"))
        rows = found.orderBy(F.desc("count"), "queue", "consumer").limit(LISTED_CONSUMERS).collect()
        most = [ConsumerCount(*row) for row in rows]
        if len(most) < LISTED_CONSUMERS:
            return most, len(most), sum(one.count for one in most)
        return most, *found.agg(F.count("*"), F.sum("count")).first()

    def steps(self, event: str) -> dict[str, Any]:
        """Events of one of the kinds in `STEPPED_EVENTS` in each step, by queue."""
        found = numpy_columns(
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
            .limit(HOTTEST_MESSAGES)
            .collect()
        )
        return [HotMessage(queue, number, count, most or 0) for queue, number, count, most in found]


#: What ends the stay of a message, of what the report tells ages of.
END_EVENTS = ("acknowledged", "replaced")

#: Rows of messages in one piece of the join.
PIECE = 500_000


@dataclass(frozen=True, slots=True)
class Durations:
    """Of messages of one queue that ended in one way: how many, seconds by `PERCENTILES`, and the longest."""

    count: int
    percentiles: Sequence[float]
    longest: float


class TimesInQueue:
    """Counted in bins by queue, step and how they ended; `close` gives back what Spark keeps of that."""

    def __init__(
        self,
        messages: Any,
        events: Any,
        grid: Grid,
        rows: int,
        queues: Iterable[str],
        consumers: Sequence[ConsumerCount] = (),
    ) -> None:
        """``rows``: how many messages there are, roughly; ``queues``: those of which messages ended; ``consumers``:
        those of which stays are told by themselves.
        """
        self._names = sorted(queues)
        self._consumers = [(one.queue, one.consumer) for one in consumers]
        pieces = max(1, -(-rows // PIECE))
        # Names become numbers before anything is sorted: that is half of the work.
        numbered = messages.sparkSession.createDataFrame(
            [*enumerate(self._names)], "number INT, queue STRING"
        )
        keys = ("number", "message_id")
        ended = events.where(F.col("event").isin(*END_EVENTS) & F.col("message_id").isNotNull())
        ended = ended.join(F.broadcast(numbered), "queue")
        taker = F.lit(None).cast("int").alias("taker")
        if self._consumers:
            consumer_total = [(*pair, number) for number, pair in enumerate(self._consumers)]
            known = messages.sparkSession.createDataFrame(
                consumer_total, "queue STRING, consumer STRING, taker INT"
            )
            ended = ended.join(F.broadcast(known), ["queue", "consumer"], "left")
            taker = F.when(F.col("event") == "acknowledged", F.col("taker")).alias("taker")
        ended = ended.select(*keys, "event", "time", taker).repartition(pieces, *keys)
        # A message that waits for its time is not late: its stay begins when it is due.
        began = F.greatest("sent", "due").alias("began")  # null is not the greatest
        sent = messages.join(F.broadcast(numbered), "queue").select(*keys, began).repartition(pieces, *keys)
        stay = F.greatest(F.col("time") - F.col("began"), F.lit(0))
        self._bins = (
            ended.join(sent.hint("shuffle_hash"), [*keys])  # pieces are small: nothing need be sorted
            .withColumns({"stay": stay, "step": F.expr(grid.step_sql("time"))})
            .withColumn("bin", F.expr(bin_sql("stay")))
            .groupBy("number", "event", "step", "bin", "taker")
            .agg(F.count("*").alias("count"), F.max("stay").alias("longest"))
            .coalesce(1)
            .persist()
        )

    def close(self) -> None:
        """Forget the bins."""
        self._bins.unpersist()

    def overall(self, event: str) -> dict[str, Durations]:
        """By queue."""
        found = numpy_columns(
            self._bins.where(F.col("event") == event)
            .groupBy("number", "bin")
            .agg(F.sum("count").alias("count"), F.max("longest").alias("longest"))
        )
        return {self._names[number]: _durations(found, rows) for number, rows in groups(found["number"])}

    def steps(self, event: str, queues: Iterable[str]) -> dict[str, dict[int, Durations]]:
        """By queue and step, of some queues; steps in which there is none are not there."""
        selected = F.col("number").isin([self._names.index(queue) for queue in set(queues)])
        found = self._by_step(event, selected, "number")
        answer: dict[str, dict[int, Durations]] = {}
        for number, rows in groups(found["number"]):
            answer[self._names[number]] = _steps(found, rows)
        return answer

    def remainder(self, event: str, shown: Iterable[str]) -> dict[int, Durations]:
        """By step: of all queues but those ``shown`` together."""
        shown = set(shown)
        others = [number for number, name in enumerate(self._names) if name not in shown]
        found = self._by_step(event, F.col("number").isin(others))
        return _steps(found, np.arange(len(found["bin"])))

    def consumers(self) -> dict[tuple[str, str], Durations]:
        """Of what consumers acknowledged, by queue and consumer."""
        found = numpy_columns(
            self._bins.where(F.col("taker").isNotNull())
            .groupBy("taker", "bin")
            .agg(F.sum("count").alias("count"), F.max("longest").alias("longest"))
        )
        return {self._consumers[taker]: _durations(found, rows) for taker, rows in groups(found["taker"])}

    def _by_step(self, event: str, selected: Any, *by: str) -> dict[str, Any]:
        return numpy_columns(
            self._bins.where((F.col("event") == event) & selected)
            .groupBy(*by, "step", "bin")
            .agg(F.sum("count").alias("count"), F.max("longest").alias("longest"))
        )


def _steps(found: dict[str, Any], rows: Any) -> dict[int, Durations]:
    return {step: _durations(found, rows[within]) for step, within in groups(found["step"][rows])}


def _durations(found: dict[str, Any], rows: Any) -> Durations:
    counts = found["count"][rows]
    longest = float(found["longest"][rows].max()) / SECOND
    # The middle of a bin may be more than all that is in it.
    values_ = [min(each, longest) for each in percentiles(found["bin"][rows], counts)]
    return Durations(int(counts.sum()), values_, longest)


def percentile_line(steps: dict[int, Durations], count: int, index: int) -> Any:
    """One of `PERCENTILES` (``place``) in each step, NaN where there is none."""
    values = np.full(count, np.nan)
    for step, ages in steps.items():
        values[step] = ages.percentiles[index]
    return values
