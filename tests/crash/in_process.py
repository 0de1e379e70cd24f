"""A whole broker without sockets, threads and time of its own, on files that a test may spoil."""

from stompring.session.connect import Anonymous
from stompring.session.outbox import Outgoing
from stompring.settings.model import RoutingType, StompAcceptor
from stompring.store.writer import IN_REACTOR, IN_THREAD, LATER, ReactorSync

from ..session.session_fixture import Client, Server, frame
from ..store.stored_broker import BEGUN, StoredBroker
from .audit import Observation, Seen

SETTINGS = {
    "#": {
        "auto_delete_queues": False,
        "auto_delete_addresses": False,
        "default_address_routing_type": RoutingType.ANYCAST,
        "default_queue_routing_type": RoutingType.ANYCAST,
    },
    "always.#": {"max_size_messages": 0, "page_size_bytes": 1024, "max_read_page_bytes": -1},
    "always.new": {"page_size_bytes": 4096},
    "ring": {"default_ring_size": 3},
}


class Talker(Client):
    """A client whose frames wait while the broker does not read from it."""

    def __init__(self, server, number):
        super().__init__(server, number)
        self.unread = []

    def say(self, command, body=b"", **headers):
        """Send a frame, when the broker reads it."""
        self.unread.append(frame(command, body, **headers))
        self.go_on()

    def go_on(self):
        """Let the broker read, if it does."""
        while self.unread and self.wire.reading:
            self.write(self.unread.pop(0))


class EachInTurn(ReactorSync):
    """Batches are written by the reactor's thread, after a wait, and by the disk's: in turn, however long it takes."""

    def __init__(self, clock):
        super().__init__(clock, lambda: True)
        self._turn = 0

    def observe(self, seconds):
        pass

    @property
    def is_fast(self):
        return True

    def ask(self):
        self._turn += 1
        return (IN_REACTOR, LATER, IN_REACTOR, IN_THREAD)[self._turn % 4]


class Life(Server):
    """A broker from its start on ``root`` to whatever end, ``after`` so many seconds of its clock."""

    def __init__(self, files, root, after=0, settings=SETTINGS):
        self.files, self.root, self.settings = files, root, settings
        self.world = StoredBroker(
            files,
            settings,
            root=root,
            recover=False,
            after=after,
            journal_file_size=1024,
            journal_compact_min_files=2,
            journal_compact_percentage=90,
            dispatch_memory=1 << 20,
            prefill_from=1,
        )
        world = self.world
        self.dispatch = world.persistence.attach(world.broker)
        self.paging = world.store.pages = world.paging
        self.acceptor = StompAcceptor("stomp", "127.0.0.1", 0, multicast_prefix=("/topic/",))
        self.outgoing = Outgoing(world.broker.clock)
        world.writer.around = self.outgoing.gather
        world.writer.reactor_sync = EachInTurn(world.broker.clock)
        self.authenticator = Anonymous()
        self.clients = 0
        self.talkers = []
        world.persistence.recover(world.broker)
        self.turn()

    def talker(self, **headers):
        """A client that is connected."""
        self.clients += 1
        talker = Talker(self, str(self.clients))
        self.talkers.append(talker)
        talker.say("CONNECT", accept_version="1.2", host="/", **headers)
        assert talker.one("CONNECTED")
        return talker

    def turn(self):
        """All that happens at once happens."""
        for _ in range(10_000):
            self.world.turn()
            waiting = [talker for talker in self.talkers if talker.unread and talker.wire.reading]
            if not waiting:
                return
            for talker in waiting:
                talker.go_on()
        raise AssertionError("it never comes to rest")

    def wait(self, seconds):
        """Time passes."""
        for _ in range(seconds):
            self.world.clock.advance(1)
            self.turn()

    def again(self, files=None, later=0):
        """The broker started anew, after this process has died: at once, or so many seconds ``later``."""
        after = self.world.clock.seconds() - BEGUN + later
        return Life(files or self.files, self.root, after, self.settings)

    def observe(self):
        """What its queues count, and what somebody gets who reads them; he settles nothing."""
        found = Observation()
        for name, queue in dict(self.world.directory.queues).items():
            found.queues[name] = self._counted(queue)
            found.contents[name] = [_seen(name, got) for got in self._read(name)]
        return found

    def _counted(self, queue):
        return {
            "messageCount": queue.message_count,
            "scheduledCount": queue.scheduled_count,
            "deliveringCount": queue.delivering,
        }

    def _read(self, queue):
        reader = self.talker()
        destination = f"\\c\\c{queue}"
        reader.say("SUBSCRIBE", destination=destination, id="r", ack="client", consumer_window_size="-1")
        self.turn()
        messages = [got for got in reader.read() if got.command == "MESSAGE"]
        reader.say("DISCONNECT")
        self.turn()
        return messages


def _seen(queue, got):
    text = got.body.partition(b"|")[0].decode()
    return Seen(queue, queue, text, "pending", int(got["priority"]), 0)
