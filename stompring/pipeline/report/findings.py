"""All that a report tells, as numbers: what Spark has added up, before it becomes a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from stompring.pipeline.report.advice import AddressAdvice, RingAdvice, address_advice, ring_advice
from stompring.pipeline.report.ages import ENDS, Ages, Stays
from stompring.pipeline.report.changes import changes
from stompring.pipeline.report.flows import BUCKETS, flows, is_durable
from stompring.pipeline.report.held import held
from stompring.pipeline.report.hot_spots import HOT, Facts, HotMessage
from stompring.pipeline.report.period import HOUR, MINUTE, Grid, Period
from stompring.pipeline.report.plots import MOST
from stompring.pipeline.report.tables import Selected, Tables, select
from stompring.pipeline.report.traffic import QueueTraffic, Series, Traffic

#: Steps of a plot; hours of a plot of percentiles: those of a week, and the rest of the first.
STEPS, HOURS = 240, 169

#: Queues that have a plot of their own, and rings and addresses for which there is advice.
SINGLE, ADVISED = 6, 24


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for. ``keep`` and ``unpaged`` are per cent, more than 0 and at most 100."""

    period: Period
    addresses: Sequence[str] = ()
    keep: float = 99.0
    unpaged: float = 99.0

    def __post_init__(self) -> None:
        for name in ("keep", "unpaged"):
            if not 0 < getattr(self, name) <= 100:
                raise ValueError(f"{name} must be per cent, more than 0 and at most 100")


@dataclass(frozen=True, slots=True)
class Sent:
    """Messages of one queue in the period."""

    address: str
    queue: str
    count: int
    durable: int


@dataclass(frozen=True, slots=True)
class Findings:
    """All of it, by the name of the queue. ``hours`` is the grid of percentiles, ``grid`` that of the rest."""

    wish: Wish
    begin: int
    end: int
    sampled: tuple[int, int]  # the first sample of the period and the last one, both 0 where there are none
    grid: Grid
    hours: Grid
    sent: Sequence[Sent]
    traffic: Sequence[QueueTraffic]
    totals: Mapping[str, Any]
    series: Mapping[str, Series]
    latencies: Mapping[str, Ages]
    latency_steps: Mapping[str, Mapping[int, Ages]]
    evicted: Mapping[str, Ages]
    evicted_steps: Mapping[str, Mapping[int, Ages]]
    counts: Mapping[str, Mapping[str, int]]
    deliveries: Mapping[str, int]
    hot_steps: Mapping[str, Mapping[str, Any]]  # by kind of event, then by queue
    hottest: Sequence[HotMessage]
    rings: Sequence[RingAdvice]
    addresses: Sequence[AddressAdvice]

    def addresses_of_queues(self) -> dict[str, str]:
        """The address of each queue of which it is known."""
        sent = {one.queue: one.address for one in self.sent}
        return sent | {one.queue: one.address for one in self.traffic}

    def total(self, event: str) -> int:
        """How many events of a kind there are."""
        return sum(counts.get(event, 0) for counts in self.counts.values())


