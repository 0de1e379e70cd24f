"""The built-in policies, written with the policy API: ``address-full-policy`` PAGE, BLOCK, DROP, FAIL, and the ring."""

from __future__ import annotations

from stompring.broker.transfer import EVICTED
from stompring.settings.model import FullPolicy

from .api import BLOCK, DROP, FAIL, PAGE, AddressPolicy
from .views import MessageView, QueueView


class Page(AddressPolicy):
    """New messages are paged to disk until the pages are consumed."""

    full_answer = PAGE


class Block(AddressPolicy):
    """Producers are not read until the address is below its limit."""

    full_answer = BLOCK


class Drop(AddressPolicy):
    """New messages are discarded."""

    full_answer = DROP


class Fail(AddressPolicy):
    """Producers get an ERROR."""

    full_answer = FAIL


class Ring(AddressPolicy):
    """A full ring evicts its oldest message for a new one; a returning message is lost instead."""

    def overflow(self, queue: QueueView, returning: bool) -> None:
        """Evicts the oldest message for a new one."""
        if not returning:
            queue.give_up_oldest()


class DeadLetterRing(AddressPolicy):
    """Evicted messages are sent to the dead-letter-address (``ring-policy`` DEAD_LETTER)."""

    def evicted(self, message: MessageView) -> None:
        """Sends the message to the dead-letter-address."""
        message.dead_letter(reason=EVICTED)


FULL_POLICIES: dict[str, type[AddressPolicy]] = {
    FullPolicy.PAGE: Page,
    FullPolicy.BLOCK: Block,
    FullPolicy.DROP: Drop,
    FullPolicy.FAIL: Fail,
}
