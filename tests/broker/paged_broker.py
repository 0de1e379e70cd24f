"""A world whose addresses page, to the pages of `fake_pages`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stompring.broker.queue import Queue
from stompring.paging.paged_queue import TargetArea
from stompring.paging.paged_queues import TargetAreas

from .broker_fixture import BrokerFixture, Taker
from .fake_pages import FakePages, FakePaging


class PagedWorld(BrokerFixture):
    """Addresses page after ``limit`` messages."""

    def __init__(
        self,
        limit: int = 5,
        settings: Mapping[str, Any] | None = None,
        *,
        page_size: int = 10,
        block_size: int = 4,
        memory: int = 1 << 20,
        **configuration: Any,
    ) -> None:
        everywhere = {"max_size_messages": limit, "auto_delete_queues": False, "auto_delete_addresses": False}
        more = configuration.pop("more", {})
        super().__init__(
            {"#": {**everywhere, **(settings or {})}, **more},
            dispatch_memory=memory,
            persistence_enabled=True,
            **configuration,
        )
        self.areas = TargetAreas(self.broker)
        self.paging = FakePaging(self.areas.budget, page_size, block_size)
        self.broker.paging = self.paging

    def pages(self, address: str = "q") -> FakePages:
        pages = self.address(address).pages
        assert isinstance(pages, FakePages)
        return pages

    def area(self, queue: Queue) -> TargetArea:
        assert isinstance(queue.paged, TargetArea)
        return queue.paged

    def fill(self, count: int, address: str = "q", first: int = 0, **traits: Any) -> list[bytes]:
        """Send messages with bodies ``0``, ``1``…; returns the bodies."""
        bodies = [b"%d" % number for number in range(first, first + count)]
        for body in bodies:
            self.send(address, body, **traits)
        return bodies


def drained(world: PagedWorld, taker: Taker) -> list[bytes]:
    """What a consumer that acknowledges everything has got in the end."""
    world.settle_down()
    while taker.unsettled:
        taker.ack()
        world.settle_down()
    return taker.bodies


def assert_nothing_paged(world: PagedWorld) -> None:
    """Page mode is over everywhere, and nothing is kept of it."""
    for address in world.directory.addresses.values():
        assert address.pages is None, address.name
        assert not address.memory_limit.paging
    assert all(queue.paged is None for queue in world.directory.queues.values())
    assert (world.areas.budget.messages, world.areas.budget.blocks) == (0, 0)
    assert not world.areas.areas
    assert all(pages.closed for pages in world.paging.opened)
