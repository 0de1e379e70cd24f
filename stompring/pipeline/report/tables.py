"""The rows of a lake that a report reads: only the columns that it needs, names instead of nulls, times as µs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np
from pyspark.sql import functions as F

from stompring.pipeline.report.period import DAY, Period
from stompring.settings.match import Pattern


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

#: The kind of events that may be `redelivered`, or nothing.
UNCERTAIN_REDELIVERY = "perhaps redelivered"

#: Where a lake has no column `broker`, there is one broker, and nobody needs its name.
UNNAMED_BROKER = ""


class Tables(Protocol):
    """DataFrames with the columns that docs/report.md names; others are not looked at."""

    @property
    def messages(self) -> Any:
        """A row for each message and queue."""

    @property
    def events(self) -> Any:
        """A row for each thing that became of one."""

    @property
    def samples(self) -> Any:
        """Counters of queues."""


@dataclass(frozen=True, slots=True)
class Lake:
    """Three tables as a lake has them; anything else with these attributes does as well."""

    messages: Any
    events: Any
    samples: Any


@dataclass(frozen=True, slots=True)
class ReportRows:
    """What a report reads.

    ``messages`` (broker, address, queue, message_id, sent, due, durable, user) are all that were sent before the end of
    the period: what becomes of them may be in it. ``events`` (broker, time, event, queue, message_id, deliveries,
    in_page, consumer, uncertain) are those of the period, ``samples`` (broker, time, address, queue and numbers) have
    `LOOKBACK` more. Times are µs since the epoch. Where there are several ``brokers``, the names of queues and
    addresses begin with theirs.
    """

    messages: Any
    events: Any
    samples: Any
    brokers: Sequence[str] = (UNNAMED_BROKER,)


def brokers_of(tables: Tables) -> list[str]:
    """The brokers of which there is anything in the tables; `UNNAMED_BROKER` where none is named."""
    named = [each for each in (tables.messages, tables.events, tables.samples) if "broker" in each.columns]
    columns = [each.select("broker").distinct() for each in named]
    rows = reduce(lambda some, more: some.union(more), columns).distinct().collect() if columns else []
    return sorted(row.broker for row in rows if row.broker is not None) or [UNNAMED_BROKER]


def select_rows(
    tables: Tables, period: Period, addresses: Sequence[str], brokers: Sequence[str] = (UNNAMED_BROKER,)
) -> ReportRows:
    """Rows of some addresses (patterns with ``*`` and ``#``; none for all) in a period, of some of `brokers_of`."""
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
    # What older records do not tell for sure. Without the column nobody doubts them.
    certain = F.coalesce("certain", F.lit(False)) if "certain" in events.columns else F.lit(True)
    doubtful = ~certain
    if period.since is not None:
        events = events.where(F.col("time") >= F.lit(period.since))
    if period.until is not None:
        events = events.where(F.col("time") < F.lit(period.until))
    events = events.select(
        "broker",
        F.unix_micros("time").alias("time"),
        F.when(doubtful & (F.col("event") == "redelivered"), F.lit(UNCERTAIN_REDELIVERY))
        .otherwise(F.col("event"))
        .alias("event"),
        "queue",
        "message_id",
        "deliveries",
        F.col("page").isNotNull().alias("in_page"),
        "consumer",
        doubtful.alias("uncertain"),
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
    return ReportRows(messages, events, samples, tuple(brokers))


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
