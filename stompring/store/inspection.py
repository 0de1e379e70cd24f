"""Inspection: reads the live contents of a data directory, also while a broker writes to it, and changes nothing.

An open file stays readable when the broker deletes it. The snapshot opens pages before the journal: the journal then
has all records about these pages, and a message that moves between the files is found at least once.
"""

from __future__ import annotations

import errno
import os
import re
import resource
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from heapq import merge
from operator import attrgetter
from pathlib import Path
from struct import error as StructError

from stompring.errors import StoreError
from stompring.settings.machine import DataDirectory

from .datadir import IDENTITY, LOCK, MARKER, VERSION, is_locked, read_identity
from .encoder import MessageState
from .files import Files, read_range
from .page_file import ADDRESS_FILE, DIRECTORY_NAME
from .record import (
    ADDRESS,
    CONSUMER,
    DURABLE,
    MESSAGE,
    NAME,
    PAGE_CURSOR,
    PREFIX,
    QUEUE,
    QUEUE_ADDRESS,
    SETTLED,
    STATE,
    Kind,
    StoredMessage,
    unpack_binding,
    unpack_numbers,
)
from .replay import SEGMENT_NAME, PageRecords, Replay
from .segment import FORMAT, NO_IDENTITY, PAGE, Header, SegmentScan

LIVE_PAGE_NAME = re.compile(r"(\d{9,})\.page")
SET_ASIDE = re.compile(r".*\.(damaged|discarded|invalidPage|orphaned)(\.\d+)?")
KNOWN_NAME = re.compile(
    "|".join((re.escape(LOCK), VERSION, IDENTITY, MARKER, "journal", "paging", "retention"))
)
PAGE_FOLDER_NAME = re.compile(rf"\d{{9,}}\.page|{re.escape(ADDRESS_FILE)}")

#: Maximum number of attempts to open all files. An attempt fails if a broker deletes a listed file before it is opened.
MAX_ATTEMPTS = 50


class DataFile:
    """An open file. ``size``: bytes of the file when it was opened; `read` does not return bytes that were appended
    later. ``opened`` closes the file.
    """

    def __init__(self, path: Path, number: int, opened: ExitStack[None]) -> None:
        self.path = path
        self.number = number
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        opened.callback(os.close, self._descriptor)
        self.size = os.fstat(self._descriptor).st_size

    def read(self, start: int = 0, stop: int = -1) -> bytes:
        """Return the bytes from ``start`` to before ``stop``, fewer if the file is shorter. Raises `StoreError`."""
        stop = self.size if stop < 0 else min(stop, self.size)
        try:
            return read_range(self._descriptor, start, stop)
        except OSError as fault:
            raise StoreError(fault.strerror or str(fault), self.path, start) from None


@dataclass
class PageFolder:
    """The pages of one address."""

    path: Path
    pages: list[DataFile]
    address: str = ""  # name in address.txt; empty if that file is missing


