"""Spark queries of a report: its period and steps, traffic of queues, counts of events, and times in queues.

All times are UTC, in µs since the epoch.

Depth and rates of queues come from samples, whose counters count all messages, durable or not. Counters restart at 0
with the broker, and when a queue is deleted and created again: if one counter of a queue is lower than before, all of
its counters have restarted. When a broker starts, it counts the messages that it finds on disk in ``added``. Its first
sample is taken before any connection, so it has no consumer and no acknowledged message: from ``added`` in such a
sample the number of messages in the previous sample is subtracted.

Events are counted by queue and kind. Times in queues need a join of events with messages, the only expensive job of a
report. The join splits events and messages into pieces by message, so that each piece needs little memory.
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

#: Readable steps of a time axis, in µs.
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
    """Convert µs since the epoch to a datetime."""
    return EPOCH + timedelta(microseconds=time)


@frozen
class Period:
    """The period of a report: ``since`` <= time < ``until``. None: no limit.

    A time without a zone is UTC. Raises ValueError if ``until`` is not later than ``since``.
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
    """``count`` consecutive steps of ``step`` µs from ``start``."""

    start: int
    step: int
    count: int

    @classmethod
    def nice(cls, begin: int, end: int, at_most: int, least: int = 1) -> Grid:
        """Return a grid that covers ``begin`` to ``end`` (inclusive), with steps of a readable length of at least
        ``least`` µs. Its number of steps is ``at_most`` or less."""
        for step in READABLE_STEPS:
            start = begin // step * step
            count = (end - start) // step + 1
            if step >= least and count <= at_most:
                return cls(start, step, count)
        return cls.fine(begin, end, at_most)

    @classmethod
    def fine(cls, begin: int, end: int, at_most: int) -> Grid:
        """Return the grid with the shortest steps that covers ``begin`` to ``end`` (inclusive) with at most ``at_most``
        steps."""
        step = max(1, -(-(end - begin + 1) // at_most))
        return cls(begin, step, (end - begin) // step + 1)

    @property
    def end(self) -> int:
        """End of the last step in µs."""
        return self.start + self.step * self.count

    @property
    def starts(self) -> Any:
        """Starts of the steps in µs."""
        return self.start + self.step * np.arange(self.count)

    @property
    def seconds(self) -> float:
        """Length of a step in seconds."""
        return self.step / SECOND

    def with_step(self, frame: Any) -> Any:
        """Return a DataFrame with a column ``step``: the step of each row by its ``time`` (µs), -1 before the grid."""
        step = f"IF(time < {self.start}, -1, CAST((time - {self.start}) DIV {self.step} AS INT))"
        return frame.withColumn("step", F.expr(step))

    def filled(self, steps: Any, values: Any) -> Any:
        """Return for each step of the grid the sum of its values, or if ``values`` is None, how often it occurs in
        ``steps``."""
        return np.bincount(steps, values, self.count)


def aggregated(frame: Any, by: Iterable[str], *values: str) -> Any:
    """Group the rows of a DataFrame by columns, and compute values for each group. Both are SQL, for example
    ``max(time) AS time``."""
    return frame.groupBy(*map(F.expr, by)).agg(*map(F.expr, values))


def sums(*names: str) -> list[str]:
    """Return the SQL for the sum of each column, under the name of the column."""
    return [f"sum({name}) AS {name}" for name in names]


#: numpy arrays by the names of columns.
Columns = dict[str, Any]


def numpy_columns(frame: Any) -> Columns:
    """Collect a DataFrame as numpy arrays, with object arrays for texts. Null numbers become 0."""
    table = frame.toArrow()
    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        text = str(column.type) in ("string", "large_string")
        found[name] = (column if text else column.fill_null(0)).to_numpy()
    return found


def groups(keys: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each distinct key, in order, with its positions in ``keys``."""
    order = np.argsort(keys, kind="stable")
    unique, starts = np.unique(keys[order], return_index=True)
    # strict=False: without keys, np.split returns one empty part
    return zip(unique.tolist(), np.split(order, starts[1:]), strict=False)


#: Samples are read from this time (µs) before the period, for the depth of queues at the beginning of the period. Each
#: file of samples has all queues, and covers an hour. So a day is enough unless the broker was down for longer.
LOOKBACK = DAY

COUNTERS = ("added", "acknowledged", "expired", "killed", "replaced")
GAUGES = ("ring_size", "messages", "paged", "size", "consumers")

#: Name of the broker in a lake without a column `broker`.
UNNAMED_BROKER = ""


class Lake(NamedTuple):
    """The DataFrames of a lake. docs/report.md lists their columns; others are ignored.

    ``messages`` has a row for each message and queue, ``events`` a row for each event of a message, and ``samples`` the
    counters of queues.
    """

    messages: Any
    events: Any
    samples: Any


def brokers_of(tables: Lake) -> list[str]:
    """Return the sorted names of the brokers in the tables. If there are no names, return only `UNNAMED_BROKER`."""
    named = [each.select("broker").distinct() for each in tables if "broker" in each.columns]
    return sorted({row.broker for each in named for row in each.collect()} - {None}) or [UNNAMED_BROKER]


def select_rows(tables: Lake, period: Period, addresses: Sequence[str], brokers: Sequence[str]) -> Lake:
    """Select the rows of a period, of ``addresses`` (patterns with ``*`` and ``#``; empty: all), and of ``brokers``.

    The result has three tables. ``messages`` (broker, address, queue, message_id, sent, due, durable, user) has all
    messages sent before the end of the period, because their events may be in the period. ``events`` (broker, time,
    event, queue, message_id, deliveries, in_page, consumer) has the events of the period. ``samples`` (broker, time,
    address, queue and numbers) begins `LOOKBACK` before the period. Times are µs. If there are several ``brokers``,
    names of queues and addresses have the prefix ``BROKER/``.
    """

    def known(table: Any, time: str, *names: str) -> Any:
        """Select rows of the brokers before the end of the period, without nulls in queue, time and ``names``."""
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
    if addresses:  # select by queue: all events have a queue, but some have no address
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
    """Add the columns ``first_sample``, ``last_sample`` and ``tail_sample``: the `SampleTimes` of the row's broker,
    null if the broker has none."""
    for name in SampleTimes._fields:
        known = (F.when(F.col("broker") == broker, getattr(times, name)) for broker, times in sampled.items())
        frame = frame.withColumn(f"{name}_sample", F.coalesce(F.lit(None).cast("bigint"), *known))
    return frame


#: Maximum time (µs) between two samples of a queue while the broker runs.
FULL_SAMPLE_INTERVAL = HOUR


def present_from_start(begin: int | None, first: int) -> int:
    """Return a time (µs): if the first sample of a queue is later, the queue was created after the samples begin.

    If the first sample of a queue is earlier, the queue may be older than the samples. ``first``: time of the first
    sample of all queues. ``begin``: beginning of the period; None: no limit. Samples begin `LOOKBACK` before the
    period, and within `FULL_SAMPLE_INTERVAL` of their beginning each older queue has a sample, even an idle one.
    """
    return first if begin is None else max(first, begin - LOOKBACK + FULL_SAMPLE_INTERVAL)


def counter_changes(samples: Any, early: int) -> Any:
    """Replace the counters in samples by their differences from the previous sample of the queue.

    ``early``: result of `present_from_start`. In the first sample of a queue the differences are its counters if the
    queue is new. They are 0 if it may be older than the samples.
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


#: Time (µs) for which a sample is valid, twice `FULL_SAMPLE_INTERVAL`. If there is no new sample until then, the queue
#: was deleted or the broker is down.
SAMPLE_VALIDITY = 2 * HOUR

#: Number of equal parts of the period. Current rates are the rates in the last part, or in the last minute if a part is
#: shorter.
TAIL_PARTS = 10


@frozen
class QueueTraffic:
    """Traffic of one queue in the period. ``size``: maximum bytes in memory. ``average``: mean bytes of a message."""

    address: str
    queue: str
    ring_size: int
    depth: int  # messages at the end of the period
    most: int  # maximum number of messages
    paged: int  # maximum number of messages in pages
    size: int
    average: float
    added: int
    acknowledged: int
    expired: int
    killed: int
    replaced: int
    begin: int = 0  # messages at the beginning of the period
    consumers: int = 0  # maximum number of consumers
    counted: int = 0  # messages added after the first sample of the period
    rate_in: float = math.nan  # messages/s at the end of the period; NaN: too few samples
    rate_out: float = math.nan

    @property
    def out(self) -> int:
        """Number of messages that left the queue."""
        return self.acknowledged + self.expired + self.killed + self.replaced

    @property
    def growth(self) -> int:
        """Growth of the queue in the period, in messages."""
        return self.depth - self.begin

    @property
    def drain(self) -> float:
        """Seconds until the queue becomes empty if the rates at the end of the period continue. 0: the queue is empty.
        Infinite: it does not shrink. NaN: the rates are unknown."""
        if not self.depth or math.isnan(self.rate_in):
            return math.nan if self.depth else 0.0
        falls = self.rate_out - self.rate_in
        return self.depth / falls if falls > 0 else math.inf


class Series(NamedTuple):
    """Values of one queue in each step. ``depth``: maximum number of messages in the step; NaN: unknown."""

    depth: Any
    added: Any
    replaced: Any
    consumers: Any  # maximum number in the step; NaN: unknown


class SampleTimes(NamedTuple):
    """Times (µs) of three samples of a broker: the first and the last in the period, and the one at which the interval
    for current rates begins (``tail``)."""

    first: int
    last: int
    tail: int

    @classmethod
    def of(cls, times: Any) -> SampleTimes:
        """Return the three times. ``times``: times of one or more samples (µs), ascending."""
        first, last = int(times[0]), int(times[-1])
        length = min(max((last - first) // TAIL_PARTS, MINUTE), last - first)
        return cls(first, last, int(times[np.searchsorted(times, last - length, side="right") - 1]))

    @property
    def tail_seconds(self) -> float:
        """Length in seconds of the interval for current rates."""
        return (self.last - self.tail) / SECOND


class Traffic:
    """Traffic of queues, from samples grouped by queue and step. ``rows``: result of `counter_changes`. ``cached``:
    DataFrame that Spark caches."""

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
        """Return the traffic of every queue that existed in the period. A queue whose first sample is later than
        ``early`` was empty at the beginning."""
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
        """Return for each counter the sum over all queues in each step."""
        found = numpy_columns(aggregated(self.cached.where("step >= 0"), ["step"], *sums(*COUNTERS)))
        return {name: self._grid.filled(found["step"], found[name]) for name in COUNTERS}

    def series(self, queues: Iterable[str]) -> dict[str, Series]:
        """Return the `Series` of each of ``queues``, by name."""
        found = self._rows(F.col("queue").isin(sorted(set(queues))), F.col("queue").alias("name"))
        return {
            queue: Series(*(self._line(name, found, rows) for name in Series._fields))
            for queue, rows in groups(found["name"])
        }

    def remainder(self, name: str, shown: Sequence[str]) -> Any:
        """Return the field ``name`` of `Series`, summed over all queues except the queues in ``shown``."""
        return self._line(name, self._rows(~F.col("queue").isin(list(shown))), slice(None))

    def _rows(self, selected: Any, *more: Any) -> Columns:
        # hashes of queue names need less memory than the names
        queue = F.xxhash64("queue").alias("queue")
        numbers = ("step", "time", "last", "most", "added", "replaced", "consumers", "last_consumers")
        return numpy_columns(self.cached.where(selected).select(queue, *more, *numbers))

    def _line(self, name: str, found: Columns, rows: Any) -> Any:
        """Return the field ``name`` of `Series`, summed over the queues of the rows."""
        some = {column: values[rows] for column, values in found.items()}
        if name in ("added", "replaced"):
            within = some["step"] >= 0
            return self._grid.filled(some["step"][within], some[name][within])
        if name == "consumers":
            some |= {"last": some["last_consumers"], "most": some["consumers"]}
        return forward_filled(some, self._grid)


def forward_filled(rows: Columns, grid: Grid) -> Any:
    """Return for each step the sum of the maximum depths of queues, NaN if no depth is known.

    Columns of ``rows``: ``queue`` (hash of its name), ``step`` (-1: before the grid), ``time`` of the last sample in
    the step, ``last`` and ``most`` (last and maximum depth in the step). In steps without a sample a queue keeps its
    last depth, but only for `SAMPLE_VALIDITY`.
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
    # in the steps between a row and the next row of the queue, the depth is that of the row's last sample
    begin, end = steps + 1, np.minimum(until, following)
    runs, points = end > begin, grid.count + 1
    found = []
    for at_step, behind in (
        (value[inside], last[runs]),
        (None, None),
    ):  # first the sum of depths, then the number of known depths
        change = np.bincount(begin[runs], behind, points) - np.bincount(end[runs], behind, points)
        found.append(grid.filled(steps[inside], at_step) + np.cumsum(change)[:-1])
    return np.where(found[1] > 0, found[0], np.nan)


#: Durations are counted in logarithmic bins. Between a duration and its multiple by e there are this number of bins.
BINS = 50

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


#: SQL for the number of the bin of ``stay``, a duration in µs. Durations of 0 have bin -1.
BIN_SQL = f"IF(stay < 1, -1, CAST(FLOOR(LN(stay) * {BINS}) AS INT))"


def percentiles(bins: Any, counts: Any, wanted: Sequence[float] = PERCENTILES) -> list[float]:
    """Return percentiles of durations in seconds. ``bins``: numbers of bins, which may be repeated. ``counts``: number
    of durations in each bin. ``wanted``: percentiles in per cent."""
    bins, counts = np.asarray(bins), np.asarray(counts)
    order = np.argsort(bins, kind="stable")
    reached = np.cumsum(counts[order])
    # nearest rank; 1e-9: tolerance for rounding errors, for example in 99.9 % of 1000
    ranks = np.maximum(1, np.ceil(reached[-1] * np.asarray(wanted) / 100 - 1e-9))
    found = bins[order][np.searchsorted(reached, ranks)]
    # The middle of a bin differs from each duration in it by at most one per cent.
    return list(np.where(found < 0, 0.0, np.exp((found + 0.5) / BINS) / 1e6).tolist())


#: Kinds of events that are counted by step of a `Grid`.
STEPPED_EVENTS = ("redelivered", "dead-lettered")

#: Maximum number of messages in `EventCounts.hottest`.
HOTTEST_MESSAGES = 15

#: Maximum number of pairs of queue and consumer that the report lists.
LISTED_CONSUMERS = 100


@frozen
class ConsumerCount:
    """Number of messages that one consumer acknowledged in one queue."""

    queue: str
    consumer: str
    count: int


class HotMessage(NamedTuple):
    """A message with several redeliveries. ``redelivered``: number of its ``redelivered`` events in the period.
    ``deliveries``: its highest delivery count."""

    queue: str
    message_id: int
    redelivered: int
    deliveries: int


#: Numbers of events by queue and kind.
Counts = Mapping[str, Mapping[str, int]]


class EventCounts:
    """Events counted by queue, kind and step. ``cached``: DataFrame that Spark caches."""

    def __init__(self, events: Any, grid: Grid, sampled: Mapping[str, SampleTimes]) -> None:
        self._grid, self._events = grid, events
        # Events of other kinds are all counted in step 0: their steps are not needed.
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
        """Return the number of events by queue and kind."""
        answer: dict[str, dict[str, int]] = {}
        for row in self._totals:
            answer.setdefault(row.queue, {})[row.event] = row["count"]
        return answer

    def counted(self) -> dict[str, int]:
        """Return for each queue the number of messages added after the period's first sample and up to the last."""
        return {row.queue: row.counted for row in self._totals if row.counted}

    def paged(self) -> set[str]:
        """Return the queues that have events of messages in pages. Samples alone may miss pages that existed only for a
        short time."""
        return {row.queue for row in self._totals if row.in_page}

    def most_deliveries(self) -> dict[str, int]:
        """Return for each queue with redeliveries the highest delivery count of its messages."""
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
        """Return three values: the first `LISTED_CONSUMERS` pairs of queue and consumer, ordered by acknowledged
        messages descending; the number of all pairs; and the number of messages that all consumers acknowledged."""
        named = self.cached.where("consumer IS NOT NULL")
        found = aggregated(named, ("queue", "consumer"), *sums("count"))
        rows = found.orderBy(F.desc("count"), "queue", "consumer").limit(LISTED_CONSUMERS).collect()
        total, acknowledged = found.agg(F.count("*"), F.sum("count")).first()
        return [ConsumerCount(*row) for row in rows], total, acknowledged or 0

    def steps(self, event: str) -> Columns:
        """Return for each queue the numbers of events in each step. ``event``: one of `STEPPED_EVENTS`."""
        found = numpy_columns(self.cached.where(F.col("event") == event).select("queue", "step", "count"))
        return {
            queue: self._grid.filled(found["step"][rows], found["count"][rows])
            for queue, rows in groups(found["queue"])
        }

    def hottest(self) -> list[HotMessage]:
        """Return the messages with most redeliveries, at least two each."""
        found = aggregated(
            self._events.where("event = 'redelivered' AND message_id IS NOT NULL"),
            ("queue", "message_id"),
            "count(*) AS count",
            "coalesce(max(deliveries), 0) AS deliveries",
        ).where("count > 1")
        most = found.orderBy(F.desc("count"), "queue", "message_id").limit(HOTTEST_MESSAGES)
        return [HotMessage(*row) for row in most.collect()]


#: Events that end the time of a message in a queue, if the report shows the times until that event.
END_EVENTS = ("acknowledged", "replaced")

#: Approximate rows of messages in one piece of the join.
PIECE = 500_000


@frozen
class Durations:
    """Distribution of the times that messages were in a queue before one kind of event. ``count``: number of messages.
    ``percentiles``: seconds for each of `PERCENTILES`. ``longest``: maximum in seconds."""

    count: int
    percentiles: Sequence[float]
    longest: float


#: Durations by step of a `Grid`. Steps without messages are missing.
Steps = Mapping[int, Durations]


class TimesInQueue:
    """Times of messages in queues: numbers of messages by bin of the time, queue, step and event. ``cached``: DataFrame
    that Spark caches."""

    def __init__(
        self,
        messages: Any,
        events: Any,
        grid: Grid,
        rows: int,
        queues: Iterable[str],
        consumers: Sequence[ConsumerCount],
    ) -> None:
        """``rows``: approximate number of messages. ``queues``: names of queues with `END_EVENTS`. ``consumers``: pairs
        of queue and consumer for which `consumers` returns durations."""
        self._names = sorted(queues)
        self._consumers = [(one.queue, one.consumer) for one in consumers]
        pieces = max(1, -(-rows // PIECE))
        # Numbers instead of names halve the work of sorting.
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
        # The time of a scheduled message in its queue begins when the message is due. ``greatest`` ignores nulls.
        sent = messages.join(numbered, "queue").selectExpr(*keys, "greatest(sent, due) AS began")
        pairs = ended.repartition(pieces, *keys).join(
            sent.repartition(pieces, *keys).hint("shuffle_hash"),
            keys,  # the pieces are small enough for a hash join, which needs no sort
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
        """Return for each queue the times in the queue until ``event``."""
        found = self._found(f"event = '{event}'", "number")
        return {self._names[number]: _durations(found, rows) for number, rows in groups(found["number"])}

    def steps(self, event: str, queues: Iterable[str]) -> dict[str, Steps]:
        """Return for each of ``queues`` the times in the queue until ``event``, by step of the event."""
        found = self._found(self._numbered(queues) & (F.col("event") == event), "number", "step")
        return {self._names[number]: _steps(found, rows) for number, rows in groups(found["number"])}

    def remainder(self, event: str, shown: Iterable[str]) -> Steps:
        """Return the times until ``event`` in all queues together except the queues in ``shown``, by step of
        the event.
        """
        found = self._found(~self._numbered(shown) & (F.col("event") == event), "step")
        return _steps(found, np.arange(len(found["bin"])))

    def consumers(self) -> dict[tuple[str, str], Durations]:
        """Return the times until acknowledgement by queue and consumer."""
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
    # The middle of a bin may exceed all durations in it.
    within = [min(each, longest) for each in percentiles(found["bin"][rows], counts)]
    return Durations(int(counts.sum()), within, longest)


def percentile_line(steps: Steps, count: int, index: int) -> Any:
    """Return a percentile (seconds) for each of ``count`` steps, NaN for a step without messages. ``index``: position
    of the percentile in `PERCENTILES`."""
    values = np.full(count, np.nan)
    for step, ages in steps.items():
        values[step] = ages.percentiles[index]
    return values
