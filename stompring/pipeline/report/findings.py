"""The findings of a report as numbers: what Spark has added up, before it becomes a page.

`Coverage` is the share of the messages that came to queues the lake has. A message that is not retained
(docs/report.md) has no row and no event. The counters of queues, in samples, count it all the same: what they counted
and what events tell is compared, for the same queues and the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyspark.sql import functions as F

from stompring.pipeline.report.events import (
    END_EVENTS,
    STEPPED_EVENTS,
    ConsumerCount,
    Durations,
    EventCounts,
    HotMessage,
    TimesInQueue,
)
from stompring.pipeline.report.period import HOUR, SECOND, Grid, Period, as_datetime
from stompring.pipeline.report.plots import MAX_LINES
from stompring.pipeline.report.sizing import (
    BUCKETS,
    AddressAdvice,
    RingAdvice,
    address_advice,
    flows,
    is_durable,
    memory_demand,
    ring_advice,
)
from stompring.pipeline.report.tables import (
    COUNTERS,
    UNNAMED_BROKER,
    ReportRows,
    Tables,
    brokers_of,
    groups,
    numpy_columns,
    select_rows,
)
from stompring.pipeline.report.traffic import (
    QueueTraffic,
    SampleTimes,
    Series,
    Traffic,
    counter_changes,
    present_from_start,
)

#: Where the first of a lake is this share of the period before later than its beginning, the lake lacks a part of it.
START_TOLERANCE = 0.02


@dataclass(frozen=True, slots=True)
class Comparison:
    """The period before: from ``begin`` to ``end`` (µs).

    ``figures`` are those of its headline by name; None where the lake does not have the whole of it, but begins with
    ``first`` (0: it has nothing that is so old).
    """

    begin: int
    end: int
    first: int
    figures: Mapping[str, int] | None


def previous_period(begin: int, end: int) -> Period | None:
    """As long as that from ``begin`` to ``end``, and before it; None where that has no length."""
    return Period(as_datetime(begin - (end - begin)), as_datetime(begin)) if end > begin else None


def compared_figures(selected: ReportRows, period: Period, sent_first: int) -> Comparison:
    """``selected`` are the rows of that ``period``; ``sent_first`` is when the first message of the lake was sent."""
    begin, end = period.begin, period.end
    assert begin is not None and end is not None
    (sampled,) = selected.samples.agg(F.min("time")).first()
    first = min(filter(None, (sampled, sent_first)), default=0)
    if not 0 < first <= begin + (end - begin) * START_TOLERANCE:
        return Comparison(begin, end, first, None)
    sums = [F.sum(name).alias(name) for name in COUNTERS]
    counters = counter_changes(selected.samples, begin, sampled or 0).where(F.col("time") >= begin)
    went = counters.groupBy("queue").agg(*sums).collect()
    there = selected.samples.select("queue").distinct().collect()
    counts = selected.events.groupBy("queue", "event").count().collect()
    inside = F.col("sent") >= begin
    sent = (
        selected.messages.groupBy("queue")
        .agg(
            F.count(F.when(inside, 1)).alias("count"),
            F.count(F.when(inside & F.col("durable"), 1)).alias("durable"),
        )
        .collect()
    )
    happened = {"redelivered": 0, "dead-lettered": 0}
    for row in counts:
        if row.event in happened:
            happened[row.event] += row["count"]
    return Comparison(
        begin,
        end,
        first,
        {
            "in": sum(row.added for row in went),
            "out": sum(row[name] for row in went for name in COUNTERS[1:]),
            "sent": sum(row["count"] for row in sent),
            "durable": sum(row.durable for row in sent),
            "queues": len({row.queue for rows in (there, counts, sent) for row in rows}),
            "replaced": sum(row.replaced for row in went),
            **happened,
        },
    )


@dataclass(frozen=True, slots=True)
class QueueCoverage:
    """One queue: how many messages came after the first sample of the period and up to the last, and of how many of
    them there is an event.

    Counters may have fewer than there are events: what came between a sample and a crash, or to a queue that was
    deleted before the next sample, nobody counted. Then events count.
    """

    address: str
    queue: str
    came: int
    covered: int

    @property
    def missing(self) -> int:
        """Messages that only counters know."""
        return self.came - self.covered


@dataclass(frozen=True, slots=True)
class Coverage:
    """All queues; a queue to which nothing came is not among them."""

    queues: Sequence[QueueCoverage]

    @property
    def came(self) -> int:
        """Messages that came to queues."""
        return sum(one.came for one in self.queues)

    @property
    def missing(self) -> int:
        """Those that only counters know."""
        return sum(one.missing for one in self.queues)

    @property
    def share(self) -> float:
        """The share of messages that the lake does not have, 0 to 1; 0 where none came."""
        return self.missing / self.came if self.came else 0.0


def coverage(
    traffic: Sequence[QueueTraffic], counted: Mapping[str, int], addresses: Mapping[str, str]
) -> Coverage:
    """``counted`` has the events of the same time as `QueueTraffic.counted`, by queue."""
    known = {one.queue: one for one in traffic}
    found = []
    for queue in sorted({*known, *counted}):
        covered = counted.get(queue, 0)
        came = max(known[queue].counted if queue in known else 0, covered)
        if came:
            found.append(QueueCoverage(addresses.get(queue, ""), queue, came, covered))
    return Coverage(found)


#: Steps of a plot; hours of a plot of percentiles: those of a week, and the rest of the first; its steps where the
#: period is too short for hours.
STEPS, HOURS, SHORT_STEPS = 240, 169, 73

#: Queues that have a plot of their own, and rings and addresses for which there is advice.
SINGLE_PLOTS, ADVISED_QUEUES = 6, 24


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What was asked for. ``keep`` and ``unpaged`` are per cent, more than 0 and at most 100. Without ``brokers`` it
    is all of them; ``compare``: with the period before.
    """

    period: Period
    addresses: Sequence[str] = ()
    keep: float = 99.0
    unpaged: float = 99.0
    brokers: Sequence[str] = ()
    compare: bool = True

    def __post_init__(self) -> None:
        for name in ("keep", "unpaged"):
            if not 0 < getattr(self, name) <= 100:
                raise ValueError(f"{name} must be per cent, more than 0 and at most 100")


