"""Subscriptions that a store which keeps everything can name: each reference they settle says who took it.

They are classes of their own, so that others pay nothing for it.
"""

from __future__ import annotations

from stompring.broker.message import Message
from stompring.broker.queue import Queue
from stompring.broker.reference import Reference
from stompring.broker.storage import Entries

from .subscription import (
    AcknowledgedSubscription,
    AutoSubscription,
    CumulativeSubscription,
    Subscription,
)


class NotedAuto(AutoSubscription):
    """See `AutoSubscription`."""

    __slots__ = ("_entries", "taker_name")

    def attach(self, queue: Queue) -> None:
        """See `Subscription.attach`."""
        self._entries = Entries(queue, self.taker_name)
        super().attach(queue)

    def take(self, message: Message) -> None:
        """See `Consumer.take`. Where the message is retained, that it came and went is written as one."""
        queue = self.queue
        if message.traits.retained >= queue.retains_from:
            taken = self._entries.messages
            if not taken:
                queue.broker.storage.record(self._entries)
            taken.append(message)
        queue.messages_acknowledged += 1
        self.settled += 1
        self.write(message, self.lead)

    def take_reference(self, ref: Reference) -> None:
        """See `Consumer.take_reference`."""
        ref.avoid = self
        super().take_reference(ref)


class NotedAcknowledged(AcknowledgedSubscription):
    """See `AcknowledgedSubscription`."""

    __slots__ = ("taker_name",)

    def settle(self, key: bytes) -> None:
        """See `AcknowledgedSubscription.settle`."""
        self.unsettled[key].avoid = self
        super().settle(key)

    def release(self, key: bytes) -> list[Reference]:
        """See `AcknowledgedSubscription.release`. Whoever gives them back says anew whom they avoid."""
        return _noted(super().release(key), self)


class NotedCumulative(CumulativeSubscription):
    """See `CumulativeSubscription`."""

    __slots__ = ("taker_name",)

    def release(self, key: bytes) -> list[Reference]:
        """See `NotedAcknowledged.release`."""
        return _noted(super().release(key), self)


def _noted(refs: list[Reference], taker: Subscription) -> list[Reference]:
    for ref in refs:
        ref.avoid = taker
    return refs


#: By how they acknowledge.
NOTED: dict[str, type[NotedAuto | NotedAcknowledged | NotedCumulative]] = {
    "auto": NotedAuto,
    "client": NotedCumulative,
    "client-individual": NotedAcknowledged,
}