def gather(tables: Tables, wish: Wish, progress: Callable[[str], None]) -> Findings | None:
    """Let Spark add up what a report tells; None where there is nothing in the period."""
    progress("reading the period")
    selected = select(tables, wish.period, wish.addresses)
    sent, rows, within = _sent(selected.messages, wish.period)
    times = _times(selected, wish.period, within)
    if times is None:
        return None
    begin, end = times.begin, times.end
    grid = Grid.nice(begin, end, STEPS)
    hours = Grid.nice(begin, end, HOURS, HOUR if end - begin >= 12 * HOUR else 10 * MINUTE)
    fine = Grid.fine(begin, end, BUCKETS)
    with ExitStack() as opened:
        progress("reading samples")
        changed = changes(selected.samples, wish.period.begin, times.first)
        traffic = Traffic(changed, grid)
        opened.callback(traffic.close)
        queues = traffic.queues()
        progress("counting events")
        facts = Facts(selected.events, grid)
        opened.callback(facts.close)
        counts = facts.counts()
        progress("latencies")
        ended = [queue for queue, kinds in counts.items() if kinds.keys() & {*ENDS}]
        stays = Stays(selected.messages, selected.events, hours, rows, ended)
        opened.callback(stays.close)
        latencies, ages = stays.overall("acknowledged"), stays.overall("replaced")
        slowest = top(latencies, lambda queue: latencies[queue].percentiles[2], SINGLE)
        largest = top(latencies, lambda queue: latencies[queue].count, SINGLE)
        shown = [
            *(one.queue for one in best(queues, lambda one: one.most)),
            *(one.queue for one in best(queues, lambda one: one.added)),
            *(one.queue for one in best(queues, lambda one: one.replaced)),
        ]
        progress("sizes of rings")
        rings = best(queues, lambda one: one.replaced if one.ring_size else 0, ADVISED)
        durable = [is_durable(ring, counts) for ring in rings]
        flow = flows(selected.events, changed, rings, durable, fine) if rings else None
        advised = [] if flow is None else ring_advice(rings, durable, flow, wish.keep)
        progress("sizes of addresses")
        read_back = set(facts.paged())
        paged = {
            one.address: one.paged
            for one in sorted(queues, key=lambda one: one.paged)
            if one.paged or one.queue in read_back
        }
        paging = top(paged, lambda address: paged[address], ADVISED)
        kept = held(selected.samples, paging, fine) if paging else []
        progress("lines of plots")
        return Findings(
            wish=wish,
            begin=begin,
            end=end,
            sampled=times.sampled,
            grid=grid,
            hours=hours,
            sent=sent,
            traffic=queues,
            totals=traffic.totals(),
            series=traffic.series(shown),
            latencies=latencies,
            latency_steps=stays.steps("acknowledged", [*slowest, *largest]),
            evicted=ages,
            evicted_steps=stays.steps("replaced", top(ages, lambda queue: ages[queue].count, MOST)),
            counts=counts,
            deliveries=facts.most_deliveries(),
            hot_steps={event: facts.steps(event) for event in HOT},
            hottest=facts.hottest() if any("redelivered" in one for one in counts.values()) else [],
            rings=advised,
            addresses=[
                address_advice(one, wish.unpaged)
                for one in sorted(kept, key=lambda one: paging.index(one.address))
                if one.average
            ],
        )


def top(names: Mapping[str, Any], weight: Callable[[str], float], most: int) -> list[str]:
    """The names of the greatest weight, the greatest first; those of equal weight by name."""
    return sorted(names, key=lambda name: (-weight(name), name))[:most]


def best(
    queues: Sequence[QueueTraffic], weight: Callable[[QueueTraffic], float], most: int = MOST
) -> list[QueueTraffic]:
    """The queues of the greatest weight, and none without any."""
    some = [one for one in queues if weight(one) > 0]
    return sorted(some, key=lambda one: (-weight(one), one.queue))[:most]


@dataclass(frozen=True, slots=True)
class _Times:
    """``first`` is the time of the first sample of all, be it before the period; 0 for none."""

    begin: int
    end: int
    first: int
    sampled: tuple[int, int]


def _times(selected: Selected, period: Period, sent: tuple[int, int] | None) -> _Times | None:
    """Of what there is in the period; None for nothing. ``sent`` is that of messages."""
    begin = period.begin
    found, first, sampled = [] if sent is None else [sent], 0, (0, 0)
    for table in (selected.events, selected.samples):
        inside = F.when(_within(period, "time"), F.col("time"))
        low, high, least = table.agg(F.min(inside), F.max(inside), F.min("time")).first()
        if low is not None:
            found.append((low, high))
        if table is selected.samples:
            first = least or 0
            sampled = (low or 0, high or 0)
    if not found:
        return None
    low = min(one for one, _ in found)
    if begin is not None and 0 < first < begin:
        low = begin  # what queues held then is known
    return _Times(low, max(one for _, one in found), first, sampled)


def _within(period: Period, column: str) -> Any:
    """Whether a time is not before the period; later ones were left out already."""
    return F.lit(True) if period.begin is None else F.col(column) >= period.begin


def _sent(messages: Any, period: Period) -> tuple[list[Sent], int, tuple[int, int] | None]:
    """What was sent in the period, how many messages there are with those before it, and the times of the former."""
    inside = _within(period, "sent")
    rows = (
        messages.groupBy("address", "queue")
        .agg(
            F.count(F.when(inside, 1)).alias("count"),
            F.count(F.when(inside & F.col("durable"), 1)).alias("durable"),
            F.count("*").alias("rows"),
            F.min(F.when(inside, F.col("sent"))).alias("first"),
            F.max(F.when(inside, F.col("sent"))).alias("last"),
        )
        .orderBy("address", "queue")
        .collect()
    )
    found = [Sent(row.address, row.queue, row["count"], row.durable) for row in rows]
    some = [row for row in rows if row["count"]]
    times = (min(row.first for row in some), max(row.last for row in some)) if some else None
    return found, sum(row.rows for row in rows), times
