"""The target area of a paged queue: which of its messages are in memory, for whom, and what each consumer may take."""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from stompring.broker import page_mode
from stompring.broker.expiry import is_expired
from stompring.broker.message import Message, Traits
from stompring.broker.paging import Block, Cursor, Page, Position
from stompring.broker.reference import PENDING, Reference
from stompring.broker.storage import Reason

from .due import DueOnDisk
from .prefetch import Prefetcher
from .target_list import LEVELS, SLACK, TargetList, key_of

if TYPE_CHECKING:
    from stompring.broker.address import Address
    from stompring.broker.consumer import Consumer
    from stompring.broker.queue import Queue

    from .paged_queues import TargetAreas

log = logging.getLogger(__name__)

#: Milliseconds between two log lines about a consumer that settles nothing.
LOG_INTERVAL = 60_000

#: Messages from pages that a consumer may always have unsettled, so that each consumer makes progress.
LEAST = 16


class ConsumerCredit:
    """Messages and bytes that one consumer has of what was read from pages."""

    __slots__ = ("blocked", "messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.blocked = False  # was refused more, and waits


class PageCredit:
    """References in delivery that came from pages.

    A consumer with ``max-read-page-messages`` or ``-bytes`` of them unsettled gets no more until it settles some.
    In Artemis all consumers of a queue have that limit together, so that one who settles nothing stops the others.
    While the memory budget is used up it is `LEAST` messages.
    """

    def __init__(self, queue: Queue, free_memory: Callable[[int], bool]) -> None:
        self._queue = queue
        self._free_memory = free_memory
        self._of: dict[Consumer, ConsumerCredit] = {}
        self._out: dict[Reference, ConsumerCredit] = {}
        self._logged_at = 0
        self.size = 0  # bytes in delivery
        self.freed = False  # somebody who was refused more may have some now

    def __len__(self) -> int:
        return len(self._out)

    def on_delivered(self, ref: Reference, consumer: Consumer) -> None:
        """A message was handed over."""
        share = self._of.get(consumer)
        if share is None:
            share = self._of[consumer] = ConsumerCredit()
        size = ref.message.size
        share.messages += 1
        share.size += size
        self.size += size
        self._out[ref] = share

    def release(self, ref: Reference) -> None:
        """It was settled or given back, if it was in delivery at all."""
        share = self._out.pop(ref, None)
        if share is not None:
            size = ref.message.size
            share.messages -= 1
            share.size -= size
            self.size -= size
            if share.blocked:
                share.blocked = False
                self.freed = True

    def exhausted(self, consumer: Consumer) -> bool:
        """Whether a consumer must settle something first."""
        share = self._of.get(consumer)
        if share is None or not share.messages:
            return False
        settings = self._queue.address.settings
        if not (
            0 <= settings.max_read_page_messages <= share.messages or 0 <= settings.read_bytes <= share.size
        ):
            if share.messages < LEAST or self._free_memory(0):
                return False
            share.blocked = True
            return True
        share.blocked = True
        self._log(share)
        return True

    def _log(self, share: ConsumerCredit) -> None:
        now = self._queue.broker.clock.steady.now
        if now - self._logged_at >= LOG_INTERVAL:
            self._logged_at = now
            log.warning(
                "queue %s: a consumer has %d unacknowledged paged messages (%d bytes): no further delivery until it "
                "acknowledges some (max-read-page-messages, max-read-page-bytes)",
                self._queue.name,
                share.messages,
                share.size,
                extra={"queue": self._queue.name, "address": self._queue.address.name},
            )

    def remove_consumer(self, consumer: Consumer) -> None:
        """A consumer has left; its unsettled messages are requeued later."""
        self._of.pop(consumer, None)


#: Messages of groups in the backlog of one owner; further ones are spilled.
HELD = 100


class SpilledMessages:
    """Positions of one priority in the pages of one address, ascending, each once, with their messages' numbers."""

    __slots__ = ("_keys", "_numbers", "_start")

    def __init__(self) -> None:
        self._keys = array("Q")
        self._numbers = array("Q")
        self._start = 0

    def add(self, key: int, number: int) -> None:
        """Add a position; nothing happens where it is known."""
        at = bisect_left(self._keys, key, self._start)
        if at == len(self._keys) or self._keys[at] != key:
            self._keys.insert(at, key)
            self._numbers.insert(at, number)

    def first(self, cursor: Cursor) -> tuple[int, Position] | None:
        """Number and position of the first message; those that are no longer on disk only are forgotten."""
        while self._start < len(self._keys):
            key = self._keys[self._start]
            page = cursor.pages.page(key >> 32)
            if page is not None and cursor.is_waiting(page, key & 0xFFFFFFFF):
                return self._numbers[self._start], (page, key & 0xFFFFFFFF)
            self._start += 1
            if self._start > SLACK and self._start * 2 > len(self._keys):
                del self._keys[: self._start], self._numbers[: self._start]
                self._start = 0
        return None

    def waiting(self, cursor: Cursor) -> list[Position]:
        """The positions that are on disk only."""
        found = []
        for key in self._keys[self._start :]:
            page = cursor.pages.page(key >> 32)
            if page is not None and cursor.is_waiting(page, key & 0xFFFFFFFF):
                found.append((page, key & 0xFFFFFFFF))
        return found


class GroupSpill:
    """Positions that belong to one consumer, the owner of their groups. They are waiting on disk."""

    def __init__(self) -> None:
        self._of: dict[Consumer, dict[tuple[int, Cursor], SpilledMessages]] = {}  # by priority and cursor

    def __contains__(self, consumer: Consumer) -> bool:
        return consumer in self._of

    def wants(self, owner: Consumer) -> bool:
        """Whether a message is to be parked: there are others already, or too many in memory."""
        return owner in self._of or (owner.group_backlog is not None and owner.group_backlog.size >= HELD)

    @staticmethod
    def runs_low(owner: Consumer) -> bool:
        """Whether so few are in memory for a consumer that more may be brought back."""
        return owner.group_backlog is None or owner.group_backlog.size < HELD // 2

    def add(self, owner: Consumer, cursor: Cursor, ref: Reference) -> None:
        """Park a message."""
        assert ref.position is not None
        kinds = self._of.setdefault(owner, {})
        kind = ref.message.traits.priority, cursor
        parked = kinds.get(kind)
        if parked is None:
            parked = kinds[kind] = SpilledMessages()
        parked.add(key_of(*ref.position), ref.message.number)

    def next(self, owner: Consumer) -> tuple[tuple[int, int], Cursor, Position] | None:
        """The first message that is parked for a consumer: its place in the queue's order, cursor and position."""
        first: tuple[tuple[int, int], Cursor, Position] | None = None
        for (level, cursor), parked in self._of.get(owner, {}).items():
            if first is not None and -level > first[0][0]:
                continue
            found = parked.first(cursor)
            if found is not None and (first is None or (-level, found[0]) < first[0]):
                first = (-level, found[0]), cursor, found[1]
        if first is None:
            self._of.pop(owner, None)
        return first

    def before(self, owner: Consumer, ref: Reference) -> bool:
        """Whether something that is parked for a consumer comes before a message in memory."""
        first = self.next(owner)
        return first is not None and first[0] < ref.order

    def release_spilled(self, owner: Consumer) -> list[tuple[Cursor, int, Page, int]]:
        """Nothing is parked for a consumer any more: cursor, priority and position of what was."""
        return [
            (cursor, level, page, index)
            for (level, cursor), parked in self._of.pop(owner, {}).items()
            for page, index in parked.waiting(cursor)
        ]

    def forget(self, cursor: Cursor) -> None:
        """An address pages no more."""
        for owner, kinds in list(self._of.items()):
            for level in LEVELS:
                kinds.pop((level, cursor), None)
            if not kinds:
                del self._of[owner]


class Oldest:
    """Timestamp of the first message on disk; reading its block may take a while, and the next call has the result."""

    def __init__(self, area: TargetArea) -> None:
        self._area = area
        self._known: tuple[int, int] | None = None  # key and timestamp of what was on disk first
        self._reading = False

    def timestamp(self) -> int | None:
        """Epoch ms; None where nothing waits on disk, or it is not known yet."""
        position = self._area.position_before(None)
        if position is None:
            return None
        key = key_of(*position)
        if self._known is None or self._known[0] != key:
            self._read(key, position)
        return None if self._known is None or self._known[0] != key else self._known[1]

    def _read(self, key: int, position: Position) -> None:
        area, (page, index) = self._area, position

        def on_block(block: Block | None) -> None:
            self._reading = False
            if block is not None:
                self._known = (key, block.message(index).timestamp)

        block = area.block(page, index)
        if block is not None:
            on_block(block)
        elif not self._reading:
            self._reading = True
            cursor = next(one for one in area.cursors if one.pages.page(page.number) is page)
            area.fetch(cursor, page, index, on_block)


def evict(area: TargetArea, position: Position) -> None:
    """Evict the message at a position, unread unless a policy is notified of evictions."""
    page, index = position
    queue = area.queue
    cursor = next(one for one in area.cursors if one.pages.page(page.number) is page)
    if queue.evicted is None:
        queue.messages_replaced += 1
        area.version += 1
        cursor.settle_waiting(page, index, Reason.REPLACED)
        return
    counts = cursor.take(page, index)  # it no longer counts, whether or not its block can be read
    area.version += 1

    def on_block(block: Block | None) -> None:
        if area.closed:
            return
        unreadable = Message(0, cursor.pages.address, Traits(b""), b"", 0)
        message = unreadable if block is None else block.message(index)
        ref = queue.load(message, position, counts)
        area.messages += 1
        area.size += message.size
        if block is None:
            queue.drop(ref, Reason.KILLED)
        else:
            queue.replace(ref)

    block = area.block(page, index)
    if block is None:
        area.fetch(cursor, page, index, on_block)
    else:
        on_block(block)


#: Selectors without consumers whose matches a queue remembers, so that a returning consumer needs no second scan.
REMEMBERED_SELECTORS = 16

#: Messages that cannot be unloaded and are skipped in the search for others.
MOST_SKIPPED = 1000


class TargetArea:
    """The messages of one paged queue in memory, by selector (`PagedQueue`)."""

    __deletable__ = ("_oldest", "prefetcher")  # for mypyc

    def __init__(self, queue: Queue, areas: TargetAreas) -> None:
        self.queue = queue
        self.areas = areas
        self.cursors: list[Cursor] = []
        self.requested = False  # see `Work`
        self.closed = False
        self.unloaded = False  # messages were unloaded, and no consumer has wanted any since
        self.version = 0  # goes up with every change of what is on disk
        self.messages = 0  # that came from pages and are in memory, in delivery too
        self.size = 0  # their bytes
        self.unfiltered = TargetList(None, areas.budget)
        self.unfiltered.pending = queue.dispatcher.pending
        self.lists: OrderedDict[object, TargetList] = OrderedDict()  # by selector, the last used last
        self.page_credit = PageCredit(queue, areas.free_memory)
        self.group_spill = GroupSpill()
        self.due_on_disk = DueOnDisk()
        self.prefetcher = Prefetcher(self)
        self._by_address: dict[Address, Cursor] = {}
        self._oldest = Oldest(self)
        self._returned = False  # something came back since the last demand

    # ---- cursors

    def open(self, cursor: Cursor) -> None:
        """The queue has something in the pages of one more address."""
        self.cursors.append(cursor)
        self._by_address[cursor.pages.address] = cursor
        self.version += 1

    def forget(self, address: Address) -> None:
        cursor = self._by_address.pop(address, None)
        if cursor is None:
            return
        self.cursors.remove(cursor)
        for one in (self.unfiltered, *self.lists.values()):
            one.tracks.pop(cursor, None)
        self.group_spill.forget(cursor)
        self.due_on_disk.forget(cursor)
        self.version += 1
        if not self.cursors:
            self._end()
            self.queue.detach_pages()

    def close(self) -> None:
        cursors, self.cursors = self.cursors, []
        self._by_address.clear()
        self._end()
        for cursor in cursors:
            cursor.pages.forget(self.queue)
            page_mode.leave_if_empty(cursor.pages.address)

    def _end(self) -> None:
        self.closed = True
        for one in self.lists.values():
            one.forget_answers()
        self.areas.forget(self)
        del self.prefetcher, self._oldest  # they refer to it; a closed area needs neither

    @property
    def waiting(self) -> int:
        cursors = self.cursors
        if len(cursors) == 1:  # as good as always
            return cursors[0].waiting
        waiting = 0
        for cursor in cursors:
            waiting += cursor.waiting
        return waiting

    @property
    def timed(self) -> int:
        return sum(cursor.timed for cursor in self.cursors)

    @property
    def ready_messages(self) -> int:
        """Messages from pages in memory that are not in delivery."""
        return self.messages - len(self.page_credit)

    @property
    def ready_size(self) -> int:
        """Their bytes."""
        return self.size - self.page_credit.size

    @property
    def active(self) -> bool:
        """Whether there is anybody who would take messages now."""
        return self.queue.dispatcher.active

    def cursor_of(self, ref: Reference) -> Cursor | None:
        """The cursor of the address a message was sent to, None where that has paged nothing for this queue."""
        return self._by_address.get(ref.message.address)

    # ---- target lists

    def list_of(self, consumer: Consumer) -> TargetList:
        """The list that a consumer is served from."""
        source = consumer.source
        if source is self.queue.dispatcher.pending:
            return self.unfiltered
        key = consumer.matches_key
        found = self.lists.get(key)
        if found is None:
            found = self.lists[key] = TargetList(consumer.matches, self.areas.budget)
        found.pending = source
        return found

    def ready_lists(self) -> Iterator[TargetList]:
        """The lists of all consumers who may have more, each once."""
        seen: set[TargetList] = set()
        dispatcher = self.queue.dispatcher
        self.queue.broker.effort.steps += len(self.queue.ready)
        for consumer in list(self.queue.ready):
            if dispatcher.scanning and dispatcher.is_scanning(consumer):
                continue  # what is in memory may come first
            one = self.list_of(consumer)
            if one not in seen and not self.page_credit.exhausted(consumer):
                seen.add(one)
                yield one

    def may_deliver(self, ref: Reference, consumer: Consumer) -> bool:
        if ref.position is not None and self.page_credit.exhausted(consumer):
            return False
        if not self.waiting:
            return True
        cursor = self.cursor_of(ref)
        one = self.list_of(consumer)
        one.find_watermark(self.cursors, self.version)
        if not one.below_watermark(ref, cursor):
            return False
        return consumer not in self.group_spill or not self.group_spill.before(consumer, ref)

    def position_before(self, ref: Reference | None) -> Position | None:
        unfiltered = self.unfiltered
        unfiltered.find_watermark(self.cursors, self.version)
        if not unfiltered.firsts or (
            ref is not None and unfiltered.below_watermark(ref, self.cursor_of(ref))
        ):
            return None
        cursor, key = next(iter(unfiltered.firsts.items()))
        page = cursor.pages.page(key >> 32)
        return None if page is None else (page, key & 0xFFFFFFFF)

    # ---- loading

    def on_paged(self, cursor: Cursor, message: Message, position: Position) -> None:
        self.version += 1
        queue = self.queue
        if queue.ring_size >= 0 and queue.attributes.ring_counts_paged and queue.ring_size < queue.ring_count:
            queue.evict()
            if not cursor.is_waiting(*position):
                return
        if queue.ready or cursor.levels[message.traits.priority] == 1:
            self.prefetcher.on_paged(cursor, message, position)
            if not self.closed:
                self.demand()

    def on_growth(self) -> None:
        self.version += 1
        if self.queue.ready:
            self.demand()

    def load_reference(self, cursor: Cursor, page: Page, index: int, message: Message) -> Reference:
        counts = cursor.take(page, index)
        self.version += 1
        self.messages += 1
        self.size += message.size
        return self.queue.load(message, (page, index), counts)

    def load(self, cursor: Cursor, page: Page, index: int, message: Message) -> Reference | None:
        """Load a message; None if it has expired."""
        ref = self.load_reference(cursor, page, index, message)
        if not message.expires:
            ref.state = PENDING
            return ref
        if is_expired(message, self.queue.broker.clock.now):
            self.queue.broker.expiry.expire(ref)
            return None
        ref.state = PENDING
        self.queue.broker.expiry.watch(ref)
        return ref

    def expire(self, cursor: Cursor, page: Page, index: int, message: Message) -> None:
        """Expire a message on disk."""
        self.queue.broker.expiry.expire(self.load_reference(cursor, page, index, message))

    def evict(self, position: Position) -> None:
        evict(self, position)

    def replace(self, cursor: Cursor, position: Position) -> None:
        self.version += 1
        cursor.settle_waiting(*position, Reason.REPLACED)

    def deliver_now(self, cursor: Cursor, page: Page, index: int, message: Message) -> None:
        ref = self.load_reference(cursor, page, index, message)
        if message.expires:
            self.queue.broker.expiry.watch(ref)
        self.queue.on_due([ref], self.queue.due_batch())

    # ---- unloading and settling

    def unload(self, ref: Reference) -> None:
        """Drop the reference of a pending message, which stays on disk."""
        cursor = self._unload(ref)
        assert ref.position is not None
        page, index = ref.position
        for one in (self.unfiltered, *self.lists.values()):
            one.on_returned(cursor, page, index, ref.message)

    def _unload(self, ref: Reference) -> Cursor:
        cursor, message = self.cursor_of(ref), ref.message
        assert cursor is not None and ref.position is not None
        self.queue.unload(ref)
        cursor.put_back(ref)
        self._subtract(ref)
        self.version += 1
        if message.expires:
            self.areas.paged(cursor.pages, ref.position, message.expires, 0)
        return cursor

    def unload_until(self, enough: Callable[[], bool]) -> None:
        """Unload the newest pending messages until ``enough``."""
        pending = self.queue.dispatcher.pending
        skipped: list[Reference] = []  # not on disk, or at the head because they fell due
        while not enough() and len(skipped) < MOST_SKIPPED:
            ref = pending.newest()
            if ref is None:
                break
            if ref.position is None or ref.sequence <= 0:
                skipped.append(ref)
            else:
                self.unloaded = True
                self.unload(ref)
        for ref in skipped:
            pending.restore(ref)

    def on_delivered(self, ref: Reference, consumer: Consumer) -> None:
        self.page_credit.on_delivered(ref, consumer)

    def on_requeued(self, ref: Reference) -> None:
        self.page_credit.release(ref)
        cursor = self.cursor_of(ref)
        if cursor is not None:
            cursor.returned(ref)
        self._returned = True
        self._continue()

    def settled(self, ref: Reference, reason: Reason) -> None:
        self.page_credit.release(ref)
        self._subtract(ref)
        cursor = self.cursor_of(ref)
        if cursor is None:
            return  # the queue is deleted
        cursor.settle(ref, reason)
        if not cursor.remaining:
            page_mode.leave_if_empty(cursor.pages.address)
        self._continue()

    def acknowledged(self, cursor: Cursor, page: Page, first: int, stop: int, durable: bool) -> None:
        """Positions that no reference was made of were delivered and acknowledged."""
        cursor.acknowledge(page, first, stop, durable)
        self.version += 1
        if not cursor.remaining:
            page_mode.leave_if_empty(cursor.pages.address)

    def _subtract(self, ref: Reference) -> None:
        self.messages -= 1
        self.size -= ref.message.size

    def _continue(self) -> None:
        if self.page_credit.freed and not self.closed:
            self.page_credit.freed = False
            self.areas.loader.request(self)

    def purge(self, reason: Reason) -> Iterator[int]:
        for cursor in list(self.cursors):
            for purged in cursor.purge(reason):
                self.version += 1
                yield purged
            page_mode.leave_if_empty(cursor.pages.address)

    # ---- groups

    def spill(self, ref: Reference, owner: Consumer) -> bool:
        cursor = self.cursor_of(ref)
        if cursor is None or ref.position is None or ref.sequence <= 0:
            return False
        if not self.group_spill.wants(owner) and (owner.group_backlog is None or self.areas.free_memory(0)):
            return False
        self._unload(ref)
        page, index = ref.position
        self.group_spill.add(owner, cursor, ref)
        track, level = self.unfiltered.track(cursor), ref.message.traits.priority
        if track.next_unscanned(level) == ref.position:  # unless a selector's scan is further
            track.skip(level, page, index)
        self.version += 1
        return True

    def release_spilled(self, consumer: Consumer) -> None:
        for cursor, level, page, index in self.group_spill.release_spilled(consumer):
            for one in (self.unfiltered, *self.lists.values()):
                one.track(cursor).rescan(level, page, index)
        self.version += 1
        if not self.areas.free_memory(0):
            self.unload_until(self.areas.within_budget)  # a backlog may be many messages
        self.demand()

    def on_consumer_removed(self, consumer: Consumer) -> None:
        self.page_credit.remove_consumer(consumer)
        self.prefetcher.remove_consumer(consumer)
        key, targets = consumer.matches_key, self.queue.dispatcher.selector_lists
        if key in self.lists:
            self.lists.move_to_end(key)
        cold = [other for other in self.lists if other not in targets][:-REMEMBERED_SELECTORS]
        for other in cold:
            self.lists.pop(other).forget_answers()

    # ---- reading

    def demand(self) -> None:
        if self._returned:
            self._returned = False
            if not self.areas.free_memory(0):  # messages in delivery have become pending
                self.unload_until(self.areas.within_budget)
        if not self.requested and not self.closed and self.prefetcher.needed():
            self.areas.loader.request(self)

    def work(self, in_time: Callable[[], bool]) -> None:
        if not self.closed:
            self.prefetcher.fill(in_time)

    def block(self, page: Page, index: int) -> Block | None:
        return self.areas.cache.get(page, index)

    def fetch(self, cursor: Cursor, page: Page, index: int, done: Callable[[Block | None], None]) -> None:
        self.areas.cache.fetch(cursor.pages, page, index, done)

    @property
    def oldest(self) -> int | None:
        return self._oldest.timestamp()