@dataclass(frozen=True, slots=True)
class Sent:
    """Messages of one queue in the period, by the user who sent them ("" for nobody)."""

    address: str
    queue: str
    count: int
    durable: int
    user: str = ""


@dataclass(frozen=True, slots=True)
class Others:
    """The queues that have no line of their own in a plot, all of them together."""

    depth: Any = None
    added: Any = None
    replaced: Any = None
    consumers: Any = None
    latency: Mapping[int, Durations] | None = None
    evicted: Mapping[int, Durations] | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """All of it, by the name of the queue. ``hours`` is the grid of percentiles, ``grid`` that of the rest."""

    request: ReportRequest
    begin: int
    end: int
    sampled: tuple[int, int]  # the first sample of the period and the last one, both 0 where there are none
    grid: Grid
    hours: Grid
    sent: Sequence[Sent]
    traffic: Sequence[QueueTraffic]
    totals: Mapping[str, Any]
    series: Mapping[str, Series]
    latencies: Mapping[str, Durations]
    latency_steps: Mapping[str, Mapping[int, Durations]]
    evicted: Mapping[str, Durations]
    evicted_steps: Mapping[str, Mapping[int, Durations]]
    counts: Mapping[str, Mapping[str, int]]
    deliveries: Mapping[str, int]
    hot_steps: Mapping[str, Mapping[str, Any]]  # by kind of event, then by queue
    hottest: Sequence[HotMessage]
    rings: Sequence[RingAdvice]
    addresses: Sequence[AddressAdvice]
    brokers: Sequence[str] = (UNNAMED_BROKER,)
    remainder: Others = field(default_factory=Others)
    coverage: Coverage | None = None  # None: there are no samples to compare with
    comparison: Comparison | None = None
    consumer_counts: Sequence[ConsumerCount] = ()
    consumer_total: int = 0  # consumers of queues in all, of whom `drained_bodies` has the first
    consumer_acknowledged: int = 0  # what all of them acknowledged
    stays: Mapping[tuple[str, str], Durations] = field(default_factory=dict)  # by queue and consumer
    uncertain: Mapping[str, int] = field(default_factory=dict)  # by kind: events that may be none
    tail: float = 0.0  # seconds of the end of the period, of which rates are told

    @property
    def unread(self) -> list[QueueTraffic]:
        """Queues with messages that nobody read in the period, those with most messages first."""
        return greatest_queues(
            [one for one in self.traffic if not has_consumer(one, self.counts)],
            lambda one: one.added or one.most,
            len(self.traffic),
        )

    @property
    def queue_names(self) -> list[str]:
        """All of them."""
        return sorted(set(self.addresses_of_queues()) | set(self.counts))

    def addresses_of_queues(self) -> dict[str, str]:
        """The address of each queue of which it is known."""
        return _addresses(self.sent, self.traffic)

    def total(self, event: str) -> int:
        """How many events of a kind there are."""
        return sum(counts.get(event, 0) for counts in self.counts.values())


