"""Memory of a broker while clients create and remove its objects, and the pauses of its garbage collector.

    python -m benchmarks.churn [--minutes 10] [--messages 25000] [--kinds connection,subscription,…]

A queue holds `--messages`. One process for each kind of object creates it, uses it and removes it, always with a new
name. Another process sends 200 messages per second to itself and records the longest round trip. Every ten seconds a
line shows the broker's resident memory, the number of objects of each kind, the longest collection and the longest
round trip since the last line.

Targets: after the first minute resident memory grows by less than 5 %, and no collection takes 10 ms of processor time.
The wall clock of a pause includes the time of other programs.
"""

from __future__ import annotations

import itertools
import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from multiprocessing.sharedctypes import Synchronized
from typing import Any

import click

from benchmarks.brokers import Stompring
from benchmarks.brokers.process import HOST, Launch
from benchmarks.results import markdown
from benchmarks.targets import verdict

TARGET_GROWTH = 1.05
TARGET_PAUSE = 0.010
SAMPLE_SECONDS = 10.0
WARM_SECONDS = 60.0
PROBES_PER_SECOND = 200
ANSWER_SECONDS = 60.0

#: The broker deletes each address and queue as soon as it is unused; the queue with the messages stays.
ADDRESSES = {
    "auto-delete-queues": "true",
    "auto-delete-addresses": "true",
    "auto-delete-queues-delay": "0",
    "auto-delete-addresses-delay": "0",
}


class Watched(Stompring):
    """stompring under `benchmarks.collected`."""

    def prepare(self) -> Launch:
        launch = super().prepare()
        python, flag, _, *arguments = launch.argv
        return replace(
            launch,
            argv=[python, flag, "benchmarks.collected", str(self.directory / "collections"), *arguments],
        )

    def collections(self, since: int) -> tuple[list[tuple[float, float]], int]:
        """Read the collections after offset ``since``: seconds of wall clock and processor; and the new offset."""
        with (self.directory / "collections").open() as file:
            file.seek(since)
            lines = file.read()
        whole = lines[: lines.rfind("\n") + 1]
        fields = (line.split() for line in whole.splitlines())
        return [(float(wall), float(cpu)) for _, wall, cpu, _ in fields], since + len(whole)


