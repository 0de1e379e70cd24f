"""What durable messages cost in the journal, without a reactor: ``python -m benchmarks.micro.journal``.

Messages of 128 bytes, 50 in a turn of the reactor where nothing else is said. Printed is the best of some rounds in
microseconds of processor time for a message: what the reactor's thread takes in all, and what the disk's thread takes
beside it. Waiting for the disk is in neither. Then what it takes to read a journal back.
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
    """Nobody consumes."""
    return lambda: bench.send(MESSAGES)


def held_singly(bench: StoredBroker) -> Run:
    """The same, each in a turn and a batch of its own."""
    return lambda: bench.send(MESSAGES, turn=1)


def settled_at_once(bench: StoredBroker) -> Run:
    """To a waiting consumer, settled within the turn: nothing of it needs to be written."""
    bench.queue.add_consumer(Auto())
    return lambda: bench.send(MESSAGES)


def settled_later(bench: StoredBroker) -> Run:
    """To a waiting consumer that acknowledges when all are there."""
    consumer = Acknowledging()
    bench.queue.add_consumer(consumer)

    def run() -> None:
        bench.send(MESSAGES)
        consumer.settle_all()
        bench.settle()

    return run


def held_then_drained(bench: StoredBroker) -> Run:
    """Nobody consumes, then somebody takes all."""

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
    """Microseconds for a message: of the reactor's thread and of the disk's, the best of the rounds."""
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
    """Microseconds for a message that comes back, and megabytes of the journal, ``settled`` of them being gone."""
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
    """Prints processor time for a message in the journal, and for one that is read back."""
    print(f"{'µs each':<36}{'reactor':>9}{'disk':>9}")
    for name, (make, queues, durable) in CASES.items():
        reactor, disk = measure(make, queues, durable)
        print(f"{name:<36}{reactor:>9.2f}{disk:>9.2f}")
    for name, settled in (("read back", 0), ("read back, half of them settled", recover // 2)):
        each, size = recovery(recover, settled)
        print(f"{name:<36}{each:>9.2f}{'':>9}  {recover:,} in {size:,.0f} MB: {each * recover / 1e6:.2f} s")


if __name__ == "__main__":
    main()
