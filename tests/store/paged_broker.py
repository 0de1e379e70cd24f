"""A stored world with real pages, used as the broker's dispatch would: a cursor at a time, without consumers."""

from pathlib import Path

from stompring.broker.ports import Reason
from stompring.broker.reference import DELIVERING, Reference
from stompring.settings.model import RoutingType

from .stored_broker import StoredBroker

PAGING = Path("/data/paging")

#: Small pages, so that tests have several.
SETTINGS = {"#": {"page_size_bytes": 1024, "auto_delete_queues": False, "auto_delete_addresses": False}}


class PagedBroker(StoredBroker):
    """One address ``a`` whose messages all go to pages; ``pages`` are None while it has none."""

    def __init__(self, files=None, *, settings=SETTINGS, recover=True, **more):
        super().__init__(files, settings, recover=False, **more)
        self.store.pages = self.paging
        if recover:
            self.recover()

    def recover(self):
        self.store.recover(self.broker)
        for pages in self.paging.recovered:
            pages.address.pages = pages
        self.turn()

    def again(self, files=None, **changed):
        given = {**self.given, "after": self.clock.seconds() - 1_700_000_000, **changed}
        return PagedBroker(files or self.memory.kill(), **given)

    def crashed(self, random, **changed):
        return self.again(self.memory.crash(random), **changed)

    def stop(self):
        """A clean stop."""
        self.paging.stop()
        self.store.close()

    # ---- pages

    def queues(self, *names, **more):
        """Queues of address ``a``, made where they are missing. They are on disk, so that pages do not repeat them."""
        queues = self.new_queues(*names, **more)
        self.turn()
        return queues

    def new_queues(self, *names, **more):
        """The same before anything of them is on disk."""
        known = self.directory.queues
        for name in names:
            if name not in known:
                self.queue(name, "a", RoutingType.MULTICAST, **more)
        return [known[name] for name in names]

    @property
    def pages(self):
        """Those of ``a``, opened where there are none."""
        address = self.address("a")
        if address.pages is None:
            address.pages = self.paging.open(address)
        return address.pages

    def page(self, members, body=b"", *, due=0, **traits):
        """A durable message for some queues."""
        traits.setdefault("durable", True)
        return self.pages.append(self.message("a", body, **traits), members, due)

    def fill(self, queue, count, size=100, **traits):
        """``count`` messages, whose bodies begin with their number and are ``size`` long."""
        return [self.page([queue], b"%d " % at + bytes(size - 2), **traits) for at in range(count)]

    def cursor(self, queue):
        return self.pages.cursor(queue)

    def read(self, page, index):
        """The block with a position."""
        found = []
        pages = next(pages for pages in self.all_pages() if page in pages.in_order() or page.gone)
        pages.fetch(page, index, found.append)
        assert not found, "called within"
        self.turn()
        assert len(found) == 1
        return found[0]

    def roll(self):
        """The last page is complete, and written."""
        self.pages.roll()
        self.turn()

    def close_pages(self):
        """The address does not page any more."""
        self.paging.close(self.pages)
        self.address("a").pages = None
        self.turn()

    def all_pages(self):
        return [address.pages for address in self.directory.addresses.values() if address.pages is not None]

    def load(self, queue, page, index):
        """Take a position, as dispatch does."""
        block = self.read(page, index)
        return refer(queue, self.cursor(queue), block.message(index), page, index)

    def first(self, queue):
        """Take what comes first, if anything does and can be read."""
        cursor = self.cursor(queue)
        while True:
            position = next(filter(None, (cursor.first(level) for level in range(9, -1, -1))), None)
            if position is None:
                return None
            if self.read(*position) is not None:
                return self.load(queue, *position)

    def drain(self, queue):
        """Take and settle everything that waits; the bodies up to the first blank."""
        bodies = []
        while (ref := self.first(queue)) is not None:
            bodies.append(ref.message.body.partition(b" ")[0])
            self.cursor(queue).settle(ref, Reason.ACKNOWLEDGED)
        return bodies

    def page_files(self):
        """Names of all files in directories of addresses."""
        return sorted(path.name for path in self.memory.contents if path.is_relative_to(PAGING))


def refer(queue, cursor, message, page, index):
    ref = Reference(message, queue, DELIVERING)
    ref.position = (page, index)
    ref.deliveries, ref.attempts = cursor.take(page, index)
    return ref
