"""When messages of a paged queue are read into memory, and how many: the eager loader's part for one queue.

A list with ready consumers is filled to between half of `WINDOW` and all of it, within ``prefetch-page-messages`` and
the memory budget.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from stompring.broker.clock import Clock
from stompring.broker.message import Message
from stompring.broker.ports import Block, Cursor, Page, Position

from .target_list import TargetList, Track, key_of

if TYPE_CHECKING:
    from stompring.broker.broker import Broker
    from stompring.broker.delivery import Consumer
    from stompring.broker.queue import Queue

    from .paged_queue import TargetArea

#: Messages that a list has in memory at most.
WINDOW = 1000

#: Messages loaded for a list at a time although the limits leave it none.
MINIMUM = 16

#: Messages loaded between two checks of the limits.
BATCH = 16


class DeliveredRun:
    """Positions from ``first`` to before ``stop``: delivered and acknowledged, and not settled yet."""

    __slots__ = ("_area", "_cursor", "_page", "durable", "first", "stop")

    def __init__(self, area: TargetArea, cursor: Cursor, page: Page) -> None:
        self._area = area
        self._cursor = cursor
        self._page = page
        self.first = self.stop = -1
        self.durable = False

    def settle(self) -> None:
        """Settle what there is."""
        first, stop = self.first, self.stop
        if first < stop:
            self.first = stop
            self._area.acknowledged(self._cursor, self._page, first, stop, self.durable)


class Prefetcher:
    """Fills the lists of one queue."""

    def __init__(self, area: TargetArea) -> None:
        self._area = area
        self._queue = area.queue
        self._last_blocks: dict[object, Block] = {}  # the block read last, by its requester
        self._fetching: set[object] = set()
        self._turn = 0  # index of the list that is filled next

    # ---- messages that were just paged

    def on_paged(self, cursor: Cursor, message: Message, position: Position) -> None:
        """Keep the message in memory where nothing on disk precedes it and memory allows."""
        area, level = self._area, message.traits.priority
        if cursor.levels[level] == 1 and not area.due_on_disk and self._is_first(cursor, level):
            if self._may_serve_from_memory(message):
                self._serve_from_memory(cursor, position, message)
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
            if self._needs_more(one, 0):
                self._serve_from_memory(cursor, position, message)
                return
            track.refer(level, key_of(*position))

    def _is_first(self, cursor: Cursor, level: int) -> bool:
        return all(other is cursor or not other.levels[level] for other in self._area.cursors)

    @staticmethod
    def _caught_up(one: TargetList, cursor: Cursor, level: int, position: Position) -> bool:
        found = one.track(cursor).next(level)
        return found is not None and not found[1] and found[0] == position

    def _serve_from_memory(self, cursor: Cursor, position: Position, message: Message) -> None:
        queue = self._queue
        ref = self._area.load(cursor, *position, message)
        if ref is not None:
            queue.dispatcher.enlist(ref)
            if queue.ready:
                queue.dispatcher.dispatch()
                self._unload_ring()

    def _may_serve_from_memory(self, message: Message) -> bool:
        area, queue = self._area, self._queue
        if area.active:
            if self._is_ring():
                return queue.count < queue.ring_size
            return not queue.count or self._has_memory(message.size)
        if self._is_ring():
            return False
        if queue.consumers:
            return self._has_memory(message.size)
        return area.areas.idle_capacity(area.ready_size + message.size) and self._has_memory(message.size)

    # ---- limits

    def _is_ring(self) -> bool:
        """Whether loaded messages would count for a ring."""
        queue = self._queue
        return queue.ring_size >= 0 and not queue.attributes.ring_counts_paged

    def _has_memory(self, size: int) -> bool:
        area, settings = self._area, self._queue.address.settings
        messages, most = settings.prefetch_messages, settings.prefetch_bytes
        if 0 <= messages <= area.ready_messages or 0 <= most < area.ready_size + size:
            return False
        return area.areas.free_memory(size)

    def _needs_more(self, one: TargetList, loaded: int, window: int = WINDOW) -> bool:
        """Whether more should be loaded for a list, after ``loaded`` messages in one go."""
        area, pending = self._area, one.pending
        assert pending is not None
        if one.fetching:
            return False
        head = pending.head()
        if head is None or not one.below_watermark(head, area.cursor_of(head)):
            return loaded < MINIMUM
        if self._is_ring():
            return self._queue.count < self._queue.ring_size and bool(loaded)
        return pending.size < window and self._has_memory(0)

    def _wants_spilled(self, consumer: Consumer) -> bool:
        """Whether to load more of what was spilled for a consumer.

        Always a message that precedes all that it has in memory, even without memory for it: delivery waits for that
        message (`TargetArea.may_deliver`). A requeued message of its groups may have been spilled before its backlog.
        """
        parking = self._area.group_spill
        if consumer not in parking or consumer in self._fetching:
            return False
        head = self._queue.dispatcher.next_in_memory(consumer)
        if head is None or parking.before(consumer, head):
            return True
        return parking.runs_low(consumer) and self._has_memory(0)

    def needed(self) -> bool:
        """Whether there is anything to load now."""
        area = self._area
        if not area.active:
            if area.ready_messages:
                area.areas.idle(area)
            return self._head_needed() or (bool(area.due_on_disk) and area.due_on_disk not in self._fetching)
        area.unloaded = False
        if area.due_on_disk and area.due_on_disk not in self._fetching:
            return True
        if not area.waiting:
            return False
        for one in area.ready_lists():
            one.find_watermark(area.cursors, area.version)
            if one.firsts and self._needs_more(one, 0, WINDOW // 2):
                return True
        return any(self._wants_spilled(consumer) for consumer in self._queue.ready)

    def _head_needed(self) -> bool:
        area, unfiltered = self._area, self._area.unfiltered
        if not area.waiting or area.unloaded or self._is_ring() or unfiltered.fetching:
            return False
        if not area.areas.head_capacity(area.ready_size) or not self._has_memory(0):
            return False
        unfiltered.find_watermark(area.cursors, area.version)
        return bool(unfiltered.firsts)

    # ---- loading

    def fill(self, in_time: Callable[[], bool]) -> None:
        """Load what is needed, until time is up or a page has to be read."""
        area, queue = self._area, self._queue
        if area.due_on_disk:
            self._load_due(in_time)
        if area.active:
            lists = list(area.ready_lists())
            self._turn = turn = self._turn % len(lists) if lists else 0
            for one in (*lists[turn:], *lists[:turn]):
                self._turn += 1
                self._fill(one, in_time, partial(self._needs_more, one))
                if not in_time():
                    break
            for consumer in list(queue.ready):
                self._unspill(consumer)
            queue.dispatcher.dispatch()
            self._unload_ring()
        elif not area.closed:
            self._fill(area.unfiltered, in_time, lambda loaded: self._head_needed(), 1)
        if not area.closed:
            area.demand()

    def _fill(
        self, one: TargetList, in_time: Callable[[], bool], wants: Callable[[int], bool], step: int = BATCH
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
                passed = self._deliver_run(one, track.cursor, page, index, block, in_time) if most > 1 else 0
                loaded += passed or self._load_run(one, track, page, index, block, most)
            else:
                track.scan(block, in_time)
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

    def _deliver_run(
        self,
        one: TargetList,
        cursor: Cursor,
        page: Page,
        index: int,
        block: Block,
        in_time: Callable[[], bool],
    ) -> int:
        """Deliver what is read, as `_load_run` and `Dispatcher.dispatch` do in two steps; no consumer has a selector.

        What is acknowledged by being delivered is settled in runs, and no reference is made of it. Returns how many
        positions were taken.
        """
        area, queue = self._area, self._queue
        dispatcher = queue.dispatcher
        states = cursor.states(page, index, block.stop)
        untouched = cursor.untouched(page)
        run = DeliveredRun(area, cursor, page)
        wanted, passed = one.top + 1, 0
        try:
            for place in range(len(states)):
                if states[place] != wanted:
                    continue
                at = index + place
                consumer = dispatcher.consumer_for_any()
                if consumer is None:
                    break
                if untouched and consumer.settles_on_delivery:
                    message = block.decode(at)
                    traits = message.traits
                    if traits.group is not None:
                        break
                    if not message.expires:
                        if at != run.stop or traits.durable is not run.durable:
                            run.settle()
                            run.first, run.durable = at, traits.durable
                        run.stop = at + 1
                        consumer.deliver_message(message)
                        passed += 1
                        if passed % BATCH == 0 and not in_time():
                            break
                        continue
                run.settle()
                if area.closed or area.page_credit.exhausted(consumer):
                    break
                message = block.message(at)
                if message.traits.group is not None:
                    break
                ref = area.load(cursor, page, at, message)
                passed += 1
                if ref is not None:
                    queue.deliver(ref, consumer)
                if area.closed or (passed % BATCH == 0 and not in_time()):
                    break
        finally:
            run.settle()
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

    def _load_due(self, in_time: Callable[[], bool]) -> None:
        """Move scheduled messages that fall due to the head, in order.

        Those that memory has no space for stay in their pages, as ordinary messages.
        """
        area, queue = self._area, self._queue
        while not area.closed and area.due_on_disk not in self._fetching:
            found = area.due_on_disk.next()
            if found is None:
                return
            cursor, (page, index), due = found
            block = self._block(area.due_on_disk, cursor, page, index)
            if block is None:
                return
            ref = area.load_reference(cursor, page, index, block.message(index))
            if ref.message.expires:
                queue.broker.expiry.watch(ref)
            # a ring decides about each, and finds those of the same batch in memory only
            if queue.ring_size >= 0 or not queue.count or self._has_memory(0):
                queue.on_due([ref], due)
            else:
                area.unload(ref)
            if not in_time():
                return

    def _unspill(self, consumer: Consumer) -> None:
        """Load messages spilled for a consumer that is ready again."""
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

    def _unload_ring(self) -> None:
        """Unload what no consumer has taken: in a ring it would count against requeued messages."""
        if self._is_ring() and not self._area.closed:
            self._area.unload_until(lambda: False)

    # ---- blocks

    def _block(self, requester: object, cursor: Cursor, page: Page, index: int) -> Block | None:
        """The block with a position; None while it is being read, after which `request` is called."""
        block = self._last_blocks.get(requester)
        if block is not None and block.page is page and block.first <= index < block.stop:
            return block
        block = self._area.block(page, index)
        if block is not None:
            self._last_blocks[requester] = block
            return block
        if requester in self._fetching:
            return None
        self._last_blocks.pop(requester, None)
        self._fetching.add(requester)
        if isinstance(requester, TargetList):
            requester.fetching = True

        def on_block(block: Block | None) -> None:
            self._fetching.discard(requester)
            if isinstance(requester, TargetList):
                requester.fetching = False
            if block is not None:
                self._last_blocks[requester] = block
            if not self._area.closed:
                self._area.areas.loader.request(self._area)

        self._area.fetch(cursor, page, index, on_block)
        return None

    def _read_ahead(self, cursor: Cursor, block: Block) -> None:
        """Read the next block while this one is processed."""
        area, page = self._area, block.page
        if block.stop < page.count and area.block(page, block.stop) is None and area.areas.has_spare_memory:
            area.areas.read_ahead(cursor.pages, page, block.stop)

    def remove_consumer(self, consumer: Consumer) -> None:
        """A consumer has left the queue."""
        self._last_blocks.pop(consumer, None)


#: Milliseconds between two checks, each of which visits all queues.
CHECK_INTERVAL = 1000


class ActiveQueues:
    """Number of queues that keep up: messages arrived between two checks, and none is on disk."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._added: dict[Queue, int] = {}  # `messages_added` of queues with consumers, at the last check
        self._checked_at = 0
        self._count = 0

    def count(self) -> int:
        """As of the last check; 0 until there were two, one soon after the other."""
        now = self._broker.clock.steady.now
        passed = now - self._checked_at
        if passed >= CHECK_INTERVAL:
            self._check(fresh=passed < 3 * CHECK_INTERVAL)
            self._checked_at = now
        return self._count

    def _check(self, fresh: bool) -> None:
        before = self._added if fresh else {}
        queues = self._broker.directory.queues.values()
        self._added = {queue: queue.messages_added for queue in queues if queue.consumers}
        self._count = sum(
            added != before.get(queue, added) and not (queue.paged is not None and queue.paged.waiting)
            for queue, added in self._added.items()
        )


