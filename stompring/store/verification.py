"""The summary of a data directory (``stompring data print``), and its verification (``stompring data verify``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .datadir import IDENTITY, SCHEMA_VERSION, VERSION
from .export import PortableAddress, PortableQueue, as_json, bound_addresses, bound_queues, faults
from .inspection import DataFile, DirectoryContents, FoundMessage, Progress, Snapshot
from .page_file import ADDRESS_FILE, PageScan, describe_loss, page_path
from .record import PREFIX, Kind
from .segment import (
    BLOCK,
    HEADER,
    NO_IDENTITY,
    PAGE,
    TRAILER,
    Footer,
    Header,
    SegmentScan,
    block_crcs,
    find_footer,
    footer_offset,
)


@dataclass
class QueueCounts:
    """Number and bytes of one queue's durable messages. Other messages do not outlive the broker."""

    queue: PortableQueue
    message_count: int = 0
    paged_count: int = 0
    scheduled_count: int = 0
    delivered_count: int = 0  # number of messages delivered to a consumer at least once
    message_bytes: int = 0  # bytes of the message records

    def fields(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        counts = as_json(self)
        return {**counts.pop("queue").fields(), **counts}


@dataclass
class SegmentCounts:
    """The counts of one segment of the journal."""

    file: str
    bytes: int
    sealed: bool = False
    records: int = 0
    live_messages: int = 0  # number of unsettled messages whose record is in this segment
    live_bytes: int = 0


@dataclass
class PagesSummary:
    """The pages of one address."""

    folder: str
    address: str
    pages: int
    bytes: int
    messages: int = 0  # number of messages in the page files
    live_messages: int = 0
    # number of messages that the next start drops: not durable, or in no durable queue
    volatile_messages: int = 0


@dataclass
class IdsSummary:
    """The duplicate ids of one address."""

    address: str
    count: int


@dataclass
class Summary:
    """The summary of a data directory."""

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
        """Return the summary as JSON."""
        return {
            "directory": self.root,
            "running": self.running,
            "messages": self.messages,
            "journal": list(map(as_json, self.segments)),
            "paging": list(map(as_json, self.pages)),
            "addresses": [address.fields() for address in self.addresses],
            "queues": [queue.fields() for queue in self.queues],
            "duplicateIds": list(map(as_json, self.duplicate_ids)),
            "setAside": self.set_aside,
        }


def summarize(contents: DirectoryContents) -> Summary:
    """Count messages, records and duplicate ids of a data directory. Reads the pages."""
    snapshot, journal = contents.snapshot, contents.journal
    addresses = bound_addresses(journal)
    counts = {number: QueueCounts(queue) for number, queue in bound_queues(journal).items()}
    segments = {
        each.path: SegmentCounts(each.path.name, each.size, each.sealed, each.records)
        for each in journal.segments
    }
    summary = Summary(
        str(snapshot.directory.root),
        snapshot.running,
        sorted(addresses.values(), key=lambda address: address.name),
        sorted(counts.values(), key=lambda each: (each.queue.address, each.queue.name)),
        list(segments.values()),
        # the next start keeps at most ``id-cache-size`` of these ids
        duplicate_ids=[
            IdsSummary(addresses[number].name, count)
            for number, ids in journal.duplicate_ids.items()
            if (count := len(list(ids.latest()))) and number in addresses
        ],
        set_aside=[str(path) for path in snapshot.set_aside],
    )
    for held in journal.in_journal():
        segment = segments[held.path]
        segment.live_messages += 1
        segment.live_bytes += held.stored.size
        _count(summary, counts, held, paged=False)
    for contained, messages in contents.paged():
        for held in messages:
            _count(summary, counts, held, paged=True)
        folder, pages = contained.folder, contained.pages
        summary.pages.append(
            PagesSummary(
                folder.path.name,
                contained.address,
                len(pages),
                sum(page.size for page in folder.pages),
                sum(page.count for page in pages),
                sum(page.live for page in pages),
                sum(page.lost for page in pages),
            )
        )
    return summary


def _count(summary: Summary, counts: dict[int, QueueCounts], held: FoundMessage, *, paged: bool) -> None:
    summary.messages += 1
    for number, state in held.queues.items():
        if number in counts:
            count = counts[number]
            count.message_count += 1
            count.paged_count += paged
            count.scheduled_count += state.due > 0
            count.delivered_count += state.deliveries > 0
            count.message_bytes += held.stored.size


@dataclass(frozen=True, slots=True)
class Finding:
    """An inconsistency in a data directory."""

    path: Path
    position: int | None  # byte offset in the file, None for the whole file
    text: str

    def __str__(self) -> str:
        place = "" if self.position is None else f":{self.position}"
        return f"{self.path}{place}: {self.text}"


class Verification:
    """Reads everything in a snapshot. ``findings``: inconsistencies. ``notes``: texts about unusual files."""

    def __init__(self, snapshot: Snapshot, progress: Progress) -> None:
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.messages = 0
        self.running = snapshot.running
        self.segments = len(snapshot.journal)
        self.pages = sum(len(folder.pages) for folder in snapshot.folders)
        self._snapshot = snapshot
        self._look_at_files()
        contents = DirectoryContents(snapshot, self._found, progress)
        self.queues = len(contents.journal.durable_queues)
        for held in contents.journal.in_journal():
            self.messages += 1
            for queue in held.queues:
                if queue not in contents.journal.durable_queues:
                    name = contents.journal.queue(queue)
                    text = f"message {held.number} is in queue {name}, which does not exist"
                    self._found(held.path, held.at, text)
        for folder, messages in contents.paged():
            self.messages += sum(1 for _ in messages)
            known, said = folder.address, folder.folder.address
            file = folder.folder.path / ADDRESS_FILE
            if not said and folder.pages:
                self._found(file, None, "missing or empty")
            elif said and known != said:
                self._found(file, None, f"names address {said!r}, but the pages belong to {known!r}")
        self._look_for_missing_files(contents)
        for fault in faults(contents.journal):
            self._found(snapshot.directory.journal, None, fault)
        for data_file in snapshot.files():
            self._look_at_footer(data_file)
            progress(data_file.size)

    def summary(self) -> str:
        """Return the numbers of checked files, queues and messages, and of findings, in one line."""
        running = ", while a broker runs on it" if self.running else ""
        return (
            f"{self.segments} segments, {self.pages} pages, {self.queues} queues, {self.messages} messages: "
            f"{len(self.findings)} findings{running}"
        )

    def fields(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "running": self.running,
            "segments": self.segments,
            "pages": self.pages,
            "queues": self.queues,
            "messages": self.messages,
            "findings": [
                {"file": str(each.path), "position": each.position, "text": each.text}
                for each in self.findings
            ],
            "notes": self.notes,
        }

    def _found(self, path: Path, position: int | None, text: str) -> None:
        self.findings.append(Finding(path, position, text))

    # ---- files

    def _look_at_files(self) -> None:
        snapshot = self._snapshot
        for path in snapshot.strangers:
            self._found(path, None, "unknown file")
        for path in snapshot.set_aside:
            reason = (
                "as a copy of another replicated log" if ".discarded" in path.name else "because of damage"
            )
            self.notes.append(f"{path}: set aside {reason}")
        for path in snapshot.drafts:
            self.notes.append(f"{path}: temporary file left by a killed broker")
        root = snapshot.directory.root
        try:
            found = (root / VERSION).read_text("utf-8", "replace").strip()
        except OSError as fault:
            self._found(root / VERSION, None, f"cannot be read: {fault.strerror}")
        else:
            if found != str(SCHEMA_VERSION):
                text = f"unsupported schema version {found[:20]!r}; supported: {SCHEMA_VERSION}"
                self._found(root / VERSION, None, text)
        if snapshot.identity == NO_IDENTITY:
            self._found(root / IDENTITY, None, "missing or unreadable")

    def _look_for_missing_files(self, contents: DirectoryContents) -> None:
        """Report missing segments, and missing pages that have a record. Ignores files that a running broker may have
        created or deleted meanwhile.
        """
        journal, directory = contents.journal, self._snapshot.directory
        aside = {
            int(path.name.partition(".")[0]) for path in self._snapshot.set_aside if path.name[:9].isdigit()
        }
        last = self._snapshot.journal[-1].number if self.running and self._snapshot.journal else 1 << 64
        for number in journal.missing:
            if number not in aside and number <= last:
                text = f"segment {number} is missing; number of lost messages unknown"
                self._found(directory.journal, None, text)
        if self.running:
            return
        there = {
            page.file.number for folder in contents.folders for page in folder.pages if not page.misplaced
        }
        for number in sorted(journal.page_files.keys() - there):
            file, lost = journal.page_files[number], None
            if file.shares is not None:
                left = journal.pages.lost_with(number, file.shares)
                lost = {journal.queue(queue): left[queue] for queue in left.keys() & journal.durable_queues}
            path = page_path(directory.paging / f"{file.address:09d}", number)
            self._found(path, None, f"the file is missing; messages lost: {describe_loss(lost)}")

    def _look_at_footer(self, file: DataFile) -> None:
        at = footer_offset(file.read(file.size - TRAILER.size)) if file.size > TRAILER.size else -1
        if at < 0:
            return  # the file is not sealed, or its damage was reported already
        data = file.read()
        footer = find_footer(data)
        if footer is None:
            self._found(file.path, at, "footer is damaged")
        else:
            for position, text in footer_faults(data, footer):
                self._found(file.path, position, text)


def footer_faults(data: bytes, footer: Footer) -> Iterator[tuple[int, str]]:
    """Yield wrong CRCs of blocks, and differences between footer and records, each with its offset."""
    found = block_crcs(memoryview(data)[: footer.size])
    if len(found) != len(footer.blocks):
        yield footer.size, f"footer has CRCs of {len(footer.blocks)} blocks, the file has {len(found)}"
    for place, (crc, expected) in enumerate(zip(found, footer.blocks, strict=False)):
        if crc != expected:
            yield place * BLOCK, "CRC mismatch in this block of 64 KiB"
    walk = SegmentScan(data)
    begins = [(begin - PREFIX.size, data[begin]) for begin, _ in walk]
    if walk.faults:
        return  # this fault was reported already, and later records cannot be compared
    paged = Header.read(data[: HEADER.size]).kind == PAGE
    starts = [at for at, kind in begins if not paged or kind == Kind.MESSAGE]
    if list(footer.starts) != starts:
        yield footer.size, "record offsets in the footer do not match the records"
    elif paged:
        made = PageScan(data).contents.footer(*footer.addresses[:1] or (0,))
        columns = ("least_number", "greatest_number", "least_timestamp", "greatest_timestamp", "more")
        if any(getattr(made, column) != getattr(footer, column) for column in columns):
            yield footer.size, "message ranges in the footer do not match the messages"