class Talk:
    """A connection that sends several frames at once, and reads until an expected answer."""

    def __init__(self, port: int, client_id: str = "") -> None:
        self.socket = socket.create_connection((HOST, port), timeout=ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""
        named = f"\nclient-id:{client_id}" if client_id else ""
        self.say(f"CONNECT\naccept-version:1.2\nhost:/{named}")
        self.hear(b"CONNECTED\n")

    def say(self, *heads: str) -> None:
        """Send frames without bodies."""
        self.socket.sendall("".join(f"{head}\n\n\0\n" for head in heads).encode())

    def hear(self, wanted: bytes) -> None:
        """Read up to and including ``wanted``."""
        while True:
            before, found, after = self._unread.partition(wanted)
            if found:
                self._unread = after
                return
            if b"ERROR\n" in before:
                raise SystemExit(before.decode(errors="replace"))
            data = self.socket.recv(65536)
            if not data:
                raise SystemExit(f"the broker closed the connection; {wanted!r} was expected")
            self._unread += data

    def close(self) -> None:
        self.socket.close()


# ---- the kinds: each function creates, uses and removes the object with a number


def connections(port: int, number: int) -> None:
    with closing(Talk(port)) as talk:
        talk.say("SEND\ndestination:/queue/used", "SUBSCRIBE\nid:0\ndestination:/queue/used")
        talk.say("DISCONNECT\nreceipt:end")
        talk.hear(b"receipt-id:end")


def temporary(port: int, number: int) -> None:
    with closing(Talk(port)) as talk:
        talk.say(
            "SUBSCRIBE\nid:0\ndestination:/temp-queue/a",
            "SEND\ndestination:/temp-queue/a\nreply-to:/temp-queue/b",
        )
        talk.say("DISCONNECT\nreceipt:end")
        talk.hear(b"receipt-id:end")


def durable(port: int, number: int) -> None:
    with closing(Talk(port, f"client-{number}")) as talk:
        named = "durable-subscription-name:d"
        talk.say(f"SUBSCRIBE\nid:0\ndestination:/topic/durable\n{named}")
        talk.say("SEND\ndestination:/topic/durable\npersistent:true", f"UNSUBSCRIBE\nid:0\n{named}")
        talk.say("DISCONNECT\nreceipt:end")
        talk.hear(b"receipt-id:end")


def subscriptions(talk: Talk, number: int) -> None:
    topic = f"/topic/subscribed.{number}"
    talk.say(
        f"SUBSCRIBE\nid:0\ndestination:{topic}",
        f"SEND\ndestination:{topic}",
        "UNSUBSCRIBE\nid:0\nreceipt:end",
    )
    talk.hear(b"receipt-id:end")


def queues(talk: Talk, number: int) -> None:
    queue = f"/queue/auto.{number}"
    talk.say(
        f"SEND\ndestination:{queue}",
        f"SUBSCRIBE\nid:0\ndestination:{queue}",
        "UNSUBSCRIBE\nid:0\nreceipt:end",
    )
    talk.hear(b"receipt-id:end")


def transactions(talk: Talk, number: int) -> None:
    send = f"SEND\ndestination:/topic/transactions\ntransaction:{number}"
    end = "COMMIT" if number % 2 else "ABORT"
    talk.say(f"BEGIN\ntransaction:{number}", send, send, f"{end}\ntransaction:{number}\nreceipt:end")
    talk.hear(b"receipt-id:end")


def unread(talk: Talk, number: int) -> None:
    talk.say(f"SEND\ndestination:/topic/unread.{number}\nreceipt:end")
    talk.hear(b"receipt-id:end")


#: The kinds by signature: the first ones open a connection for each object.
CONNECTING: dict[str, Callable[[int, int], None]] = {
    "connection": connections,
    "temporary queue": temporary,
    "durable subscription": durable,
}
WITHIN: dict[str, Callable[[Talk, int], None]] = {
    "subscription": subscriptions,
    "auto-created queue": queues,
    "transaction": transactions,
    "unread address": unread,
}
KINDS = (*CONNECTING, *WITHIN)


def churn(kind: str, port: int, done: Synchronized[int], stop: Any) -> None:
    """Create and remove objects of a kind one after the other until ``stop`` is set."""
    if kind in CONNECTING:
        call = CONNECTING[kind]
        for number in _numbers(done, stop):
            call(port, number)
        return
    within = WITHIN[kind]
    with closing(Talk(port)) as talk:
        for number in _numbers(done, stop):
            within(talk, number)


def _numbers(done: Synchronized[int], stop: Any) -> Iterator[int]:
    for number in itertools.count():
        if stop.is_set():
            return
        yield number
        done.value = number + 1


def probe(port: int, longest: Synchronized[float], stop: Any) -> None:
    """Record the longest time from a SEND to its MESSAGE in seconds, until ``stop`` is set. The reader resets it."""
    with closing(Talk(port)) as talk:
        talk.say("SUBSCRIBE\nid:0\ndestination:/queue/probe\nreceipt:begun")
        talk.hear(b"receipt-id:begun")
        while not stop.is_set():
            begun = time.perf_counter()
            talk.say("SEND\ndestination:/queue/probe")
            talk.hear(b"MESSAGE\n")
            spent = time.perf_counter() - begun
            with longest.get_lock():
                longest.value = max(longest.value, spent)
            time.sleep(max(0.0, 1 / PROBES_PER_SECOND - spent))


@dataclass(frozen=True, slots=True)
class Sample:
    """Ten seconds: their end, resident bytes, counts by kind, and the longest collection and round trip (seconds)."""

    at: float
    rss: int
    done: list[int]
    wall: float
    cpu: float
    gap: float

    def row(self) -> list[str]:
        """Return a row of the table."""
        figures = [1e3 * self.cpu, 1e3 * self.wall, 1e3 * self.gap]
        return [
            f"{self.at:.0f}",
            f"{self.rss / 1e6:.0f}",
            *map(str, self.done),
            *(f"{x:.1f}" for x in figures),
        ]


def measure(broker: Watched, kinds: list[str], minutes: float, messages: int) -> list[Sample]:
    """Fill the queue, then run a process for each kind."""
    with closing(Talk(broker.port)) as talk:
        talk.say(*["SEND\ndestination:/queue/held\npersistent:true"] * messages)
        talk.say("SEND\ndestination:/queue/used\nreceipt:end")
        talk.hear(b"receipt-id:end")
    stop: Any = multiprocessing.Event()
    done: list[Any] = [multiprocessing.Value("q", 0) for _ in kinds]
    gap: Any = multiprocessing.Value("d", 0.0)
    workers = [
        multiprocessing.Process(target=churn, args=(kind, broker.port, count, stop), daemon=True)
        for kind, count in zip(kinds, done, strict=True)
    ]
    workers.append(multiprocessing.Process(target=probe, args=(broker.port, gap, stop), daemon=True))
    for worker in workers:
        worker.start()
    samples: list[Sample] = []
    begun, read = time.monotonic(), broker.collections(0)[1]
    try:
        while (at := time.monotonic() - begun) < minutes * 60:
            time.sleep(min(SAMPLE_SECONDS, minutes * 60 - at))
            broker.alive()
            dead = [worker for worker in workers if not worker.is_alive()]
            if dead:
                raise click.ClickException(f"a client has ended\n{broker.tail()}")
            pauses, read = broker.collections(read)
            with gap.get_lock():
                longest, gap.value = gap.value, 0.0
            wall, cpu = (
                max((wall for wall, _ in pauses), default=0),
                max((cpu for _, cpu in pauses), default=0),
            )
            counts = [count.value for count in done]
            samples.append(Sample(time.monotonic() - begun, broker.rss(), counts, wall, cpu, longest))
            click.echo(" | ".join(samples[-1].row()))
    finally:
        stop.set()
        for worker in workers:
            worker.join(ANSWER_SECONDS)
    return samples


def of_interest(samples: list[Sample]) -> list[Sample]:
    """Return the first sample and the samples at the ends of minutes."""
    step = round(WARM_SECONDS / SAMPLE_SECONDS)
    return samples[:1] + samples[step - 1 :: step]


@click.command()
@click.option("--minutes", default=10.0, show_default=True, type=click.FloatRange(0.1))
@click.option(
    "--messages", default=25_000, show_default=True, type=click.IntRange(1), help="Held all the time."
)
@click.option("--kinds", default=",".join(KINDS), show_default=True)
@click.option("--gc", "setting", default="tuned", show_default=True, help="The value of STOMPRING_GC.")
def main(minutes: float, messages: int, kinds: str, setting: str) -> None:
    """Create and remove objects of a broker, and print memory and pauses."""
    wanted = kinds.split(",")
    if not set(wanted) <= set(KINDS):
        raise click.BadParameter(f"there are {', '.join(KINDS)}", param_hint="--kinds")
    head = ["s", "RSS MB", *wanted, "collection ms (processor)", "collection ms", "longest round trip ms"]
    click.echo(" | ".join(head))
    with Watched({"STOMPRING_GC": setting}, addresses=ADDRESSES) as broker:
        samples = measure(broker, wanted, minutes, messages)
    click.echo("\n" + markdown(head, [sample.row() for sample in of_interest(samples)]))
    warm = [sample for sample in samples if sample.at >= WARM_SECONDS] or samples
    growth, longest = warm[-1].rss / warm[0].rss, max(sample.cpu for sample in samples)
    click.echo(
        f"\nmemory at the end / after a minute, target {TARGET_GROWTH}: {verdict(growth, TARGET_GROWTH, True)}"
    )
    click.echo(
        f"longest collection, ms of processor time, target {1e3 * TARGET_PAUSE:g}: "
        f"{verdict(1e3 * longest, 1e3 * TARGET_PAUSE, True)}"
    )


if __name__ == "__main__":
    main()
