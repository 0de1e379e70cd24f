"""Management of the messages of a queue: browse, remove, expire, release, purge and trim.

Artemis counts a message that management removes by its id as acknowledged, and those it removes by a filter as
killed. Messages on disk have to be read, so that an iteration pauses: it yields a `PageRead` where its caller has to
wait for a block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator
from itertools import chain

from stompring.errors import NotFound, Refused

from .clock import Call
from .message import Matches, repeated
from .ports import TIMED, Block, Cursor, on_disk, state_at, waiting_from
from .queue import PagedQueue, PendingCursor, Queue, as_queue
from .reference import (
    DELIVERING,
    GONE,
    LEVELS,
    PENDING,
    SCHEDULED,
    Page,
    Position,
    Reference,
    ReferenceRun,
    compiled_filter,
)


class PageRead:
    """A block of a page is being read. ``block`` is None until then, and where it turned out to be unreadable."""

    def __init__(self, area: PagedQueue, cursor: Cursor, page: Page, index: int) -> None:
        self.block: Block | None = None
        self.over = False
        self._call: Call | None = None
        area.fetch(cursor, page, index, self._came)

    def _came(self, block: Block | None) -> None:
        self.block, self.over = block, True
        if self._call is not None:
            self._call()

    def then(self, call: Call) -> None:
        """Call once the block is read; at once where it is already."""
        self._call = call
        if self.over:
            call()


class OnDisk(Reference):
    """A message that is on disk only, in the form of a reference. It is in no list and in no counter."""

    def __init__(self, queue: Queue, cursor: Cursor, block: Block, index: int) -> None:
        message = block.message(index)
        super().__init__(message, queue, message.number, PENDING)
        self.cursor = cursor
        self.position = (block.page, index)
        self.deliveries, self.attempts = cursor.counts(block.page, index)
        if state_at(cursor, block.page, index) == TIMED:
            self.state = SCHEDULED
            self.due = cursor.due(block, index)

    @property
    def present(self) -> bool:
        """Whether it is still on disk, and not settled."""
        assert self.position is not None
        page, index = self.position
        area = as_queue(self.queue).paged
        if area is None or self.cursor not in area.cursors or self.cursor.pages.page(page.number) is not page:
            return False
        return on_disk(state_at(self.cursor, page, index))

    def load(self) -> Reference | None:
        """Load it: the reference, in no list; None if it has left the disk."""
        area = as_queue(self.queue).paged
        if area is None or self.position is None or not self.present:
            return None
        return area.load_reference(self.cursor, self.position, self.message)


def loaded_reference(ref: Reference) -> Reference | None:
    """The reference of a pending or scheduled message, loaded where it is on disk; None where it has left."""
    if isinstance(ref, OnDisk):
        return ref.load()
    return ref if ref.state in (PENDING, SCHEDULED) else None


#: What iterations yield: `PageRead` where the caller has to wait.
References = Iterator[Reference | PageRead]


def iterate_pending(queue: Queue) -> References:
    """What is pending, in memory and on disk, in the order of delivery."""
    until = queue.broker.next_message_number()
    return chain(*[_iterate_level(queue, level, until) for level in reversed(range(LEVELS))])


def _iterate_level(queue: Queue, level: int, until: int) -> References:
    """By message number, so that nothing comes twice, wherever it is by then; nothing from ``until`` on."""
    blocks: dict[Cursor, Block] = {}
    positions: dict[Cursor, Position] = {}
    memory = PendingCursor(queue.dispatcher, level)
    while True:
        area = queue.paged
        ref = memory.peek()
        while ref is not None and ref.message.number >= until:
            # newer messages are at the tail, or have fallen due and are at the head
            if ref.sequence < until:
                memory.skip(ref.sequence)
                ref = memory.peek()
            else:
                ref = None
        nearest, number = None, until
        for cursor in () if area is None else area.cursors:
            position = waiting_from(cursor, level, positions.get(cursor))
            if position is None:
                continue
            page, index = position
            block = blocks.get(cursor)
            if block is None or block.page is not page or not block.first <= index < block.stop:
                block = yield from _block(queue, cursor, page, index)
                if block is not None:
                    blocks[cursor] = block
                break  # the queue may have changed meanwhile
            if block.number_of(index) < number:
                nearest, number = (cursor, block, index), block.number_of(index)
        else:
            if ref is not None and (nearest is None or ref.sequence < number):
                memory.skip(ref.sequence)
                yield ref
            elif nearest is not None:
                cursor, block, index = nearest
                positions[cursor] = (block.page, index + 1)
                memory.skip(number)
                yield OnDisk(queue, cursor, block, index)
            else:
                return


def iterate_timed(queue: Queue) -> References:
    """What is on disk for its time, in the order it was sent within each address."""
    area = queue.paged
    for cursor in [] if area is None else list(area.cursors):
        for page in list(cursor.pages.in_order()):
            block: Block | None = None
            for index in cursor.timed_of(page):
                if block is None or not block.first <= index < block.stop:
                    block = yield from _block(queue, cursor, page, index)
                if block is not None and state_at(cursor, page, index) == TIMED:
                    yield OnDisk(queue, cursor, block, index)


def _block(queue: Queue, cursor: Cursor, page: Page, index: int) -> Generator[PageRead, None, Block | None]:
    area = queue.paged
    if area is None or cursor not in area.cursors:
        return None
    block = area.block(page, index)
    if block is None:
        wait = PageRead(area, cursor, page, index)
        yield wait
        block = wait.block
    return block


def seek(queue: Queue, number: int) -> Generator[PageRead, None, OnDisk | None]:
    """The message of that number, where it is on disk."""
    area = queue.paged
    for cursor in [] if area is None else list(area.cursors):
        pages = cursor.pages.in_order()
        at = bisect_right(pages, number, key=lambda one: one.first_number) - 1
        if at < 0:
            continue
        page = pages[at]
        low, high = 0, page.count  # where it must be, if it is here
        while low < high:
            block = yield from _block(queue, cursor, page, (low + high) // 2)
            if block is None:
                break
            if number < block.number_of(block.first):
                high = block.first
            elif number > block.number_of(block.stop - 1):
                low = block.stop
            else:
                index = bisect_right(range(block.stop), number, block.first, key=block.number_of) - 1
                if block.number_of(index) == number and on_disk(state_at(cursor, page, index)):
                    return OnDisk(queue, cursor, block, index)
                break
    return None


def browse(queue: Queue, selector: str | None = None, elsewhere: Iterable[Reference] = ()) -> References:
    """The messages of a queue that a selector matches, each once. Raises `Refused` at once.

    First what is pending, in the order of delivery; then what is scheduled, in the order it was sent; then what is
    in delivery, with the references ``elsewhere``: those acknowledged in an open transaction. The iterator works on a
    copy, so the queue may change while it is read: what has left the queue is skipped. What is on disk only comes as
    `OnDisk`, among what is pending or after what is scheduled.
    """
    matches = compiled_filter(selector)
    return _present(messages_of(queue, elsewhere), matches)


def _present(found: References, matches: Matches | None) -> References:
    for one in found:
        if isinstance(one, PageRead) or (one.state != GONE and (matches is None or matches(one.message))):
            yield one


def messages_of(queue: Queue, elsewhere: Iterable[Reference] = ()) -> References:
    """All messages of a queue: what is pending, in order of delivery, then what is scheduled, then in delivery."""
    unsettled = (*queue.unsettled_references(), *elsewhere)
    delivering = [ref for ref in unsettled if ref.queue is queue and ref.state == DELIVERING]
    return chain(pending(queue), list(queue.scheduled.values()), iterate_timed(queue), delivering)


def pending(queue: Queue) -> References:
    """What is pending now, in the order of delivery."""
    return queue.dispatcher.snapshot() if queue.paged is None else iterate_pending(queue)


Steps = Generator[PageRead, None, None]


def remove_message(queue: Queue, number: int) -> Steps:
    """Remove one message that is pending or scheduled; it counts as acknowledged.

    Raises `NotFound`, and `Refused` for one that is in delivery.
    """
    ref = _find(queue, number)
    if ref is None:
        on_disk = yield from seek(queue, number)
        ref = (
            _find(queue, number) if on_disk is None else on_disk.load()
        )  # it may have come to memory meanwhile
    if ref is None:
        if any(each.message.number == number for each in queue.unsettled_references()):
            raise Refused(
                f"Message {number} of queue {queue.name} is in delivery: only its consumer can settle it"
            )
        raise NotFound(f"Queue {queue.name} has no message {number}")
    _remove(queue, ref)


#: References compared with a number in one go: a millisecond.
COMPARED = 10_000


def find_message(
    queue: Queue, number: int, elsewhere: Iterable[Reference] = ()
) -> Generator[PageRead | None, None, Reference]:
    """One message, pending, scheduled or in delivery; ``elsewhere`` as in `browse`. Raises `NotFound`.

    Yields None where the caller may pause.
    """
    others = list(elsewhere)
    for _ in range(2):  # it may come to memory, or be delivered, meanwhile
        ref = queue.scheduled.get(number)
        if ref is not None:
            return ref
        for one in (*queue.unsettled_references(), *others):
            if one.message.number == number and one.queue is queue and one.state != GONE:
                return one
        for index, one in enumerate(queue.dispatcher.snapshot(), 1):
            if one.message.number == number:
                return one
            if index % COMPARED == 0:
                yield None
        ref = yield from seek(queue, number)
        if ref is not None:
            return ref
    raise NotFound(f"Queue {queue.name} has no message {number}")


def cancel_scheduled(queue: Queue, number: int) -> Steps:
    """Remove a scheduled message, with all its repetitions; it counts as acknowledged. Raises `NotFound`."""
    ref = loaded_reference((yield from _scheduled(queue, number)))
    assert ref is not None  # nothing has happened since it was found
    _remove(queue, ref)


def deliver_now(queue: Queue, number: int) -> Steps:
    """Let a scheduled message fall due at once; of a recurring one a copy goes out, and its schedule stays.

    It goes to the head of the queue; a full ring drops it, as at its time. Raises `NotFound`.
    """
    ref, broker = (yield from _scheduled(queue, number)), queue.broker
    if isinstance(ref, OnDisk):
        assert queue.paged is not None and ref.position is not None
        queue.paged.deliver_now(ref.cursor, ref.position, ref.message)
        return
    if ref.recurrence is not None:
        copy = repeated(ref.message, broker.next_message_number(), broker.clock.now)
        ref = queue.schedule(copy, broker.clock.now)
    broker.forget_schedule(ref)  # of the entry that will come due later, or was made just now
    queue.on_due([ref], queue.due_batch())


def purge(queue: Queue, selector: str | None = None) -> Iterator[int | PageRead]:
    """Kill what is pending or scheduled now and matches. Raises `Refused` at once.

    Yields 1 for each message killed and 0 for each spared, so that the caller may pause between any two; without a
    selector all that is on disk only is killed at once, unread, and its number yielded.
    """
    matches = compiled_filter(selector)
    if matches is None:
        return _kill_all(queue)
    return _kill_matching(queue, matches)


def _kill_all(queue: Queue) -> Iterator[int]:
    yield from queue.kill_on_disk()
    # not before: some of it may have been read meanwhile
    yield from queue.kill_each(queue.dispatcher.snapshot(), list(queue.scheduled.values()))


def _kill_matching(queue: Queue, matches: Matches) -> Iterator[int | PageRead]:
    for one in browse(queue):
        if isinstance(one, PageRead):
            yield one
            continue
        loaded = loaded_reference(one) if matches(one.message) else None
        if loaded is not None:
            queue.kill(loaded)
        yield int(loaded is not None)


def _remove(queue: Queue, ref: Reference) -> None:
    queue.messages_removed += 1
    queue.remove(ref)
    queue.delete_if_unused()


def _find(queue: Queue, number: int) -> Reference | None:
    """A scheduled or pending message. The latter by a linear search, since nothing else needs an index of numbers: some
    50 nanoseconds a message."""
    if (scheduled := queue.scheduled.get(number)) is not None:
        return scheduled
    for pending in queue.dispatcher.lists():
        for level in pending.levels:
            for ref in level or ():
                if isinstance(ref, ReferenceRun):
                    if not ref.sequence <= number <= ref.last:
                        continue
                    for each in ref.references():
                        if each.message.number == number and each.state == PENDING:
                            return each
                elif ref.message.number == number and ref.state == PENDING:
                    return ref
    return None


def _scheduled(queue: Queue, number: int) -> Generator[PageRead, None, Reference]:
    ref = queue.scheduled.get(number) or (yield from seek(queue, number))
    if ref is None or ref.state != SCHEDULED:
        raise NotFound(f"Queue {queue.name} has no scheduled message {number}")
    return ref
