"""Cost of the retention of durable messages that are consumed at once: ``python -m benchmarks.micro.retained``.

A producer's SENDs and a consumer's ACKs pass real sessions and a real journal, without sockets and reactor. Two brokers
that differ only in ``journal-retention-directory`` run in turn, round by round. The output has the best of the rounds
of each broker, in microseconds of processor time of the reactor's thread per message, and the median over the rounds of
the ratio of the rate with retention to the rate without; and both figures for all threads together.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.micro.stored import TURN, StoredBroker
from stompring.session.commands import StompSession
from stompring.session.connect import Anonymous
from stompring.session.destination import Destinations
from stompring.session.outbox import Outgoing
from stompring.settings.model import Retention, StompAcceptor

MESSAGES = 2_000
BODY = b"x" * 128
HEADERS = b"color:red\nkind:order\nregion:north\nsource:till-17\ncurrency:EUR\nweight:12.5\nretry:0\n"


class Wire:
    """A wire that is always writable. ``keeps``: record the written bytes."""

    peer, host, certificate, carrier = "127.0.0.1:1", "127.0.0.1", None, "TCP"

    def __init__(self, keeps: bool = False) -> None:
        self._keeps = keeps
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        if self._keeps:
            self.written.append(data)

    def close(self) -> None:
        raise AssertionError("an ERROR was sent")

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@dataclass(frozen=True)
class Case:
    """A case. ``headers``: headers of a SEND, ``%d`` in them is its number; ``queues``: number of queues of a topic."""

    name: str
    headers: bytes = b""
    ack: bytes = b"auto"
    queues: int = 1


CASES = (
    Case("not durable, auto"),
    Case("durable, auto", b"persistent:true\n"),
    Case("the same, another header each", b"persistent:true\n" + HEADERS + b"serial:%d\n"),
    Case("durable, client-individual", b"persistent:true\n", b"client-individual"),
    Case("durable, auto, 5 durable subscribers", b"persistent:true\n", queues=5),
)


class Bench:
    """A broker with a producer and its consumers."""

    def __init__(self, directory: Path, case: Case, **settings: Any) -> None:
        self.case = case
        self.stored = StoredBroker(directory, case.queues, **settings)
        self._outgoing = Outgoing(self.stored.broker.clock)
        self._acceptor = StompAcceptor("stomp", "127.0.0.1", 0, stomp_prefetch_count=-1)
        self.producer = self._session(Wire(), "1")
        self._wires = [Wire(keeps=case.ack != b"auto") for _ in range(case.queues)]
        self._consumers = []
        for place, wire in enumerate(self._wires):
            session = self._session(wire, str(place + 2))
            destination = b"a::q%d" % place if case.queues > 1 else b"a"
            self._receive(session, b"SUBSCRIBE\nid:0\nack:%b\ndestination:%b\n\n\0" % (case.ack, destination))
            wire.written.clear()
            self._consumers.append(session)
        self._sends = self._make()

    def _session(self, wire: Wire, number: str) -> StompSession:
        session = StompSession(
            self.stored.broker,
            self._acceptor,
            Destinations(self._acceptor),
            Anonymous(),
            wire,
            self._outgoing,
            number,
        )
        self._receive(session, b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        return session

    def _receive(self, session: StompSession, data: bytes) -> None:
        self.stored.broker.clock.refresh()
        self._outgoing.within_read = True
        session.receive(data)
        self._outgoing.within_read = False
        self._outgoing.flush()

    def _make(self) -> list[bytes]:
        """Create the bytes that the producer writes in each round."""
        headers, found = self.case.headers, []
        for start in range(0, MESSAGES, TURN):
            frames = []
            for number in range(start, start + TURN):
                own = headers % number if b"%d" in headers else headers
                frames.append(b"SEND\ndestination:a\n%bcontent-length:%d\n\n%b\0" % (own, len(BODY), BODY))
            found.append(b"".join(frames))
        return found

    def run(self) -> None:
        """Send all messages once, and wait until the store has written them."""
        for data in self._sends:
            self._receive(self.producer, data)
            self.stored.turn()
            if self.case.ack != b"auto":
                self._acknowledge()
        self.stored.settle()

    def _acknowledge(self) -> None:
        for session, wire in zip(self._consumers, self._wires, strict=True):
            data = b"".join(wire.written)
            wire.written.clear()
            ids = [line[4:] for line in data.split(b"\n") if line.startswith(b"ack:")]
            self._receive(session, b"".join([b"ACK\nid:%b\n\n\0" % one for one in ids]))
            self.stored.turn()

    def measure(self) -> tuple[float, float]:
        """Measure µs per message: of the reactor's thread, and of all threads."""
        gc.collect()
        apart, begun = self.stored.disk.cpu, time.thread_time()
        self.run()
        spent = time.thread_time() - begun
        return (spent - (self.stored.disk.cpu - apart)) / MESSAGES * 1e6, spent / MESSAGES * 1e6


@click.command()
@click.option("--rounds", default=30, show_default=True, type=click.IntRange(1), help="How often.")
def main(rounds: int) -> None:
    """Print processor time for a message without and with retention."""
    print(f"{'µs each':<40}{'without':>9}{'with':>9}{'ratio':>9}{'all threads':>24}")
    for case in CASES:
        with tempfile.TemporaryDirectory(prefix="bench-retained-") as directory:
            root = Path(directory)
            kept = Retention(str(root / "retention"), storage_limit=50_000_000)
            without = Bench(root / "without", case)
            with_it = Bench(root / "with", case, journal_retention_directory=kept)
            for bench in (without, with_it):
                bench.run()
            found = [(without.measure(), with_it.measure()) for _ in range(rounds)]
        line = f"{case.name:<40}"
        for part in (0, 1):
            before, after = [one[part] for one, _ in found], [other[part] for _, other in found]
            ratio = statistics.median(one / other for one, other in zip(before, after, strict=True))
            line += f"{min(before):>9.2f}{min(after):>9.2f}{ratio:>9.3f}"
        print(line)


if __name__ == "__main__":
    main()
