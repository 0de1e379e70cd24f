"""Memory of the broker's objects in bytes of Python's allocator: ``python -m benchmarks.micro.sizes [NUMBER]``.

The defaults of limits are based on these figures (docs/settings.md). A session is measured without its socket;
``benchmarks.idle_connections`` measures complete connections.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable

from twisted.internet.task import Clock

from stompring.server.service import BrokerService
from stompring.session.commands import StompSession
from stompring.session.connect import Anonymous
from stompring.session.destination import Destinations
from stompring.settings.model import BrokerConfiguration, QueueConfiguration, RoutingType, StompAcceptor

NUMBER = 10_000


class Wire:
    """A wire that discards all bytes."""

    peer = "203.0.113.1:50000"
    host = "203.0.113.1"
    certificate = None

    def write(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def grown(make: Callable[[int], object], number: int) -> float:
    """Measure the bytes of the result of each of ``number`` calls."""
    gc.collect()
    tracemalloc.start()
    kept = [make(place) for place in range(number)]
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (size - sys.getsizeof(kept)) / number


class Scene:
    """A broker in memory and its clients."""

    def __init__(self) -> None:
        unlimited = BrokerConfiguration(
            security_enabled=False,
            persistence_enabled=False,
            global_max_queues=-1,
            global_max_addresses=-1,
        )
        self.service = BrokerService(unlimited, Clock())
        self.acceptor = StompAcceptor(
            "stomp",
            "127.0.0.1",
            0,
            anycast_prefix=("/queue/",),
            multicast_prefix=("/topic/",),
            subscriptions_allowed=-1,
            transactions_allowed=-1,
            stomp_consumer_window_size=-1,
            stomp_prefetch_count=-1,
            max_unsettled_messages=-1,
        )
        self.destinations = Destinations(self.acceptor)

    def client(self, number: int) -> StompSession:
        """Create a connected session."""
        session = StompSession(
            self.service.broker,
            self.acceptor,
            self.destinations,
            Anonymous(),
            Wire(),
            self.service.outgoing,
            str(number),
        )
        session.receive(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        self.service.outgoing.flush()
        return session

    def say(self, session: StompSession, frame: bytes) -> None:
        """Process a frame of a client, and flush the output."""
        session.receive(frame + b"\n\n\0")
        self.service.outgoing.flush()


def main(number: int) -> None:
    """Measure and print."""
    scene = Scene()
    directory = scene.service.broker.directory
    anycast = RoutingType.ANYCAST
    one = scene.client(0)

    def address(place: int) -> object:
        return directory.create_address(f"an.address.of.some.length.{place}", frozenset({anycast}))

    def queue(place: int) -> object:
        name = f"a.queue.of.some.length.{place}"
        return directory.create_queue(QueueConfiguration(name, "one", anycast))

    def both(place: int) -> object:
        name = f"both.of.some.length.{place}"
        return directory.create_queue(QueueConfiguration(name, name, anycast))

    def subscription(place: int) -> None:
        scene.say(one, b"SUBSCRIBE\ndestination:/queue/read\nid:%d\nack:client-individual" % place)

    def topic(place: int) -> None:
        scene.say(one, b"SUBSCRIBE\ndestination:/topic/news\nid:topic-%d" % place)

    def transaction(place: int) -> None:
        scene.say(one, b"BEGIN\ntransaction:%d" % place)

    def step(place: int) -> None:
        scene.say(one, b"SEND\ndestination:/queue/steps\ntransaction:one")

    def unsettled(place: int) -> None:
        scene.say(one, b"SEND\ndestination:/queue/held")

    def waiting(place: int) -> None:
        scene.say(one, b"SEND\ndestination:/queue/waiting")

    measured: list[tuple[str, Callable[[int], object]]] = [
        ("a connection's session, after CONNECT", scene.client),
        ("an address", address),
        ("a queue on an address that has others", queue),
        ("a queue with an address of its own", both),
        ("a subscription to a queue", subscription),
        ("a subscription to a topic, with its queue", topic),
        ("an open transaction", transaction),
        ("a SEND in a transaction, without body", step),
        ("a message that waits, without body", waiting),
        ("a message that is not acknowledged, without body", unsettled),
    ]
    scene.say(one, b"BEGIN\ntransaction:one")
    scene.say(one, b"SUBSCRIBE\ndestination:/queue/held\nid:held\nack:client-individual")
    for title, make in measured:
        print(f"{title:50} {grown(make, number):8.0f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else NUMBER)
