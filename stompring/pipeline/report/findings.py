"""The findings of a report as numbers, and its sizing advice.

Sizing advice: how large rings and addresses would have had to be.

A ring of another size is simulated, many sizes at once. A ring is given how many messages came and how many went in
each of many short buckets of time. Within a bucket those that went are spread evenly between those that came: when
``i`` of ``a`` have come, ``floor(i * r / a)`` of ``r`` have gone. A message that comes to a full ring evicts one;
where nothing waits none goes. With that the outcome of a bucket is arithmetic, and exactly what a simulation message
by message gives:

- While more come than go, nobody leaves an empty ring, and it is fullest when the last one comes. `Flow.peak` is how
  much fuller than at the beginning that is; evicted is what is beyond the size.
- While more go than come, the first one to come may find the ring full, and none after it.

Consumers take no more of a larger ring than they took, with one exception: consumers that emptied the ring as it was
would have emptied a larger one too.

The findings of a report as numbers: what Spark has added up, before it becomes a page.

`Coverage` is the share of the messages that came to queues the lake has. A message that is not retained
(docs/report.md) has no row and no event. The counters of queues, in samples, count it all the same: what they counted
and what events tell is compared, for the same queues and the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field, replace
from itertools import compress
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from pyspark.sql import functions as F

from stompring.settings.model import frozen

from .plots import MAX_LINES
from .queries import (
    END_EVENTS,
    HOUR,
    STEPPED_EVENTS,
    UNNAMED_BROKER,
    ConsumerCount,
    Counts,
    Durations,
    EventCounts,
    Grid,
    HotMessage,
    Lake,
    Period,
    QueueTraffic,
    SampleTimes,
    Series,
    Steps,
    TimesInQueue,
    Traffic,
    aggregated,
    as_datetime,
    brokers_of,
    counter_changes,
    groups,
    numpy_columns,
    present_from_start,
    select_rows,
    sums,
)

T = TypeVar("T")

#: Of a queue, or of a queue and a consumer or a step.
Name = TypeVar("Name", str, tuple[str, str], tuple[str, int])


def weighted_quantile(values: Any, weights: Any, shares: Sequence[float]) -> list[int]:
    """For each share of the weight (0 to 1) the least value that so much of it does not exceed, as whole bytes."""
    values, reached = _cumulative(values, weights)
    least = np.asarray(shares) * reached[-1] * (1 - 1e-12)  # sums of weights are not exact
    at = np.minimum(np.searchsorted(reached, least), len(values) - 1)
    return [int(value) for value in np.ceil(values[at])]


def share_within(values: Any, weights: Any, limits: Any) -> Any:
    """For each limit the share of the weight (0 to 1) where values do not exceed it."""
    values, reached = _cumulative(values, weights)
    return np.append(0.0, reached)[np.searchsorted(values, limits, side="right")] / reached[-1]


def _cumulative(values: Any, weights: Any) -> tuple[Any, Any]:
    """The values in order, and the weight of the values up to each."""
    order = np.argsort(values, kind="stable")
    return np.asarray(values, float)[order], np.cumsum(np.asarray(weights, float)[order])


#: Sizes tried in one go; the least one that is good enough is found in a few of them.
SIZES_PER_ROUND = 33


class Flow(NamedTuple):
    """Messages that came to some rings and went from them: a row for each ring, a column for each bucket.

    ``depth`` has how many waited in each ring at the beginning. ``emptied`` tells in which buckets consumers left
    nothing in the ring as it was, and so would not in a larger one; None where that is not known.
    """

    came: Any
    went: Any
    depth: Any
    emptied: Any = None

    @property
    def peak(self) -> Any:
        """How much fuller each ring gets within a bucket, if it may."""
        most = np.maximum(1, self.came - np.maximum(self.went - 1, 0))
        return np.where(self.came > 0, most, 0)

    def busy(self) -> Flow:
        """Without the buckets in which nothing happens to any ring. It has no ``emptied`` yet."""
        some = ((self.came > 0) | (self.went > 0)).any(axis=0)
        return self._replace(came=self.came[:, some], went=self.went[:, some])

    def with_sizes(self, sizes: Any) -> Flow:
        """The same, and when rings of the sizes that they have were ``emptied``."""
        levels = np.empty(self.came.shape, bool)
        evicted(self._replace(emptied=None), np.asarray(sizes)[:, None], levels)
        return self._replace(emptied=levels & (self.went > 0))


def evicted(flow: Flow, sizes: Any, empty: Any = None) -> Any:
    """How many messages each ring evicts with each of its sizes: a row of ``sizes`` for each ring, all >= 1.

    ``empty`` takes for each bucket whether the ring was empty at its end, with the first of the sizes.
    """
    sizes = np.asarray(sizes, np.int64)
    peak, net = flow.peak.T[:, :, None], (flow.came - flow.went).T[:, :, None]
    level = np.minimum(np.asarray(flow.depth, np.int64)[:, None], sizes)
    total = np.zeros_like(level)
    for at in range(len(peak)):
        over = np.maximum(level + peak[at] - sizes, 0)
        total += over
        level = np.maximum(level - over + net[at], 0)
        if flow.emptied is not None:
            level[flow.emptied[:, at]] = 0
        if empty is not None:
            empty[:, at] = level[:, 0] == 0
    return total


def least_sizes(flow: Flow, sizes: Any, allowed: Any) -> Any:
    """The least size for each ring, from ``sizes`` on, with which it evicts no more than ``allowed``."""
    low, allowed = np.asarray(sizes, np.int64), np.asarray(allowed, np.int64)[:, None]
    good = evicted(flow, low[:, None])[:, 0] <= allowed[:, 0]
    # with the greatest of them a ring evicts nothing, whatever goes when
    high = np.where(good, low, np.maximum(low, flow.depth + flow.came.sum(axis=1)))
    rings = np.arange(len(low))
    while (high - low > 1).any():
        tried = np.stack([candidates(a, b, SIZES_PER_ROUND) for a, b in zip(low, high, strict=True)])
        # The larger the ring, the less it evicts: from the first size that is enough, all sizes are.
        first = np.argmax(evicted(flow, tried) <= allowed, axis=1)
        low, high = tried[rings, np.maximum(first - 1, 0)], tried[rings, first]
    return high


def candidates(low: int, high: int, count: int) -> Any:
    """``count`` sizes from ``low`` to ``high``, both included, each about as many times the one before."""
    spaced = np.geomspace if high > 4 * low else np.linspace
    found = np.rint(spaced(low, high, count)).astype(np.int64)
    found[0], found[-1] = low, high
    return found


#: Buckets of the whole period. Of what is in one the last value counts.
BUCKETS = 20_000


class MemoryDemand(NamedTuple):
    """One address: ``bytes`` for so many ``seconds`` each, and for how long of that it had messages in pages.

    ``average`` is the size of a message, by which the ones in pages are counted; 0 where none was ever in memory, and
    then there is nothing to go by.
    """

    address: str
    bytes: Any
    seconds: Any
    paging: float
    average: float


def memory_demand(rows: Any, addresses: Sequence[str], grid: Grid) -> list[MemoryDemand]:
    """Some addresses, one or more. ``rows`` are samples, or those of `counter_changes`."""
    selected = rows.where(F.col("address").isin(list(addresses)))
    average = "coalesce(try_divide(sum(size), sum(greatest(messages - paged, 0))), 0) AS average"
    averages = dict(aggregated(selected, ["address"], average).collect())
    # A queue is as it was in its last sample until the next one: what an address holds changes by what its queues do.
    names = ("size", "paged")
    last = aggregated(
        grid.with_step(selected),
        ("address", "queue", "step"),
        *(f"max_by({name}, time) AS {name}" for name in names),
    )
    before = "OVER (PARTITION BY queue ORDER BY step)"
    moved = (f"{name} - coalesce(lag({name}) {before}, 0) AS {name}" for name in names)
    found = numpy_columns(
        aggregated(last.selectExpr("address", "step", *moved), ("address", "step"), *sums(*names))
    )
    answer = []
    for address, positions in groups(found["address"]):
        positions = positions[np.argsort(found["step"][positions])]
        starts = np.maximum(found["step"][positions], 0)  # what was before is there when it begins
        seconds = np.diff(np.append(starts, grid.count)) * grid.seconds
        size, paged = (np.cumsum(found[name][positions]) for name in names)
        average = averages[address]
        paging = float(seconds[paged > 0].sum())
        answer.append(MemoryDemand(address, size + paged * average, seconds, paging, average))
    return answer


#: What makes room in a ring.
DEPARTURE_EVENTS = ("acknowledged", "expired", "killed")

#: The flow of a ring is that of its events if they have this share of the added messages; else it is from its samples.
MIN_EVENT_SHARE = 0.98


def flows(events: Any, rows: Any, rings: Sequence[QueueTraffic], durable: Sequence[bool], grid: Grid) -> Flow:
    """The flow of some rings, one of them or more. ``rows`` are those of `counter_changes`."""
    index = {ring.queue: at for at, ring in enumerate(rings)}
    by_events = list(compress(index, durable))
    counted = aggregated(
        grid.with_step(events.where(F.col("queue").isin(by_events))),
        ("queue", "step"),
        "count_if(event = 'added') AS came",
        f"count_if(event IN {DEPARTURE_EVENTS}) AS went",
    )
    by_samples = rows.where(F.col("queue").isin([queue for queue in index if queue not in by_events]))
    sampled = aggregated(
        grid.with_step(by_samples).where("step >= 0"),
        ("queue", "step"),
        "sum(added) AS came",
        f"sum({' + '.join(DEPARTURE_EVENTS)}) AS went",
    )
    found = numpy_columns(counted.union(sampled))
    came, went = np.zeros((2, len(rings), grid.count), np.int64)
    at = np.array([index[queue] for queue in found["queue"]], np.int64), found["step"]
    came[at], went[at] = found["came"], found["went"]
    # What waited when the period began. Where nothing is known of that time the rings begin empty.
    before = rows.where(F.col("queue").isin(list(index)) & (F.col("time") < grid.start))
    waiting = dict(aggregated(before, ["queue"], "max_by(messages, time)").collect())
    return Flow(came, went, np.array([waiting.get(queue, 0) for queue in index])).busy()


#: Points of a curve.
POINTS = 41


class RingAdvice(NamedTuple):
    """One ring. ``modelled`` is what the model says that it threw away with the size it has: the nearer to what it
    really did (``ring.replaced``), the better is the advice. 0: the model sees no reason for advice.

    ``size`` is the least that keeps the share that was asked for, ``enough`` the least that throws nothing away, and
    ``kept`` has the share for each of ``sizes``.
    """

    ring: QueueTraffic
    by_events: bool
    modelled: int
    size: int
    enough: int
    sizes: Any
    retained: Any

    @property
    def memory(self) -> float:
        """What ``size`` messages take; 0 where nothing is known of their size."""
        return self.size * self.ring.average


def ring_advice(
    rings: Sequence[QueueTraffic], durable: Sequence[bool], flow: Flow, keep: float
) -> list[RingAdvice]:
    """For each ring, a row of the flow; ``keep`` (per cent) of what it threw away would not have been."""
    now = np.array([max(1, ring.ring_size) for ring in rings])
    flow = flow.with_sizes(now)
    modelled = evicted(flow, now[:, None])[:, 0]
    size = least_sizes(flow, now, np.floor(modelled * (1 - keep / 100) + 1e-9))
    enough = least_sizes(flow, now, np.zeros_like(modelled))
    sizes = np.stack([candidates(int(a), int(b), POINTS) for a, b in zip(now, enough, strict=True)])
    retained = 1 - evicted(flow, sizes) / np.maximum(modelled, 1)[:, None]
    numbers = (modelled.tolist(), size.tolist(), enough.tolist())
    return list(map(RingAdvice, rings, durable, *numbers, sizes, retained))


class AddressAdvice(NamedTuple):
    """One address that paged. ``size`` bytes would have been enough for the share of time that was asked for, and
    ``enough`` for all of it; ``unpaged`` has the share for each of ``sizes``.
    """

    demand: MemoryDemand
    size: int
    enough: int
    sizes: Any
    unpaged: Any

    @property
    def paging(self) -> float:
        """The share of time in which it had messages in pages."""
        return self.demand.paging / float(self.demand.seconds.sum())


def address_advice(demand: MemoryDemand, unpaged: float) -> AddressAdvice:
    """How large it would have had to be; ``unpaged`` is per cent of the time."""
    size, enough = weighted_quantile(demand.bytes, demand.seconds, (unpaged / 100, 1.0))
    least = max(1, min(size, int(demand.bytes.min())), enough // 1000)
    sizes = np.unique(np.append(candidates(least, max(least + 1, enough), POINTS), size))
    return AddressAdvice(demand, size, enough, sizes, share_within(demand.bytes, demand.seconds, sizes))


#: Where the first of a lake is this share of the period before later than its beginning, the lake lacks a part of it.
START_TOLERANCE = 0.02


@frozen
class Comparison:
    """The period before: from ``begin`` to ``end`` (µs).

    ``figures`` are those of its headline by name; None where the lake does not have the whole of it, but begins with
    ``first`` (0: it has nothing that is so old).
    """

    begin: int
    end: int
    first: int
    figures: Mapping[str, int] | None


class QueueCoverage(NamedTuple):
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


class Coverage(NamedTuple):
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
    known = {one.queue: one.counted for one in traffic}
    found = []
    for queue in sorted({*known, *counted}):
        covered = counted.get(queue, 0)
        if came := max(known.get(queue, 0), covered):
            found.append(QueueCoverage(addresses.get(queue, ""), queue, came, covered))
    return Coverage(found)


#: Steps of a plot; hours of a plot of percentiles: those of a week, and the rest of the first; its steps where the
#: period is too short for hours.
STEPS, HOURS, SHORT_STEPS = 240, 169, 73

#: Queues that have a plot of their own, and rings and addresses for which there is advice.
SINGLE_PLOTS, ADVISED_QUEUES = 6, 24


@frozen
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


@frozen
class Sent:
    """Messages of one queue in the period, by the user who sent them ("" for nobody)."""

    address: str
    queue: str
    count: int
    durable: int
    user: str = ""


class Others(NamedTuple):
    """The queues that have no line of their own in a plot, all of them together."""

    depth: Any = None
    added: Any = None
    replaced: Any = None
    consumers: Any = None
    latency: Steps | None = None
    evicted: Steps | None = None


@frozen
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
    latency_steps: Mapping[str, Steps]
    evicted: Mapping[str, Durations]
    evicted_steps: Mapping[str, Steps]
    counts: Counts
    deliveries: Mapping[str, int]
    hot_steps: Mapping[str, Mapping[str, Any]]  # by kind of event, then by queue
    hottest: Sequence[HotMessage]
    rings: Sequence[RingAdvice]
    addresses: Sequence[AddressAdvice]
    brokers: Sequence[str] = (UNNAMED_BROKER,)
    remainder: Others = Others()
    coverage: Coverage | None = None  # None: there are no samples to compare with
    comparison: Comparison | None = None
    consumer_counts: Sequence[ConsumerCount] = ()
    consumer_total: int = 0  # consumers of queues in all, of whom `drained_bodies` has the first
    consumer_acknowledged: int = 0  # what all of them acknowledged
    stays: Mapping[tuple[str, str], Durations] = field(default_factory=dict)  # by queue and consumer
    tail: float = 0.0  # seconds of the end of the period, of which rates are told

    @property
    def unread(self) -> list[QueueTraffic]:
        """Queues with messages that nobody read in the period, those with most messages first."""
        return greatest_queues(
            [one for one in self.traffic if not has_consumer(one, self.counts)],
            lambda one: one.added or one.most,
        )

    def total(self, event: str) -> int:
        """How many events of a kind there are."""
        return sum(counts.get(event, 0) for counts in self.counts.values())


def gather(tables: Lake, request: ReportRequest, progress: Callable[[str], None]) -> Findings | None:
    """Let Spark add up what a report tells; None where there is nothing in the period."""
    progress("reading the period")
    brokers = list(request.brokers) or brokers_of(tables)
    selected = select_rows(tables, request.period, request.addresses, brokers)
    since, until = request.period.begin, request.period.end
    sent, rows, sent_times, sent_first = _sent(selected.messages, since)
    times = _times(selected, since, sent_times)
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
        early = present_from_start(since, times.first)
        changed = counter_changes(selected.samples, early)
        traffic = Traffic(changed, grid, times.by_broker)
        opened.callback(traffic.cached.unpersist)
        queues = traffic.queues(early)
        progress("counting events")
        facts = EventCounts(selected.events, grid, times.by_broker)
        opened.callback(facts.cached.unpersist)
        counts = facts.counts()
        consumer_counts, consumer_total, known = facts.consumers()
        progress("latencies")
        ended = [queue for queue, kinds in counts.items() if kinds.keys() & {*END_EVENTS}]
        stays = TimesInQueue(selected.messages, selected.events, hours, rows, ended, consumer_counts)
        opened.callback(stays.cached.unpersist)
        latencies, ages = stays.overall("acknowledged"), stays.overall("replaced")
        # the slowest queues, those with most messages, and the rest
        large = greatest(latencies, lambda queue: latencies[queue].count)
        slow = plotted([*dict.fromkeys([*slowest(latencies)[: MAX_LINES // 2], *large])])
        aged = plotted(greatest(ages, lambda queue: ages[queue].count))
        shown = {
            name: plotted([one.queue for one in greatest_queues(queues, weight)])
            for name, weight in WEIGHTS.items()
        }
        progress("sizes of rings")
        # A ring that nobody reads throws away whatever comes, however large it is.
        read = [one for one in queues if one.ring_size and has_consumer(one, counts)]
        rings = greatest_queues(read, WEIGHTS["replaced"])[:ADVISED_QUEUES]
        durable = [
            counts.get(ring.queue, {}).get("added", 0) >= MIN_EVENT_SHARE * ring.added for ring in rings
        ]
        advised = []
        if rings:
            flow = flows(selected.events, changed, rings, durable, fine)
            advised = ring_advice(rings, durable, flow, request.keep)
        progress("sizes of addresses")
        read_back = facts.paged()
        paged = {
            one.address: one.paged
            for one in sorted(queues, key=lambda one: one.paged)
            if one.paged or one.queue in read_back
        }
        paging = greatest(paged, paged.__getitem__)[:ADVISED_QUEUES]
        demands = memory_demand(selected.samples, paging, fine) if paging else []
        progress("lines of plots")
        found = Findings(
            request,
            begin,
            end,
            times.sampled,
            grid,
            hours,
            sent,
            traffic=queues,
            totals=traffic.totals(),
            series=traffic.series(queue for names in shown.values() for queue in names),
            latencies=latencies,
            latency_steps=stays.steps("acknowledged", slow),
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
                latency=stays.remainder("acknowledged", slow) if len(latencies) > len(slow) else None,
                evicted=stays.remainder("replaced", aged) if len(ages) > len(aged) else None,
            ),
            coverage=coverage(queues, facts.counted(), addresses_of(sent, queues))
            if times.by_broker
            else None,
            consumer_counts=consumer_counts,
            consumer_total=consumer_total,
            consumer_acknowledged=known,
            stays=stays.consumers(),
            tail=max((one.tail_seconds for one in times.by_broker.values()), default=0.0),
        )
        until = end if until is None else until
        if request.compare and since is not None and since < until:
            progress("previous period")
            before = Grid(2 * since - until, until - since, 1)
            period = Period(as_datetime(before.start), as_datetime(since))
            earlier = select_rows(tables, period, request.addresses, brokers)
            found = replace(found, comparison=_comparison(earlier, before, sent_first, opened))
        return found


#: What has a line for each queue, and by what queues are chosen for it.
WEIGHTS: Mapping[str, Callable[[QueueTraffic], float]] = {
    "depth": attrgetter("most"),
    "added": attrgetter("added"),
    "replaced": attrgetter("replaced"),
    "consumers": attrgetter("consumers"),
}

#: Events that there are only of queues that somebody reads.
CONSUMER_EVENTS = frozenset(("acknowledged", "delivered", "redelivered"))


def has_consumer(queue: QueueTraffic, counts: Counts) -> bool:
    """Whether anybody read the queue in the period: a sample has a consumer, or a counter or event tells it."""
    return bool(queue.consumers or queue.acknowledged or counts.get(queue.queue, {}).keys() & CONSUMER_EVENTS)


def plotted(names: Sequence[T]) -> Sequence[T]:
    """Of names, the greatest first, those that have a line of their own: where there are too many, one is the rest."""
    return names if len(names) <= MAX_LINES else names[: MAX_LINES - 1]


def slowest(ages: Mapping[Name, Durations]) -> list[Name]:
    """The names of the greatest p99 first."""
    return greatest(ages, lambda name: ages[name].percentiles[2])


def headline(sent: Sequence[Sent], traffic: Sequence[QueueTraffic], counts: Counts) -> dict[str, int]:
    """The figures of the headline by name."""
    return {
        "in": sum(one.added for one in traffic),
        "out": sum(one.out for one in traffic),
        "sent": sum(one.count for one in sent),
        "durable": sum(one.durable for one in sent),
        "queues": len(addresses_of(sent, traffic).keys() | counts.keys()),
        "replaced": sum(one.replaced for one in traffic),
        **{event: sum(kinds.get(event, 0) for kinds in counts.values()) for event in STEPPED_EVENTS},
    }


def addresses_of(sent: Sequence[Sent], traffic: Sequence[QueueTraffic]) -> dict[str, str]:
    """The address of each queue of which it is known."""
    return {one.queue: one.address for one in sent} | {one.queue: one.address for one in traffic}


def _comparison(selected: Lake, grid: Grid, sent_first: int, opened: ExitStack) -> Comparison:
    """The figures of the period before, which is the one step of ``grid``.

    ``selected`` are the rows of that period, ``sent_first`` is when the first message of the lake was sent (µs).
    """
    (sampled,) = selected.samples.agg(F.min("time")).first()
    first = min(filter(None, (sampled, sent_first)), default=0)
    if not 0 < first <= grid.start + grid.step * START_TOLERANCE:
        return Comparison(grid.start, grid.end, first, None)
    sent, *_ = _sent(selected.messages, grid.start)
    early = present_from_start(grid.start, sampled or 0)
    traffic = Traffic(counter_changes(selected.samples, early), grid, {})
    opened.callback(traffic.cached.unpersist)
    facts = EventCounts(selected.events, grid, {})
    opened.callback(facts.cached.unpersist)
    return Comparison(grid.start, grid.end, first, headline(sent, traffic.queues(early), facts.counts()))


def greatest(names: Iterable[Name], weight: Callable[[Name], float]) -> list[Name]:
    """The names, those of the greatest weight first; those of equal weight by name."""
    return sorted(names, key=lambda name: (-weight(name), name))


def greatest_queues(
    queues: Sequence[QueueTraffic], weight: Callable[[QueueTraffic], float]
) -> list[QueueTraffic]:
    """The queues of the greatest weight first, and none without any."""
    return sorted(filter(weight, queues), key=lambda one: (-weight(one), one.queue))


class _Times(NamedTuple):
    """``first`` is the time of the first sample of all, be it before the period; 0 for none. ``spacing`` is that of
    samples, 1 where there are too few.
    """

    begin: int
    end: int
    first: int
    sampled: tuple[int, int]
    spacing: int
    by_broker: Mapping[str, SampleTimes]


def _times(selected: Lake, begin: int | None, sent: tuple[int, int] | None) -> _Times | None:
    """The times of a period that begins at ``begin``; None if the lake has nothing of it.

    ``sent`` are the times of its first and its last message.
    """
    samples = numpy_columns(selected.samples.select("broker", "time").distinct().orderBy("time"))
    first = int(samples["time"][0]) if len(samples["time"]) else 0
    inside = samples["time"] >= (begin or first)
    times, names = samples["time"][inside], samples["broker"][inside]
    each = {broker: times[rows] for broker, rows in groups(names)}
    gaps = np.concatenate([np.zeros(0), *map(np.diff, each.values())])
    sampled = (int(times[0]), int(times[-1])) if each else None
    happened = selected.events.agg(F.min("time"), F.max("time")).first()
    found = [one for one in (sent, sampled, happened) if one and one[0] is not None]
    if not found:
        return None
    low = min(one for one, _ in found)
    if begin is not None and 0 < first < begin:
        low = begin  # what queues held then is known
    return _Times(
        low,
        max(one for _, one in found),
        first,
        sampled or (0, 0),
        # Timers are late by a little: steps as long as samples are apart are still to be had.
        max(1, int(np.median(gaps) * 0.9)) if len(gaps) else 1,
        {broker: SampleTimes.of(some) for broker, some in each.items()},
    )


def _sent(messages: Any, begin: int | None) -> tuple[list[Sent], int, tuple[int, int] | None, int]:
    """What was sent in the period, how many messages there are with those before it, when the first and the last
    message of the period were sent (None for no message), and when the first message of all was (0 for none).
    """
    inside = "TRUE" if begin is None else f"sent >= {begin}"  # later ones were left out already
    rows = (
        aggregated(
            messages,
            ("address", "queue", "coalesce(user, '') AS user"),
            f"count_if({inside}) AS count",
            f"count_if({inside} AND durable) AS durable",
            "count(*) AS rows",
            f"min(sent) FILTER (WHERE {inside}) AS first",
            f"max(sent) FILTER (WHERE {inside}) AS last",
            "min(sent) AS least",
        )
        .orderBy("address", "queue", "user")
        .collect()
    )
    found = [Sent(row.address, row.queue, row["count"], row.durable, row.user) for row in rows]
    some = [row for row in rows if row["count"]]
    times = (min(row.first for row in some), max(row.last for row in some)) if some else None
    return found, sum(row.rows for row in rows), times, min((row.least for row in rows), default=0)
