"""The parts of `make bench` that only stompring runs, limited in time. Other programs measure each part at length.

`deep-queue` (benchmarks.deep_queue), `stuck-subscriber` (benchmarks.stuck_subscriber), `drain` and `held-memory`
(benchmarks.gc_pauses has the phases), `start` for each kind of queue (benchmarks.restart), `idle`
(benchmarks.idle_connections).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from benchmarks import (
    deep_queue,
    disk,
    gc_pauses,
    idle_connections,
    load,
    management,
    restart,
    stuck_subscriber,
)
from benchmarks.brokers import Stompring

Numbers = dict[str, float]
#: The kind of queue (`restart.KINDS`) of each part that measures a start.
STARTS = {"start": "plain"} | {f"start-{kind}": kind for kind in restart.KINDS if kind != "plain"}
# seconds for the start of a broker and the overhead of a run
START_SECONDS = 3.0
HELD = 500_000
HELD_BODY = 128
# seconds of the probe of `drain`: somewhat less than the drain
PROBE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the parts: seconds of each direction of a deep queue and of a stuck subscriber; numbers of messages."""

    deep_messages: int = 10_000_000
    deep_in_seconds: float = 55.0
    deep_out_seconds: float = 30.0
    stuck_seconds: float = 8.0
    start_messages: int = 1_000_000
    idle_connections: int = 10_000

    def seconds(self) -> dict[str, float]:
        """Estimate the maximum duration of each part in seconds."""
        return {
            "deep-queue": START_SECONDS + self.deep_in_seconds + self.deep_out_seconds + 3,
            "stuck-subscriber": START_SECONDS + 12 + 3.5 * self.stuck_seconds,
            "drain": START_SECONDS + 2 * (HELD / 150_000 + PROBE_SECONDS + 3),
            "idle": START_SECONDS + 2 * idle_connections.SETTLE_SECONDS + self.idle_connections / 2000,
        } | {name: START_SECONDS + self.start_messages / 100_000 + 7 for name in STARTS}


def deep_queue_rates(broker: Stompring, limits: Limits) -> Numbers:
    """Fill and drain one deep queue. ``depth``: number of messages sent before the time limit."""
    step, size = max(limits.deep_messages // 10, 1), ["-s", str(HELD_BODY)]
    send = ["-m", "produce", "-r", str(deep_queue.RECEIPT_EVERY), "-R", "20", "-n", str(limits.deep_messages)]
    filled = deep_queue.passage(broker, "in ", step, *size, *send, "-S", f"{limits.deep_in_seconds:g}")
    depth = filled.numbers["sent"]
    used = disk.used(broker.directory)
    out = ["-m", "consume", "-n", f"{depth:.0f}", "-S", f"{limits.deep_out_seconds:g}"]
    drained = deep_queue.passage(broker, "out", step, *size, *out)
    wrong = drained.numbers["repeated"] + drained.numbers["disordered"]
    if wrong:
        raise load.LoadFailed(f"{wrong:,.0f} messages came twice or out of order")
    return {
        "depth": depth,
        "drained": drained.numbers["received"],
        "in_per_s": filled.numbers["msgs_per_s"],
        "out_per_s": drained.numbers["msgs_per_s"],
        "in_cpu_s": filled.numbers["broker_cpu_s"],
        "out_cpu_s": drained.numbers["broker_cpu_s"],
        "peak_mb": max(filled.peak, drained.peak) / 1e6,
        "disk_mb": used / 1e6,
    }


def stuck_ratios(broker: Stompring, limits: Limits) -> Numbers:
    """Measure the rate of nine subscribers while a tenth is stuck and while it drains, as ratios to that without it."""
    seconds = max(limits.stuck_seconds / 2, 1.0)
    (phases,) = stuck_subscriber.measure(broker, 10, 1, seconds, limits.stuck_seconds)
    without, stuck, draining = phases
    return {
        "without_per_s": without.rate,
        "stuck_ratio": stuck.rate / without.rate,
        "draining_ratio": draining.rate / without.rate,
        "stuck_cost_ratio": stuck.each / without.each,
        "draining_cost_ratio": draining.each / without.each,
        "paged": stuck.paged,
    }


def drain_beside_probe(broker: Stompring, limits: Limits) -> Numbers:
    """Measure a probe while half a million messages are drained, and the memory per message beyond its SEND frame."""
    found = []
    probe = ["-L", "1000", "-S", f"{PROBE_SECONDS:g}", "-d", "/queue/probe"]
    load.run(broker, *probe)
    before = broker.rss()
    overhead = 0.0
    for number in range(2):
        queue = ["-n", str(HELD), "-d", f"/queue/held.{number}"]
        held = load.run(broker, "-m", "produce", "-r", "500", "-R", "20", *queue)
        if number == 0:
            frame = (
                len(f"SEND\ndestination:/queue/held.{number}.0\ncontent-length:{HELD_BODY}\n\n\0") + HELD_BODY
            )
            overhead = (held["broker_rss"] - before) / HELD - frame
        found.append(gc_pauses.beside(broker, ["-m", "consume", *queue], probe))
    names = ("p50_us", "p99_us", "max_us")
    return {name: statistics.median(numbers[name] for numbers in found) for name in names} | {
        "overhead_bytes": overhead
    }


def memory_at_rest(broker: Stompring, limits: Limits) -> Numbers:
    """Measure the resident memory after the start, and with many idle connections."""
    idle_connections.allow_files(limits.idle_connections + 1000)
    cost = idle_connections.measure(broker, limits.idle_connections, False)
    return {"rest_mb": cost.before / 1e6, "idle_mb": cost.after / 1e6}


def start_with_store(broker: Stompring, limits: Limits, kind: str) -> Numbers:
    """Measure the seconds until a killed broker with durable messages is ready, with its files out of the cache.
    ``kind``: kind of the queue (`restart.KINDS`).
    """
    restart.fill(broker, limits.start_messages, kind)
    broker.kill()
    disk.forget(broker.data)
    started = restart.start(broker)
    count = management.queue(broker, restart.QUEUE)["messageCount"]
    if count != limits.start_messages:
        raise load.LoadFailed(f"{count:,} of {limits.start_messages:,} messages are there after the start")
    return {
        "start_s": started.seconds,
        "start_cpu_s": started.cpu,
        "rss_mb": started.memory / 1e6,
        "messages": limits.start_messages,
    }


@dataclass(frozen=True, slots=True)
class Part:
    """A part: ``measure`` runs on a new broker with ``settings``, and with ``addresses`` for all addresses."""

    measure: Callable[[Stompring, Limits], Numbers]
    settings: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)


PARTS = {
    "deep-queue": Part(deep_queue_rates, {"global-max-size": "64MB"}),
    "stuck-subscriber": Part(stuck_ratios, {"global-max-size": stuck_subscriber.MEMORY}),
    "drain": Part(drain_beside_probe),
    "idle": Part(memory_at_rest),
} | {
    name: Part(partial(start_with_store, kind=kind), addresses=restart.KINDS[kind])
    for name, kind in STARTS.items()
}
