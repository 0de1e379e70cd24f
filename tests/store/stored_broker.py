"""A world whose broker has a store, in memory or on a disk, and can be started again from what is there."""

from __future__ import annotations

from pathlib import Path

from stompring.broker.broker import Broker
from stompring.broker.clock import Clock
from stompring.broker.reference import PENDING
from stompring.policy.hooks import Policies
from stompring.settings.model import AddressSettingEntry, BrokerConfiguration
from stompring.store.durable import Durable
from stompring.store.files import Disk
from stompring.store.retention import Retention
from stompring.store.segment import NO_IDENTITY
from stompring.store.writer import PREFILL_FROM

from ..broker.broker_fixture import BrokerFixture, bodies
from .disk import ImmediateDisk
from .memory_files import MemoryFiles

JOURNAL = Path("/data/journal")


class StoredBroker(BrokerFixture):
    """See the module. ``disk`` is one that works at once where none is given."""

    def __init__(
        self,
        files=None,
        settings=None,
        disk=None,
        directory=JOURNAL,
        recover=True,
        after=0,
        identity=NO_IDENTITY,
        prefill_from=PREFILL_FROM,
        **configuration,
    ):
        super().__init__()
        self.clock.advance(after)
        entries = tuple(AddressSettingEntry(match, values) for match, values in (settings or {}).items())
        self.files = MemoryFiles() if files is None else files
        self.given = {"settings": settings, "directory": directory, "identity": identity, **configuration}
        self.given["prefill_from"] = prefill_from
        self.configuration = BrokerConfiguration(address_settings=entries, **configuration)
        self.disk: Disk = disk or ImmediateDisk(self.clock)
        self.store = Durable(
            self.configuration, directory, self.disk, self.clock, self.files, identity=identity
        )
        self.store.journal.prefill_from = prefill_from
        kept = self.configuration.journal_retention_directory
        if kept is not None:
            writer, clock = self.store.writer, Clock(self.clock)
            self.store.retain(Retention(kept, Path(kept.directory), writer, clock, identity))
        self.broker = Broker(self.configuration, self.clock, Policies(), self.store)
        self.directory = self.broker.directory
        self.journal, self.writer = self.store.journal, self.store.writer
        if recover:
            self.store.recover(self.broker)

    @property
    def memory(self):
        """Its files, which are in memory."""
        assert isinstance(self.files, MemoryFiles)
        return self.files

    @property
    def q(self):
        """The queue of that name."""
        return self.directory.queue("q")

    def turn(self):
        """Let everything happen that is to happen at once."""
        while self.clock.calls and self.clock.calls[0].getTime() <= self.clock.seconds():
            self.clock.advance(0)

    def again(self, files=None, **changed):
        """The broker started anew on its files after the process was killed, or on others."""
        given = {**self.given, "after": self.clock.seconds() - BEGUN, **changed}
        return StoredBroker(files or self.memory.kill(), **given)

    def crashed(self, random, **changed):
        """The broker started anew after the computer has crashed."""
        return self.again(self.memory.crash(random), **changed)

    def durable(self, address="q", body=b"", **more):
        """Send a durable message."""
        return self.send(address, body, durable=True, **more)

    def keep(self, *args, **more):
        """Send a durable message, which is in the journal then."""
        message = self.durable(*args, **more)
        self.turn()
        return message

    def restarted(self, **changed):
        """The broker started anew after it has written everything."""
        self.turn()
        return self.again(**changed)  # type: ignore[return-value]

    def synced(self):
        """A list that gets an item once all that was told is safe."""
        heard: list[bool] = []
        self.store.when_synced(lambda: heard.append(True))
        return heard


BEGUN = 1_700_000_000


def pending(queue):
    """What is pending, in order."""
    return [ref for ref in queue.dispatcher.in_order() if ref.state == PENDING]


def held(world, queue="q"):
    """The bodies of what is pending, in order; nothing where the queue is not there."""
    found = world.directory.queues.get(queue)
    return [] if found is None else bodies(found)


def reported(world):
    """What its recovery found damaged, for people."""
    assert world.store.recovery is not None
    return world.store.recovery.damaged