#: Most and least seconds of work at a time, after which the reactor serves everybody else.
SLICE, SHORTEST_SLICE = 0.003, 0.0005

#: The same while no queue keeps up: somebody may come at any time.
ALONE_SLICE = 0.001

#: Seconds of a turn of the reactor in which others do so little that nobody waits for it.
SHORT_TURN = 0.0003

#: What work in the line takes beside a queue that keeps up, as a part of what that takes.
WEIGHT = 0.5


class Work(Protocol):
    """Something that can be done bit by bit."""

    requested: bool  # stands in the loader's line

    def work(self, in_time: Callable[[], bool]) -> None:
        """Do some of it, until it is not ``in_time`` any more; who has more to do says so with `Loader.want`."""


def no_work() -> int:
    """No queue keeps up."""
    return 0


class Loader:
    """A line of work; each gets its turn.

    ``others`` says how many queues keep up without it. While they take most of the reactor's time, each piece of work
    in the line takes half as much of it as each of them: who comes back to a long backlog does not slow down those who
    have none. The time is saved up until it is enough for `SHORTEST_SLICE`.
    """

    def __init__(
        self,
        clock: Clock,
        others: Callable[[], int] = no_work,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._others = others
        self._now = now
        self._line: deque[Work] = deque()
        self._called = False
        self._since = 0.0  # when somebody else had the reactor
        self._end = 0.0
        self._credit = 0.0  # seconds that are saved up
        self.stopped = False

    def request(self, work: Work) -> None:
        """Have something done soon."""
        if work.requested or self.stopped:
            return
        work.requested = True
        self._line.append(work)
        if not self._called:
            self._called = True
            self._since = self._now()
            self._credit = 0.0
            self._clock.soon(self._run)

    def _in_time(self) -> bool:
        return self._now() < self._end

    def _run(self) -> None:
        self._clock.refresh()
        now, others, most = self._now(), self._others(), ALONE_SLICE
        if others:
            taken = now - self._since
            self._credit += taken * WEIGHT * len(self._line) / others
            if self._credit < SHORTEST_SLICE and taken > SHORT_TURN:
                self._since = now
                self._clock.soon(self._run)
                return
            most = min(SLICE, max(SHORTEST_SLICE, self._credit))
        self._credit = 0.0
        self._end = now + most
        try:
            for _ in range(len(self._line)):
                work = self._line.popleft()
                work.requested = False
                work.work(self._in_time)
                if not self._in_time():
                    break
        finally:
            self._called = bool(self._line) and not self.stopped
            if self._called:
                self._since = self._now()
                self._clock.soon(self._run)

    def stop(self) -> None:
        """Do nothing more."""
        self.stopped = True
        self._line.clear()
