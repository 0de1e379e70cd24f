"""Cost of a scrape of many queues for the reactor: ``python -m benchmarks.micro.metrics_scrape [QUEUES]``.

The real site answers on a transport in memory. A clock of the benchmark calls and measures its time slices. The output
has the sum of all slices, the longest slice, and the size of the answer: best and worst of some rounds, in milliseconds
of processor time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from twisted.internet.base import DelayedCall
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from stompring.admin.http import admin_site
from stompring.broker import publish
from stompring.broker.message import Message, Traits
from stompring.server.service import BrokerService
from stompring.settings.model import BrokerConfiguration, QueueConfiguration, RoutingType

QUEUES = 10_000
ROUNDS = 10


class TimedClock(Clock):
    """A clock that records the duration of each call in seconds of processor time."""

    def __init__(self) -> None:
        super().__init__()
        self.slices: list[float] = []

    def callLater(
        self, when: float, call: Callable[..., object], *arguments: object, **named: object
    ) -> DelayedCall:
        return super().callLater(when, self.timed, call, *arguments, **named)

    def timed(self, call: Callable[..., object], *arguments: object, **named: object) -> None:
        begin = time.thread_time()
        call(*arguments, **named)
        self.slices.append(time.thread_time() - begin)


def filled_service(queues: int) -> BrokerService:
    """Create a broker with queues, each with its own address, one message and a name of usual length."""
    service = BrokerService(BrokerConfiguration(security_enabled=False), TimedClock())
    broker = service.broker
    for number in range(queues):
        name = f"orders.europe.warehouse-{number:05d}.incoming"
        broker.directory.create_queue(QueueConfiguration(name, name, RoutingType.ANYCAST))
        address = broker.directory.address(name)
        publish.send(
            Message(broker.next_message_number(), address, Traits(b""), b"x" * 128, broker.clock.now)
        )
    return service


def timed_request(service: BrokerService, request: bytes) -> tuple[list[float], int]:
    """Return the seconds of each slice of a request, and the bytes of its answer."""
    clock = service.reactor
    channel = admin_site(service).buildProtocol(None)
    transport = StringTransport()
    channel.makeConnection(transport)
    clock.slices.clear()
    clock.timed(channel.dataReceived, request)
    while not transport.disconnecting:
        clock.advance(0)
    return list(clock.slices), len(transport.value())


def main() -> None:
    queues = int(sys.argv[1]) if len(sys.argv) > 1 else QUEUES
    service = filled_service(queues)
    service.garbage.start()  # like the server after its start
    cases = {
        "/metrics": "/metrics",
        "/api/v1/queues": "/api/v1/queues?size=1000",
        "/api/v1/queues sorted": "/api/v1/queues?sort=-messageCount&size=1000",
    }
    print(f"{queues} queues, {ROUNDS} rounds")
    print(f"{'':24}{'in all':>18}{'longest slice':>18}{'slices':>8}{'MB':>8}")
    for name, path in cases.items():
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        rounds = [timed_request(service, request) for _ in range(ROUNDS)]
        totals = [sum(slices) * 1000 for slices, _ in rounds]
        longest = [max(slices) * 1000 for slices, _ in rounds]
        slices, length = rounds[-1]
        total, one = (f"{min(values):.1f} to {max(values):.1f}" for values in (totals, longest))
        print(f"{name:24}{total:>18}{one:>18}{len(slices):>8}{length / 1e6:>8.1f}")


if __name__ == "__main__":
    main()
