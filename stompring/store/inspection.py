"""The journal of a data directory as it is, read by the broker's own `Replay` and looked at more closely.

A broker passes over what cannot be; whoever inspects wants to hear of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from struct import Struct
from typing import Any

from .inspection_files import Snapshot, SnapshotFiles
from .page_facts import PageFacts
from .record import (
    ADDRESS,
    CONSUMER,
    MESSAGE,
    NAME,
    PAGE_SETTLED,
    QUEUE,
    QUEUE_ADDRESS,
    SECOND_STATE,
    SETTLED,
    Kind,
    StoredMessage,
    unpack_numbers,
)
from .replay import Replay, State

#: Told of a fault: the file, where in it, and what.
Findings = Callable[[Path, int, str], None]

#: Told how many bytes were read since the last time.
Progress = Callable[[int], None]

#: Where in the payload of a PAGE_… record the queue is.
QUEUE_OF_PAGE_RECORD = 8
_QUEUE = Struct("<I")


class Held:
    """A message that is there: where its record is, and which queues hold it."""

    __slots__ = ("_state_of", "at", "path", "queues", "stored")

    def __init__(
        self,
        path: Path,
        at: int,
        stored: StoredMessage,
        queues: tuple[int, ...],
        state_of: Callable[[StoredMessage, int], State],
    ) -> None:
        self.path = path
        self.at = at  # of the payload
        self.stored = stored
        self.queues = queues
        self._state_of = state_of

    @property
    def number(self) -> int:
        """The message's."""
        return int(self.stored.number)

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        stored = self.stored
        return int(MESSAGE.size + 4 * stored.queues + stored.traits_length + stored.head + stored.body + 2)

    def state(self, queue: int) -> State:
        """Where it stands in a queue."""
        return self._state_of(self.stored, queue)


class Inspection(Replay):
    """Reads the journal of a snapshot; ``findings`` is told of facts that cannot be."""

    def __init__(self, snapshot: Snapshot, findings: Findings, progress: Progress) -> None:
        super().__init__(SnapshotFiles(snapshot), snapshot.directory.journal, snapshot.identity)
        self.snapshot = snapshot
        self._findings = findings
        self._past: set[int] = set()  # messages that were there
        self._told = 0
        self.read(lambda done, _: progress(self._step(done)))
        self._report_faults()
        self.pages = PageFacts(self.page_records)
        self.queues_of_page: dict[int, set[int]] = {}  # those that something is told of, by page
        for queue, page in (*self.pages.settled, *self.pages.states):
            self.queues_of_page.setdefault(page, set()).add(queue)

    def _step(self, done: int) -> int:
        before, self._told = self._told, done
        return done - before

    def _report_faults(self) -> None:
        for read, why in self.misplaced:
            self._findings(read.path, 0, f"this is not segment {read.number}: {why}")
        for segment in self.segments:
            if self.snapshot.running and segment is self.segments[-1] and not segment.sealed:
                continue  # it is being written
            for fault in segment.faults:
                lost = (
                    "" if segment.sealed else f"; {segment.size - fault.at} bytes to the end are not readable"
                )
                self._findings(segment.path, fault.at, fault.reason + lost)

    # ---- while it reads

    def _complain(self, at: int, text: str) -> None:
        self._findings(self._segment.path, at, text)

    def _not_understood(self, at: int) -> None:
        super()._not_understood(at)
        self._complain(at, "this record cannot be understood")

    def _forget(self, number: int) -> None:
        super()._forget(number)
        self._past.add(number)

    def _settled(self, data: bytes, begin: int, end: int) -> None:
        _, _, consumer, queue, _ = SETTLED.unpack_from(data, begin)
        self._check_consumer(begin, consumer)
        for number in unpack_numbers(data[begin + SETTLED.size : end]):
            self._check_fact(begin, "SETTLED", number, queue)
        super()._settled(data, begin, end)

    def _state(self, data: bytes, begin: int, end: int) -> None:
        _, _, _, queue, number, *_ = SECOND_STATE.unpack_from(data, begin)  # they begin alike
        self._check_fact(begin, "STATE", number, queue)
        super()._state(data, begin, end)

    def _delivered(self, data: bytes, begin: int, end: int) -> None:
        for queue, number in self._delivered_of(data, begin, end):
            self._check_fact(begin, "DELIVERED", number, queue)
        super()._delivered(data, begin, end)

    def _name(self, data: bytes, begin: int, end: int) -> None:
        _, what, _, number = NAME.unpack_from(data, begin)
        before = self.names.get((what, number))
        super()._name(data, begin, end)
        if what == CONSUMER:
            return
        name = self.names.get((what, number))
        if before not in (None, name):
            self._complain(begin, f"number {number} is {name!r} here and {before!r} elsewhere")

    def _queue_address(self, data: bytes, begin: int, end: int) -> None:
        super()._queue_address(data, begin, end)
        *_, queue, address = QUEUE_ADDRESS.unpack_from(data, begin)
        for what, number, word in ((QUEUE, queue, "queue"), (ADDRESS, address, "address")):
            if (what, number) not in self.names:
                self._complain(begin, f"{word} number {number} is told of before its name")

    def _page_record(self, data: bytes, begin: int, end: int) -> None:
        super()._page_record(data, begin, end)
        queue = _QUEUE.unpack_from(data, begin + QUEUE_OF_PAGE_RECORD)[0]
        if data[begin] == Kind.PAGE_SETTLED:
            self._check_consumer(begin, PAGE_SETTLED.unpack_from(data, begin)[2])
        if (QUEUE, queue) in self.ended:
            self._complain(begin, f"a fact about queue {self.queue(queue)}, which was deleted before")

    def _check_consumer(self, at: int, consumer: int) -> None:
        if consumer > self._segment.consumers:
            self._complain(at, f"consumer number {consumer} is told of before its name")

    def _check_fact(self, at: int, what: str, number: int, queue: int) -> None:
        """A message that began before the oldest segment may be gone with it; all others must have been there."""
        place = self.messages.get(number)
        if place is None:
            if number not in self._past and number >= self.segments[0].header.next_number:
                self._complain(at, f"{what} of message {number}, which was never there")
        elif queue not in self.queues_of(place):
            name = self.queue(queue)
            self._complain(at, f"{what} of message {number} in queue {name}, which never held it")
        elif queue in self.gone.get(number, ()):
            name = self.queue(queue)
            self._complain(at, f"{what} of message {number} in queue {name}, which gave it up before")

    # ---- what came of it

    def queue(self, number: int) -> str:
        """A queue's name, for people."""
        return self.names.get((QUEUE, number), f"number {number}")

    @cached_property
    def durable_queues(self) -> frozenset[int]:
        """The numbers of the queues there are."""
        return frozenset(number for what, number in self.bindings if what == QUEUE)

    def is_sure(self, transaction: int) -> bool:
        """Whether messages in pages that were sent in a transaction count."""
        return not transaction or transaction < self.complete_transaction or transaction in self.transactions

    def in_journal(self) -> Iterator[Held]:
        """The messages that the journal holds, by number."""
        for number in sorted(self.messages):
            segment, data, at = self.messages[number]
            stored, gone = StoredMessage(data, at), self.gone.get(number, ())
            queues = tuple(queue for queue in stored.queue_ids() if queue not in gone)
            yield Held(segment.path, at, stored, queues, self.state_of)

    def described(self, what: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Numbers and descriptions of addresses or queues."""
        for (kind, number), (_, description) in self.bindings.items():
            if kind == what:
                yield number, description
