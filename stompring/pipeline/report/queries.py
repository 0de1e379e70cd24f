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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property, reduce
from operator import or_
from typing import Any, NamedTuple

import numpy as np
from pyspark.sql import Window
from pyspark.sql import functions as F

from stompring.pipeline.options import EPOCH, microseconds
from stompring.settings.match import Pattern
from stompring.settings.model import frozen

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND

#: Steps that people can read at the axis of a plot.
READABLE_STEPS = tuple(
    count * unit
    for unit, counts in (
        (SECOND // 1000, (10, 20, 50, 100, 200, 500)),
        (SECOND, (1, 2, 5, 10, 15, 30)),
        (MINUTE, (1, 2, 5, 10, 15, 30)),
        (HOUR, (1, 2, 3, 6, 12)),
        (DAY, (1, 2, 7, 14, 28, 91, 364)),
    )
    for count in counts
)


def as_datetime(time: int) -> datetime:
    """The time of so many microseconds."""
    return EPOCH + timedelta(microseconds=time)


@frozen
class Period:
    """``since`` <= the time of what is reported < ``until``; None: from the first, to the last that there is.

    A time without a zone is UTC. Raises ValueError where ``until`` is not later than ``since``.
    """

    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        if self.begin is not None and self.end is not None and self.begin >= self.end:
            raise ValueError("until must be later than since")

    @property
    def begin(self) -> int | None:
        """``since`` in µs."""
        return None if self.since is None else microseconds(self.since)

    @property
    def end(self) -> int | None:
        """``until`` in µs."""
        return None if self.until is None else microseconds(self.until)


@frozen
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

    def with_step(self, frame: Any) -> Any:
        """With the step that the ``time`` (µs) of each row is in; -1 for what was before all of them."""
        step = f"IF(time < {self.start}, -1, CAST((time - {self.start}) DIV {self.step} AS INT))"
        return frame.withColumn("step", F.expr(step))

    def filled(self, steps: Any, values: Any) -> Any:
        """A number for each step: the sum of its values, or without values how often the step is there."""
        return np.bincount(steps, values, self.count)


def aggregated(frame: Any, by: Iterable[str], *values: str) -> Any:
    """The rows of a frame grouped by some columns; columns and values are SQL: ``max(time) AS time``."""
    return frame.groupBy(*map(F.expr, by)).agg(*map(F.expr, values))


def sums(*names: str) -> list[str]:
    """The sum of each column, by the name of the column."""
    return [f"sum({name}) AS {name}" for name in names]


#: Arrays of numpy by the names of columns.
Columns = dict[str, Any]


def numpy_columns(frame: Any) -> Columns:
    """Its columns by name: arrays of numpy, texts as arrays of objects. Nulls of numbers are 0."""
    table = frame.toArrow()
    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        text = str(column.type) in ("string", "large_string")
        found[name] = (column if text else column.fill_null(0)).to_numpy()
    return found


def groups(keys: Any) -> Iterator[tuple[Any, Any]]:
    """Each key, sorted, with its positions."""
    order = np.argsort(keys, kind="stable")
    unique, starts = np.unique(keys[order], return_index=True)
    # without any key, the one part is empty, and zip ignores it
    return zip(unique.tolist(), np.split(order, starts[1:]), strict=False)


#: A sample before the period tells how deep queues were when it began. Each file of samples has all queues in it, and
#: a file is one hour long: a day is enough, but for a broker that was down for longer.
LOOKBACK = DAY

COUNTERS = ("added", "acknowledged", "expired", "killed", "replaced")
GAUGES = ("ring_size", "messages", "paged", "size", "consumers")

#: Where a lake has no column `broker`, there is one broker, and nobody needs its name.
UNNAMED_BROKER = ""


class Lake(NamedTuple):
    """Three DataFrames with the columns that docs/report.md names: others are not looked at.

    ``messages`` has a row for each message and queue, ``events`` one for each thing that became of one, ``samples``
    counters of queues.
    """

    messages: Any
    events: Any
    samples: Any


def brokers_of(tables: Lake) -> list[str]:
    """The brokers of which there is anything in the tables; `UNNAMED_BROKER` where none is named."""
    named = [each.select("broker").distinct() for each in tables if "broker" in each.columns]
    return sorted({row.broker for each in named for row in each.collect()} - {None}) or [UNNAMED_BROKER]


def select_rows(tables: Lake, period: Period, addresses: Sequence[str], brokers: Sequence[str]) -> Lake:
    """Rows of some addresses (patterns with ``*`` and ``#``; none for all) in a period, of some of `brokers_of`.

    ``messages`` (broker, address, queue, message_id, sent, due, durable, user) are all that were sent before the end of
    the period: what becomes of them may be in it. ``events`` (broker, time, event, queue, message_id, deliveries,
    in_page, consumer) are those of the period, ``samples`` (broker, time, address, queue and numbers) have
    `LOOKBACK` more. Times are µs since the epoch. Where there are several ``brokers``, the names of queues and
    addresses begin with theirs.
    """

    def known(table: Any, time: str, *names: str) -> Any:
        """Rows of the brokers before the end of the period in which queue, time and names are known."""
        if "broker" not in table.columns or list(brokers) == [UNNAMED_BROKER]:
            table = table.withColumn("broker", F.lit(UNNAMED_BROKER))
        else:
            table = table.where(F.col("broker").isin(list(brokers)))
        table = table.where(" AND ".join(f"{name} IS NOT NULL" for name in ("queue", time, *names)))
        return table if period.until is None else table.where(F.col(time) < F.lit(period.until))

    messages = known(tables.messages, "timestamp", "address")
    events = known(tables.events, "time")
    samples = known(tables.samples, "time", "address")
    if period.since is not None:
        events = events.where(F.col("time") >= F.lit(period.since))
        samples = samples.where(F.col("time") >= F.lit(as_datetime(microseconds(period.since) - LOOKBACK)))
    if addresses:  # events may not know their address, but all know their queue
        patterns = [*map(Pattern, addresses)]
        pairs = (
            messages.select("address", "queue").union(samples.select("address", "queue")).distinct().collect()
        )
        queues = {queue for address, queue in pairs if any(one.matches(address) for one in patterns)}
        within = F.col("queue").isin(sorted(queues))
        messages, events, samples = (table.where(within) for table in (messages, events, samples))
    names = ["address", "queue"]
    if len(brokers) > 1:  # brokers may have queues of the same name
        names = [f"concat_ws('/', broker, {name}) AS {name}" for name in names]
    time = "unix_micros(time) AS time"
    return Lake(
        messages.selectExpr(
            "broker",
            *names,
            "message_id",
            "unix_micros(timestamp) AS sent",
            "unix_micros(due) AS due",
            "durable",
            "user",
        ),
        events.selectExpr(
            "broker",
            time,
            "event",
            names[1],
            "message_id",
            "deliveries",
            "page IS NOT NULL AS in_page",
            "consumer",
        ),
        samples.selectExpr("broker", time, *names, *GAUGES, *COUNTERS),
    )


def with_sample_times(frame: Any, sampled: Mapping[str, SampleTimes]) -> Any:
    """With the `SampleTimes` of the broker of each row: ``first_sample``, ``last_sample``, ``tail_sample``; or null."""
    for name in SampleTimes._fields:
        known = (F.when(F.col("broker") == broker, getattr(times, name)) for broker, times in sampled.items())
        frame = frame.withColumn(f"{name}_sample", F.coalesce(F.lit(None).cast("bigint"), *known))
    return frame


#: Every queue is in a sample that often, while the broker runs.
FULL_SAMPLE_INTERVAL = HOUR


def present_from_start(begin: int | None, first: int) -> int:
    """A queue that is first sampled later than that is new; others may have been there before the samples.

    ``first`` is the time of the first sample, and ``begin`` the beginning of the period of the report, None for none:
    samples before it are those of `LOOKBACK`. All are µs. If older samples are left out, a queue that rests is first
    seen in the next sample of all queues.
    """
    return first if begin is None else max(first, begin - LOOKBACK + FULL_SAMPLE_INTERVAL)


def counter_changes(samples: Any, early: int) -> Any:
    """The samples, with the counters as differences from the row before.

    ``early`` is the time of `present_from_start`. The first row of a queue has nothing before it. If the queue is new,
    its counters are differences; if the samples began when it was there already, they are from before the samples, and
    its differences are 0.
    """
    rows = Window.partitionBy("queue").orderBy("time")
    before = {name: F.lag(name).over(rows) for name in COUNTERS}
    fallen = reduce(or_, (F.col(name) < before[name] for name in COUNTERS))
    anew = F.when(before["added"].isNull(), F.col("time") > early).otherwise(fallen)
    waited = F.when(F.expr("consumers = 0 AND acknowledged = 0"), F.lag("messages").over(rows))
    since = {name: F.col(name) for name in COUNTERS}
    since["added"] = F.greatest(since["added"] - F.coalesce(waited, F.lit(0)), F.lit(0))
    return samples.withColumns(
        {
            name: F.when(anew, since[name]).otherwise(F.coalesce(F.col(name) - before[name], F.lit(0)))
            for name in COUNTERS
        }
    )


#: Each queue is in a sample at least once an hour. One that is not for longer is gone, or the broker is.
SAMPLE_VALIDITY = 2 * HOUR

#: The end of the period is the last of so many parts of it, and a minute or more.
TAIL_PARTS = 10


@frozen
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


class Series(NamedTuple):
    """One queue, step by step: ``depth`` is the greatest in each step, NaN where it is not known."""

    depth: Any
    added: Any
    replaced: Any
    consumers: Any  # the most in each step


class SampleTimes(NamedTuple):
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

    @property
    def tail_seconds(self) -> float:
        """How long the end of the period is."""
        return (self.last - self.tail) / SECOND


class Traffic:
    """Samples in steps. ``rows`` are those of `counter_changes`; ``cached`` is the DataFrame that Spark caches."""

    def __init__(self, rows: Any, grid: Grid, sampled: Mapping[str, SampleTimes]) -> None:
        self._grid, self._sampled = grid, sampled
        self.cached = aggregated(
            with_sample_times(grid.with_step(rows), sampled),
            ("broker", "address", "queue", "step"),
            "max(time) AS time",
            "max_by(messages, time) AS last",
            "max_by(ring_size, time) AS ring_size",
            "max(messages) FILTER (WHERE step >= 0) AS most",
            "max(paged) AS paged",
            "max(size) AS size",
            "sum(size) AS bytes",
            "sum(greatest(messages - paged, 0)) AS held",
            *sums(*COUNTERS),
            "min(time) AS since",
            "min_by(messages, time) AS head",
            "max(consumers) AS consumers",
            "max_by(consumers, time) AS last_consumers",
            "sum(added) FILTER (WHERE time > first_sample) AS counted",
            "sum(added) FILTER (WHERE time > tail_sample) AS tail_in",
            f"sum({' + '.join(COUNTERS[1:])}) FILTER (WHERE time > tail_sample) AS tail_out",
        ).persist()

    def queues(self, early: int) -> list[QueueTraffic]:
        """Every queue of the period, and those that were there when it began; one that is first seen later than
        ``early`` was empty then.
        """
        rows = aggregated(
            self.cached,
            ("broker", "address", "queue"),
            "max_by(ring_size, step) AS ring_size",
            "max_by(last, step) AS depth",
            "greatest(max(most), max(last) FILTER (WHERE step < 0)) AS most",
            "max(paged) FILTER (WHERE step >= 0) AS paged",
            "max(size) FILTER (WHERE step >= 0) AS size",
            "try_divide(sum(bytes), sum(held)) AS average",
            *(f"sum({name}) FILTER (WHERE step >= 0) AS {name}" for name in COUNTERS),
            "coalesce(max(last) FILTER (WHERE step < 0), "
            f"IF(min(since) <= {early}, min_by(head, step), 0)) AS begin",
            "greatest(max(consumers) FILTER (WHERE step >= 0), "
            "max(last_consumers) FILTER (WHERE step < 0)) AS consumers",
            "sum(counted) AS counted",
            "sum(tail_in) AS rate_in",
            "sum(tail_out) AS rate_out",
        )
        found = [row.asDict() for row in rows.fillna(0).orderBy("address", "queue").collect()]
        for queue in found:
            one = self._sampled.get(queue.pop("broker"))
            for name in ("rate_in", "rate_out"):
                queue[name] = queue[name] / one.tail_seconds if one and one.tail_seconds else math.nan
        return [QueueTraffic(**queue) for queue in found]

    def totals(self) -> Columns:
        """What went in and out of all queues in each step, by the name of the counter."""
        found = numpy_columns(aggregated(self.cached.where("step >= 0"), ["step"], *sums(*COUNTERS)))
        return {name: self._grid.filled(found["step"], found[name]) for name in COUNTERS}

    def series(self, queues: Iterable[str]) -> dict[str, Series]:
        """Some queues, step by step."""
        found = self._rows(F.col("queue").isin(sorted(set(queues))), F.col("queue").alias("name"))
        return {
            queue: Series(*(self._line(name, found, rows) for name in Series._fields))
            for queue, rows in groups(found["name"])
        }

    def remainder(self, name: str, shown: Sequence[str]) -> Any:
        """The sum of one of the `Series` over all queues but those ``shown``, step by step."""
        return self._line(name, self._rows(~F.col("queue").isin(list(shown))), slice(None))

    def _rows(self, selected: Any, *more: Any) -> Columns:
        # A number for each queue does: names take room, and there may be many.
        queue = F.xxhash64("queue").alias("queue")
        numbers = ("step", "time", "last", "most", "added", "replaced", "consumers", "last_consumers")
        return numpy_columns(self.cached.where(selected).select(queue, *more, *numbers))

    def _line(self, name: str, found: Columns, rows: Any) -> Any:
        """One of the `Series` of the queues that some rows are of, all of them together."""
        some = {column: values[rows] for column, values in found.items()}
        if name in ("added", "replaced"):
            within = some["step"] >= 0
            return self._grid.filled(some["step"][within], some[name][within])
        if name == "consumers":
            some |= {"last": some["last_consumers"], "most": some["consumers"]}
        return forward_filled(some, self._grid)


def forward_filled(rows: Columns, grid: Grid) -> Any:
    """The greatest depth in each step, the sum of all queues, from the steps in which each was sampled.

    ``rows`` has their numbers in ``queue``, their ``step`` (-1: before the grid), the ``time`` of the last sample in
    it, and of the depth the ``last`` and the ``most``. Where there is no sample nothing changed, and a queue is as deep
    as it was; for `SAMPLE_VALIDITY`. NaN where no depth is known.
    """
    order = np.lexsort((rows["step"], rows["queue"]))
    queue, steps, last, time, most = (rows[name][order] for name in ("queue", "step", "last", "time", "most"))
    same = np.append(queue[1:] == queue[:-1], False)  # whether the next row is of the same queue
    following = np.where(same, np.roll(steps, -1), grid.count)  # the step of the next row
    known = (time + max(SAMPLE_VALIDITY, grid.step) - grid.start) // grid.step + 1
    until = np.minimum(following + 1, np.clip(known, 0, grid.count))
    before = np.roll(same, 1) & (np.roll(until, 1) > steps)
    inside = steps >= 0
    value = np.where(before, np.maximum(most, np.roll(last, 1)), most)
    # From the step behind a row to the one before the next row it is as deep as the last sample says.
    begin, end = steps + 1, np.minimum(until, following)
    runs, points = end > begin, grid.count + 1
    found = []
    for at_step, behind in (
        (value[inside], last[runs]),
        (None, None),
    ):  # depths, and how many of them are known
        change = np.bincount(begin[runs], behind, points) - np.bincount(end[runs], behind, points)
        found.append(grid.filled(steps[inside], at_step) + np.cumsum(change)[:-1])
    return np.where(found[1] > 0, found[0], np.nan)


#: Bins by which a duration becomes e times as long.
BINS = 50

#: What a report tells.
PERCENTILES = (50.0, 90.0, 99.0, 99.9)


#: SQL: the bin of a ``stay`` in µs; -1 for none, and for less than none (clocks may step back).
BIN_SQL = f"IF(stay < 1, -1, CAST(FLOOR(LN(stay) * {BINS}) AS INT))"


def percentiles(bins: Any, counts: Any, wanted: Sequence[float] = PERCENTILES) -> list[float]:
    """Seconds that so many per cent of the durations do not exceed. The same bin may be there more than once."""
    bins, counts = np.asarray(bins), np.asarray(counts)
    order = np.argsort(bins, kind="stable")
    reached = np.cumsum(counts[order])
    # Nearest rank: the least duration that at least that many are not longer than. The 1e-9 is for 99.9 % of 1000.
    ranks = np.maximum(1, np.ceil(reached[-1] * np.asarray(wanted) / 100 - 1e-9))
    found = bins[order][np.searchsorted(reached, ranks)]
    # The middle of a bin: no duration in it is more than one per cent off.
    return list(np.where(found < 0, 0.0, np.exp((found + 0.5) / BINS) / 1e6).tolist())


#: What is counted step by step.
STEPPED_EVENTS = ("redelivered", "dead-lettered")

#: How many single messages are named.
HOTTEST_MESSAGES = 15

#: Of how many consumers of queues the report tells more than that they are there.
LISTED_CONSUMERS = 100


@frozen
class ConsumerCount:
    """How many messages one consumer acknowledged in one queue."""

    queue: str
    consumer: str
    count: int


class HotMessage(NamedTuple):
    """One that came back again and again."""

    queue: str
    message_id: int
    redelivered: int
    deliveries: int


#: Events by queue and kind.
Counts = Mapping[str, Mapping[str, int]]


class EventCounts:
    """Events counted by queue, kind and step; ``cached`` is the DataFrame that Spark caches."""

    def __init__(self, events: Any, grid: Grid, sampled: Mapping[str, SampleTimes]) -> None:
        self._grid, self._events = grid, events
        # Of most kinds no plot is made: they are counted as if there were one step.
        step = f"IF(event IN {STEPPED_EVENTS}, step, 0) AS step"
        self.cached = (
            aggregated(
                with_sample_times(grid.with_step(events), sampled),
                ("queue", "event", step, "IF(event = 'acknowledged', consumer, NULL) AS consumer"),
                "count(*) AS count",
                "count_if(event = 'added' AND time > first_sample AND time <= last_sample) AS counted",
                "max(deliveries) AS deliveries",
                "max(in_page) AS in_page",
            )
            .coalesce(1)
            .persist()
        )

    def counts(self) -> dict[str, dict[str, int]]:
        """How many events of each kind each queue has."""
        answer: dict[str, dict[str, int]] = {}
        for row in self._totals:
            answer.setdefault(row.queue, {})[row.event] = row["count"]
        return answer

    def counted(self) -> dict[str, int]:
        """By queue: how many were added while counters were sampled, after the first sample and up to the last one."""
        return {row.queue: row.counted for row in self._totals if row.counted}

    def paged(self) -> set[str]:
        """Queues with events of messages in pages, also if the messages were read back before the next sample."""
        return {row.queue for row in self._totals if row.in_page}

    def most_deliveries(self) -> dict[str, int]:
        """Of queues to which messages came back: how often one of them had gone out."""
        return {row.queue: row.deliveries or 0 for row in self._totals if row.event == "redelivered"}

    @cached_property
    def _totals(self) -> list[Any]:
        return list(
            aggregated(
                self.cached,
                ("queue", "event"),
                *sums("count", "counted"),
                "max(in_page) AS in_page",
                "max(deliveries) AS deliveries",
            ).collect()
        )

    def consumers(self) -> tuple[list[ConsumerCount], int, int]:
        """Who acknowledged most, in each queue by itself; how many consumers of queues there are in all, and how many
        messages they acknowledged.
        """
        named = self.cached.where("consumer IS NOT NULL")
        found = aggregated(named, ("queue", "consumer"), *sums("count"))
        rows = found.orderBy(F.desc("count"), "queue", "consumer").limit(LISTED_CONSUMERS).collect()
        total, acknowledged = found.agg(F.count("*"), F.sum("count")).first()
        return [ConsumerCount(*row) for row in rows], total, acknowledged or 0

    def steps(self, event: str) -> Columns:
        """Events of one of the kinds in `STEPPED_EVENTS` in each step, by queue."""
        found = numpy_columns(self.cached.where(F.col("event") == event).select("queue", "step", "count"))
        return {
            queue: self._grid.filled(found["step"][rows], found["count"][rows])
            for queue, rows in groups(found["queue"])
        }

    def hottest(self) -> list[HotMessage]:
        """The messages that came back most often, of those that did more than once."""
        found = aggregated(
            self._events.where("event = 'redelivered' AND message_id IS NOT NULL"),
            ("queue", "message_id"),
            "count(*) AS count",
            "coalesce(max(deliveries), 0) AS deliveries",
        ).where("count > 1")
        most = found.orderBy(F.desc("count"), "queue", "message_id").limit(HOTTEST_MESSAGES)
        return [HotMessage(*row) for row in most.collect()]


#: What ends the stay of a message, of what the report tells ages of.
END_EVENTS = ("acknowledged", "replaced")

#: Rows of messages in one piece of the join.
PIECE = 500_000


@frozen
class Durations:
    """Of messages of one queue that ended in one way: how many, seconds by `PERCENTILES`, and the longest."""

    count: int
    percentiles: Sequence[float]
    longest: float


#: Of each step in which there are some.
Steps = Mapping[int, Durations]


class TimesInQueue:
    """Times in queues, counted in bins by queue, step and event; ``cached`` is the DataFrame that Spark caches."""

    def __init__(
        self,
        messages: Any,
        events: Any,
        grid: Grid,
        rows: int,
        queues: Iterable[str],
        consumers: Sequence[ConsumerCount],
    ) -> None:
        """``rows``: how many messages there are, roughly; ``queues``: those of which messages ended; ``consumers``:
        those of which stays are told by themselves.
        """
        self._names = sorted(queues)
        self._consumers = [(one.queue, one.consumer) for one in consumers]
        pieces = max(1, -(-rows // PIECE))
        # Names become numbers before anything is sorted: that is half of the work.
        made = messages.sparkSession.createDataFrame
        numbered = F.broadcast(made([*enumerate(self._names)], "number INT, queue STRING"))
        takers = [(*pair, number) for number, pair in enumerate(self._consumers)]
        known = F.broadcast(made(takers, "queue STRING, consumer STRING, taker INT"))
        keys = ["number", "message_id"]
        ended = (
            events.where(f"event IN {END_EVENTS} AND message_id IS NOT NULL")
            .join(numbered, "queue")
            .join(known, ["queue", "consumer"], "left")
            .selectExpr(*keys, "event", "time", "IF(event = 'acknowledged', taker, NULL) AS taker")
        )
        # A message that waits for its time is not late: its stay begins when it is due. Null is not the greatest.
        sent = messages.join(numbered, "queue").selectExpr(*keys, "greatest(sent, due) AS began")
        pairs = ended.repartition(pieces, *keys).join(
            sent.repartition(pieces, *keys).hint("shuffle_hash"),
            keys,  # pieces are small: nothing need be sorted
        )
        self.cached = (
            aggregated(
                grid.with_step(pairs).withColumn("stay", F.expr("greatest(time - began, 0)")),
                ("number", "event", "step", f"{BIN_SQL} AS bin", "taker"),
                "count(*) AS count",
                "max(stay) AS longest",
            )
            .coalesce(1)
            .persist()
        )

    def overall(self, event: str) -> dict[str, Durations]:
        """By queue."""
        found = self._found(f"event = '{event}'", "number")
        return {self._names[number]: _durations(found, rows) for number, rows in groups(found["number"])}

    def steps(self, event: str, queues: Iterable[str]) -> dict[str, Steps]:
        """By queue and step, of some queues; steps in which there is none are not there."""
        found = self._found(self._numbered(queues) & (F.col("event") == event), "number", "step")
        return {self._names[number]: _steps(found, rows) for number, rows in groups(found["number"])}

    def remainder(self, event: str, shown: Iterable[str]) -> Steps:
        """By step: of all queues but those ``shown`` together."""
        found = self._found(~self._numbered(shown) & (F.col("event") == event), "step")
        return _steps(found, np.arange(len(found["bin"])))

    def consumers(self) -> dict[tuple[str, str], Durations]:
        """Of what consumers acknowledged, by queue and consumer."""
        found = self._found("taker IS NOT NULL", "taker")
        return {self._consumers[taker]: _durations(found, rows) for taker, rows in groups(found["taker"])}

    def _numbered(self, queues: Iterable[str]) -> Any:
        return F.col("number").isin([*map(self._names.index, queues)])

    def _found(self, selected: Any, *by: str) -> Columns:
        bins = self.cached.where(selected)
        return numpy_columns(aggregated(bins, (*by, "bin"), *sums("count"), "max(longest) AS longest"))


def _steps(found: Columns, rows: Any) -> Steps:
    return {step: _durations(found, rows[within]) for step, within in groups(found["step"][rows])}


def _durations(found: Columns, rows: Any) -> Durations:
    counts = found["count"][rows]
    longest = float(found["longest"][rows].max()) / SECOND
    # The middle of a bin may be more than all that is in it.
    within = [min(each, longest) for each in percentiles(found["bin"][rows], counts)]
    return Durations(int(counts.sum()), within, longest)


def percentile_line(steps: Steps, count: int, index: int) -> Any:
    """One of `PERCENTILES` in each step, NaN where there is none."""
    values = np.full(count, np.nan)
    for step, ages in steps.items():
        values[step] = ages.percentiles[index]
    return values
