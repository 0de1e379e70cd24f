"""A world whose addresses page, to a store whose files are in memory."""

from ..store.stored_broker import BEGUN, StoredBroker


class StoredPages(StoredBroker):
    """Addresses page after ``limit`` messages, to pages of ``page_size`` bytes. It can be killed and started again."""

    def __init__(
        self,
        limit=5,
        settings=None,
        *,
        page_size=1024,
        memory=1 << 20,
        more=None,
        files=None,
        after=0,
        **configuration,
    ):
        self.terms = {
            "limit": limit,
            "settings": settings,
            "page_size": page_size,
            "memory": memory,
            "more": more,
            **configuration,
        }
        everywhere = {
            "max_size_messages": limit,
            "page_size_bytes": page_size,
            "max_read_page_bytes": 1 << 20,
            "auto_delete_queues": False,
            "auto_delete_addresses": False,
            **(settings or {}),
        }
        super().__init__(
            files,
            {"#": everywhere, **(more or {})},
            recover=False,
            after=after,
            dispatch_memory=memory,
            persistence_enabled=True,
            **configuration,
        )
        self.store.pages = self.paging
        self.areas = self.persistence.attach(self.broker)
        self.persistence.recover(self.broker)
        self.broker.retroactive.apply()
        self.settle_down()

    def killed(self, pause=0):
        """The broker started again after it was killed, ``pause`` seconds later."""
        after = self.clock.seconds() - BEGUN + pause
        return StoredPages(files=self.memory.kill(), after=after, **self.terms)

    def pages(self, address="q"):
        return self.address(address).pages

    def area(self, queue):
        return queue.paged

    def fill(self, count, address="q", first=0, **traits):
        """Send durable messages with bodies ``0``, ``1``…; returns the bodies."""
        bodies = [b"%d" % number for number in range(first, first + count)]
        for body in bodies:
            self.send(address, body, **{"durable": True, **traits})
        return bodies

    def page_files(self):
        """The files of all pages."""
        return [path for path in self.memory.contents if "paging" in path.parts]

    def paged(self, address="q"):
        """How many messages the pages of an address have, settled ones too."""
        return sum(page.count for page in self.pages(address).in_order())


def drained(world, taker):
    """What a consumer that acknowledges everything has got in the end."""
    world.settle_down()
    while taker.unsettled:
        taker.ack()
        world.settle_down()
    return taker.bodies


def assert_nothing_paged(world):
    """Page mode is over everywhere, and nothing is kept of it."""
    for address in world.directory.addresses.values():
        assert address.pages is None, address.name
        assert not address.memory_limit.paging
    assert all(queue.paged is None for queue in world.directory.queues.values())
    assert (world.areas.budget.used, world.areas.budget.blocks) == (0, 0)
    assert not world.areas.areas
    assert not world.page_files()
