"""What a report reads of a lake: period, rows, rates and events.

Times of a report: from when to when, and the steps that its plots go in. All of it is UTC, in µs since the epoch.

The rows of a lake that a report reads: only the columns that it needs, names instead of nulls, times as µs.

Depth and rates of queues, from the counters in samples: all messages, durable or not.

Counters begin anew with each start of the broker, and with a queue that is deleted and made again: where one of them
is lower than before, all of them have begun anew, and what they show is what has come since. But for ``added``: a
start counts the messages that it finds on disk as added. They were in the queue before, so that many are no new ones.
(It is known by its first sample, which is taken before anybody connects: no consumer, and nothing acknowledged.)

Events of durable messages: counted by queue and kind, and how long messages were in their queues.

Times in queues join events with the messages that they are about: the one expensive job of a report. Both sides are
split by message into pieces that fit into little memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, reduce
from operator import or_
from typing import Any

import numpy as np
from pyspark.sql import Window
from pyspark.sql import functions as F

from stompring.settings.match import Pattern

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND

#: Steps that people can read at the axis of a plot.
READABLE_STEPS = (
    *(millis * SECOND // 1000 for millis in (10, 20, 50, 100, 200, 500)),
    *(seconds * SECOND for seconds in (1, 2, 5, 10, 15, 30)),
    *(minutes * MINUTE for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR for hours in (1, 2, 3, 6, 12)),
    *(days * DAY for days in (1, 2, 7, 14, 28, 91, 364)),
)


def microseconds(time: datetime) -> int:
    """Since the epoch; a time without a zone is UTC."""
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND


def as_datetime(time: int) -> datetime:
    """The time of so many microseconds."""
    return EPOCH + timedelta(microseconds=time)


@dataclass(frozen=True, slots=True)
class Period:
    """``since`` <= the time of what is reported < ``until``; None: from the first, to the last that there is.

    A time without a zone is UTC. Raises ValueError where ``until`` is not later than ``since``.
    """

    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        begin, end = self.begin, self.end
        if begin is not None and end is not None and begin >= end:
            raise ValueError("until must be later than since")

    @property
    def begin(self) -> int | None:
        """``since`` in µs."""
        return None if self.since is None else microseconds(self.since)

    @property
    def end(self) -> int | None:
        """``until`` in µs."""
        return None if self.until is None else microseconds(self.until)


@dataclass(frozen=True, slots=True)
class Grid:
    """``count`` steps of ``step`` µs, the first of which begins at ``start``."""

    start: int
    step: int
    count: int

    @classmethod
    def nice(cls, begin: int, end: int, at_most: int, least: int = 1) -> Grid:
        """Steps from ``begin`` to ``end``, both included, that are no more than ``at_most`` and easy to read."""
        for step in READABLE_STEPS:
            start = begin // step * step
            count = (end - start) // step + 1
            if step >= least and count <= at_most:
                return cls(start, step, count)
        return cls.fine(begin, end, at_most)

    @classmethod
    def fine(cls, begin: int, end: int, at_most: int) -> Grid:
        """Steps as short as they can be."""
        step = max(1, -(-(end - begin + 1) // at_most))
        return cls(begin, step, (end - begin) // step + 1)

    @property
    def end(self) -> int:
        """Where the last step ends."""
        return self.start + self.step * self.count

    @property
    def starts(self) -> Any:
        """Where each step begins."""
        return self.start + self.step * np.arange(self.count)

    @property
    def seconds(self) -> float:
        """How long a step is."""
        return self.step / SECOND

    def step_sql(self, column: str) -> str:
        """SQL: which step a column of µs is in; -1 for what was before all of them."""
        return f"IF({column} < {self.start}, -1, CAST(({column} - {self.start}) DIV {self.step} AS INT))"


def numpy_columns(frame: Any) -> dict[str, Any]:
    """Its columns by name: arrays of numpy, texts as arrays of objects. Nulls of numbers are 0."""
    table = frame.toArrow().combine_chunks()
    found = {}
    for name in table.column_names:
        column = table.column(name)
        if str(column.type) in ("string", "large_string"):
            found[name] = np.array(column.to_pylist(), object)
        else:
            found[name] = column.fill_null(0).to_numpy()
    return found


def groups(keys: Any) -> list[tuple[Any, Any]]:
    """Each key that is there, sorted, with the places where it is."""
    unique, which = np.unique(keys, return_inverse=True)
    order = np.argsort(which, kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=len(unique)))
    return list(zip(unique.tolist(), np.split(order, ends[:-1]), strict=True)) if len(unique) else []


#: A sample before the period tells how deep queues were when it began. Each file of samples has all queues in it, and
#: a file is one hour long: a day is enough, but for a broker that was down for longer.
LOOKBACK = DAY

COUNTERS = ("added", "acknowledged", "expired", "killed", "replaced")
GAUGES = ("ring_size", "messages", "paged", "size", "consumers")

#: Where a lake has no column `broker`, there is one broker, and nobody needs its name.
UNNAMED_BROKER = ""


@dataclass(frozen=True, slots=True)
class Lake:
    """Three DataFrames with the columns that docs/report.md names: others are not looked at.

    ``messages`` has a row for each message and queue, ``events`` one for each thing that became of one, ``samples``
    counters of queues.
    """

    messages: Any
    events: Any
    samples: Any


def brokers_of(tables: Lake) -> list[str]:
    """The brokers of which there is anything in the tables; `UNNAMED_BROKER` where none is named."""
    named = [each for each in (tables.messages, tables.events, tables.samples) if "broker" in each.columns]
    columns = [each.select("broker").distinct() for each in named]
    rows = reduce(lambda some, more: some.union(more), columns).distinct().collect() if columns else []
    return sorted(row.broker for row in rows if row.broker is not None) or [UNNAMED_BROKER]


def select_rows(
    tables: Lake, period: Period, addresses: Sequence[str], brokers: Sequence[str] = (UNNAMED_BROKER,)
) -> Lake:
    """Rows of some addresses (patterns with ``*`` and ``#``; none for all) in a period, of some of `brokers_of`.

    ``messages`` (broker, address, queue, message_id, sent, due, durable, user) are all that were sent before the end of
    the period: what becomes of them may be in it. ``events`` (broker, time, event, queue, message_id, deliveries,
    in_page, consumer) are those of the period, ``samples`` (broker, time, address, queue and numbers) have
    `LOOKBACK` more. Times are µs since the epoch. Where there are several ``brokers``, the names of queues and
    addresses begin with theirs.
    """
    messages = _with_names(_broker_rows(tables.messages, brokers), "timestamp", period.until).select(
        "broker",
        "address",
        "queue",
        "message_id",
        F.unix_micros("timestamp").alias("sent"),
        F.unix_micros("due").alias("due"),
        "durable",
        "user",
    )
    events = _broker_rows(tables.events, brokers)
    events = events.where(F.col("queue").isNotNull() & F.col("time").isNotNull())
    if period.since is not None:
        events = events.where(F.col("time") >= F.lit(period.since))
    if period.until is not None:
        events = events.where(F.col("time") < F.lit(period.until))
    events = events.select(
        "broker",
        F.unix_micros("time").alias("time"),
        "event",
        "queue",
        "message_id",
        "deliveries",
        F.col("page").isNotNull().alias("in_page"),
        "consumer",
    )
    samples = _with_names(_broker_rows(tables.samples, brokers), "time", period.until).select(
        "broker", F.unix_micros("time").alias("time"), "address", "queue", *GAUGES, *COUNTERS
    )
    if period.begin is not None:
        samples = samples.where(F.col("time") >= period.begin - LOOKBACK)
    if addresses:
        names = _queues(messages, samples, addresses)
        within = F.col("queue").isin(names)
        messages, events, samples = messages.where(within), events.where(within), samples.where(within)
    if len(brokers) > 1:
        messages, events, samples = (_prefixed(table) for table in (messages, events, samples))
    return Lake(messages, events, samples)


def _broker_rows(table: Any, brokers: Sequence[str]) -> Any:
    if "broker" not in table.columns:
        return table.withColumn("broker", F.lit(UNNAMED_BROKER))
    if list(brokers) == [UNNAMED_BROKER]:
        return table.withColumn("broker", F.lit(UNNAMED_BROKER))
    return table.where(F.col("broker").isin(list(brokers)))


def _prefixed(table: Any) -> Any:
    """With the name of the broker before each name: brokers may have queues of the same name."""
    names = [name for name in ("address", "queue") if name in table.columns]
    return table.withColumns({name: F.concat_ws("/", "broker", name) for name in names})


def by_broker(values: Mapping[str, int]) -> Any:
    """A column with a number for the ``broker`` of each row; null for others."""
    column = F.lit(None).cast("bigint")
    for broker, value in values.items():
        column = F.when(F.col("broker") == broker, F.lit(value)).otherwise(column)
    return column


def _with_names(table: Any, time: str, until: Any) -> Any:
    known = F.col("address").isNotNull() & F.col("queue").isNotNull() & F.col(time).isNotNull()
    return table.where(known if until is None else known & (F.col(time) < F.lit(until)))


def _queues(messages: Any, samples: Any, addresses: Sequence[str]) -> list[str]:
    """The queues of some addresses. Events may not know their address, but all know their queue."""
    patterns = [Pattern(address) for address in addresses]
    pairs = messages.select("address", "queue").union(samples.select("address", "queue")).distinct().collect()
    return sorted({queue for address, queue in pairs if any(one.matches(address) for one in patterns)})


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
            answer.setdefault(row.queue, {})[row.event] = row["count"]
        return answer

    def counted(self) -> dict[str, int]:
        """By queue: how many were added while counters were sampled, after the first sample and up to the last one."""
        return {row.queue: row.counted for row in self._totals if row.counted}

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


def percentile_line(steps: Mapping[int, Durations], count: int, index: int) -> Any:
    """One of `PERCENTILES` in each step, NaN where there is none."""
    values = np.full(count, np.nan)
    for step, ages in steps.items():
        values[step] = ages.percentiles[index]
    return values
