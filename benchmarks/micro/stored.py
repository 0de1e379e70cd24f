"""A broker with its store in a temporary directory and without a reactor, for the micro-benchmarks of the store.

The disk is real, but it has no thread: `TimedDisk` runs a job at once, measures its processor time separately, and
reports its end when the benchmark calls ``land``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock

from stompring.broker import publish
from stompring.broker.broker import Broker
from stompring.broker.clock import Clock as BrokerClock
from stompring.broker.message import Message, Traits
from stompring.broker.queue import Queue
from stompring.policy.hooks import Policies
from stompring.settings.model import BrokerConfiguration, QueueConfiguration, RoutingType
from stompring.store.durable import Durable
from stompring.store.retention import Retention

TURN = 50  # messages in one round of the reactor of a busy broker
BODY = b"x" * 128


class TimedDisk:
    """A `stompring.store.files.Disk` without a thread. ``cpu``: processor seconds of its jobs."""

    def __init__(self) -> None:
        self.cpu = 0.0
        self.jobs = 0
        self._ended: list[tuple[Callable[[Any], None], Any]] = []

    def run(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        begun = time.thread_time()
        try:
            result = job()
        except Exception as error:
            result = error
        self.cpu += time.thread_time() - begun
        self.jobs += 1
        self._ended.append((done, result))

    def land(self) -> bool:
        """Report ended jobs. False if there are none."""
        ended, self._ended = self._ended, []
        for done, result in ended:
            done(result)
        return bool(ended)

    def finish(self) -> None:
        while self.land():
            pass


class StoredBroker:
    """A broker on the journal in ``directory``, recovered, with ``queues`` durable queues on one address."""

    def __init__(self, directory: Path, queues: int = 1, durable: bool = True, **settings: Any) -> None:
        self.disk = TimedDisk()
        self.reactor = Clock()
        self.reactor.advance(time.time())
        configuration = BrokerConfiguration(security_enabled=False, **settings)
        self.storage = Durable(configuration, directory / "journal", self.disk, self.reactor)
        kept = configuration.journal_retention_directory
        if kept is not None:
            self.storage.retain(
                Retention(kept, Path(kept.directory), self.storage.writer, BrokerClock(self.reactor))
            )
        self.broker = Broker(configuration, self.reactor, Policies(), self.storage)
        self.storage.recover(self.broker)
        kind = RoutingType.ANYCAST if queues == 1 else RoutingType.MULTICAST
        known = self.broker.directory.queues
        self.queues: list[Queue] = [
            known.get(f"q{n}") or self.broker.directory.create_queue(QueueConfiguration(f"q{n}", "a", kind))
            for n in range(queues)
        ]
        self.queue = self.queues[0]
        self.traits = Traits(b"priority:4\npersistent:true\n", b"/queue/a", durable=durable)
        self.settle()

    def turn(self) -> None:
        """End a round: write and sync the changes, and report it."""
        self.reactor.advance(0)
        self.disk.land()

    def settle(self) -> None:
        """Run rounds until all changes are written."""
        while True:
            self.reactor.advance(0)
            if not self.disk.land():
                return

    def send(self, messages: int, turn: int = TURN) -> None:
        """Send messages of 128 bytes, ``turn`` of them in each round."""
        address, broker, traits = self.queue.address, self.broker, self.traits
        number, send = broker.next_message_number, publish.send
        for start in range(0, messages, turn):
            now = broker.clock.refresh()
            for _ in range(min(turn, messages - start)):
                send(Message(number(), address, traits, BODY, now))
            self.turn()

    def close(self) -> None:
        """Close the store, which syncs it."""
        self.storage.close()
