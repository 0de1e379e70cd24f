"""Messages of the journal, back in their queues."""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from stompring.broker.message import Message
from stompring.broker.queue import Queue
from stompring.broker.reference import Reference

from .kept import Copies, Held, Segment, held_bytes
from .record import COPY, MESSAGE, StoredMessage, TraitsMemo
from .tail import unpack_recurrence

if TYPE_CHECKING:
    from stompring.broker.broker import Broker

    from .recovery import Recovery

log = logging.getLogger(__name__)

#: Milliseconds between two log lines that tell how far a long recovery is.
TOLD_EVERY = 2000

#: Messages restored between two looks at the clock.
SLICE = 10_000

_ID = Struct("<I")


class Revival:
    """Brings messages back in the order of their numbers, which is that in which they came."""

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self._replay = recovery.replay
        self._queues = recovery.queues
        self._addresses = recovery.addresses
        self._memo = TraitsMemo()
        self._live_bytes = 0
        self._restored = self._dangling = 0

    def run(self, progress: Progress) -> tuple[int, int]:
        """How many messages are back, and how many had no queue any more."""
        replay = self._replay
        numbers = sorted(replay.messages)
        eventful = replay.gone.keys() | replay.states.keys() | replay.went_out.keys()
        for first in range(0, len(numbers), SLICE):
            progress.restoring(first, len(numbers))
            self._restore_slice(numbers[first : first + SLICE], eventful)
        self._recovery.journal.live_bytes += self._live_bytes
        return self._restored, self._dangling

    def _restore_slice(self, numbers: list[int], eventful: set[int]) -> None:
        """Messages to which nothing has happened, in one queue each, are what takes time where there are millions."""
        unpack, id_at, size = MESSAGE.unpack_from, _ID.unpack_from, MESSAGE.size
        queue_of, address_of = self._queues.get, self._addresses.get
        recall, restored = self._memo.recall, Message.restored
        take, segments = self._replay.messages.pop, self._recovery.segments
        for number in numbers:
            read, data, at = take(number)  # so that a segment's bytes go with the last of its messages
            segment = segments[read.number]
            # fmt: off
            (_, flags, priority, deliveries, address_id, _, timestamp, expires, due, _,
             head, body, queues, traits_length) = unpack(data, at)
            # fmt: on
            start = at + size
            queue = queue_of(id_at(data, start)[0]) if queues == 1 else None
            address = address_of(address_id)
            if queue is None or address is None or due or number in eventful:
                self._restore(number, StoredMessage(data, at), segment)
                continue
            start += 4
            tail_at = start + traits_length
            tail = data[tail_at : tail_at + head + body + 2]
            traits = recall(flags & ~COPY, priority, data[start:tail_at], tail, head)
            message = restored(number, address, traits, tail, head, timestamp, expires, address)
            ref = queue.restore(message)
            ref.deliveries = deliveries
            message.segment = segment
            segment.live[number] = ref
            self._live_bytes += held_bytes(len(tail))
            queue.reinstate(ref)
            self._restored += 1

    def _restore(self, number: int, stored: StoredMessage, segment: Segment) -> None:
        gone = self._replay.gone.get(number, ())
        queues = self._queues
        address = self._recovery.address_of(stored.address)
        found = [queues.get(each) or self._recovery.queue_of(each, address) for each in stored.queue_ids()]
        holders = [queue for queue in found if queue is not None and queue.number not in gone]
        if not holders:
            self._dangling += 1
            return
        message = stored.restore(address, self._memo, address)
        refs = [self._refer(stored, message, queue) for queue in holders]
        self._keep(message, refs[0] if len(refs) == 1 else Copies(refs), segment)
        for ref in refs:
            ref.queue.reinstate(ref)

    def _refer(self, stored: StoredMessage, message: Message, queue: Queue) -> Reference:
        ref = queue.restore(message)
        state = self._replay.state_of(stored, queue.number)
        ref.deliveries, ref.attempts, ref.due = state.deliveries, state.attempts, state.due
        if state.recurrence:
            ref.recurrence = unpack_recurrence(state.recurrence)
        return ref

    def _keep(self, message: Message, held: Held, segment: Segment) -> None:
        segment.live[message.number] = held
        message.segment = segment
        self._live_bytes += held_bytes(len(message.tail))
        self._restored += 1


class Progress:
    """Log lines of a recovery that takes long."""

    def __init__(self, broker: Broker) -> None:
        self._clock = broker.clock.steady
        self._told = self._clock.refresh()

    def reading(self, done: int, total: int) -> None:
        """So many bytes of all are read."""
        self._tell(lambda: f"{done / 1e6:.0f} of {total / 1e6:.0f} MB are read")

    def restoring(self, done: int, total: int) -> None:
        """So many messages of all are back."""
        self._tell(lambda: f"{done} of {total} messages are restored")

    def _tell(self, text: Callable[[], str]) -> None:
        now = self._clock.refresh()
        if now - self._told >= TOLD_EVERY:
            self._told = now
            log.info("recovering the journal: %s", text())
