"""Cost of the history of counters with 10,000 queues: processor time of a round, its longest slice, and memory.

The broker runs in this process. The benchmark advances its clock and increments the counters of active queues.

    python -m benchmarks.history [--queues 10000] [--seconds 4000]
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from twisted.internet.task import Clock

from stompring.admin.sampler import Sampler
from stompring.broker.broker import Broker
from stompring.broker.queue import Queue
from stompring.policy.hooks import Policies
from stompring.settings.model import BrokerConfiguration, QueueConfiguration, RoutingType


def traffic(queues: Iterable[Queue], second: int) -> None:
    """Change the counters as one second of traffic would: messages arrive, are acknowledged, and some wait."""
    for queue in queues:
        queue.messages_added += 3 + second % 5
        queue.messages_acknowledged += 2 + second % 7
        queue.delivering = second % 11


def rounds(sampler: Sampler, clock: Clock, queues: list[Queue], seconds: int) -> tuple[float, float, float]:
    """Return the mean and the longest processor time of a round, and the longest slice, in ms."""
    spent, slices = [], [0.0]
    run = sampler._run

    def timed() -> None:
        begun = time.thread_time()
        run()
        slices.append(time.thread_time() - begun)

    sampler._run = timed  # type: ignore[method-assign]
    for second in range(seconds):
        traffic(queues, second)
        before = len(slices)
        clock.advance(1)
        while sampler._round is not None:
            clock.advance(0)
        spent.append(sum(slices[before:]))
    sampler._run = run  # type: ignore[method-assign]
    return sum(spent) / len(spent) * 1000, max(spent) * 1000, max(slices) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=4000)
    given = parser.parse_args()
    clock = Clock()
    clock.advance(1_700_000_000)
    configuration = BrokerConfiguration(persistence_enabled=False)
    broker = Broker(configuration, clock, Policies())
    for number in range(given.queues):
        broker.directory.create_queue(QueueConfiguration(f"q{number}", f"q{number}", RoutingType.ANYCAST))
    connections = type(
        "Connections", (), {"open": {}, "__len__": lambda self: 0, "__iter__": lambda self: iter(())}
    )()
    context: Any = SimpleNamespace(broker=broker, connections=connections, disk_monitor=None)
    sampler = Sampler(context)
    tracemalloc.start()
    sampler.start()
    while sampler._round is not None:
        clock.advance(0)
    queues = list(broker.directory.queues.values())
    gc.freeze()  # like a broker after its start
    idle_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    print(f"{len(queues)} queues, each with an address")
    print(f"idle: {idle_bytes / len(queues):.0f} bytes for each queue with its address")
    for name, active in (("idle", []), ("100 active", queues[:100]), ("all active", queues)):
        mean, longest, longest_slice = rounds(sampler, clock, active, 20)
        print(
            f"{name}: {mean:.1f} ms of processor time a second (longest {longest:.1f}), "
            f"longest slice {longest_slice:.1f} ms"
        )
    begun = time.perf_counter()
    few = queues[:200]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    used = sum(queue.history.sweep() for queue in few if queue.history)
    rounds(sampler, clock, few, given.seconds)
    after = tracemalloc.get_traced_memory()[0]
    counted = sum(queue.history.sweep() for queue in few if queue.history)
    counted += sum(queue.address.history.sweep() for queue in few if queue.address.history)
    tracemalloc.stop()
    print(
        f"after {given.seconds} s of traffic: {(after - before) / len(few) / 1024:.1f} KiB more for each active queue "
        f"with its address; counted {counted / len(few) / 1024:.1f} KiB (before {used / len(few) / 1024:.1f}); "
        f"{time.perf_counter() - begun:.0f} s"
    )


if __name__ == "__main__":
    main()