def gather(tables: Tables, request: ReportRequest, progress: Callable[[str], None]) -> Findings | None:
    """Let Spark add up what a report tells; None where there is nothing in the period."""
    progress("reading the period")
    brokers = list(request.brokers) or brokers_of(tables)
    selected = select_rows(tables, request.period, request.addresses, brokers)
    sent, rows, within = _sent(selected.messages, request.period)
    times = _times(selected, request.period, within)
    if times is None:
        return None
    begin, end = times.begin, times.end
    grid = Grid.nice(begin, end, STEPS, times.spacing)
    hours = (
        Grid.nice(begin, end, HOURS, HOUR) if end - begin >= 12 * HOUR else Grid.nice(begin, end, SHORT_STEPS)
    )
    fine = Grid.fine(begin, end, BUCKETS)
    with ExitStack() as opened:
        progress("reading samples")
        changed = counter_changes(selected.samples, request.period.begin, times.first)
        traffic = Traffic(changed, grid, times.by_broker)
        opened.callback(traffic.close)
        queues = traffic.queues(present_from_start(request.period.begin, times.first))
        progress("counting events")
        facts = EventCounts(selected.events, grid, times.by_broker)
        opened.callback(facts.close)
        counts = facts.counts()
        consumer_counts, consumer_total, known = facts.consumers()
        progress("latencies")
        ended = [queue for queue, kinds in counts.items() if kinds.keys() & {*END_EVENTS}]
        stays = TimesInQueue(selected.messages, selected.events, hours, rows, ended, consumer_counts)
        opened.callback(stays.close)
        latencies, ages = stays.overall("acknowledged"), stays.overall("replaced")
        slowest = plotted(_notable(latencies))
        aged = plotted(greatest(ages, lambda queue: ages[queue].count, len(ages)))
        shown = {
            name: plotted([one.queue for one in greatest_queues(queues, weight, len(queues))])
            for name, weight in WEIGHTS.items()
        }
        progress("sizes of rings")
        # A ring that nobody reads throws away whatever comes, however large it is.
        read = [one for one in queues if one.ring_size and has_consumer(one, counts)]
        rings = greatest_queues(read, lambda one: one.replaced, ADVISED_QUEUES)
        durable = [is_durable(ring, counts) for ring in rings]
        flow = flows(selected.events, changed, rings, durable, fine) if rings else None
        advised = [] if flow is None else ring_advice(rings, durable, flow, request.keep)
        progress("sizes of addresses")
        read_back = set(facts.paged())
        paged = {
            one.address: one.paged
            for one in sorted(queues, key=lambda one: one.paged)
            if one.paged or one.queue in read_back
        }
        paging = greatest(paged, lambda address: paged[address], ADVISED_QUEUES)
        demands = memory_demand(selected.samples, paging, fine) if paging else []
        progress("lines of plots")
        return Findings(
            request=request,
            begin=begin,
            end=end,
            sampled=times.sampled,
            grid=grid,
            hours=hours,
            sent=sent,
            traffic=queues,
            totals=traffic.totals(),
            series=traffic.series(queue for names in shown.values() for queue in names),
            latencies=latencies,
            latency_steps=stays.steps("acknowledged", slowest),
            evicted=ages,
            evicted_steps=stays.steps("replaced", aged),
            counts=counts,
            deliveries=facts.most_deliveries(),
            hot_steps={event: facts.steps(event) for event in STEPPED_EVENTS},
            hottest=facts.hottest() if any("redelivered" in one for one in counts.values()) else [],
            rings=advised,
            addresses=[
                address_advice(one, request.unpaged)
                for one in sorted(demands, key=lambda one: paging.index(one.address))
                if one.average
            ],
            brokers=brokers,
            remainder=Others(
                **{
                    name: traffic.remainder(name, names)
                    for name, names in shown.items()
                    if sum(WEIGHTS[name](one) > 0 for one in queues) > len(names)
                },
                latency=stays.remainder("acknowledged", slowest) if len(latencies) > len(slowest) else None,
                evicted=stays.remainder("replaced", aged) if len(ages) > len(aged) else None,
            ),
            coverage=coverage(queues, facts.counted(), _addresses(sent, queues)) if times.by_broker else None,
            comparison=_comparison(tables, request, times, brokers, progress),
            consumer_counts=consumer_counts,
            consumer_total=consumer_total,
            consumer_acknowledged=known,
            stays=stays.consumers(),
            uncertain=facts.uncertain(),
            tail=max(((one.last - one.tail) / SECOND for one in times.by_broker.values()), default=0.0),
        )


