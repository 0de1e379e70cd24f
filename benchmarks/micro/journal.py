"""Cost of durable messages in the journal, without a reactor: ``python -m benchmarks.micro.journal``.

Messages have 128 bytes. By default a round of the reactor has 50. The output has the best of some rounds, in
microseconds of processor time per message: of the reactor's thread in total, and of the disk's thread. Neither includes
waiting for the disk. It also has the time for reading a journal back.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from benchmarks.micro.queue import Acknowledging, Auto
from benchmarks.micro.stored import StoredBroker

MESSAGES = 2_000
ROUNDS = 15

Run = Callable[[], None]


def held(bench: StoredBroker) -> Run:
    """Send without a consumer."""
    return lambda: bench.send(MESSAGES)


def held_singly(bench: StoredBroker) -> Run:
    """Send without a consumer, each message in its own round and batch."""
    return lambda: bench.send(MESSAGES, turn=1)


def settled_at_once(bench: StoredBroker) -> Run:
    """Send to a waiting consumer that settles within the round, so that the store writes nothing."""
    bench.queue.add_consumer(Auto())
    return lambda: bench.send(MESSAGES)


def settled_later(bench: StoredBroker) -> Run:
    """Send to a waiting consumer that acknowledges after the last message."""
    consumer = Acknowledging()
    bench.queue.add_consumer(consumer)

    def run() -> None:
        bench.send(MESSAGES)
        consumer.settle_all()
        bench.settle()

    return run


def held_then_drained(bench: StoredBroker) -> Run:
    """Send without a consumer, then consume all messages."""

    def run() -> None:
        bench.send(MESSAGES)
        consumer = Auto()
        bench.queue.add_consumer(consumer)
        bench.queue.remove_consumer(consumer, [])
        bench.settle()

    return run


def measure(
    make: Callable[[StoredBroker], Run], queues: int = 1, durable: bool = True
) -> tuple[float, float]:
    """Measure µs per message, the best of the rounds: of the reactor's thread and of the disk's."""
    with tempfile.TemporaryDirectory(prefix="bench-journal-") as directory:
        bench = StoredBroker(Path(directory), queues, durable)
        run = make(bench)
        best, disk = float("inf"), float("inf")
        for _ in range(ROUNDS):
            gc.collect()
            before, begun = bench.disk.cpu, time.thread_time()
            run()
            spent, apart = time.thread_time() - begun, bench.disk.cpu - before
            best, disk = min(best, spent - apart), min(disk, apart)
            for queue in bench.queues:
                queue.purge()
            bench.settle()
        bench.close()
    return best / MESSAGES * 1e6, disk / MESSAGES * 1e6


def recovery(messages: int, settled: int) -> tuple[float, float]:
    """Measure the recovery of a journal with ``settled`` messages consumed: µs per written message; MB on disk."""
    with tempfile.TemporaryDirectory(prefix="bench-journal-") as directory:
        root = Path(directory)
        bench = StoredBroker(root, journal_compact_min_files=0)
        bench.send(messages)
        consumer = Acknowledging()
        if settled:
            bench.queue.add_consumer(consumer)
            for ref in consumer.unsettled[:settled]:
                bench.queue.settle(ref)
            bench.queue.remove_consumer(consumer, consumer.unsettled[settled:])
        bench.close()
        size = sum(path.stat().st_size for path in (root / "journal").iterdir())
        del bench, consumer
        gc.collect()
        begun = time.process_time()
        found = StoredBroker(root, journal_compact_min_files=0)
        spent = time.process_time() - begun
        if found.queue.message_count != messages - settled:
            raise AssertionError(f"{found.queue.message_count} came back and not {messages - settled}")
        found.close()
    return spent / messages * 1e6, size / 1e6


CASES: dict[str, tuple[Callable[[StoredBroker], Run], int, bool]] = {
    "not durable, held": (held, 1, False),
    "durable, held": (held, 1, True),
    "the same, one in a turn": (held_singly, 1, True),
    "durable, in 10 queues": (held, 10, True),
    "not durable, auto, direct": (settled_at_once, 1, False),
    "durable, auto, direct": (settled_at_once, 1, True),
    "not durable, acknowledged later": (settled_later, 1, False),
    "durable, acknowledged later": (settled_later, 1, True),
    "durable, held, then drained": (held_then_drained, 1, True),
}


@click.command()
@click.option("--recover", default=200_000, show_default=True, type=click.IntRange(1000), help="Messages.")
def main(recover: int) -> None:
    """Print processor time for a message in the journal, and for a message that is read back."""
    print(f"{'µs each':<36}{'reactor':>9}{'disk':>9}")
    for name, (make, queues, durable) in CASES.items():
        reactor, disk = measure(make, queues, durable)
        print(f"{name:<36}{reactor:>9.2f}{disk:>9.2f}")
    for name, settled in (("read back", 0), ("read back, half of them settled", recover // 2)):
        each, size = recovery(recover, settled)
        print(f"{name:<36}{each:>9.2f}{'':>9}  {recover:,} in {size:,.0f} MB: {each * recover / 1e6:.2f} s")


if __name__ == "__main__":
    main()
