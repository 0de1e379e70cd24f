"""The policies that come with the broker, written as any other: what a full address does, and the ring."""

from __future__ import annotations

from stompring.settings.model import FullPolicy

from .api import BLOCK, DROP, FAIL, PAGE, AddressPolicy
from .views import MessageView, QueueView


class Page(AddressPolicy):
    """New messages go to disk, until all of it is consumed."""

    full_answer = PAGE


class Block(AddressPolicy):
    """Producers wait until there is room."""

    full_answer = BLOCK


class Drop(AddressPolicy):
    """New messages are thrown away."""

    full_answer = DROP


class Fail(AddressPolicy):
    """Producers get an ERROR."""

    full_answer = FAIL


class Ring(AddressPolicy):
    """A full ring gives up its oldest message for a new one; what comes back finds no place."""

    def overflow(self, queue: QueueView, returning: bool) -> None:
        """See `AddressPolicy.overflow`."""
        if not returning:
            queue.give_up_oldest()


class DeadLetterRing(AddressPolicy):
    """What a ring gives up goes to the dead-letter-address (``ring-policy`` DEAD_LETTER)."""

    def evicted(self, message: MessageView) -> None:
        """See `AddressPolicy.evicted`."""
        message.dead_letter()


FULL_POLICIES: dict[str, type[AddressPolicy]] = {
    FullPolicy.PAGE: Page,
    FullPolicy.BLOCK: Block,
    FullPolicy.DROP: Drop,
    FullPolicy.FAIL: Fail,
}
