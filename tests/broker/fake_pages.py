"""Pages that are lists in memory, behind the same seam as those on disk.

Blocks are "read" when the world's clock goes on, so that everything that waits for a disk waits here too. Messages
are made anew for each block, as a store would; what a block held is weighed by ``BLOCK_COST`` a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from stompring.broker.address import Address
from stompring.broker.message import Account, Message, RecoveredMessage, Traits
from stompring.broker.paging import LOADED, TIMED, Position
from stompring.broker.queue import Queue
from stompring.broker.reference import Reference
from stompring.broker.storage import Reason

BLOCK_COST = 100  # bytes


@dataclass(eq=False)
class FakePage:
    """Messages with their due times."""

    number: int
    first_number: int
    messages: list[tuple[Message, int]] = field(default_factory=list)
    soonest_expiry: int = 0
    soonest_due: int = 0
    damaged: bool = False

    @property
    def count(self) -> int:
        return len(self.messages)


class FakeBlock:
    """Some messages of a page."""

    def __init__(self, page: FakePage, first: int, stop: int, account: Account) -> None:
        self.page, self.first, self.stop = page, first, stop
        self.size = (stop - first) * BLOCK_COST
        self._account = account
        self._made: dict[int, Message] = {}

    def message(self, index: int) -> Message:
        assert self.first <= index < self.stop
        made = self._made.get(index)
        if made is None:
            m = self.page.messages[index][0]
            made = self._made[index] = RecoveredMessage(
                m.number, m.address, m.traits, m.tail, m.body_at, m.timestamp, m.expires, self._account
            )
        return made

    def decode(self, index: int) -> Message:
        self._made.pop(index, None)
        return self.message(index)

    def due(self, index: int) -> int:
        return self.page.messages[index][1]

    def number_of(self, index: int) -> int:
        return self.page.messages[index][0].number

    def expires(self, index: int) -> int:
        return self.page.messages[index][0].expires

    def traits(self, index: int) -> Traits:
        assert self.first <= index < self.stop
        return self.page.messages[index][0].traits


class FakeCursor:
    """States in a dictionary of lists: as `Cursor.states`."""

    def __init__(self, pages: FakePages, queue: Queue) -> None:
        self.pages: Any = pages
        self.queue = queue
        self.remaining = self.waiting = self.timed = 0
        self.levels = [0] * 10
        self.marks: dict[FakePage, bytearray] = {}
        self.kept: dict[tuple[FakePage, int], tuple[int, int]] = {}
        self.reasons: list[tuple[int, Reason]] = []

    # ---- looking

    def first(self, level: int) -> Position | None:
        pages = self.pages.in_order()
        return self.following(level, pages[0], 0) if pages and self.levels[level] else None

    def following(self, level: int, page: Any, index: int) -> Position | None:
        for other in self.pages.in_order():
            if other.number < page.number or other not in self.marks:
                continue
            at = self.marks[other].find(level + 1, index if other is page else 0)
            if at >= 0:
                return other, at
        return None

    def is_waiting(self, page: Any, index: int) -> bool:
        return 0 < self._state(page, index) <= 10

    def _state(self, page: Any, index: int) -> int:
        marks = self.marks.get(page, b"")
        return marks[index] if index < len(marks) else 0

    def states(self, page: Any, first: int, stop: int) -> bytes:
        return bytes(self._state(page, index) for index in range(first, stop))

    def timed_of(self, page: Any) -> list[int]:
        return [i for i, state in enumerate(self.marks.get(page, b"")) if state == TIMED]

    def waiting_of(self, page: Any) -> list[int]:
        return [i for i, state in enumerate(self.marks.get(page, b"")) if 0 < state <= 10]

    def counts(self, page: Any, index: int) -> tuple[int, int]:
        return self.kept.get((page, index), (0, 0))

    # ---- changing

    def _change(self, page: Any, index: int, state: int) -> None:
        marks = self.marks.setdefault(page, bytearray())
        marks.extend(bytes(max(0, index + 1 - len(marks))))
        was = marks[index]
        marks[index] = state
        for one, sign in ((was, -1), (state, 1)):
            if 0 < one <= 10:
                self.waiting += sign
                self.levels[one - 1] += sign
            self.timed += sign * (one == TIMED)
            self.remaining += sign * (one != 0)
        assert min(self.waiting, self.timed, self.remaining, *self.levels) >= 0
        if state == 0 and was != 0:
            self.pages.review(page)

    def take(self, page: Any, index: int) -> tuple[int, int]:
        assert self.is_waiting(page, index) or self._state(page, index) == TIMED, "it is not on disk only"
        self._change(page, index, LOADED)
        return self.counts(page, index)

    def _place(self, ref: Reference) -> tuple[Any, int]:
        assert ref.position is not None
        assert self._state(*ref.position) == LOADED, "it is not loaded"
        return ref.position

    def put_back(self, ref: Reference) -> None:
        page, index = self._place(ref)
        self.kept[page, index] = ref.deliveries, ref.attempts
        self._change(page, index, 1 + ref.message.traits.priority)

    def due(self, block: Any, index: int) -> int:
        return int(block.due(index))

    def settle(self, ref: Reference, reason: Reason) -> None:
        page, index = self._place(ref)
        self.reasons.append((ref.message.number, reason))
        self._change(page, index, 0)

    def untouched(self, page: Any) -> bool:
        return not any(where is page and counts != (0, 0) for (where, _), counts in self.kept.items())

    def acknowledge(self, page: Any, first: int, stop: int, durable: bool) -> None:
        for index in range(first, stop):
            message = page.messages[index][0]
            assert message.traits.durable == durable and self.counts(page, index) == (0, 0)
            self.settle_waiting(page, index, Reason.ACKNOWLEDGED)

    def settle_waiting(self, page: Any, index: int, reason: Reason) -> None:
        assert self.is_waiting(page, index)
        self.reasons.append((page.messages[index][0].number, reason))
        self._change(page, index, 0)

    def returned(self, ref: Reference) -> None:
        page, index = self._place(ref)
        self.kept[page, index] = ref.deliveries, ref.attempts

    def purge(self, reason: Reason) -> Iterator[int]:
        doomed = [
            (p, i) for p, marks in self.marks.items() for i, s in enumerate(marks) if s not in (0, LOADED)
        ]
        for page, index in doomed:
            self._change(page, index, 0)
        yield len(doomed)


class FakePages:
    """The pages of one address."""

    def __init__(self, paging: FakePaging, address: Address) -> None:
        self.paging = paging
        self.address = address
        self.cursors: Any = {}
        self.files: list[FakePage] = []
        self.reads = 0
        self._last = 0
        self.closed = False

    @property
    def bytes(self) -> int:
        return sum(m.size for page in self.files for m, _ in page.messages)

    @property
    def messages(self) -> int:
        return max((cursor.remaining for cursor in self.cursors.values()), default=0)

    @property
    def count(self) -> int:
        return len(self.files)

    @property
    def empty(self) -> bool:
        return not any(cursor.remaining for cursor in self.cursors.values())

    def roll(self) -> None:
        self._open()

    def _open(self) -> FakePage:
        self._last += 1
        page = FakePage(self._last, self.paging.next_number)
        self.files.append(page)
        return page

    def in_order(self) -> Sequence[Any]:
        return self.files

    def page(self, number: int) -> Any:
        return next((page for page in self.files if page.number == number), None)

    def gather(self, message: Message, queue: Queue) -> bool:
        return False

    def append(self, message: Message, members: Sequence[Queue], due: int = 0) -> Position:
        assert members and not self.closed
        page = self.files[-1] if self.files and self.files[-1].count < self.paging.page_size else self._open()
        self.paging.next_number = message.number + 1
        page.messages.append((message, due))
        index = page.count - 1
        if message.expires:
            page.soonest_expiry = min(page.soonest_expiry or message.expires, message.expires)
        if due:
            page.soonest_due = min(page.soonest_due or due, due)
        for queue in members:
            self.cursor(queue)._change(page, index, TIMED if due else 1 + message.traits.priority)
        self.paging.appended += 1
        return page, index  # type: ignore[return-value]

    def cursor(self, queue: Queue) -> Any:
        if queue not in self.cursors:
            self.cursors[queue] = FakeCursor(self, queue)
        return self.cursors[queue]

    def forget(self, queue: Queue) -> None:
        cursor = self.cursors.pop(queue, None)
        if cursor is not None:
            for page in list(cursor.marks):
                self.review(page)

    def review(self, page: FakePage) -> None:
        """Drop a page in which nobody has anything left."""
        if page not in self.files or page is self.files[-1]:
            return
        if not any(any(cursor.marks.get(page, b"")) for cursor in self.cursors.values()):
            self.files.remove(page)

    def fetch(self, page: Any, index: int, done: Callable[[Any], None]) -> None:
        self.reads += 1
        size = self.paging.block_size

        def came() -> None:
            if page.damaged:
                for cursor in list(self.cursors.values()):
                    for at, state in enumerate(cursor.marks.get(page, b"")):
                        if state not in (0, LOADED):
                            cursor._change(page, at, 0)
                done(None)
                return
            first = index // size * size
            done(FakeBlock(page, first, min(first + size, page.count), self.paging.account))

        self.address.directory.broker.clock.soon(came)


class FakePaging:
    """Messages a page and messages a block are small, so that tests cross the borders of both."""

    def __init__(self, account: Account, page_size: int = 10, block_size: int = 4) -> None:
        self.account = account
        self.page_size, self.block_size = page_size, block_size
        self.next_number = 1
        self.appended = 0
        self.opened: list[FakePages] = []
        self.gone: list[FakePages] = []
        self.gathering = False
        self.gathered: list[Any] = []

    def write_gathered(self) -> None:
        assert not self.gathered, "nothing is gathered here"

    def open(self, address: Address) -> Any:
        pages = FakePages(self, address)
        self.opened.append(pages)
        return pages

    def close(self, pages: Any) -> None:
        assert pages.empty
        pages.closed = True
        self.gone.append(pages)
