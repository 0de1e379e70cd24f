"""Cost of a queue for a message, without a reactor: ``python -m benchmarks.micro.queue``.

Each case sends messages of 128 bytes through an address into its queue. The output has the best of many rounds, in
microseconds of processor time per message, from `Address.route` to the end of the case.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from twisted.internet.task import Clock

from stompring.broker.broker import Broker
from stompring.broker.message import Message, Traits
from stompring.broker.queue import Consumer, Queue
from stompring.broker.reference import Reference
from stompring.policy.hooks import Policies
from stompring.settings.model import BrokerConfiguration, QueueConfiguration, RoutingType

MESSAGES = 2_000
ROUNDS = 50  # short rounds, so that other programs do not disturb the best one
BODY = b"x" * 128

Run = Callable[[], None]
"""One round of a case: what is timed."""


class Auto(Consumer):
    """A consumer that acknowledges each message at once."""

    def deliver_message(self, message: Message) -> None:
        self.queue.messages_acknowledged += 1

    def deliver_reference(self, ref: Reference) -> None:
        self.queue.settle(ref)


class Acknowledging(Consumer):
    """A consumer that acknowledges all messages with `settle_all`."""

    __slots__ = ("unsettled",)

    def __init__(self) -> None:
        super().__init__()
        self.unsettled: list[Reference] = []

    def deliver_message(self, message: Message) -> None:
        self.unsettled.append(self.queue.mark_delivering(message))

    def deliver_reference(self, ref: Reference) -> None:
        self.unsettled.append(ref)

    def settle_all(self) -> None:
        unsettled, self.unsettled = self.unsettled, []
        for ref in unsettled:
            self.queue.settle(ref)


class Bench:
    """A broker with one queue, or several on one multicast address."""

    def __init__(self, queues: int = 1, ring_size: int = -1, key: str | None = None) -> None:
        self.broker = Broker(BrokerConfiguration(), Clock(), Policies())
        kind = RoutingType.ANYCAST if queues == 1 else RoutingType.MULTICAST
        self.queues: list[Queue] = [
            self.broker.directory.create_queue(
                QueueConfiguration(f"q{n}", "a", kind, ring_size=ring_size, last_value_key=key)
            )
            for n in range(queues)
        ]
        self.queue = self.queues[0]
        self.address = self.queue.address
        self.traits = Traits(b"priority:4\npersistent:false\n", b"/queue/a")
        self.far_off = self.broker.clock.now + 3_600_000

    def send(self, expires: int = 0) -> None:
        address, traits, number = self.address, self.traits, self.broker.next_message_number
        route = address.route
        for _ in range(MESSAGES):
            route(Message(number(), address, traits, BODY, 0, expires))


def direct_auto() -> Run:
    bench = Bench()
    bench.queue.add_consumer(Auto())
    return bench.send


def direct_acknowledged() -> Run:
    bench = Bench()
    consumer = Acknowledging()
    bench.queue.add_consumer(consumer)

    def run() -> None:
        bench.send()
        consumer.settle_all()

    return run


def ten_subscribers() -> Run:
    bench = Bench(queues=10)
    for queue in bench.queues:
        queue.add_consumer(Auto())
    return bench.send


def enqueue_then_drain() -> Run:
    bench = Bench()

    def run() -> None:
        bench.send()
        consumer = Auto()
        bench.queue.add_consumer(consumer)
        bench.queue.remove_consumer(consumer, [])

    return run


def requeue_then_drain() -> Run:
    """Deliver messages to a consumer that does not settle, requeue them, and drain the queue."""
    bench = Bench()

    def run() -> None:
        first, second = Acknowledging(), Auto()
        bench.queue.add_consumer(first)
        bench.send()
        bench.queue.remove_consumer(first, first.unsettled)
        bench.queue.add_consumer(second)
        bench.queue.remove_consumer(second, [])

    return run


def full_ring() -> Run:
    """Send to a full ring: every message evicts one."""
    bench = Bench(ring_size=100)
    bench.send()
    return bench.send


def last_values() -> Run:
    """Send messages with a hundred keys: each replaces the message with its key."""
    bench = Bench(key="code")
    kinds = [Traits(b"priority:4\npersistent:false\ncode:k%d\n" % n, b"/queue/a") for n in range(100)]
    route, number = bench.address.route, bench.broker.next_message_number

    def run() -> None:
        address = bench.address
        for at in range(MESSAGES):
            route(Message(number(), address, kinds[at % 100], BODY, 0, 0))

    return run


def last_values_to_a_consumer() -> Run:
    """Send to a last-value queue with a consumer, so that no message is replaced."""
    bench = Bench(key="code")
    bench.traits = Traits(b"priority:4\npersistent:false\ncode:k1\n", b"/queue/a")
    bench.queue.add_consumer(Auto())
    return bench.send


def expiring() -> Run:
    """Send messages with an expiry time that they do not reach."""
    bench = Bench()

    def run() -> None:
        bench.send(bench.far_off)
        consumer = Auto()
        bench.queue.add_consumer(consumer)
        bench.queue.remove_consumer(consumer, [])

    return run


def selector_behind_backlog() -> Run:
    """Send to a selective consumer behind a backlog that its selector rejects."""
    bench = Bench()
    bench.send()
    wanted = Traits(b"colour:red\n", b"/queue/a")
    consumer = Auto(lambda message: message.traits is wanted, "red")
    bench.queue.add_consumer(consumer)
    bench.traits = wanted
    return bench.send


CASES: dict[str, Callable[[], Run]] = {
    "make and route, auto ack, direct": direct_auto,
    "the same, acknowledged later": direct_acknowledged,
    "to 10 subscribers of a topic": ten_subscribers,
    "pending, then drained": enqueue_then_drain,
    "delivered, requeued, drained": requeue_then_drain,
    "into a full ring": full_ring,
    "replacing the value of its key": last_values,
    "to a last-value queue, auto ack": last_values_to_a_consumer,
    "pending with an expiry, then drained": expiring,
    "to a selector behind a backlog": selector_behind_backlog,
}


def measure(run: Run) -> float:
    """Measure µs per message, the best of the rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time()
        run()
        best = min(best, time.process_time() - begin)
    return best / MESSAGES * 1e6


def main() -> None:
    for name, make in CASES.items():
        print(f"{name:40} {measure(make()):7.2f} µs")


if __name__ == "__main__":
    main()
