"""What a queue has in pages, beside what it has in memory: how messages come and go between the two."""

from __future__ import annotations

from .consumer import Consumer
from .message import Message
from .reference import Reference
from .turns import Turns


class Paged(Turns):
    """Base of `Ring` and so of `Queue`, above `Turns`. Without an `Area` everything is in memory."""

    __slots__ = ("durable", "persistent_size", "scheduled")

    durable: bool

    def __init__(self) -> None:
        super().__init__()
        self.scheduled: dict[int, Reference] = {}  # by message number
        self.persistent_size = 0  # bytes of the messages held in memory

    def straight(self, message: Message) -> bool:
        """Hand a message of a paging address over as it arrives, where nothing is before it; else False.

        The queue is ``plain`` and has ready consumers. What has to survive is written first, and never comes here: its
        consumer may come back for it after a crash.
        """
        ready = self.ready
        if self.area is not None and self.area.waiting:
            return False
        consumer: Consumer | None = None
        if self.targets:
            if self.ring_is_full_on_disk:
                return False
            consumer = self.taker_of(message, self.matching(message))
        elif not self.count:
            consumer = ready[0]
            if len(ready) > 1:
                ready.rotate(-1)
        if consumer is None:
            return False
        consumer.take(message)
        return True

    def next_taker(self) -> Consumer | None:
        """Who gets any message now, while nothing is pending and nobody selects. Its turn is over with that."""
        ready = self.ready
        if self.count or not ready or not self.plain or self.targets or self._dispatching:
            return None
        consumer = ready[0]
        if len(ready) > 1:
            ready.rotate(-1)
        return consumer

    def unload(self, ref: Reference) -> None:
        """Forget a pending reference, whose message stays in its page."""
        self.take_out(ref)
        message = ref.message
        self.persistent_size -= message.size
        message.holders -= 1
        if not message.holders:
            message.account.release(message.size)
        if ref.watched:
            ref.watched = False
            self.broker.expiry.forget()

    @property
    def ring_is_full_on_disk(self) -> bool:
        """Whether it is a ring that counts what is paged, and pushes something out before it delivers an arrival."""
        raise AssertionError("a queue knows its ring")

    def take_out(self, ref: Reference) -> None:
        """Adjust the counts for a reference that is about to be dropped or moved."""
        raise AssertionError("a queue keeps its counts")

    @property
    def message_count(self) -> int:
        """Pending, scheduled, in delivery and paged (Artemis: messageCount)."""
        held = self.count + len(self.scheduled) + self.delivering
        return held if self.area is None else held + self.area.waiting + self.area.timed

    @property
    def scheduled_count(self) -> int:
        """Waiting for their time (Artemis: scheduledCount), in memory or in pages."""
        return len(self.scheduled) + (0 if self.area is None else self.area.timed)

    @property
    def paged_count(self) -> int:
        """Pending on disk only (pagedCount)."""
        return 0 if self.area is None else self.area.waiting