#: What has a line for each queue, and by what queues are chosen for it.
WEIGHTS: Mapping[str, Callable[[QueueTraffic], float]] = {
    "depth": lambda one: one.most,
    "added": lambda one: one.added,
    "replaced": lambda one: one.replaced,
    "consumers": lambda one: one.consumers,
}

#: Events that there are only of queues that somebody reads.
CONSUMER_EVENTS = frozenset(("acknowledged", "delivered", "redelivered"))


def has_consumer(queue: QueueTraffic, counts: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether anybody read the queue in the period: a sample has a consumer, or a counter or event tells it."""
    return bool(queue.consumers or queue.acknowledged or counts.get(queue.queue, {}).keys() & CONSUMER_EVENTS)


def plotted(names: Sequence[str]) -> list[str]:
    """Of names, the greatest first, those that have a line of their own: where there are too many, one is the rest."""
    return list(names[: plotted_count(names)])


def plotted_count(names: Sequence[object]) -> int:
    """How many of them have a line of their own."""
    return len(names) if len(names) <= MAX_LINES else MAX_LINES - 1


def _notable(latencies: Mapping[str, Durations]) -> list[str]:
    """All queues: the slowest ones, those with most messages, and the rest."""
    slow = greatest(latencies, lambda queue: latencies[queue].percentiles[2], len(latencies))
    large = greatest(latencies, lambda queue: latencies[queue].count, len(latencies))
    return list(dict.fromkeys([*slow[: MAX_LINES // 2], *large]))


def _addresses(sent: Sequence[Sent], traffic: Sequence[QueueTraffic]) -> dict[str, str]:
    """The address of each queue of which it is known."""
    return {one.queue: one.address for one in sent} | {one.queue: one.address for one in traffic}


def _comparison(
    tables: Tables,
    request: ReportRequest,
    times: _Times,
    brokers: Sequence[str],
    progress: Callable[[str], None],
) -> Comparison | None:
    """With the period before, where one was asked for."""
    if not request.compare or request.period.begin is None:
        return None
    end = times.end if request.period.end is None else request.period.end
    before = previous_period(request.period.begin, end)
    if before is None:
        return None
    progress("previous period")
    return compared_figures(select_rows(tables, before, request.addresses, brokers), before, times.sent_first)


def greatest(names: Mapping[str, Any], weight: Callable[[str], float], most: int) -> list[str]:
    """The names of the greatest weight, the greatest first; those of equal weight by name."""
    return sorted(names, key=lambda name: (-weight(name), name))[:most]


def greatest_queues(
    queues: Sequence[QueueTraffic], weight: Callable[[QueueTraffic], float], most: int = MAX_LINES
) -> list[QueueTraffic]:
    """The queues of the greatest weight, and none without any."""
    some = [one for one in queues if weight(one) > 0]
    return sorted(some, key=lambda one: (-weight(one), one.queue))[:most]


@dataclass(frozen=True, slots=True)
class _Times:
    """``first`` is the time of the first sample of all, be it before the period; 0 for none. ``spacing`` is that of
    samples, 1 where there are too few. ``sent_first`` is when the first message of all was sent; 0 for none.
    """

    begin: int
    end: int
    first: int
    sampled: tuple[int, int]
    spacing: int
    by_broker: Mapping[str, SampleTimes]
    sent_first: int


def _times(selected: ReportRows, period: Period, sent: _SentTimes) -> _Times | None:
    """Of what there is in the period; None for nothing. ``sent`` is that of messages."""
    begin = period.begin
    found = [sent.inside] if sent.inside else []
    low, high = selected.events.agg(F.min("time"), F.max("time")).first()
    if low is not None:
        found.append((low, high))
    consumer_counts = numpy_columns(selected.samples.select("broker", "time").distinct())
    order = np.argsort(consumer_counts["time"], kind="stable")
    times, names = consumer_counts["time"][order], consumer_counts["broker"][order]
    first = int(times[0]) if len(times) else 0
    inside = times >= (first if begin is None else begin)
    by_broker = {broker: SampleTimes.of(times[inside][rows]) for broker, rows in groups(names[inside])}
    gaps = [np.diff(times[inside][rows]) for _, rows in groups(names[inside])]
    together = np.concatenate([np.zeros(0), *gaps])
    sampled = (0, 0)
    if by_broker:
        sampled = (int(times[inside][0]), int(times[inside][-1]))
        found.append(sampled)
    if not found:
        return None
    low = min(one for one, _ in found)
    if begin is not None and 0 < first < begin:
        low = begin  # what queues held then is known
    return _Times(
        begin=low,
        end=max(one for _, one in found),
        first=first,
        sampled=sampled,
        # Timers are late by a little: steps as long as samples are apart are still to be had.
        spacing=max(1, int(np.median(together) * 0.9)) if len(together) else 1,
        by_broker=by_broker,
        sent_first=sent.first,
    )


def _within(period: Period, column: str) -> Any:
    """Whether a time is not before the period; later ones were left out already."""
    return F.lit(True) if period.begin is None else F.col(column) >= period.begin


@dataclass(frozen=True, slots=True)
class _SentTimes:
    """When the first message of the period was sent and the last one, and when the first of all; 0 for never."""

    inside: tuple[int, int] | None
    first: int


def _sent(messages: Any, period: Period) -> tuple[list[Sent], int, _SentTimes]:
    """What was sent in the period, how many messages there are with those before it, and the times of both."""
    inside = _within(period, "sent")
    rows = (
        messages.groupBy("address", "queue", F.coalesce("user", F.lit("")).alias("user"))
        .agg(
            F.count(F.when(inside, 1)).alias("count"),
            F.count(F.when(inside & F.col("durable"), 1)).alias("durable"),
            F.count("*").alias("rows"),
            F.min(F.when(inside, F.col("sent"))).alias("first"),
            F.max(F.when(inside, F.col("sent"))).alias("last"),
            F.min("sent").alias("least"),
        )
        .orderBy("address", "queue", "user")
        .collect()
    )
    found = [Sent(row.address, row.queue, row["count"], row.durable, row.user) for row in rows]
    some = [row for row in rows if row["count"]]
    times = (min(row.first for row in some), max(row.last for row in some)) if some else None
    least = min((row.least for row in rows), default=0)
    return found, sum(row.rows for row in rows), _SentTimes(times, least)
