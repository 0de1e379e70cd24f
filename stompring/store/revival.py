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
from .record import MESSAGE, StoredMessage, TraitsMemo
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
        places, segments = replay.messages, self._recovery.segments
        eventful = replay.gone.keys() | replay.states.keys() | replay.went_out.keys()
        for done, number in enumerate(numbers):
            if not done % SLICE:
                progress.restoring(done, len(numbers))
            read, data, at = places.pop(number)  # so that a segment's bytes go with the last of its messages
            if number in eventful or not self._restore_plain(data, at, segments[read.number]):
                self._restore(number, StoredMessage(data, at), segments[read.number])
        self._recovery.journal.live_bytes += self._live_bytes
        return self._restored, self._dangling

    def _restore_plain(self, data: bytes, at: int, segment: Segment) -> bool:
        """A message to which nothing has happened, in one queue: a million of these are what takes time."""
        (
            _,
            flags,
            priority,
            deliveries,
            address_id,
            number,
            timestamp,
            expires,
            due,
            _,
            head,
            body,
            queues,
            traits_length,
        ) = MESSAGE.unpack_from(data, at)
        start = at + MESSAGE.size
        if queues != 1 or due:
            return False
        queue = self._queues.get(_ID.unpack_from(data, start)[0])
        if queue is None:
            return False
        tail_at = start + 4 + traits_length
        tail = data[tail_at : tail_at + head + body + 2]
        traits = self._memo.recall(flags, priority, data[start + 4 : tail_at], tail, head)
        address = self._addresses.get(address_id) or self._recovery.address_of(address_id)
        message = Message.restored(number, address, traits, tail, head, timestamp, expires, address)
        ref = queue.restore(message)
        ref.deliveries = deliveries
        segment.live[number] = ref
        message.segment = segment
        self._live_bytes += held_bytes(len(tail))
        self._restored += 1
        queue.reinstate(ref)
        return True

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
        self._clock = broker.clock
        self._told = broker.clock.refresh()

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
