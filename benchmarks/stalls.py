"""Longest pause for other clients while the broker processes many messages at one moment.

    python -m benchmarks.stalls [--cases expire,hang-up] [--messages 100000] [--many 1000000] [--durable]

Each case starts a new broker, fills a queue, and begins an operation on all of its messages. From half a second before
the operation to half a second after it, a probe process sends 200 messages per second over one connection and receives
them on another. The output has the largest gap between two messages of the probe, and the duration of the operation.
Without an operation the gap is slightly more than 5 ms (the case ``nothing``).
"""

from __future__ import annotations

import http.client
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import click

from benchmarks import management
from benchmarks.brokers import Stompring
from benchmarks.brokers.process import HOST
from benchmarks.client import Client
from benchmarks.results import markdown

PILE, PROBE = "pile", "/queue/probe"
RATE = 200
ASIDE = 0.5
PATIENCE = 300.0
BODY = b"x" * 100


def probe(broker: Stompring, pipe: Connection) -> None:
    """Send and receive until the pipe has data, then send the gaps between messages, in seconds, to the pipe."""
    producer, consumer = Client(broker), Client(broker)
    for client in (producer, consumer):
        client.connect()
        client.expect("CONNECTED")
    consumer.subscribe(PROBE)
    came: list[float] = []

    def receive() -> None:
        while b"stop" not in consumer.expect("MESSAGE"):
            came.append(time.perf_counter())

    receiver = threading.Thread(target=receive)
    receiver.start()
    due = time.perf_counter()
    while not pipe.poll():
        producer.send(PROBE, BODY)
        due += 1 / RATE
        time.sleep(max(0.0, due - time.perf_counter()))
    producer.send(PROBE, b"stop")
    receiver.join()
    pipe.send([later - earlier for earlier, later in zip(came, came[1:], strict=False)])


