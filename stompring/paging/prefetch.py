"""When messages of a paged queue are read into memory, and how many: the eager loader's part for one queue.

A list with waiting consumers is kept between half of `WINDOW` and all of it, within ``prefetch-page-messages`` and
the memory budget.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from stompring.broker.message import Message
from stompring.broker.paging import Block, Cursor, Page, Position

from .target_list import TargetList, Track, key_of

if TYPE_CHECKING:
    from stompring.broker.broker import Broker
    from stompring.broker.consumer import Consumer
    from stompring.broker.queue import Queue

    from .paged_queue import TargetArea

#: Messages that a list has in memory at most.
WINDOW = 1000

#: Messages that a list gets at a time when the limits leave it none.
LEAST = 16

#: Messages that are loaded between two looks at the limits.
STEP = 16


class Prefetcher:
    """Fills the lists of one queue."""

    def __init__(self, area: TargetArea) -> None:
        self._area = area
        self._queue = area.queue
        self._at_hand: dict[object, Block] = {}  # what was read last, by who asked for it
        self._fetching: set[object] = set()

    # ---- a message was just written

    def arrived(self, cursor: Cursor, message: Message, position: Position) -> None:
        """Serve it from memory at once where nothing that waits comes before it, and there is room."""
        area, level = self._area, message.traits.priority
        if cursor.levels[level] == 1 and not area.overdue and self._alone(cursor, level):
            if self._may_serve(message):
                self._serve(cursor, position, message)
                return
        if not area.lists or not area.active:
            return
        for one in area.ready_lists():
            if one.matches is None or not self._caught_up(one, cursor, level, position):
                continue
            track = one.track(cursor)
            track.skip(level, *position)
            if not one.matches(message):
                continue
            if self._wants(one, 0):
                self._serve(cursor, position, message)
                return
            track.refer(level, key_of(*position))

    def _alone(self, cursor: Cursor, level: int) -> bool:
        return all(other is cursor or not other.levels[level] for other in self._area.cursors)

    @staticmethod
    def _caught_up(one: TargetList, cursor: Cursor, level: int, position: Position) -> bool:
        found = one.track(cursor).next(level)
        return found is not None and not found[1] and found[0] == position

    def _serve(self, cursor: Cursor, position: Position, message: Message) -> None:
        queue = self._queue
        ref = self._area.load(cursor, *position, message)
        if ref is not None:
            queue.dispatcher.enlist(ref)
            if queue.ready:
                queue.dispatcher.dispatch()
                self._empty_ring()

    def _may_serve(self, message: Message) -> bool:
        area, queue = self._area, self._queue
        if area.active:
            if self._is_ring():
                return queue.count < queue.ring_size
            return not queue.count or self._room(message.size)
        if self._is_ring():
            return False
        if queue.consumers:
            return self._room(message.size)
        return area.dispatch.idle_room(area.ready_size + message.size) and self._room(message.size)

    # ---- limits

    def _is_ring(self) -> bool:
        """Whether what is loaded would take the places of a ring."""
        queue = self._queue
        return queue.ring_size >= 0 and not queue.attributes.ring_counts_paged

    def _room(self, size: int) -> bool:
        area, settings = self._area, self._queue.address.settings
        messages, most = settings.prefetch_messages, settings.prefetch_bytes
        if 0 <= messages <= area.ready_messages or 0 <= most < area.ready_size + size:
            return False
        return area.dispatch.make_room(size)

    def _wants(self, one: TargetList, loaded: int, window: int = WINDOW) -> bool:
        """Whether more should be loaded for a list, after ``loaded`` messages in one go."""
        area, pending = self._area, one.pending
        assert pending is not None
        if one.fetching:
            return False
        head = pending.head()
        if head is None or not one.below_watermark(head, area.cursor_of(head)):
            return loaded < LEAST
        if self._is_ring():
            return self._queue.count < self._queue.ring_size and bool(loaded)
        return pending.size < window and self._room(0)

    def _wants_spilled(self, consumer: Consumer) -> bool:
        """Whether more of what is parked should be loaded: always what comes before all that it has in memory.

        That is what its turn waits for (`TargetArea.may_have`), however much is set aside for it, and if there is no
        room: a message of its groups may come back and be parked before those that are set aside.
        """
        parking = self._area.group_spill
        if consumer not in parking or consumer in self._fetching:
            return False
        head = self._queue.dispatcher.next_in_memory(consumer)
        if head is None or parking.before(consumer, head):
            return True
        return parking.runs_low(consumer) and self._room(0)

    def needed(self) -> bool:
        """Whether there is anything to load now."""
        area = self._area
        if not area.active:
            if area.ready_messages:
                area.dispatch.idle(area)
            return self._head_needed() or (bool(area.overdue) and area.overdue not in self._fetching)
        area.chilled = False
        if area.overdue and area.overdue not in self._fetching:
            return True
        if not area.waiting:
            return False
        for one in area.ready_lists():
            one.find_watermark(area.cursors, area.version)
            if one.firsts and self._wants(one, 0, WINDOW // 2):
                return True
        return any(self._wants_spilled(consumer) for consumer in self._queue.ready)

    def _head_needed(self) -> bool:
        area, plain = self._area, self._area.plain
        if not area.waiting or area.chilled or self._is_ring() or plain.fetching:
            return False
        if not area.dispatch.head_room(area.ready_size) or not self._room(0):
            return False
        plain.find_watermark(area.cursors, area.version)
        return bool(plain.firsts)

    # ---- loading

    def fill(self, in_time: Callable[[], bool]) -> None:
        """Load what is wanted, until it is not in time any more or a page has to be read."""
        area, queue = self._area, self._queue
        if area.overdue:
            self._fall_due(in_time)
        if area.active:
            for one in area.ready_lists():
                self._fill(one, in_time, partial(self._wants, one))
            for consumer in list(queue.ready):
                self._unspill(consumer)
            queue.dispatcher.dispatch()
            self._empty_ring()
        elif not area.closed:
            self._fill(area.plain, in_time, lambda loaded: self._head_needed(), 1)
        if not area.closed:
            area.demand()

    def _fill(
        self, one: TargetList, in_time: Callable[[], bool], wants: Callable[[int], bool], step: int = STEP
    ) -> None:
        area = self._area
        loaded = 0
        while True:
            one.find_watermark(area.cursors, area.version)
            if one.fetching or not one.firsts or not wants(loaded) or (loaded and not in_time()):
                return
            found = self._next(one)
            if found is None:
                return
            track, (page, index), known = found
            block = self._block(one, track.cursor, page, index)
            if block is None:
                return
            if one.learn(track.cursor, key_of(page, index), block.number_of(index)):
                continue
            if known:
                track.use_reference(one.top)
            if one.test is None or known:
                most = 1 if known or len(one.firsts) > 1 else step
                passed = self._pass_on(one, track.cursor, page, index, block, in_time) if most > 1 else 0
                loaded += passed or self._load_run(one, track, page, index, block, most)
            else:
                track.scan(block)
                area.version += 1
                if not in_time():
                    return
            self._read_ahead(track.cursor, block)

    def _next(self, one: TargetList) -> tuple[Track, Position, bool] | None:
        """The first message on disk; among several addresses that which was sent first."""
        numbered: dict[Cursor, int] = {}
        if len(one.firsts) > 1:
            for cursor, key in one.firsts.items():
                page = cursor.pages.page(key >> 32)
                block = None if page is None else self._block(cursor, cursor, page, key & 0xFFFFFFFF)
                if block is None:
                    one.fetching = False
                    return None
                numbered[cursor] = block.number_of(key & 0xFFFFFFFF)
        return one.next(self._area.cursors, numbered)

    def _pass_on(
        self,
        one: TargetList,
        cursor: Cursor,
        page: Page,
        index: int,
        block: Block,
        in_time: Callable[[], bool],
    ) -> int:
        """Hand over what is read, as `_load_run` and `Dispatcher.dispatch` do in two steps, while nobody is choosy.

        Returns how many positions were taken.
        """
        area, queue = self._area, self._queue
        wanted = one.top + 1
        passed = 0
        for at, state in enumerate(cursor.states(page, index, block.stop), index):
            if state != wanted:
                continue
            consumer = queue.dispatcher.consumer_for_any()
            if consumer is None or area.shares.exhausted(consumer):
                break
            message = block.message(at)
            if message.traits.group is not None:
                break
            ref = area.load(cursor, page, at, message)
            passed += 1
            if ref is not None:
                queue.deliver(ref, consumer)
            if area.closed or (passed % STEP == 0 and not in_time()):
                break
        return passed

    def _load_run(
        self, one: TargetList, track: Track, page: Page, index: int, block: Block, most: int
    ) -> int:
        """Load up to ``most`` messages of the same priority from one block; returns how many positions were taken."""
        area, queue = self._area, self._queue
        wanted = one.top + 1
        states = track.cursor.states(page, index, min(block.stop, index + most))
        taken = 0
        for at, state in enumerate(states, index):
            if state == wanted:
                ref = area.load(track.cursor, page, at, block.message(at))
                taken += 1
                if area.closed:
                    break
                if ref is not None:
                    queue.dispatcher.enlist(ref)
        return taken

    def _fall_due(self, in_time: Callable[[], bool]) -> None:
        """Scheduled messages whose time has come go to the head, in order.

        What has no room in memory waits where it stands in the pages, for its turn among what is there.
        """
        area, queue = self._area, self._queue
        while not area.closed and area.overdue not in self._fetching:
            found = area.overdue.next()
            if found is None:
                return
            cursor, (page, index), due = found
            block = self._block(area.overdue, cursor, page, index)
            if block is None:
                return
            ref = area.take_out(cursor, page, index, block.message(index))
            if ref.message.expires:
                queue.broker.expiry.watch(ref)
            if self._is_ring() or not queue.count or self._room(0):
                queue.on_due([ref], due)
            else:
                area.put_back(ref)
            if not in_time():
                return

    def _unspill(self, consumer: Consumer) -> None:
        """Load what was parked for a consumer that is ready again."""
        area, queue = self._area, self._queue
        while not area.closed and self._wants_spilled(consumer):
            found = area.group_spill.next(consumer)
            if found is None or queue.dispatcher.groups is None:
                return
            _, cursor, (page, index) = found
            block = self._block(consumer, cursor, page, index)
            if block is None:
                return
            ref = area.load(cursor, page, index, block.message(index))
            if ref is not None:
                queue.dispatcher.enlist_for_group(ref, consumer)

    def _empty_ring(self) -> None:
        """A ring keeps nothing in memory that nobody has taken: it would stand in the way of what comes back."""
        if self._is_ring() and not self._area.closed:
            self._area.give_up(lambda: False)

    # ---- blocks

    def _block(self, asker: object, cursor: Cursor, page: Page, index: int) -> Block | None:
        """The block with a position; None while it is being read, after which there is demand again."""
        block = self._at_hand.get(asker)
        if block is not None and block.page is page and block.first <= index < block.stop:
            return block
        block = self._area.block(page, index)
        if block is not None:
            self._at_hand[asker] = block
            return block
        if asker in self._fetching:
            return None
        self._at_hand.pop(asker, None)
        self._fetching.add(asker)
        if isinstance(asker, TargetList):
            asker.fetching = True

        def came(block: Block | None) -> None:
            self._fetching.discard(asker)
            if isinstance(asker, TargetList):
                asker.fetching = False
            if block is not None:
                self._at_hand[asker] = block
            if not self._area.closed:
                self._area.dispatch.loader.want(self._area)

        self._area.fetch(cursor, page, index, came)
        return None

    def _read_ahead(self, cursor: Cursor, block: Block) -> None:
        """Have the next block read while this one is dealt with."""
        area, page = self._area, block.page
        if block.stop < page.count and area.block(page, block.stop) is None and area.dispatch.spare:
            area.dispatch.read_ahead(cursor.pages, page, block.stop)

    def left(self, consumer: Consumer) -> None:
        """A consumer has gone."""
        self._at_hand.pop(consumer, None)


#: Milliseconds after which is looked again. A look goes over all queues, so it is not taken more often.
LOOK_AGAIN = 1000


class ActiveQueues:
    """Queues with consumers that got something between two looks, and have nothing on disk."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._added: dict[Queue, int] = {}  # `messages_added` of queues with consumers, at the last look
        self._looked = 0
        self._count = 0

    def count(self) -> int:
        """As of the last look; nobody until there were two, one soon after the other."""
        now = self._broker.clock.steady.now
        passed = now - self._looked
        if passed >= LOOK_AGAIN:
            self._look(fresh=passed < 3 * LOOK_AGAIN)
            self._looked = now
        return self._count

    def _look(self, fresh: bool) -> None:
        before = self._added if fresh else {}
        queues = self._broker.directory.queues.values()
        self._added = {queue: queue.messages_added for queue in queues if queue.consumers}
        self._count = sum(
            added != before.get(queue, added) and not (queue.paged is not None and queue.paged.waiting)
            for queue, added in self._added.items()
        )