class Snapshot(ExitStack[None]):
    """The files of a data directory at one time, opened for reading: a context manager. Raises `StoreError`."""

    def __init__(self, directory: DataDirectory) -> None:
        super().__init__()
        self.directory = directory
        self.running = is_locked(directory.root)  # whether a broker has locked the directory
        self.identity = NO_IDENTITY
        with suppress(OSError, StoreError):
            self.identity = read_identity(Files(), directory.root / IDENTITY) or NO_IDENTITY
        self.journal: list[DataFile] = []
        self.folders: list[PageFolder] = []
        self.set_aside: list[Path] = []  # damaged or unexpected files that a broker has renamed
        self.drafts: list[Path] = []  # incomplete replacements of small files, after a crash
        self.strangers: list[Path] = []  # files whose names no broker uses
        if not (directory.root / VERSION).is_file() and not directory.journal.is_dir():
            raise StoreError("not a stompring data directory", directory.root)
        # the snapshot has all files of the directory open at the same time
        _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        try:
            self._open()
        except OSError as fault:
            self.close()
            text = fault.strerror or str(fault)
            if fault.errno == errno.EMFILE:
                text = "too many open files: raise the limit (ulimit -n)"
            raise StoreError(text, fault.filename or directory.root) from None
        self._look_around()

    def files(self) -> Iterator[DataFile]:
        """Yield all segments and pages."""
        yield from self.journal
        for folder in self.folders:
            yield from folder.pages

    @property
    def bytes(self) -> int:
        """Total size of all segments and pages."""
        return sum(file.size for file in self.files())

    # ---- opening

    def _open(self) -> None:
        for _ in range(MAX_ATTEMPTS):
            self.close()
            try:
                self.folders = [
                    self._folder(path)
                    for path in _listing(self.directory.paging)
                    if path.is_dir() and DIRECTORY_NAME.fullmatch(path.name)
                ]
                before = self._pages_there()
                self.journal = self._opened(self.directory.journal, SEGMENT_NAME)
            except FileNotFoundError:
                continue  # the file was deleted between listing and opening
            there = self._pages_there()
            if before <= there:
                for folder in self.folders:  # drop pages that were deleted before the journal was opened
                    folder.pages = [page for page in folder.pages if page.path in there]
                return
        self.close()
        raise StoreError("files change too fast to be read; retry, or stop the broker", self.directory.root)

    def _folder(self, path: Path) -> PageFolder:
        folder = PageFolder(path, self._opened(path, LIVE_PAGE_NAME))
        with suppress(FileNotFoundError):
            folder.address = (path / ADDRESS_FILE).read_text("utf-8", "replace").removesuffix("\n")
        return folder

    def _opened(self, directory: Path, pattern: re.Pattern[str]) -> list[DataFile]:
        """Open the files of a directory whose names match ``pattern``. Returns the files ascending by number."""
        found = [
            (int(match[1]), path) for path in _listing(directory) if (match := pattern.fullmatch(path.name))
        ]
        return [DataFile(path, number, self) for number, path in sorted(found)]

    def _pages_there(self) -> set[Path]:
        return {page.path for folder in self.folders for page in folder.pages if page.path.exists()}

    def _look_around(self) -> None:
        directory = self.directory
        own = {directory.root, directory.journal, directory.paging}
        names = {
            directory.root: KNOWN_NAME,
            directory.journal: SEGMENT_NAME,
            directory.paging: DIRECTORY_NAME,
        }
        for folder, known in (names | {each.path: PAGE_FOLDER_NAME for each in self.folders}).items():
            for path in _listing(folder):
                if path in own or (
                    known.fullmatch(path.name) and (known is not DIRECTORY_NAME or path.is_dir())
                ):
                    continue
                if path.name.removesuffix(".new") in (VERSION, IDENTITY, ADDRESS_FILE, MARKER):
                    self.drafts.append(path)
                else:
                    (self.set_aside if SET_ASIDE.fullmatch(path.name) else self.strangers).append(path)


