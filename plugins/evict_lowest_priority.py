"""evict-lowest-priority: a full address evicts messages of lower priority than the new one."""

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

#: Maximum number of evictions for one new message that free no memory, because a consumer has the evicted message.
MAX_INEFFECTIVE = 16


class EvictLowestPriority(AddressPolicy):
    """Evicts the oldest messages of the lowest priority from a full address for one of a higher priority.

    An address-full-policy for alarms and statistics at the same address: no alarm is lost to a backlog of statistics.
    If no less important message waits, `otherwise` applies to the new one. Evictions count in messagesReplaced and
    follow the ring-policy.

    Memory becomes free when every queue has evicted a message, so it is evicted from all queues in which it waits. A
    message in delivery cannot be evicted: for each new message at most 16 evictions are ineffective. Costs nothing
    below the limit, then a check of each queue for each message.
    """

    equal: bool = parameter(
        "Whether messages of the same priority are evicted as well, in favour of newer ones.", False
    )
    otherwise: Literal["DROP", "FAIL", "BLOCK"] = parameter(
        "Action for a message for which no other can be evicted: discard it, send an ERROR, or block the producer.",
        "BLOCK",
    )

    def created(self) -> None:
        self._otherwise = {"DROP": DROP, "FAIL": FAIL, "BLOCK": BLOCK}[self.otherwise]

    def full(self, offer: Offer) -> FullVerdict | None:
        """Evict messages for the new one."""
        here = self.address
        highest = offer.priority if self.equal else offer.priority - 1
        wanted = here.size - offer.size
        ineffective, freed = 0, False
        # if other addresses fill the broker, evict as many bytes as the new message needs, not all messages
        while here.full and not (freed and here.size <= wanted):
            if ineffective == MAX_INEFFECTIVE:
                return self._otherwise
            messages = here.messages
            if not self._evict_lowest(highest):
                return self._otherwise
            if here.messages < messages:
                freed = True
            else:
                ineffective += 1
        return ACCEPT

    def _evict_lowest(self, highest: int) -> bool:
        """Evict the least important message from every queue in which it waits. False if none is low enough.

        The least important message of all queues is the least important one of each queue that has it.
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
