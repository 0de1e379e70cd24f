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

#: Milliseconds after which it is said again that a consumer does not settle what it has.
SAID_AGAIN = 60_000


class ConsumerCredit:
    """One consumer's."""

    __slots__ = ("blocked", "messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.blocked = False  # was refused more, and waits


class PageCredit:
    """References in delivery that came from pages.

    A consumer with ``max-read-page-messages`` or ``-bytes`` of them unsettled gets no more until it settles some.
    In Artemis all consumers of a queue have that limit together, so that one who settles nothing stops the others.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._of: dict[Consumer, ConsumerCredit] = {}
        self._out: dict[Reference, ConsumerCredit] = {}
        self._said = 0
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

    def back(self, ref: Reference) -> None:
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
            return False
        share.blocked = True
        self._log(share)
        return True

    def _log(self, share: ConsumerCredit) -> None:
        now = self._queue.broker.clock.steady.now
        if now - self._said >= SAID_AGAIN:
            self._said = now
            log.warning(
                "queue %s: a consumer has %d paged messages of %d bytes unsettled and gets no more until it settles "
                "some (max-read-page-messages, max-read-page-bytes)",
                self._queue.name,
                share.messages,
                share.size,
                extra={"queue": self._queue.name, "address": self._queue.address.name},
            )

    def left(self, consumer: Consumer) -> None:
        """A consumer has gone; what it has not settled comes back by and by."""
        self._of.pop(consumer, None)


#: Messages of groups that are kept in memory for one owner; more are parked.
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

    def free(self, owner: Consumer) -> list[tuple[Cursor, int, Page, int]]:
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
    """Looks into the head block of a queue; where that must be read the answer comes with a later ask."""

    def __init__(self, area: TargetArea) -> None:
        self._area = area
        self._known: tuple[int, int] | None = None  # key and timestamp of what was on disk first
        self._peeking = False

    def timestamp(self) -> int | None:
        """Epoch ms; None where nothing waits on disk, or it is not known yet."""
        position = self._area.leads(None)
        if position is None:
            return None
        key = key_of(*position)
        if self._known is None or self._known[0] != key:
            self._peek(key, position)
        return None if self._known is None or self._known[0] != key else self._known[1]

    def _peek(self, key: int, position: Position) -> None:
        area, (page, index) = self._area, position

        def came(block: Block | None) -> None:
            self._peeking = False
            if block is not None:
                self._known = (key, block.message(index).timestamp)

        block = area.block(page, index)
        if block is not None:
            came(block)
        elif not self._peeking:
            self._peeking = True
            cursor = next(one for one in area.cursors if one.pages.page(page.number) is page)
            area.fetch(cursor, page, index, came)


def evict(area: TargetArea, position: Position) -> None:
    """Give up the message at a position: unread, unless some policy wants to know what it was."""
    page, index = position
    queue = area.queue
    cursor = next(one for one in area.cursors if one.pages.page(page.number) is page)
    if queue.evicted is None:
        queue.messages_replaced += 1
        area.version += 1
        cursor.settle_waiting(page, index, Reason.REPLACED)
        return
    counts = cursor.take(page, index)  # it counts no more, whatever the disk still needs to tell of it
    area.version += 1

    def came(block: Block | None) -> None:
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
        area.fetch(cursor, page, index, came)
    else:
        came(block)


#: Selectors without consumers of which a queue remembers what they match: who comes back needs no second scan.
WARM = 16

#: Messages that cannot be sent back to disk among which others are looked for.
PASSED_OVER = 1000


class TargetArea:
    """See `broker.area.Area`."""

    def __init__(self, queue: Queue, dispatch: TargetAreas) -> None:
        self.queue = queue
        self.dispatch = dispatch
        self.cursors: list[Cursor] = []
        self.wanted = False  # see `Work`
        self.closed = False
        self.chilled = False  # something was given up, and nobody has asked since
        self.version = 0  # goes up with every change of what is on disk
        self.messages = 0  # that came from pages and are in memory, in delivery too
        self.size = 0  # their bytes
        self.plain = TargetList(None)
        self.plain.pending = queue.dispatcher.pending
        self.lists: OrderedDict[object, TargetList] = OrderedDict()  # by selector, the last used last
        self.shares = PageCredit(queue)
        self.group_spill = GroupSpill()
        self.overdue = DueOnDisk()
        self.filling = Prefetcher(self)
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
        """See `Area.forget`."""
        cursor = self._by_address.pop(address, None)
        if cursor is None:
            return
        self.cursors.remove(cursor)
        for one in (self.plain, *self.lists.values()):
            one.tracks.pop(cursor, None)
        self.group_spill.forget(cursor)
        self.overdue.forget(cursor)
        self.version += 1
        if not self.cursors:
            self._end()
            self.queue.detach_pages()

    def close(self) -> None:
        """See `Area.close`."""
        cursors, self.cursors = self.cursors, []
        self._by_address.clear()
        self._end()
        for cursor in cursors:
            cursor.pages.forget(self.queue)
            page_mode.consider_leaving(cursor.pages.address)

    def _end(self) -> None:
        self.closed = True
        self.dispatch.forget(self)
        del self.filling, self._oldest  # which refer to it; who is closed asks nothing of them

    @property
    def waiting(self) -> int:
        """See `Area.waiting`."""
        cursors = self.cursors
        if len(cursors) == 1:  # as good as always
            return cursors[0].waiting
        waiting = 0
        for cursor in cursors:
            waiting += cursor.waiting
        return waiting

    @property
    def timed(self) -> int:
        """See `Area.timed`."""
        return sum(cursor.timed for cursor in self.cursors)

    @property
    def ready_messages(self) -> int:
        """Messages from pages in memory that are not in delivery."""
        return self.messages - len(self.shares)

    @property
    def ready_size(self) -> int:
        """Their bytes."""
        return self.size - self.shares.size

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
            return self.plain
        key = consumer.matches_key
        found = self.lists.get(key)
        if found is None:
            found = self.lists[key] = TargetList(consumer.matches)
        found.pending = source
        return found

    def ready_lists(self) -> Iterator[TargetList]:
        """The lists of all consumers who may have more, each once."""
        seen: set[TargetList] = set()
        for consumer in list(self.queue.ready):
            one = self.list_of(consumer)
            if one not in seen and not self.shares.exhausted(consumer):
                seen.add(one)
                yield one

    def may_have(self, ref: Reference, consumer: Consumer) -> bool:
        """See `Area.may_have`."""
        if ref.position is not None and self.shares.exhausted(consumer):
            return False
        if not self.waiting:
            return True
        cursor = self.cursor_of(ref)
        one = self.list_of(consumer)
        one.find_watermark(self.cursors, self.version)
        if not one.below_watermark(ref, cursor):
            return False
        return consumer not in self.group_spill or not self.group_spill.before(consumer, ref)

    def leads(self, ref: Reference | None) -> Position | None:
        """See `Area.leads`."""
        plain = self.plain
        plain.find_watermark(self.cursors, self.version)
        if not plain.firsts or (ref is not None and plain.below_watermark(ref, self.cursor_of(ref))):
            return None
        cursor, key = next(iter(plain.firsts.items()))
        page = cursor.pages.page(key >> 32)
        return None if page is None else (page, key & 0xFFFFFFFF)

    # ---- messages come

    def arrived(self, cursor: Cursor, message: Message, position: Position) -> None:
        """See `Area.arrived`."""
        self.version += 1
        queue = self.queue
        if queue.ring_size >= 0 and queue.attributes.ring_counts_paged and queue.ring_size < queue.ring_count:
            queue.evict()
            if not cursor.is_waiting(*position):
                return
        if queue.ready or cursor.levels[message.traits.priority] == 1:
            self.filling.arrived(cursor, message, position)
            if not self.closed:
                self.demand()

    def on_growth(self) -> None:
        """See `Area.on_growth`."""
        self.version += 1
        if self.queue.ready:
            self.demand()

    def take_out(self, cursor: Cursor, page: Page, index: int, message: Message) -> Reference:
        """See `Area.take_out`."""
        counts = cursor.take(page, index)
        self.version += 1
        self.messages += 1
        self.size += message.size
        return self.queue.load(message, (page, index), counts)

    def load(self, cursor: Cursor, page: Page, index: int, message: Message) -> Reference | None:
        """Bring a message into memory; None where its time is over."""
        ref = self.take_out(cursor, page, index, message)
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
        """The time of a message on disk is over."""
        self.queue.broker.expiry.expire(self.take_out(cursor, page, index, message))

    def evict(self, position: Position) -> None:
        """See `Area.evict`."""
        evict(self, position)

    def deliver_now(self, cursor: Cursor, page: Page, index: int, message: Message) -> None:
        """See `Area.deliver_now`."""
        ref = self.take_out(cursor, page, index, message)
        if message.expires:
            self.queue.broker.expiry.watch(ref)
        self.queue.on_due([ref], self.queue.due_batch())

    # ---- messages go

    def put_back(self, ref: Reference) -> None:
        """A pending message is on disk only from now on."""
        cursor = self._unload(ref)
        assert ref.position is not None
        page, index = ref.position
        for one in (self.plain, *self.lists.values()):
            one.on_returned(cursor, page, index, ref.message)

    def _unload(self, ref: Reference) -> Cursor:
        cursor, message = self.cursor_of(ref), ref.message
        assert cursor is not None and ref.position is not None
        self.queue.unload(ref)
        cursor.put_back(ref)
        self._forget_size(ref)
        self.version += 1
        if message.expires:
            self.dispatch.paged(cursor.pages, ref.position, message.expires, 0)
        return cursor

    def give_up(self, enough: Callable[[], bool]) -> None:
        """Send the newest of what is pending back to disk, until that is enough."""
        pending = self.queue.dispatcher.pending
        kept: list[Reference] = []  # never written, or at the head for having fallen due
        while not enough() and len(kept) < PASSED_OVER:
            ref = pending.newest()
            if ref is None:
                break
            if ref.position is None or ref.sequence <= 0:
                kept.append(ref)
            else:
                self.chilled = True
                self.put_back(ref)
        for ref in kept:
            pending.restore(ref)

    def on_delivered(self, ref: Reference, consumer: Consumer) -> None:
        """See `Area.on_delivered`."""
        self.shares.on_delivered(ref, consumer)

    def on_requeued(self, ref: Reference) -> None:
        """See `Area.on_requeued`."""
        self.shares.back(ref)
        cursor = self.cursor_of(ref)
        if cursor is not None:
            cursor.returned(ref)
        self._returned = True
        self._continue()

    def settled(self, ref: Reference, reason: Reason) -> None:
        """See `Area.settled`."""
        self.shares.back(ref)
        self._forget_size(ref)
        cursor = self.cursor_of(ref)
        if cursor is None:
            return  # the queue is deleted, and what it had with it
        cursor.settle(ref, reason)
        if not cursor.remaining:
            page_mode.consider_leaving(cursor.pages.address)
        self._continue()

    def _forget_size(self, ref: Reference) -> None:
        self.messages -= 1
        self.size -= ref.message.size

    def _continue(self) -> None:
        if self.shares.freed and not self.closed:
            self.shares.freed = False
            self.dispatch.loader.want(self)

    def purge(self, reason: Reason) -> Iterator[int]:
        """See `Area.purge`."""
        for cursor in list(self.cursors):
            for purged in cursor.purge(reason):
                self.version += 1
                yield purged
            page_mode.consider_leaving(cursor.pages.address)

    # ---- groups

    def spill(self, ref: Reference, owner: Consumer) -> bool:
        """See `Area.park`."""
        cursor = self.cursor_of(ref)
        if cursor is None or ref.position is None or ref.sequence <= 0:
            return False
        if not self.group_spill.wants(owner) and (owner.group_backlog is None or self.dispatch.make_room(0)):
            return False
        self._unload(ref)
        page, index = ref.position
        self.group_spill.add(owner, cursor, ref)
        track, level = self.plain.track(cursor), ref.message.traits.priority
        if track.next_unscanned(level) == ref.position:  # not where a selector was ahead
            track.skip(level, page, index)
        self.version += 1
        return True

    def free(self, consumer: Consumer) -> None:
        """See `Area.free`."""
        for cursor, level, page, index in self.group_spill.free(consumer):
            for one in (self.plain, *self.lists.values()):
                one.track(cursor).rescan(level, page, index)
        self.version += 1
        if not self.dispatch.make_room(0):
            self.give_up(self.dispatch.fits)  # what was set aside in memory is many messages at once
        self.demand()

    def on_consumer_removed(self, consumer: Consumer) -> None:
        """See `Area.on_consumer_removed`."""
        self.shares.left(consumer)
        self.filling.left(consumer)
        key, targets = consumer.matches_key, self.queue.dispatcher.selector_lists
        if key in self.lists:
            self.lists.move_to_end(key)
        cold = [other for other in self.lists if other not in targets][:-WARM]
        for other in cold:
            del self.lists[other]

    # ---- reading

    def demand(self) -> None:
        """See `Area.demand`."""
        if self._returned:
            self._returned = False
            if not self.dispatch.make_room(0):  # as much as somebody had out is nobody's now
                self.give_up(self.dispatch.fits)
        if not self.wanted and not self.closed and self.filling.needed():
            self.dispatch.loader.want(self)

    def work(self, in_time: Callable[[], bool]) -> None:
        """See `Work.work`."""
        if not self.closed:
            self.filling.fill(in_time)

    def block(self, page: Page, index: int) -> Block | None:
        """See `Area.block`."""
        return self.dispatch.cache.get(page, index)

    def fetch(self, cursor: Cursor, page: Page, index: int, done: Callable[[Block | None], None]) -> None:
        """See `Area.fetch`."""
        self.dispatch.cache.fetch(cursor.pages, page, index, done)

    @property
    def oldest(self) -> int | None:
        """See `Area.oldest`."""
        return self._oldest.timestamp()
