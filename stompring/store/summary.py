"""What a data directory holds, in numbers: what ``stompring data print`` shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .export import PortableAddress, PortableQueue, bound_addresses, bound_queues
from .inspection import DirectoryContents, FolderContents, FoundMessage, JournalInspection


@dataclass(slots=True)
class QueueCounts:
    """Messages of one queue. All of them are durable: nothing else outlives the broker."""

    queue: PortableQueue
    messages: int = 0
    paged: int = 0
    scheduled: int = 0
    delivered: int = 0  # went out to a consumer at some time
    bytes: int = 0  # of their records

    def count(self, held: FoundMessage, number: int, *, paged: bool) -> None:
        """One more message."""
        deliveries, _, due, _ = held.state(number)
        self.messages += 1
        self.paged += paged
        self.scheduled += due > 0
        self.delivered += deliveries > 0
        self.bytes += held.size

    def fields(self) -> dict[str, Any]:
        """As JSON."""
        return {
            **self.queue.fields(),
            "messageCount": self.messages,
            "pagedCount": self.paged,
            "scheduledCount": self.scheduled,
            "deliveredCount": self.delivered,
            "messageBytes": self.bytes,
        }


@dataclass(slots=True)
class SegmentCounts:
    """One segment of the journal, or the pages of one address."""

    file: str
    bytes: int
    sealed: bool = False
    records: int = 0
    live: int = 0  # messages that have their record here and are not settled
    live_bytes: int = 0

    def fields(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "file": self.file,
            "bytes": self.bytes,
            "sealed": self.sealed,
            "records": self.records,
            "liveMessages": self.live,
            "liveBytes": self.live_bytes,
        }


@dataclass(slots=True)
class PagesSummary:
    """The pages of one address."""

    folder: str
    address: str
    pages: int
    bytes: int
    written: int = 0  # messages in the files
    live: int = 0
    lost: int = 0  # that the next start drops, because they or their queues are not durable

    def fields(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "folder": self.folder,
            "address": self.address,
            "pages": self.pages,
            "bytes": self.bytes,
            "messages": self.written,
            "liveMessages": self.live,
            "volatileMessages": self.lost,
        }


@dataclass(slots=True)
class IdsSummary:
    """The ids by which one address knows duplicates."""

    address: str
    count: int

    def fields(self) -> dict[str, Any]:
        """As JSON."""
        return {"address": self.address, "count": self.count}


@dataclass(slots=True)
class Summary:
    """All of it."""

    root: str
    running: bool
    addresses: list[PortableAddress]
    queues: list[QueueCounts]
    segments: list[SegmentCounts]
    pages: list[PagesSummary] = field(default_factory=list)
    messages: int = 0
    duplicate_ids: list[IdsSummary] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "directory": self.root,
            "running": self.running,
            "messages": self.messages,
            "journal": [segment.fields() for segment in self.segments],
            "paging": [pages.fields() for pages in self.pages],
            "addresses": [address.fields() for address in self.addresses],
            "queues": [queue.fields() for queue in self.queues],
            "duplicateIds": [each.fields() for each in self.duplicate_ids],
            "setAside": self.set_aside,
        }


def summarize(contents: DirectoryContents) -> Summary:
    """Count everything. Reads the pages."""
    snapshot, journal = contents.snapshot, contents.journal
    counts = {number: QueueCounts(queue) for number, queue in bound_queues(journal).items()}
    segments = {
        each.path: SegmentCounts(each.path.name, each.size, each.sealed, each.records)
        for each in journal.segments
    }
    summary = Summary(
        str(snapshot.directory.root),
        snapshot.running,
        sorted(bound_addresses(journal).values(), key=lambda address: address.name),
        sorted(counts.values(), key=lambda each: (each.queue.address, each.queue.name)),
        list(segments.values()),
        duplicate_ids=list(_duplicate_ids(journal)),
        set_aside=[str(path) for path in snapshot.set_aside],
    )
    for held in journal.in_journal():
        segment = segments[held.path]
        segment.live += 1
        segment.live_bytes += held.size
        _count(summary, counts, held, paged=False)
    for folder, messages in contents.paged():
        for held in messages:
            _count(summary, counts, held, paged=True)
        summary.pages.append(_pages(folder))
    return summary


def _duplicate_ids(journal: JournalInspection) -> Iterator[IdsSummary]:
    """Of each address that is there. How many of them count after a start is for ``id-cache-size`` to say."""
    addresses = bound_addresses(journal)
    for number, found in journal.duplicate_ids.items():
        ids = sum(1 for _ in found.latest())
        if ids and number in addresses:
            yield IdsSummary(addresses[number].name, ids)


def _count(summary: Summary, counts: dict[int, QueueCounts], held: FoundMessage, *, paged: bool) -> None:
    summary.messages += 1
    for number in held.queues:
        if number in counts:
            counts[number].count(held, number, paged=paged)


def _pages(contents: FolderContents) -> PagesSummary:
    folder, pages = contents.folder, contents.pages
    return PagesSummary(
        folder.path.name,
        contents.address,
        len(pages),
        folder.bytes,
        sum(page.count for page in pages),
        sum(page.live for page in pages),
        sum(page.lost for page in pages),
    )
