"""Cost of a replay for the broker: ``python -m benchmarks.micro.replayed``.

Durable SENDs like those of ``stompring lake replay`` pass a real session and a real journal, without sockets and
reactor: each has different headers and a duplicate id, every thousandth a receipt, and each read has 64 KiB. The output
has the best of the rounds, in microseconds of processor time per message: of the reactor's thread and of the disk's.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.micro.retained import Wire
from benchmarks.micro.stored import StoredBroker
from benchmarks.segments import BLOCK, BODY
from stompring.session.commands import StompSession
from stompring.session.connect import Anonymous
from stompring.session.destination import Destinations
from stompring.session.outbox import Outgoing
from stompring.settings.model import StompAcceptor

#: Messages of a round, messages per receipt, bytes per read from a socket.
MESSAGES, GROUP, READ = 10_000, 1000, 65536

#: Reads per batch of the disk.
READS = 4


@dataclass(frozen=True)
class Case:
    """A case. ``own``: header lines besides those of `BLOCK`; ``%d`` in them is the number of the message."""

    name: str
    own: bytes
    addresses: int = 1


CASES = (
    Case("durable, other headers each", b""),
    Case("the same, with duplicate ids", b"_AMQ_DUPL_ID:8f3a9c01d2e4-1f2e3d4c5b6a7980-%d\n"),
    Case("the same, to 8 queues in turn", b"_AMQ_DUPL_ID:8f3a9c01d2e4-1f2e3d4c5b6a7980-%d\n", 8),
)


class Bench:
    """A broker with a sending client."""

    def __init__(self, directory: Path, case: Case) -> None:
        self.case = case
        self.stored = StoredBroker(directory)
        self._outgoing = Outgoing(self.stored.broker.clock)
        acceptor = StompAcceptor("stomp", "127.0.0.1", 0)
        destinations = Destinations(acceptor)
        self._session = StompSession(
            self.stored.broker, acceptor, destinations, Anonymous(), Wire(), self._outgoing, "1"
        )
        self._receive(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        self._sent = 100_000_000

    def _receive(self, data: bytes) -> None:
        self.stored.broker.clock.refresh()
        self._outgoing.within_read = True
        self._session.receive(data)
        self._outgoing.within_read = False
        self._outgoing.flush()

    def _frames(self) -> bytes:
        frames = []
        block = BLOCK.replace(b"%", b"%%").replace(b"000000000", b"%d")
        for _ in range(MESSAGES):
            number = self._sent = self._sent + 1
            own = self.case.own % number if self.case.own else b""
            receipt = b"receipt:%d\n" % number if number % GROUP == 0 else b""
            frames.append(
                b"SEND\ndestination:a%d\n%boriginal-timestamp:1700000%d\noriginal-message-id:%d\n%b%b"
                b"content-length:%d\n\n%b\0"
                % (
                    number % self.case.addresses,
                    block % (number, number),
                    number,
                    number,
                    own,
                    receipt,
                    len(BODY),
                    BODY,
                )
            )
        return b"".join(frames)

    def run(self, profile: cProfile.Profile | None = None) -> tuple[float, float]:
        """Measure µs per message: of the reactor's thread, and of the disk's."""
        data = self._frames()
        reads = [data[at : at + READ] for at in range(0, len(data), READ)]
        gc.collect()
        apart, begun = self.stored.disk.cpu, time.thread_time()
        if profile is not None:
            profile.enable()
        for place, read in enumerate(reads, 1):
            self._receive(read)
            if place % READS:
                self.stored.reactor.advance(0)
            else:
                self.stored.turn()
        self.stored.settle()
        if profile is not None:
            profile.disable()
        spent, disk = time.thread_time() - begun, self.stored.disk.cpu - apart
        for queue in list(self.stored.broker.directory.queues.values()):
            queue.purge()
        self.stored.settle()
        return (spent - disk) / MESSAGES * 1e6, disk / MESSAGES * 1e6


@click.command()
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(1), help="How often.")
@click.option("--profile", is_flag=True, help="Where the time of the second case goes, by function.")
def main(rounds: int, profile: bool) -> None:
    """Print processor time for a message of a replay."""
    print(f"{'µs each':<36}{'reactor':>9}{'disk':>9}")
    for case in CASES[1:2] if profile else CASES:
        with tempfile.TemporaryDirectory(prefix="bench-replayed-") as directory:
            bench = Bench(Path(directory), case)
            for _ in range(3):  # until the id cache has its final size
                bench.run()
            profiler = cProfile.Profile() if profile else None
            found = [bench.run(profiler) for _ in range(rounds)]
            bench.stored.close()
        print(f"{case.name:<36}{min(r for r, _ in found):>9.2f}{min(d for _, d in found):>9.2f}")
        if profiler is not None:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