def _listing(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


class SnapshotFiles(Files):
    """The segments and pages of a snapshot as read-only `Files`, for `Replay`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._files = {file.path: file for file in snapshot.files()}

    def names(self, path: Path) -> list[str]:
        return sorted(file.name for file in self._files if file.parent == path)

    def size(self, path: Path) -> int:
        return self._files[path].size

    def read(self, path: Path, start: int = 0, stop: int = -1) -> bytes:
        return self._files[path].read(start, stop)


#: Called with each inconsistency: the file, an offset in it, and a text.
Findings = Callable[[Path, int, str], None]

#: Called with the number of bytes read since the last call.
Progress = Callable[[int], None]


@dataclass(slots=True)
class FoundMessage:
    """A message in a data directory, and its state in each of its queues."""

    path: Path
    at: int  # offset of the record's payload in the file
    stored: StoredMessage
    queues: dict[int, MessageState]

    @property
    def number(self) -> int:
        return int(self.stored.number)


class JournalInspection(Replay):
    """Reads the journal of a snapshot, and calls ``findings`` with each inconsistency."""

    def __init__(self, snapshot: Snapshot, findings: Findings, progress: Progress) -> None:
        super().__init__(SnapshotFiles(snapshot), snapshot.directory.journal, snapshot.identity)
        self.snapshot = snapshot
        self._findings = findings
        self._past: set[int] = set()  # numbers of messages with an earlier record that is no longer valid
        self._reported = 0  # bytes reported to ``progress``
        self.read(lambda done, _: progress(self._step(done)))
        for misplaced, why in self.misplaced:
            findings(misplaced.path, 0, f"not segment {misplaced.number}: {why}")
        for segment in self.segments:
            if snapshot.running and segment is self.segments[-1] and not segment.sealed:
                continue  # a broker still writes to this file
            for fault in segment.faults:
                lost = (
                    "" if segment.sealed else f"; {segment.size - fault.at} bytes to the end are unreadable"
                )
                findings(segment.path, fault.at, fault.reason + lost)
        self.pages = PageRecords(self.page_records)

    def _step(self, done: int) -> int:
        before, self._reported = self._reported, done
        return done - before

    # ---- during `read`

    def _complain(self, at: int, text: str) -> None:
        self._findings(self._segment.path, at, text)

    def _not_understood(self, at: int) -> None:
        super()._not_understood(at)
        self._complain(at, "malformed record")

    def _forget(self, number: int) -> None:
        super()._forget(number)
        self._past.add(number)

    def _record(self, data: bytes, begin: int, end: int) -> None:
        with suppress(StructError, ValueError, IndexError):  # `_not_understood` reports malformed records
            self._check(begin, data[begin:end])
        super()._record(data, begin, end)

    def _check(self, at: int, payload: bytes) -> None:
        """Report contradictions between a record and the records before it."""
        kind = payload[0]
        if kind in (Kind.SETTLED, Kind.DELIVERED):
            # a DELIVERED record has the fields of SETTLED, with consumer 0
            _, _, consumer, queue, _ = SETTLED.unpack_from(payload)
            self._check_consumer(at, consumer)
            for number in unpack_numbers(payload[SETTLED.size :]):
                self._check_fact(at, Kind(kind).name, number, queue)
        elif kind == Kind.STATE:
            _, _, _, queue, number, *_ = STATE.unpack_from(payload)
            self._check_fact(at, "STATE", number, queue)
        elif kind == Kind.NAME:
            _, what, _, number = NAME.unpack_from(payload)
            name = payload[NAME.size :].decode()
            before = self.names.get((what, number), name)
            if what != CONSUMER and before != name:
                self._complain(at, f"number {number} is {name!r} here and {before!r} elsewhere")
        elif kind == Kind.QUEUE_ADDRESS:
            *_, queue, address = QUEUE_ADDRESS.unpack_from(payload)
            for what, number, word in ((QUEUE, queue, "queue"), (ADDRESS, address, "address")):
                if (what, number) not in self.names:
                    self._complain(at, f"{word} number {number} is used before its NAME record")
        elif kind in (Kind.PAGE_SETTLED, Kind.PAGE_STATE, Kind.PAGE_CURSOR):
            # the three kinds of records begin with the fields of PAGE_CURSOR
            _, _, consumer, _, queue, _ = PAGE_CURSOR.unpack_from(payload)
            if kind == Kind.PAGE_SETTLED:
                self._check_consumer(at, consumer)
            if (QUEUE, queue) in self.ended:
                self._complain(at, f"record about queue {self.queue(queue)}, which was deleted before")

    def _check_consumer(self, at: int, consumer: int) -> None:
        if consumer > self._segment.consumers:
            self._complain(at, f"consumer number {consumer} is used before its NAME record")

    def _check_fact(self, at: int, what: str, number: int, queue: int) -> None:
        """Report an event if the queue does not hold its message. Ignores messages of deleted segments."""
        place = self.messages.get(number)
        if place is None:
            if number not in self._past and number >= self.segments[0].header.next_number:
                self._complain(at, f"{what} of message {number}, which never existed")
            return
        _, data, begin = place
        fault = ""
        if queue not in StoredMessage(data, begin).queue_ids():
            fault = "which never had it"
        elif queue in self.gone.get(number, ()):
            fault = "which had settled it before"
        if fault:
            self._complain(at, f"{what} of message {number} in queue {self.queue(queue)}, {fault}")

    # ---- results

    def queue(self, number: int) -> str:
        """Return the name of a queue for a message to the operator, or its number if the name is unknown."""
        return self.names.get((QUEUE, number), f"number {number}")

    @cached_property
    def durable_queues(self) -> frozenset[int]:
        """Numbers of the queues with a binding."""
        return frozenset(number for what, number in self.bindings if what == QUEUE)

    def in_journal(self) -> Iterator[FoundMessage]:
        """Yield the messages in the journal, ascending by number."""
        for number in self.messages:
            found = self.messages.get(number)
            if found is None:
                continue
            segment, data, at = found
            stored, gone = StoredMessage(data, at), self.gone.get(number, ())
            queues = {
                queue: self.state_of(stored, queue) for queue in stored.queue_ids() if queue not in gone
            }
            yield FoundMessage(segment.path, at, stored, queues)


@dataclass(eq=False, slots=True)
class PageContents:
    """One page. The public fields have their final values after an iteration of `messages`."""

    file: DataFile
    _journal: JournalInspection
    _findings: Findings
    _newest: bool  # whether a broker may still write to the page
    _folder: str  # name of the address in address.txt
    _twice: bool  # whether another file has the same number
    misplaced: bool = False  # whether the file cannot be the page in its name (`Replay.misplaced_page`)
    address: int = 0  # number of the address; 0: unknown
    count: int = 0  # number of messages written to the page
    live: int = 0  # number of durable messages that durable queues have not settled
    lost: int = 0  # number of unsettled messages that a restart drops: not durable, or in no durable queue
    sealed: bool = False  # whether the file has a footer
    _gone: dict[int, bytearray] = field(default_factory=dict)  # by queue: for each position 1 if settled

    def messages(self) -> Iterator[FoundMessage]:
        """Yield the unsettled durable messages in their order, each with the durable queues that hold it."""
        data = self.file.read()
        header = Header.read(data)
        header.refuse_older(self.file.path)
        fault = header.fault
        if fault is None and (header.kind != PAGE or header.format > FORMAT):
            fault = f"unsupported segment kind {header.kind}, format {header.format}"
        if fault is not None:
            if not self._newest:
                self._complain(0, fault)
            return
        if self._is_misplaced(header):
            return
        if self.file.number in self._journal.removed_pages:
            return  # a broker recorded the removal of the page, but ended before it deleted the file
        walk = SegmentScan(data)
        starts = None if walk.footer is None else walk.footer.starts
        self.sealed = starts is not None
        for begin, end in walk:
            kind = data[begin]
            try:
                if kind == Kind.MESSAGE:
                    # use the index in the footer: after damage in the page, ``count`` is too small
                    index = self.count if starts is None else bisect_left(starts, begin - PREFIX.size)
                    self.count = index + 1
                    held = self._buffered(index, begin, data[begin:end])
                    if held is not None:
                        yield held
                elif kind == Kind.NAME:
                    self._name(begin, data[begin:end])
                elif kind == Kind.BINDING:
                    # recovery uses the BINDING of a page if the journal lacks the binding
                    unpack_binding(data[begin:end])
                else:
                    self._complain(begin, f"unexpected record of kind {kind}")
            except (StructError, ValueError) as error:
                self._complain(begin, f"malformed record of kind {kind}: {error}")
        if starts is not None:
            self.count = len(starts)
        if self.sealed or not self._newest:
            for each in walk.faults:
                lost = "" if self.sealed else f"; {len(data) - each.at} bytes to the end are unreadable"
                self._complain(each.at, each.reason + lost)
            known = self._journal.pages.ends.get(self.file.number, 0)
            if known > self.count:  # records of the journal refer to positions after the last message
                text = f"the journal has records of {known} messages, the page has {self.count}"
                self._complain(walk.end, text)

    def sparse_messages(self) -> Iterator[FoundMessage]:
        """Yield the same messages as `messages`. This needs less memory if many pages are open: reads the page
        twice.
        """
        places, sizes, indexes = array("Q"), array("I"), array("I")
        for held in self.messages():
            places.append(held.at)
            sizes.append(held.stored.size)
            indexes.append(self.count - 1)
        self.live = 0
        for at, size, index in zip(places, sizes, indexes, strict=True):
            again = self._buffered(index, at, self.file.read(at, at + size))
            if again is not None:
                yield again

    def _is_misplaced(self, header: Header) -> bool:
        journal, file = self._journal, self.file
        why = journal.misplaced_page(
            file.number,
            file.path,
            header,
            self._folder,
            lambda: journal.names.get((ADDRESS, header.address)),
            self._twice,
            not journal.snapshot.running and not journal.missing,
        )
        self.misplaced = bool(why)
        if why:
            self._complain(0, f"not page {file.number}: {why}")
        return self.misplaced

    def _buffered(self, index: int, at: int, payload: bytes) -> FoundMessage | None:
        stored = StoredMessage(payload)
        self.address = self.address or stored.address
        journal = self._journal
        transaction = stored.transaction
        if transaction >= journal.complete_transaction and transaction not in journal.transactions:
            return None
        holders = [queue for queue in stored.queue_ids() if not any(self._settled(queue)[index : index + 1])]
        if not holders:
            return None
        states, page = journal.pages.states, self.file.number
        sent = (stored.deliveries, 0, stored.due)
        queues = {
            queue: MessageState(*states.get((queue, page), {}).get(index, sent))
            for queue in holders
            if stored.flags & DURABLE and queue in journal.durable_queues
        }
        if not queues:
            self.lost += 1
            return None
        self.live += 1
        return FoundMessage(self.file.path, at, stored, queues)

    def _name(self, at: int, payload: bytes) -> None:
        _, what, _, number = NAME.unpack_from(payload)
        name = payload[NAME.size :].decode("utf-8", "surrogateescape")
        known = self._journal.names.setdefault((what, number), name)
        if known != name:
            self._complain(at, f"number {number} is {name!r} here and {known!r} elsewhere")
        if what == ADDRESS:
            self.address = self.address or number

    def _settled(self, queue: int) -> bytearray:
        """Return a byte for each position of the page: 1 if ``queue`` has settled the message there."""
        gone = self._gone.get(queue)
        if gone is None:
            # the maximum number of messages, if all records had the minimum size
            most = self.file.size // (MESSAGE.size + PREFIX.size)
            gone = self._gone[queue] = bytearray(most)
            for first, count in self._journal.pages.settled.get((queue, self.file.number), ()):
                stop = min(first + count, most)
                gone[first:stop] = b"\1" * (stop - first)
        return gone

    def _complain(self, at: int, text: str) -> None:
        self._findings(self.file.path, at, text)


@dataclass
class FolderContents:
    """The pages of one address. ``names``: names of addresses and queues, by kind and number."""

    folder: PageFolder
    pages: list[PageContents]
    names: Mapping[tuple[int, int], str]

    @property
    def address(self) -> str:
        """Name of the address, from the pages if they have it, else from address.txt."""
        for page in self.pages:
            if page.address:
                return self.names.get((ADDRESS, page.address), self.folder.address)
        return self.folder.address


#: Maximum number of whole pages in memory at the same time.
MAX_PAGES_IN_MEMORY = 8


class DirectoryContents:
    """The live contents of a data directory. The constructor reads the journal."""

    def __init__(self, snapshot: Snapshot, findings: Findings, progress: Progress) -> None:
        self.snapshot = snapshot
        self._progress = progress
        self.journal = journal = JournalInspection(snapshot, findings, progress)
        seen: set[int] = set()  # numbers of pages found so far
        self.folders: list[FolderContents] = []
        for folder in snapshot.folders:
            # two pages, because the broker may create the next page before it writes the footer of this page
            newest = folder.pages[-2:] if snapshot.running else []
            pages = [
                PageContents(page, journal, findings, page in newest, folder.address, page.number in seen)
                for page in folder.pages
            ]
            seen.update(page.number for page in folder.pages)
            self.folders.append(FolderContents(folder, pages, journal.names))

    def paged(self) -> Iterator[tuple[FolderContents, Iterator[FoundMessage]]]:
        """Yield each folder with its unsettled messages."""
        for folder in self.folders:
            yield folder, self._watched(folder)

    def messages(self) -> Iterator[FoundMessage]:
        """Yield all messages that a broker would recover, ascending by number."""
        sparse = len(self.folders) > MAX_PAGES_IN_MEMORY
        pages = [self._watched(folder, sparse=sparse) for folder in self.folders]
        return merge(self.journal.in_journal(), *pages, key=attrgetter("number"))

    def _watched(self, folder: FolderContents, *, sparse: bool = False) -> Iterator[FoundMessage]:
        for page in folder.pages:
            yield from page.sparse_messages() if sparse else page.messages()
            self._progress(page.file.size)


def ignore(path: Path, position: int, text: str) -> None:
    """A `Findings` that ignores all inconsistencies."""
