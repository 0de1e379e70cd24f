"""The findings of a report as numbers, computed by Spark: traffic, coverage, and advice for the sizes of rings and
addresses.

The advice for rings comes from a simulation, of many ring sizes together. Its input is the number of arrivals and
departures of messages in each of many short time buckets. Within a bucket, departures are spread evenly between
arrivals: after ``i`` of ``a`` arrivals there were ``floor(i * r / a)`` of ``r`` departures. An arrival at a full ring
evicts a message; a departure from an empty ring has no effect. So a formula gives the result of a bucket, the same as a
simulation of each message:

- If there are more arrivals than departures, no departure finds the ring empty. The ring is fullest at the last
  arrival: by `Flow.peak` messages more than at the beginning. It evicts the messages beyond its size.
- If there are more departures than arrivals, only the first arrival can find the ring full.

The simulation assumes that consumers would have taken as many messages from a larger ring. There is one exception:
consumers that emptied the actual ring would have emptied a larger ring, too.

`Coverage` compares the counters of queues in samples with the events of the same queues in the same time. A message
that is not retained (docs/report.md) has no row and no event: only the counters include it.
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

#: The name of a queue, or a pair of a queue's name and a consumer or step.
Name = TypeVar("Name", str, tuple[str, str], tuple[str, int])


def weighted_quantile(values: Any, weights: Any, shares: Sequence[float]) -> list[int]:
    """Return for each share (0 to 1) the least value, rounded up, such that at least this share of the weight belongs
    to values up to this value."""
    values, reached = _cumulative(values, weights)
    least = np.asarray(shares) * reached[-1] * (1 - 1e-12)  # tolerance for rounding errors in sums of weights
    at = np.minimum(np.searchsorted(reached, least), len(values) - 1)
    return [int(value) for value in np.ceil(values[at])]


def share_within(values: Any, weights: Any, limits: Any) -> Any:
    """Return for each limit the share (0 to 1) of the weight that belongs to values up to the limit."""
    values, reached = _cumulative(values, weights)
    return np.append(0.0, reached)[np.searchsorted(values, limits, side="right")] / reached[-1]


def _cumulative(values: Any, weights: Any) -> tuple[Any, Any]:
    """Return the sorted values, and the cumulative weight at each."""
    order = np.argsort(values, kind="stable")
    return np.asarray(values, float)[order], np.cumsum(np.asarray(weights, float)[order])


#: Number of sizes that one round of `least_sizes` simulates for each ring, so that few rounds are necessary.
SIZES_PER_ROUND = 33


class Flow(NamedTuple):
    """The number of messages that came to rings (``came``) and left them (``went``): arrays with a row for each ring
    and a column for each time bucket.

    ``depth``: number of messages in each ring at the beginning. ``emptied``: whether consumers emptied the actual ring
    in a bucket, and so would have emptied a larger ring; None: not computed.
    """

    came: Any
    went: Any
    depth: Any
    emptied: Any = None

    @property
    def peak(self) -> Any:
        """By how many messages each ring would grow at most within each time bucket if it evicted nothing."""
        most = np.maximum(1, self.came - np.maximum(self.went - 1, 0))
        return np.where(self.came > 0, most, 0)

    def busy(self) -> Flow:
        """Return the flow without idle time buckets. Call it before `with_sizes`."""
        some = ((self.came > 0) | (self.went > 0)).any(axis=0)
        return self._replace(came=self.came[:, some], went=self.went[:, some])

    def with_sizes(self, sizes: Any) -> Flow:
        """Return the flow with ``emptied``, which a simulation of the rings' actual ``sizes`` computes."""
        levels = np.empty(self.came.shape, bool)
        evicted(self._replace(emptied=None), np.asarray(sizes)[:, None], levels)
        return self._replace(emptied=levels & (self.went > 0))


