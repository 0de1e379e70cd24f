"""The rows of a lake that a report is about: only columns that it needs, names instead of nulls, times as µs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import functions as F

from stompring.pipeline.report.period import DAY, Period
from stompring.settings.wildcard import Pattern

#: A sample before the period tells how deep queues were when it began. Each file of samples has all queues in it, and
#: a file is one hour long: a day is enough, but for a broker that was down for longer.
LOOKBACK = DAY

COUNTERS = ("added", "acknowledged", "expired", "killed", "replaced")
GAUGES = ("ring_size", "messages", "paged", "size")


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
class Selected:
    """What a report reads.

    ``messages`` (address, queue, message_id, sent, due, durable) are all that were sent before the end of the period:
    what becomes of them may be in it. ``events`` (time, event, queue, message_id, deliveries, in_page) are those of the
    period, ``samples`` (time, address, queue and numbers) have `LOOKBACK` more. Times are µs since the epoch.
    """

    messages: Any
    events: Any
    samples: Any


def select(tables: Tables, period: Period, addresses: Sequence[str]) -> Selected:
    """Rows of some addresses (patterns with ``*`` and ``#``; none for all) in a period."""
    messages = _named(tables.messages, "timestamp", period.until).select(
        "address",
        "queue",
        "message_id",
        F.unix_micros("timestamp").alias("sent"),
        F.unix_micros("due").alias("due"),
        "durable",
    )
    events = tables.events.where(F.col("queue").isNotNull() & F.col("time").isNotNull())
    if "certain" in events.columns:  # else nobody doubts them
        events = events.where((F.col("event") != "redelivered") | F.col("certain"))
    if period.since is not None:
        events = events.where(F.col("time") >= F.lit(period.since))
    if period.until is not None:
        events = events.where(F.col("time") < F.lit(period.until))
    events = events.select(
        F.unix_micros("time").alias("time"),
        "event",
        "queue",
        "message_id",
        "deliveries",
        F.col("page").isNotNull().alias("in_page"),
    )
    samples = _named(tables.samples, "time", period.until).select(
        F.unix_micros("time").alias("time"), "address", "queue", *GAUGES, *COUNTERS
    )
    if period.begin is not None:
        samples = samples.where(F.col("time") >= period.begin - LOOKBACK)
    if addresses:
        names = _queues(messages, samples, addresses)
        within = F.col("queue").isin(names)
        messages, events, samples = messages.where(within), events.where(within), samples.where(within)
    return Selected(messages, events, samples)


def _named(table: Any, time: str, until: Any) -> Any:
    known = F.col("address").isNotNull() & F.col("queue").isNotNull() & F.col(time).isNotNull()
    return table.where(known if until is None else known & (F.col(time) < F.lit(until)))


def _queues(messages: Any, samples: Any, addresses: Sequence[str]) -> list[str]:
    """The queues of some addresses. Events may not know their address, but all know their queue."""
    patterns = [Pattern(address) for address in addresses]
    pairs = messages.select("address", "queue").union(samples.select("address", "queue")).distinct().collect()
    return sorted({queue for address, queue in pairs if any(one.matches(address) for one in patterns)})
