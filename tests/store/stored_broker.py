"""A world whose broker has a store, in memory or on a disk, and can be started again from what is there."""

from pathlib import Path
from types import SimpleNamespace

from stompring.broker.broker import Broker
from stompring.broker.reference import PENDING
from stompring.policy.hooks import Policies
from stompring.server.persistence import Persistence
from stompring.settings.model import AddressSettingEntry, BrokerConfiguration
from stompring.store.segment import NO_IDENTITY

from ..broker.broker_fixture import BrokerFixture, bodies
from .disk import ImmediateDisk
from .memory_files import MemoryFiles

ROOT = Path("/data")
JOURNAL = ROOT / "journal"


class Held(SimpleNamespace):
    """The lock of a directory that nobody else has."""

    def use(self, files):
        pass


class StoredBroker(BrokerFixture):
    """See the module. ``disk`` is one that works at once where none is given."""

    def __init__(
        self,
        files=None,
        settings=None,
        disk=None,
        root=ROOT,
        recover=True,
        after=0,
        identity=NO_IDENTITY,
        prefill_from=0,
        reader=None,
        **configuration,
    ):
        super().__init__()
        self.clock.advance(after)
        entries = tuple(AddressSettingEntry(match, values) for match, values in (settings or {}).items())
        self.files = MemoryFiles() if files is None else files
        self.given = {"settings": settings, "root": root, "identity": identity, **configuration}
        self.given["prefill_from"] = prefill_from
        self.configuration = BrokerConfiguration(address_settings=entries, **configuration)
        self.disk = disk or ImmediateDisk(self.clock)
        self.reader = reader or ImmediateDisk(self.clock)
        lock = Held(identity=lambda journal: identity)
        pool = SimpleNamespace(writing=self.disk, reading=self.reader)
        self.persistence = Persistence(self.configuration, str(root), self.clock, lock, self.files, pool)
        self.store, self.paging = self.persistence.durable, self.persistence.paging
        self.store.pages = None  # those who have pages set it to their paging
        if prefill_from:
            self.store.journal.prefill_from = prefill_from
        self.broker = Broker(self.configuration, self.clock, Policies(), self.store)
        self.directory = self.broker.directory
        self.journal, self.writer = self.store.journal, self.store.writer
        if recover:
            self.store.recover(self.broker)

    @property
    def memory(self):
        """Its files, which are in memory."""
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
        heard = []
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
    return world.store.damaged
