"""Cost of paged messages in the store, without a reactor: ``python -m benchmarks.micro.pages``.

Messages have 128 bytes, 50 in a round of the reactor. The output has the best of some rounds, in microseconds of
processor time per message: of the reactor's thread, and of the disk's threads. Neither includes waiting for the disk,
or dispatch (choice of a consumer, its lists).
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from benchmarks.micro.stored import BODY, TURN, StoredBroker, TimedDisk
from stompring.broker.message import Message, Traits
from stompring.broker.ports import Reason
from stompring.broker.queue import Queue
from stompring.broker.reference import DELIVERING, Reference
from stompring.store.pages import Block, Page, Paging

MESSAGES = 5_000
ROUNDS = 8
LEVEL = 4  # the usual priority


class PagedBroker(StoredBroker):
    """A stored broker with the pages of one address."""

    def __init__(self, directory: Path, queues: int = 1, durable: bool = False) -> None:
        super().__init__(directory, queues, durable)
        self.reader = TimedDisk()
        self.door = Paging(
            self.storage.journal, self.storage.writer, self.reader, self.broker.clock, directory / "paging"
        )
        self.pages = self.door.open(self.queue.address)

    def write(self, messages: int, members: Sequence[Queue]) -> None:
        """Append messages for all ``members``."""
        address, traits, number = self.queue.address, self.traits, self.broker.next_message_number
        append, clock = self.pages.append, self.broker.clock
        for start in range(0, messages, TURN):
            now = clock.refresh()
            for _ in range(min(TURN, messages - start)):
                append(Message(number(), address, traits, BODY, now), members)
            self.turn()

    def block(self, page: Page, index: int) -> Block:
        """Return the block with a position. Read it from the file if it is not in memory."""
        found: list[Block | None] = []
        self.pages.fetch(page, index, found.append)
        while not found:
            self.reactor.advance(0)
            self.reader.land()
            self.disk.land()
        block = found[0]
        if block is None:
            raise AssertionError(f"{index} of page {page.number} cannot be read")
        return block

    def drain(self, queue: Queue, visit: Callable[[Block, int], object]) -> int:
        """Take all waiting messages of a queue in order, call ``visit``, and settle. Returns their number."""
        cursor = self.pages.cursor(queue)
        drained = 0
        while (place := cursor.first(LEVEL)) is not None:
            page, first = place
            block = self.block(page, first)
            for index in range(first, min(block.stop, page.count)):
                if cursor.is_waiting(page, index):
                    cursor.take(page, index)
                    visit(block, index)
                    ref = Reference(block.message(index), queue, index, DELIVERING)
                    ref.position = page, index
                    cursor.settle(ref, Reason.ACKNOWLEDGED)
                    drained += 1
            self.turn()
        self.settle()
        return drained


def timed(bench: PagedBroker, run: Callable[[], object]) -> tuple[float, float]:
    """Measure seconds of the reactor's thread and of the disk's threads."""
    gc.collect()
    before = bench.disk.cpu + bench.reader.cpu
    begun = time.thread_time()
    run()
    spent = time.thread_time() - begun
    apart = bench.disk.cpu + bench.reader.cpu - before
    return spent - apart, apart


def nothing(block: Block, index: int) -> None:
    """Visit a message without reading it."""


def measure(queues: int, durable: bool, sealed: bool) -> list[tuple[float, float]]:
    """Measure µs per message (reactor, disk): written for all queues, then drained by the first."""
    best = [(float("inf"), float("inf"))] * 2
    with tempfile.TemporaryDirectory(prefix="bench-pages-") as directory:
        bench = PagedBroker(Path(directory), queues, durable)
        for _ in range(ROUNDS):
            written = timed(bench, lambda: bench.write(MESSAGES, bench.queues))
            if sealed:
                bench.pages.roll()
            bench.settle()
            drained = timed(bench, lambda: bench.drain(bench.queue, nothing))
            for queue in bench.queues[1:]:
                sum(bench.pages.cursor(queue).purge(Reason.KILLED))
            bench.settle()
            if not bench.pages.empty:
                raise AssertionError("something is left in the pages")
            best = [min(old, new) for old, new in zip(best, (written, drained), strict=True)]
        bench.close()
    return [(1e6 * reactor / MESSAGES, 1e6 * disk / MESSAGES) for reactor, disk in best]


def scan() -> tuple[float, float]:
    """Measure µs per message that a selector rejects by its headers."""
    best = (float("inf"), float("inf"))
    wanted = Traits(b"color:red\n", b"/queue/a")
    with tempfile.TemporaryDirectory(prefix="bench-pages-") as directory:
        bench = PagedBroker(Path(directory))
        bench.write(MESSAGES, bench.queues)
        bench.pages.roll()
        bench.settle()
        for _ in range(ROUNDS):
            for page in bench.pages.in_order():
                bench.door.reads.forget(page)
            best = min(best, timed(bench, lambda: _look(bench, wanted)))
    return 1e6 * best[0] / MESSAGES, 1e6 * best[1] / MESSAGES


def _look(bench: PagedBroker, wanted: Traits) -> None:
    found = seen = 0
    for page in list(bench.pages.in_order()):
        stop = 0
        while stop < page.count:
            block = bench.block(page, stop)
            for index in range(stop, block.stop):
                found += block.traits(index) is wanted
                seen += 1
            stop = block.stop
    if found or seen != MESSAGES:
        raise AssertionError(f"{seen} seen, {found} found")


@click.command()
def main() -> None:
    """Print processor time for a message that is written to a page, read back and settled."""
    print(f"{'µs each':<52}{'reactor':>9}{'disk':>9}")
    for name, queues, durable in (
        ("not durable, 1 queue", 1, False),
        ("durable, 1 queue", 1, True),
        ("not durable, 10 queues", 10, False),
    ):
        for sealed in (True, False):
            written, drained = measure(queues, durable, sealed)
            if sealed:
                print(f"{name + ': written':<52}{written[0]:>9.2f}{written[1]:>9.2f}")
            where = "from a sealed page" if sealed else "while it is being written"
            print(f"{name + ': taken ' + where:<52}{drained[0]:>9.2f}{drained[1]:>9.2f}")
    looked = scan()
    print(f"{'headers looked at by a selector':<52}{looked[0]:>9.2f}{looked[1]:>9.2f}")


if __name__ == "__main__":
    main()