def evicted(flow: Flow, sizes: Any, empty: Any = None) -> Any:
    """Return the number of messages that each ring evicts with each size. ``sizes``: a row of sizes >= 1 for each ring.

    ``empty``: array that is set to whether each ring, with its first size, is empty at the end of each bucket.
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
    """Return for each ring the least size, at least ``sizes``, with which it evicts at most ``allowed`` messages."""
    low, allowed = np.asarray(sizes, np.int64), np.asarray(allowed, np.int64)[:, None]
    good = evicted(flow, low[:, None])[:, 0] <= allowed[:, 0]
    # a ring of the size ``high`` evicts nothing, even without departures
    high = np.where(good, low, np.maximum(low, flow.depth + flow.came.sum(axis=1)))
    rings = np.arange(len(low))
    while (high - low > 1).any():
        tried = np.stack([candidates(a, b, SIZES_PER_ROUND) for a, b in zip(low, high, strict=True)])
        # A larger ring evicts less: all sizes after the first sufficient one are sufficient.
        first = np.argmax(evicted(flow, tried) <= allowed, axis=1)
        low, high = tried[rings, np.maximum(first - 1, 0)], tried[rings, first]
    return high


def candidates(low: int, high: int, count: int) -> Any:
    """Return ``count`` sizes from ``low`` to ``high`` inclusive, spaced geometrically, or linearly in a small range."""
    spaced = np.geomspace if high > 4 * low else np.linspace
    found = np.rint(spaced(low, high, count)).astype(np.int64)
    found[0], found[-1] = low, high
    return found


#: Number of time buckets in the period, for advice. If samples have several values in a bucket, the last one is used.
BUCKETS = 20_000


class MemoryDemand(NamedTuple):
    """Memory that the messages of an address would have needed without paging: each value in ``bytes`` for the time in
    ``seconds``.

    ``paging``: number of seconds with messages in pages. ``average``: mean size of a message in bytes, which is assumed
    for messages in pages; 0: unknown, because no sample had a message in memory.
    """

    address: str
    bytes: Any
    seconds: Any
    paging: float
    average: float


def memory_demand(rows: Any, addresses: Sequence[str], grid: Grid) -> list[MemoryDemand]:
    """Compute the memory demand of one or more addresses from samples."""
    selected = rows.where(F.col("address").isin(list(addresses)))
    average = "coalesce(try_divide(sum(size), sum(greatest(messages - paged, 0))), 0) AS average"
    averages = dict(aggregated(selected, ["address"], average).collect())
    # The values of a queue's sample hold until its next sample. A change of a queue changes the sum of its address.
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
        # a change before the grid counts from the start of the grid
        starts = np.maximum(found["step"][positions], 0)
        seconds = np.diff(np.append(starts, grid.count)) * grid.seconds
        size, paged = (np.cumsum(found[name][positions]) for name in names)
        average = averages[address]
        paging = float(seconds[paged > 0].sum())
        answer.append(MemoryDemand(address, size + paged * average, seconds, paging, average))
    return answer


#: Events of messages that leave a ring without eviction.
DEPARTURE_EVENTS = ("acknowledged", "expired", "killed")

#: The flow of a ring comes from its events if they cover this share of the added messages, else from its samples.
MIN_EVENT_SHARE = 0.98


def flows(events: Any, rows: Any, rings: Sequence[QueueTraffic], durable: Sequence[bool], grid: Grid) -> Flow:
    """Compute the flow of rings. ``rows``: result of `counter_changes`. ``durable``: for each ring, whether to use its
    events."""
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
    # messages at the beginning of the period; a ring without an earlier sample starts empty
    before = rows.where(F.col("queue").isin(list(index)) & (F.col("time") < grid.start))
    waiting = dict(aggregated(before, ["queue"], "max_by(messages, time)").collect())
    return Flow(came, went, np.array([waiting.get(queue, 0) for queue in index])).busy()


#: Number of points of a curve.
POINTS = 41


class RingAdvice(NamedTuple):
    """Advice for the size of a ring.

    ``modelled``: number of messages that the simulation evicts with the actual size. The closer it is to
    ``ring.replaced``, the better is the advice; 0: no advice. ``size``: least size with which the ring keeps the
    requested share of these messages. ``enough``: least size with which the ring keeps all of these messages.
    ``retained``: share of these messages that it keeps with each of ``sizes``.
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
        """Bytes of ``size`` messages, 0 if their mean size is unknown."""
        return self.size * self.ring.average


def ring_advice(
    rings: Sequence[QueueTraffic], durable: Sequence[bool], flow: Flow, keep: float
) -> list[RingAdvice]:
    """Return the advice for each ring of the flow. ``keep``: per cent of the evicted messages that a size must keep."""
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
    """Advice for the limit of a paging address, in bytes. ``size``: least limit with which the address does not page
    for the requested share of the time. ``enough``: least limit with which it never pages. ``unpaged``: share of the
    time in which it does not page with each of ``sizes``."""

    demand: MemoryDemand
    size: int
    enough: int
    sizes: Any
    unpaged: Any

    @property
    def paging(self) -> float:
        """Share of the time with messages in pages, 0 to 1."""
        return self.demand.paging / float(self.demand.seconds.sum())