@contextmanager
def beside(broker: Stompring, result: list[float]) -> Iterator[None]:
    """Context manager: run the probe, and at the end append its largest gap in seconds to ``result``."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=probe, args=(broker, theirs))
    process.start()
    time.sleep(ASIDE)
    try:
        yield
        time.sleep(ASIDE)
    finally:
        ours.send("stop")
        result.append(max(ours.recv()))
        process.join()


class Case:
    """The cases on one broker. Each returns its duration in seconds."""

    def __init__(self, broker: Stompring, messages: int, many: int, durable: bool) -> None:
        self.broker = broker
        self.messages = messages
        self.many = many
        self.durable = {"persistent": "true"} if durable else {}
        self.gaps: list[float] = []

    def connect(self) -> Client:
        client = Client(self.broker)
        client.connect()
        client.expect("CONNECTED")
        return client

    def call(self, method: str, path: str) -> int:
        """Call the HTTP interface. Returns the status."""
        connection = http.client.HTTPConnection(HOST, self.broker.http_port, timeout=PATIENCE)
        connection.request(method, f"/api/v1{path}", headers={"content-length": "0"})
        status = connection.getresponse().status
        connection.close()
        return status

    def fill(self, count: int, destination: str = f"/queue/{PILE}", **headers: str) -> None:
        """Send messages to a destination, and wait until the queue has the last one."""
        client = self.connect()
        lines = "".join(f"{name}:{value}\n" for name, value in (headers | self.durable).items())
        frame = (
            f"SEND\ndestination:{destination}\n{lines}content-length:{len(BODY)}\n\n".encode() + BODY + b"\0"
        )
        for start in range(0, count, 1000):
            client.socket.sendall(frame * min(1000, count - start))
        client.send("/queue/other", b"", receipt=1)
        client.expect("RECEIPT")
        client.close()

    def wait(self, counter: str, value: int, name: str = PILE) -> None:
        management.expect(self.broker, name, counter, value, PATIENCE)

    def timed(self, act: Callable[[], object]) -> float:
        with beside(self.broker, self.gaps):
            began = time.perf_counter()
            act()
            return time.perf_counter() - began

    def at_one_moment(self, header: str, counter: str, ahead: float) -> float:
        moment = time.time() + ahead
        self.fill(self.messages, **{header: str(int(moment * 1000))})
        left = moment - time.time() - 2 * ASIDE
        if left < 0:
            raise click.ClickException(f"filling took longer than {ahead:g} s: --ahead is to be larger")
        time.sleep(left)

        def act() -> None:
            time.sleep(max(0.0, moment - time.time()))
            self.wait(counter, 0)

        return self.timed(act) - ASIDE

    # ---- the cases

    def nothing(self, ahead: float) -> float:
        return self.timed(lambda: time.sleep(2))

    def expire(self, ahead: float) -> float:
        return self.at_one_moment("expires", "messageCount", ahead)

    def due(self, ahead: float) -> float:
        return self.at_one_moment("AMQ_SCHEDULED_TIME", "scheduledCount", ahead)

    def _hang_up(self, kind: str, after: Callable[[], object]) -> float:
        client = self.connect()
        client.socket.sendall(
            f"SUBSCRIBE\nid:0\ndestination:/{kind}/{PILE}\nack:client-individual\n"
            f"prefetch-count:{self.messages}\n\n\0".encode()
        )
        self.fill(self.messages, f"/{kind}/{PILE}")
        for _ in range(self.messages):
            client.expect("MESSAGE")
        return self.timed(
            lambda: (client.socket.shutdown(socket.SHUT_RDWR), after())
        )  # the probe process has a copy of the socket too

    def hang_up(self, ahead: float) -> float:
        return self._hang_up("queue", lambda: self.wait("deliveringCount", 0))

    def auto_delete(self, ahead: float) -> float:
        def gone() -> None:
            while management.queues(self.broker, address=PILE):
                time.sleep(0.05)

        return self._hang_up("topic", gone)

    def commit(self, ahead: float) -> float:
        client, count = self.connect(), self.messages // 2
        client.socket.sendall(b"BEGIN\ntransaction:t\n\n\0")
        head = f"SEND\ndestination:/queue/{PILE}\ntransaction:t\n"
        lines = "".join(f"{name}:{value}\n" for name, value in self.durable.items())
        frame = f"{head}{lines}content-length:{len(BODY)}\n\n".encode() + BODY + b"\0"
        for _ in range(0, count, 1000):
            client.socket.sendall(frame * 1000)
        client.send("/queue/other", b"", receipt=1)
        client.expect("RECEIPT")

        def act() -> None:
            client.socket.sendall(b"COMMIT\ntransaction:t\nreceipt:2\n\n\0")
            client.expect("RECEIPT")

        return self.timed(act)

    def purge(self, ahead: float) -> float:
        self.fill(self.many)
        return self.timed(lambda: self.call("POST", f"/queues/{PILE}/purge"))

    def delete(self, ahead: float) -> float:
        self.fill(self.many)
        return self.timed(lambda: self.call("DELETE", f"/queues/{PILE}?force=true"))


CASES: dict[str, Callable[[Case, float], float]] = {
    "nothing": Case.nothing,
    "expire": Case.expire,
    "due": Case.due,
    "hang-up": Case.hang_up,
    "auto-delete": Case.auto_delete,
    "commit": Case.commit,
    "purge": Case.purge,
    "delete": Case.delete,
}


def run(name: str, messages: int, many: int, durable: bool, ahead: float) -> list[Any]:
    """Run one case. Returns a row of the table."""
    settings = {"max-size-bytes": "-1", "expiry-address": "", "redelivery-delay": "0"}
    with Stompring(addresses=settings) as broker:
        case = Case(broker, messages, many, durable)
        seconds = CASES[name](case, ahead)
        return [name, f"{max(case.gaps) * 1000:,.0f}", f"{seconds:.2f}"]


@click.command()
@click.option("--cases", default=",".join(CASES), show_default=True, help="Which, with commas between them.")
@click.option("--messages", default=100_000, show_default=True, type=click.IntRange(1000))
@click.option(
    "--many", default=1_000_000, show_default=True, type=click.IntRange(1000), help="For purge and delete."
)
@click.option("--durable", is_flag=True, help="Messages are durable.")
@click.option(
    "--ahead", default=30.0, show_default=True, help="Seconds that filling may take before a due time."
)
def main(cases: str, messages: int, many: int, durable: bool, ahead: float) -> None:
    """Print the largest gap of the probe and the duration of each case."""
    rows = []
    for name in cases.split(","):
        if name not in CASES:
            raise click.BadParameter(f"{name!r} is none of {', '.join(CASES)}", param_hint="--cases")
        rows.append(run(name, messages, many, durable, ahead))
        click.echo(" ".join(rows[-1]))
    click.echo("\n" + markdown(["case", "largest gap ms", "seconds"], rows))


if __name__ == "__main__":
    main()
