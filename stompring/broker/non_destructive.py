"""Queues whose messages stay when they are acknowledged (Artemis, non-destructive queues).

Every consumer walks over all messages once, in its own list. Messages leave by expiry, by a ring, or by management.
A message in delivery stays pending, so it counts once in messageCount however many consumers have it.
"""

from __future__ import annotations

from .consumer import Consumer
from .message import Message
from .pending import Pending
from .queue import Queue
from .reference import PENDING, Reference
from .storage import RETURNED


class NonDestructiveQueue(Queue):
    """A queue that is read, not emptied."""

    __slots__ = ()

    keeps_in_memory = True

    def settle(self, ref: Reference) -> None:
        """A consumer is done with a message; the queue keeps it."""
        self.delivering -= 1
        self.messages_acknowledged += 1
        if self.hooks.settled is not None:
            self.hooks.settled(ref)

    def give_back(
        self,
        refs: list[Reference],
        consumer: Consumer | None = None,
        *,
        failed: bool = False,
    ) -> None:
        """A refused message is offered to the same consumer again; one who leaves gives nothing back."""
        self.delivering -= len(refs)
        for ref in refs:
            if ref.state != PENDING:
                continue
            if failed:
                ref.attempts += 1
                if self.broker.exhausted(ref):
                    continue
                if ref.message.traits.durable and self.durable:
                    self.broker.storage.returned(ref)
                elif ref.message.traits.retained >= self.retains_from:
                    self.broker.storage.log(ref, RETURNED)
            if consumer is not None and consumer.source is not None and not self.deleted:
                consumer.source.restore(ref)
        self.dispatch()

    def hand_over(self, ref: Reference, consumer: Consumer) -> None:
        """Deliver a message, which stays where it is."""
        self.delivering += 1
        if self.hooks.delivered is not None:
            self.hooks.delivered(ref)
        consumer.take_reference(ref)

    @property
    def message_count(self) -> int:
        """Pending and scheduled; what is in delivery is pending too."""
        return self.count + len(self.scheduled)

    def _source_for(self, consumer: Consumer) -> Pending:
        consumer.matches_key = key = object()  # and not the consumer itself, which would be a cycle
        target = self._open_target(key, consumer.matches or _everything)
        target.consumers = 1
        return target.pending


def _everything(message: Message) -> bool:
    return True