def address_advice(demand: MemoryDemand, unpaged: float) -> AddressAdvice:
    """Return the advice for an address. ``unpaged``: per cent of the time in which the address must not page."""
    size, enough = weighted_quantile(demand.bytes, demand.seconds, (unpaged / 100, 1.0))
    least = max(1, min(size, int(demand.bytes.min())), enough // 1000)
    sizes = np.unique(np.append(candidates(least, max(least + 1, enough), POINTS), size))
    return AddressAdvice(demand, size, enough, sizes, share_within(demand.bytes, demand.seconds, sizes))


#: The lake covers the previous period if the lake's first row is later than the beginning of the previous period by at
#: most this share of its length.
START_TOLERANCE = 0.02


@frozen
class Comparison:
    """The previous period, from ``begin`` to ``end`` (µs).

    ``figures``: figures for the headline of this period, by name; None if the lake does not cover the period.
    ``first``: time of the lake's first message or sample (µs); 0: it has none.
    """

    begin: int
    end: int
    first: int
    figures: Mapping[str, int] | None


class QueueCoverage(NamedTuple):
    """Number of messages that came to a queue between the first and the last sample of the period (``came``), and
    number of these messages that have an event (``covered``).

    The counters behind ``came`` may miss messages: those that came after the last sample before a crash, or to a queue
    that was deleted before its next sample. So `coverage` sets ``came`` to at least ``covered``.
    """

    address: str
    queue: str
    came: int
    covered: int

    @property
    def missing(self) -> int:
        """Number of messages without an event."""
        return self.came - self.covered


class Coverage(NamedTuple):
    """The coverage of all queues to which messages came."""

    queues: Sequence[QueueCoverage]

    @property
    def came(self) -> int:
        """Number of messages that came to queues."""
        return sum(one.came for one in self.queues)

    @property
    def missing(self) -> int:
        """Number of messages without an event."""
        return sum(one.missing for one in self.queues)

    @property
    def share(self) -> float:
        """Share of the messages without an event, 0 to 1. 0 if no messages came."""
        return self.missing / self.came if self.came else 0.0


def coverage(
    traffic: Sequence[QueueTraffic], counted: Mapping[str, int], addresses: Mapping[str, str]
) -> Coverage:
    """Compute the coverage. ``counted``: messages with an event, by queue (`EventCounts.counted`), between the same two
    samples as `QueueTraffic.counted`."""
    known = {one.queue: one.counted for one in traffic}
    found = []
    for queue in sorted({*known, *counted}):
        covered = counted.get(queue, 0)
        if came := max(known.get(queue, 0), covered):
            found.append(QueueCoverage(addresses.get(queue, ""), queue, came, covered))
    return Coverage(found)


#: Maximum number of steps of plots. ``HOURS``: for percentiles with steps of an hour or more (a week plus one hour).
#: ``SHORT_STEPS``: for percentiles in a period of less than 12 hours. ``STEPS``: for all other plots.
STEPS, HOURS, SHORT_STEPS = 240, 169, 73

#: Maximum number of queues with a separate plot, and of rings and of addresses with advice.
SINGLE_PLOTS, ADVISED_QUEUES = 6, 24


@frozen
class ReportRequest:
    """Parameters of a report (see `write_report`). ``keep`` and ``unpaged``: per cent, more than 0 and at most 100."""

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
    """Messages that one user sent to one queue in the period. ``count``: number of messages. ``durable``: number of
    durable messages. ``user``: empty if the client had not logged in."""

    address: str
    queue: str
    count: int
    durable: int
    user: str = ""


class Others(NamedTuple):
    """Values of the line for all other queues, for each plot. None: all queues have a line of their own."""

    depth: Any = None
    added: Any = None
    replaced: Any = None
    consumers: Any = None
    latency: Steps | None = None
    evicted: Steps | None = None


@frozen
class Findings:
    """All findings. Keys of mappings are names of queues. ``hours``: grid of the plots of percentiles. ``grid``: grid
    of all other plots."""

    request: ReportRequest
    begin: int
    end: int
    sampled: tuple[int, int]  # times of the first and the last sample of the period (µs), 0: no samples
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
    hot_steps: Mapping[str, Mapping[str, Any]]  # number of events in each step, by kind and queue
    hottest: Sequence[HotMessage]
    rings: Sequence[RingAdvice]
    addresses: Sequence[AddressAdvice]
    brokers: Sequence[str] = (UNNAMED_BROKER,)
    remainder: Others = Others()
    coverage: Coverage | None = None  # None: no samples
    comparison: Comparison | None = None
    consumer_counts: Sequence[ConsumerCount] = ()
    consumer_total: int = 0  # number of all consumers: `consumer_counts` may have only some of them
    consumer_acknowledged: int = 0  # number of messages that all consumers together acknowledged
    stays: Mapping[tuple[str, str], Durations] = field(default_factory=dict)  # by queue and consumer
    tail: float = 0.0  # length of the interval for current rates in seconds

    @property
    def unread(self) -> list[QueueTraffic]:
        """Queues that had messages but no consumer in the period. The queue with most messages is first."""
        return greatest_queues(
            [one for one in self.traffic if not has_consumer(one, self.counts)],
            lambda one: one.added or one.most,
        )

    def total(self, event: str) -> int:
        """Return the number of events of a kind."""
        return sum(counts.get(event, 0) for counts in self.counts.values())


def gather(tables: Lake, request: ReportRequest, progress: Callable[[str], None]) -> Findings | None:
    """Compute the findings with Spark. None: the lake has no data in the period."""
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
        # lines for the slowest queues first, then for those with most messages
        large = greatest(latencies, lambda queue: latencies[queue].count)
        slow = plotted([*dict.fromkeys([*slowest(latencies)[: MAX_LINES // 2], *large])])
        aged = plotted(greatest(ages, lambda queue: ages[queue].count))
        shown = {
            name: plotted([one.queue for one in greatest_queues(queues, weight)])
            for name, weight in WEIGHTS.items()
        }
        progress("sizes of rings")
        # no advice for a ring without consumers: it evicts messages whatever its size is
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


#: Kinds of plots that show some queues with a line each, and the weight of a queue: the queues with the greatest
#: weights get lines.
WEIGHTS: Mapping[str, Callable[[QueueTraffic], float]] = {
    "depth": attrgetter("most"),
    "added": attrgetter("added"),
    "replaced": attrgetter("replaced"),
    "consumers": attrgetter("consumers"),
}

#: Events that occur only in queues with consumers.
CONSUMER_EVENTS = frozenset(("acknowledged", "delivered", "redelivered"))


def has_consumer(queue: QueueTraffic, counts: Counts) -> bool:
    """Return whether the queue had a consumer in the period, by its samples, counters or events."""
    return bool(queue.consumers or queue.acknowledged or counts.get(queue.queue, {}).keys() & CONSUMER_EVENTS)


def plotted(names: Sequence[T]) -> Sequence[T]:
    """Return the first names, which get a line each. With a line for all others there are at most `MAX_LINES` lines."""
    return names if len(names) <= MAX_LINES else names[: MAX_LINES - 1]


def slowest(ages: Mapping[Name, Durations]) -> list[Name]:
    """Return the names, ordered by p99 descending."""
    return greatest(ages, lambda name: ages[name].percentiles[2])


def headline(sent: Sequence[Sent], traffic: Sequence[QueueTraffic], counts: Counts) -> dict[str, int]:
    """Return the figures of the headline by name."""
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
    """Return the address of each queue that has samples, or messages sent in the period."""
    return {one.queue: one.address for one in sent} | {one.queue: one.address for one in traffic}


def _comparison(selected: Lake, grid: Grid, sent_first: int, opened: ExitStack) -> Comparison:
    """Return the comparison with the previous period, which is the only step of ``grid``. ``selected``: rows of the
    previous period. ``sent_first``: time when the first message in the lake was sent (µs)."""
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
    """Return the names, ordered by weight descending, then by name."""
    return sorted(names, key=lambda name: (-weight(name), name))


def greatest_queues(
    queues: Sequence[QueueTraffic], weight: Callable[[QueueTraffic], float]
) -> list[QueueTraffic]:
    """Return the queues with a weight that is not 0, ordered by weight descending."""
    return sorted(filter(weight, queues), key=lambda one: (-weight(one), one.queue))


class _Times(NamedTuple):
    """The times of a period in µs. ``first``: time of the first sample, which may be before the period; 0: no samples.
    ``spacing``: slightly less than the median time between two samples; 1: too few samples."""

    begin: int
    end: int
    first: int
    sampled: tuple[int, int]
    spacing: int
    by_broker: Mapping[str, SampleTimes]


def _times(selected: Lake, begin: int | None, sent: tuple[int, int] | None) -> _Times | None:
    """Return begin, end and samples of the period since ``begin``, None if the lake has no data in it. The period
    includes ``sent``, the times of the first and the last message."""
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
        low = begin  # the depth of queues at ``begin`` is known from earlier samples
    return _Times(
        low,
        max(one for _, one in found),
        first,
        sampled or (0, 0),
        # 0.9: samples are not exactly equidistant, and a step as long as their nominal interval must be allowed
        max(1, int(np.median(gaps) * 0.9)) if len(gaps) else 1,
        {broker: SampleTimes.of(some) for broker, some in each.items()},
    )


def _sent(messages: Any, begin: int | None) -> tuple[list[Sent], int, tuple[int, int] | None, int]:
    """Return four values: the messages sent in the period; the number of rows up to the end of the period; the times
    (µs) of the first and the last message in the period, None if the period has none; and the time of the first message
    in the lake, 0 if the lake has none."""
    inside = "TRUE" if begin is None else f"sent >= {begin}"  # `select_rows` has removed later messages
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
