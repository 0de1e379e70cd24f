"""Management of the messages of a queue: browse, find, remove, deliver scheduled ones now, and purge.

As in Artemis, a message that management removes by its id counts as acknowledged, messages that it removes by a filter
count as killed. Messages on disk must be read: an iterator yields a `PageRead` when its caller must wait for a block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from typing import Final

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
    """A read of a block of a page. ``block`` is None until the read ends, and if the block is unreadable."""

    def __init__(self, area: PagedQueue, cursor: Cursor, page: Page, index: int) -> None:
        self.block: Block | None = None
        self.over = False  # whether the read has ended
        self._call: Call | None = None
        area.fetch(cursor, page, index, self._came)

    def _came(self, block: Block | None) -> None:
        self.block, self.over = block, True
        if self._call is not None:
            self._call()

    def then(self, call: Call) -> None:
        """Call ``call`` when the read has ended, or immediately if it has ended already."""
        self._call = call
        if self.over:
            call()


class OnDisk(Reference):
    """A reference to a message that is on disk only. The queue does not list or count this reference."""

    def __init__(self, queue: Queue, cursor: Cursor, block: Block, index: int) -> None:
        message = block.message(index)
        super().__init__(message, queue, PENDING)
        self.cursor = cursor
        self.position = (block.page, index)
        self.deliveries, self.attempts = cursor.counts(block.page, index)
        if state_at(cursor, block.page, index) == TIMED:
            self.state = SCHEDULED
            self.due = cursor.due(block, index)

    @property
    def present(self) -> bool:
        """Whether the message is still on disk only, and not settled."""
        assert self.position is not None
        page, index = self.position
        area = as_queue(self.queue).paged
        if area is None or self.cursor not in area.cursors or self.cursor.pages.page(page.number) is not page:
            return False
        return on_disk(state_at(self.cursor, page, index))

    def load(self) -> Reference | None:
        """Load the message. Return a new reference, in none of the queue's lists. None: the queue has loaded or removed
        the message meanwhile.
        """
        area = as_queue(self.queue).paged
        if area is None or self.position is None or not self.present:
            return None
        return area.load_reference(self.cursor, self.position, self.message)


def loaded_reference(ref: Reference) -> Reference | None:
    """Return the reference of a pending or scheduled message, loaded if necessary. None: it has left the queue."""
    if isinstance(ref, OnDisk):
        return ref.load()
    return ref if ref.state in (PENDING, SCHEDULED) else None


#: An iterator over references. It yields a `PageRead` when the caller must wait.
References = Iterator[Reference | PageRead]


def iterate_pending(queue: Queue) -> References:
    """Iterate over the pending messages, in memory and on disk, in the order of delivery. Skips messages sent later."""
    until = queue.broker.next_message_number()
    return chain(*[_iterate_level(queue, level, until) for level in reversed(range(LEVELS))])


def _iterate_level(queue: Queue, level: int, until: int) -> References:
    """Iterate over the messages of one priority with numbers below ``until``, by number, without duplicates."""
    blocks: dict[Cursor, Block] = {}
    positions: dict[Cursor, Position] = {}
    memory = PendingCursor(queue.dispatcher, level)
    while True:
        area = queue.paged
        ref = memory.peek()
        while ref is not None and ref.message.number >= until:
            # new messages are at the tail, but messages that have become due are at the head
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
                break  # search again: the queue may have changed during the read
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
    """Iterate over the scheduled messages on disk only, for each address in the order in which they were sent."""
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
    """Return a message by its number if it is on disk only, else None."""
    area = queue.paged
    for cursor in [] if area is None else list(area.cursors):
        pages = cursor.pages.in_order()
        at = bisect_right(pages, number, key=lambda one: one.first_number) - 1
        if at < 0:
            continue
        page = pages[at]
        low, high = 0, page.count  # range of indexes for the binary search
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
    """Iterate over the messages of a queue that a selector matches, each once. The call itself raises `Refused`, not
    the iteration.

    First pending messages, in the order of delivery; then scheduled ones, in the order in which they were sent; then
    delivered ones, with the references ``elsewhere``, which are acknowledged in an open transaction. Messages on disk
    only are `OnDisk` references. The queue may change during the iteration: messages that have left it are skipped.
    """
    matches = compiled_filter(selector)
    return _present(messages_of(queue, elsewhere), matches)


def _present(found: References, matches: Matches | None) -> References:
    for one in found:
        if isinstance(one, PageRead) or (one.state != GONE and (matches is None or matches(one.message))):
            yield one


def messages_of(queue: Queue, elsewhere: Iterable[Reference] = ()) -> References:
    """Iterate over all messages of a queue, in the order of `browse`."""
    unsettled = (*queue.unsettled_references(), *elsewhere)
    delivering = [ref for ref in unsettled if ref.queue is queue and ref.state == DELIVERING]
    return chain(pending(queue), list(queue.scheduled.values()), iterate_timed(queue), delivering)


def pending(queue: Queue) -> References:
    """Iterate over the pending messages, in the order of delivery."""
    return queue.dispatcher.snapshot() if queue.paged is None else iterate_pending(queue)


Steps = Generator[PageRead, None, None]


def remove_message(queue: Queue, number: int) -> Steps:
    """Remove a pending or scheduled message as acknowledged. Raises `NotFound`, and `Refused` for a delivered
    message.
    """
    ref = _find(queue, number)
    if ref is None:
        on_disk = yield from seek(queue, number)
        ref = (
            _find(queue, number) if on_disk is None else on_disk.load()
        )  # paging may have loaded the message meanwhile
    if ref is None:
        if any(each.message.number == number for each in queue.unsettled_references()):
            raise Refused(
                f"Message {number} of queue {queue.name} is in delivery: only its consumer can settle it"
            )
        raise NotFound(f"Queue {queue.name} has no message {number}")
    _remove(queue, ref)


#: Number of references that one step compares with a number, in about a millisecond.
COMPARED: Final = 10_000


def find_message(
    queue: Queue, number: int, elsewhere: Iterable[Reference] = ()
) -> Generator[PageRead | None, None, Reference]:
    """Find a pending, scheduled or delivered message; ``elsewhere`` as in `browse`. Raises `NotFound`.

    Yields None when the caller may pause, and `PageRead` when it must wait.
    """
    others = list(elsewhere)
    for _ in range(2):  # try twice: meanwhile paging may load the message, or a consumer may get it
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
    """Remove a scheduled message with all its repetitions; it counts as acknowledged. Raises `NotFound`."""
    ref = loaded_reference((yield from _scheduled(queue, number)))
    assert ref is not None  # the message was found in this step
    _remove(queue, ref)


def deliver_now(queue: Queue, number: int) -> Steps:
    """Make a scheduled message due now. A recurring message stays scheduled, and a copy of it is due now.

    The message goes to the head of the queue, or is dropped by a full ring. Raises `NotFound`.
    """
    ref, broker = (yield from _scheduled(queue, number)), queue.broker
    if isinstance(ref, OnDisk):
        assert queue.paged is not None and ref.position is not None
        queue.paged.deliver_now(ref.cursor, ref.position, ref.message)
        return
    if ref.recurrence is not None:
        copy = repeated(ref.message, broker.next_message_number(), broker.clock.now)
        ref = queue.schedule(copy, broker.clock.now)
    broker.forget_schedule(ref)  # cancel the timer of the message, which `schedule` may have just set
    queue.on_due([ref], queue.due_batch())


def purge(queue: Queue, selector: str | None = None) -> Iterator[int | PageRead]:
    """Kill the pending and scheduled messages that a selector matches. The call itself raises `Refused`, not the
    iteration.

    Yields 1 for each killed message and 0 for each other one; the caller may pause between. Without a selector the
    messages on disk only are killed unread, and the number killed in each page is yielded.
    """
    matches = compiled_filter(selector)
    if matches is None:
        return _kill_all(queue)
    return _kill_matching(queue, matches)


def _kill_all(queue: Queue) -> Iterator[int]:
    yield from queue.kill_on_disk()
    # messages in memory last, because paging may have loaded some meanwhile
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
    """Find a message in memory by a linear search, 50 ns for each: an index would serve only this function."""
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
