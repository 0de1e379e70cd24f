"""Cost of a message from the bytes of SEND to the bytes of MESSAGE, without sockets and reactor.

python -m benchmarks.micro.session [CASE …]

The output has the processor time of parser, session, queue and outbox per message, for fan-out per delivery, with
bodies of 128 bytes and reads of 64 KiB. It shows the effect of a change even if the machine is too busy for rates.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import click
from twisted.internet.task import Clock

import stompring.broker.queue
from stompring.broker.broker import Broker
from stompring.policy.hooks import Policies
from stompring.session.commands import StompSession
from stompring.session.connect import Anonymous
from stompring.session.destination import Destinations
from stompring.session.outbox import Outgoing
from stompring.settings.model import BrokerConfiguration, StompAcceptor

READ = 64 * 1024
BODY = b"x" * 128
MESSAGES = 20_000
SUBSCRIBERS = 10
RUNS = 5

CASES = {
    "auto": "auto",
    "unique": "auto",
    "selector": "auto",
    "client-individual": "client-individual",
    "client": "client",
    "fan-out": "auto",
    "receipts": "auto",
    "receipt-per-read": "auto",
}


class MemoryWire:
    """A wire that counts written bytes, and optionally records them."""

    peer, host, certificate, carrier = "203.0.113.1:50000", "203.0.113.1", None, "TCP"

    def __init__(self) -> None:
        self.bytes = 0
        self.written: list[bytes] | None = None

    def write(self, data: bytes) -> None:
        self.bytes += len(data)
        if self.written is not None:
            self.written.append(data)

    def close(self) -> None:
        raise AssertionError("the session has failed")

    def pause_reading(self) -> None:
        raise AssertionError("nothing is full")

    def resume_reading(self) -> None:
        pass


class World:
    """A broker with one acceptor."""

    def __init__(self) -> None:
        self.broker = Broker(BrokerConfiguration("bench"), Clock(), Policies())
        self.acceptor = StompAcceptor(
            "stomp",
            "127.0.0.1",
            0,
            anycast_prefix=("/queue/",),
            multicast_prefix=("/topic/",),
            stomp_prefetch_count=-1,
        )
        self.outgoing = Outgoing(self.broker.clock)

    def connect(self) -> tuple[StompSession, MemoryWire]:
        """Create a connected session."""
        wire = MemoryWire()
        session = StompSession(
            self.broker, self.acceptor, Destinations(self.acceptor), Anonymous(), wire, self.outgoing, "1"
        )
        self.read(session, b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        return session, wire

    def read(self, session: StompSession, data: bytes) -> None:
        """Pass bytes to a session like a transport."""
        self.broker.clock.refresh()
        self.outgoing.within_read = True
        try:
            session.receive(data)
        finally:
            self.outgoing.within_read = False
            self.outgoing.flush()


def _reads(frames: Iterable[bytes]) -> list[bytes]:
    data = b"".join(frames)
    return [data[at : at + READ] for at in range(0, len(data), READ)]


def _acks(written: list[bytes], every: int) -> list[bytes]:
    """Create an ACK for every ``every``-th message."""
    identifiers = [part.partition(b"\n")[0] for part in b"".join(written).split(b"\nack:")[1:]]
    return _reads(b"ACK\nid:%b\n\n\0" % identifier for identifier in identifiers[every - 1 :: every])


def _send(case: str, number: int) -> bytes:
    headers = b"destination:%b\ncontent-length:128\n" % (b"/topic/t" if case == "fan-out" else b"/queue/q")
    if case in ("unique", "selector"):
        headers += (
            b"color:red\nkind:order\nregion:north\nsource:till-17\ncurrency:EUR\nweight:12.5\nretry:0\n"
        )
        headers += b"serial:%012d\n" % number
    if case.startswith("receipt"):
        headers += b"receipt:r-1-%d\n" % number
    return b"SEND\n%b\n%b\0\n" % (headers, BODY)


def measure(case: str) -> float:
    """Measure ns of processor time per message, for fan-out per delivery."""
    world = World()
    subscribers = SUBSCRIBERS if case == "fan-out" else 1
    mode = CASES[case]
    for _ in range(subscribers):
        consumer, wire = world.connect()
        subscribe = b"SUBSCRIBE\nid:0\ndestination:%b\nack:%b\n" % (
            b"/topic/t" if case == "fan-out" else b"/queue/q",
            mode.encode(),
        )
        subscribe += b"selector:color = 'red'\n" if case == "selector" else b""
        world.read(consumer, subscribe + b"\n\0")
    producer, _ = world.connect()
    frames = [_send(case, number) for number in range(MESSAGES)]
    reads = frames if case == "receipt-per-read" else _reads(frames)
    warm = len(reads) // 4
    spent = 0.0
    for at, data in enumerate(reads):
        wire.written = None if mode == "auto" else []
        begun = time.process_time()
        world.read(producer, data)
        spent += time.process_time() - begun
        while wire.written and (answers := _acks(wire.written, 20 if mode == "client" else 1)):
            wire.written = []
            begun = time.process_time()
            for answer in answers:
                world.read(consumer, answer)
            spent += time.process_time() - begun
        if at < warm:
            spent = 0.0
    return spent / (MESSAGES * (len(reads) - warm) / len(reads)) / subscribers * 1e9


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(CASES)))
def main(names: tuple[str, ...]) -> None:
    """Print nanoseconds for each case: the minimum of the runs."""
    click.echo(f"{stompring.broker.queue.__file__}")
    for name in names or CASES:
        click.echo(f"{name:20}{min(measure(name) for _ in range(RUNS)):8.0f} ns")


if __name__ == "__main__":
    main()
