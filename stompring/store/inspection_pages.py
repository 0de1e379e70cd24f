"""What the pages of an address hold, seen with what the journal says of them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from struct import error as StructError

from .inspection import Findings, Held, Inspection
from .inspection_files import DataFile, Folder
from .page_names import directory_number
from .record import ADDRESS, DURABLE, MESSAGE, NAME, PREFIX, Kind, StoredMessage, unpack_binding
from .replay import State
from .segment import FORMAT, PAGE, Header, Walk


class PageContents:
    """One page. What it says of itself is known once its messages have been gone through."""

    def __init__(
        self,
        file: DataFile,
        journal: Inspection,
        findings: Findings,
        *,
        newest: bool,
        folder: str = "",
        twice: bool = False,
    ) -> None:
        """``folder`` is the name that the directory's address has, ``twice``: another file has the same number."""
        self.file = file
        self.misplaced = False  # it is not the page that its name says
        self._folder = folder
        self._twice = twice
        self.address = 0  # its number; 0 until it is known
        self.count = 0  # messages written to it
        self.live = 0  # of those, the ones that some durable queue has not given up
        self.lost = 0  # that end with the broker, because they or their queues are not durable
        self.sealed = False
        self._journal = journal
        self._findings = findings
        self._newest = newest  # and being written
        self._gone: dict[int, bytearray] = {}
        self._states: dict[tuple[int, int], State] = {}  # by queue and index

    def messages(self) -> Iterator[Held]:
        """What is left in it, in order: only durable messages, with the durable queues that hold them."""
        data = self.file.read()
        header = Header.read(data)
        if not self._is_page(header) or self._is_misplaced(header):
            return
        if self.file.number in self._journal.removed_pages:
            return  # the broker died before its file was
        walk = Walk(data)
        self.sealed = walk.footer is not None
        starts = walk.footer.starts if walk.footer is not None else None
        for begin, end in walk:
            kind = data[begin]
            try:
                if kind == Kind.MESSAGE:
                    # damage before it does not change a message's place
                    index = self.count if starts is None else bisect_left(starts, begin - PREFIX.size)
                    self.count = index + 1
                    held = self._held(index, begin, data[begin:end])
                    if held is not None:
                        yield held
                elif kind == Kind.NAME:
                    self._name(begin, data[begin:end])
                elif kind == Kind.BINDING:
                    unpack_binding(
                        data, begin, end
                    )  # it counts at a start, where the journal was not written in time
                else:
                    self._complain(begin, f"a record of kind {kind} does not belong here")
            except (StructError, ValueError) as fault:
                self._complain(begin, f"a record of kind {kind} is malformed: {fault}")
        if starts is not None:
            self.count = len(starts)
        if self.sealed or not self._newest:
            for each in walk.faults:
                lost = "" if self.sealed else f"; {len(data) - each.at} bytes to the end are not readable"
                self._complain(each.at, each.reason + lost)
            self._check_facts(walk.end)

    def sparse_messages(self) -> Iterator[Held]:
        """The same with less memory, for many pages side by side: they are read twice."""
        places, sizes, indexes = array("Q"), array("I"), array("I")
        for held in self.messages():
            places.append(held.at)
            sizes.append(held.size)
            indexes.append(self.count - 1)
        self.live = 0
        for at, size, index in zip(places, sizes, indexes, strict=True):
            again = self._held(index, at, self.file.read(at, at + size))
            if again is not None:
                yield again

    def _is_page(self, header: Header) -> bool:
        fault = header.fault
        if fault is None and (header.kind != PAGE or header.format > FORMAT):
            fault = f"a segment of kind {header.kind} and format {header.format} is not known here"
        if fault is not None and not self._newest:
            self._complain(0, fault)
        return fault is None

    def _is_misplaced(self, header: Header) -> bool:
        journal, file = self._journal, self.file
        why = header.misplaced(file.number, journal.identity)
        if not why and self._twice:
            why = "there is another file with this number"
        if not why and header.address and header.address != directory_number(file.path.parent):
            name = journal.names.get((ADDRESS, header.address), self._folder)
            why = f"it is of address {name}" if name != self._folder else ""
        running = journal.snapshot.running
        if not why and not running and not journal.missing and not journal.may_have_page(file.number, header):
            why = "the journal does not know of it"
        self.misplaced = bool(why)
        if why:
            self._complain(0, f"this is not page {file.number}: {why}")
        return self.misplaced

    def _held(self, index: int, at: int, payload: bytes) -> Held | None:
        stored = StoredMessage(payload)
        if not self.address:
            self._belongs_to(stored.address)
        journal, gone = self._journal, self._gone
        if not journal.is_sure(stored.transaction):
            return None
        queues = tuple(
            queue
            for queue in stored.queue_ids()
            if queue not in gone or index >= len(gone[queue]) or not gone[queue][index]
        )
        if not queues:
            return None
        queues = tuple(filter(journal.durable_queues.__contains__, queues)) if stored.flags & DURABLE else ()
        if not queues:
            self.lost += 1
            return None
        self.live += 1
        states = self._states

        def state_of(stored: StoredMessage, queue: int) -> State:
            return states.get((queue, index)) or State(stored.deliveries, 0, stored.due, b"")

        return Held(self.file.path, at, stored, queues, state_of)

    def _name(self, at: int, payload: bytes) -> None:
        _, what, _, number = NAME.unpack_from(payload)
        name = payload[NAME.size :].decode("utf-8", "surrogateescape")
        known = self._journal.names.setdefault((what, number), name)
        if known != name:
            self._complain(at, f"number {number} is {name!r} here and {known!r} elsewhere")
        if what == ADDRESS and not self.address:
            self._belongs_to(number)

    def _belongs_to(self, address: int) -> None:
        self.address = address
        number, facts = self.file.number, self._journal.pages
        # no message takes less than its prologue: more than this there cannot be
        most = self.file.size // (MESSAGE.size + PREFIX.size)
        for queue in self._journal.queues_of_page.get(number, ()):
            gone = self._gone[queue] = bytearray(most)
            for first, count in facts.settled.get((queue, number), ()):
                stop = min(first + count, most)
                gone[first:stop] = b"\1" * (stop - first)
            for index, (deliveries, attempts, due) in facts.states.get((queue, number), {}).items():
                self._states[queue, index] = State(deliveries, attempts, due, b"")

    def _check_facts(self, at: int) -> None:
        """The journal may not know of more messages than there are."""
        known = self._journal.pages.ends.get(self.file.number, 0)
        if known > self.count:
            self._complain(at, f"the journal tells of {known} messages, and there are {self.count}")

    def _complain(self, at: int, text: str) -> None:
        self._findings(self.file.path, at, text)


class FolderContents:
    """All pages of one address."""

    def __init__(self, folder: Folder, journal: Inspection, findings: Findings, seen: set[int]) -> None:
        """``seen`` are numbers of pages in other folders."""
        self.folder = folder
        # a page may get its footer when the next one is begun already
        running, last = journal.snapshot.running, folder.pages[-2:]
        self.pages = [
            PageContents(
                page,
                journal,
                findings,
                newest=running and page in last,
                folder=folder.address,
                twice=page.number in seen,
            )
            for page in folder.pages
        ]
        seen.update(page.number for page in folder.pages)
        self._journal = journal

    @property
    def address(self) -> str:
        """Its name: as the pages know it, else as address.txt has it."""
        for page in self.pages:
            if page.address:
                return self._journal.names.get((ADDRESS, page.address), self.folder.address)
        return self.folder.address
