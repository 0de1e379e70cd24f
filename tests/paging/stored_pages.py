"""A world that pages to a real store, in files that are skipped in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from stompring.broker import page_mode
from stompring.broker import paging as seam
from stompring.broker.queue import Queue
from stompring.paging.paged_queue import TargetArea
from stompring.paging.paged_queues import TargetAreas
from stompring.store.pages import Pages
from stompring.store.paging import Paging

from ..store.disk import ImmediateDisk
from ..store.memory_files import MemoryFiles
from ..store.stored_broker import BEGUN, StoredBroker


class StoredPages(StoredBroker):
    """As `PagedWorld`, but that it can be killed and started again. ``page_size`` is in bytes."""

    def __init__(
        self,
        limit: int = 5,
        settings: Mapping[str, Any] | None = None,
        *,
        page_size: int = 1024,
        memory: int = 1 << 20,
        files: MemoryFiles | None = None,
        after: float = 0,
    ) -> None:
        self.terms: dict[str, Any] = {
            "limit": limit,
            "settings": settings,
            "page_size": page_size,
            "memory": memory,
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
            {"#": everywhere},
            recover=False,
            after=after,
            dispatch_memory=memory,
            persistence_enabled=True,
        )
        self.areas = TargetAreas(self.broker)
        self.paging = Paging(
            self.journal,
            self.writer,
            ImmediateDisk(self.clock),
            self.broker.clock,
            Path("/data/paging"),
        )
        self.paging.reads.account = self.areas.budget
        self.store.pages = self.paging
        self.broker.paging = cast(seam.Paging, self.paging)
        self.store.recover(self.broker)
        for pages in self.paging.recovered:
            page_mode.resume_paging(pages.address, cast(seam.Pages, pages))
        self.settle_down()

    def killed(self, pause: float = 0) -> StoredPages:
        """The broker started again after it was killed, ``pause`` seconds later."""
        after = self.clock.seconds() - BEGUN + pause
        return StoredPages(files=self.memory.kill(), after=after, **self.terms)

    def pages(self, address: str = "q") -> Pages:
        pages = self.address(address).pages
        assert isinstance(pages, Pages)
        return pages

    def area(self, queue: Queue) -> TargetArea:
        assert isinstance(queue.paged, TargetArea)
        return queue.paged

    def fill(self, count: int, address: str = "q", first: int = 0, **traits: Any) -> list[bytes]:
        """Send durable messages with bodies ``0``, ``1``…; returns the bodies."""
        bodies = [b"%d" % number for number in range(first, first + count)]
        for body in bodies:
            self.send(address, body, durable=True, **traits)
        return bodies
