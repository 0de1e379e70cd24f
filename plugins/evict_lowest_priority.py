"""A full address gives up what is less important than the message that comes."""

from __future__ import annotations

from typing import Literal

from stompring.policy import (
    ACCEPT,
    BLOCK,
    DROP,
    FAIL,
    AddressPolicy,
    FullVerdict,
    MessageView,
    Offer,
    parameter,
)

#: Messages that are given up for one that comes although that frees nothing: a consumer of another queue has them.
IN_VAIN = 16


class EvictLowestPriority(AddressPolicy):
    """A full address gives up its oldest messages of the lowest priority for one of a higher priority.

    An address-full-policy for those who send alarms and statistics to the same address and must never lose an alarm
    to a backlog of statistics. Where nothing less important waits, the message that comes is treated as `otherwise`
    says. What is given up counts in messagesReplaced and goes where a ring's would go.

    Memory is free only when every queue has given a message up, so that all queues in which it waits do. One that a
    consumer of some queue has cannot be given up there: for each message that comes no more than 16 are given up in
    vain. Costs nothing while the address has room, then for each message one look at each of its queues.
    """

    equal: bool = parameter(
        "Whether messages of the same priority are given up as well, so that the newest are kept.", False
    )
    otherwise: Literal["DROP", "FAIL", "BLOCK"] = parameter(
        "What happens to a message for which nothing can be given up: it is dropped, its producer gets an ERROR, or "
        "waits until there is room.",
        "BLOCK",
    )

    def created(self) -> None:
        """See AddressPolicy."""
        self._otherwise = {"DROP": DROP, "FAIL": FAIL, "BLOCK": BLOCK}[self.otherwise]

    def full(self, offer: Offer) -> FullVerdict | None:
        """See AddressPolicy."""
        here = self.address
        highest = offer.priority if self.equal else offer.priority - 1
        wanted = here.size - offer.size
        in_vain, freed = 0, False
        # the broker may be full by what others have: then as much is given up as comes, and not all there is
        while here.full and not (freed and here.size <= wanted):
            if in_vain == IN_VAIN:
                return self._otherwise
            messages = here.messages
            if not self._give_up_lowest(highest):
                return self._otherwise
            if here.messages < messages:
                freed = True
            else:
                in_vain += 1
        return ACCEPT

    def _give_up_lowest(self, highest: int) -> bool:
        """Give up the least important message in every queue in which it waits; False where none is low enough.

        The least important of all is the least important of every queue that has it.
        """
        heads = [head for queue in self.address.queues if (head := queue.lowest) is not None]
        if not heads:
            return False
        first = min(heads, key=_order)
        if first.priority > highest:
            return False
        for head in heads:
            if head.number == first.number:
                head.give_up()
        return True


def _order(message: MessageView) -> tuple[int, int]:
    return message.priority, message.number
