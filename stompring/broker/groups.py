"""Message groups: all messages with one JMSXGroupID go to one consumer, in order, while it lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pending import Pending

if TYPE_CHECKING:
    from .consumer import Consumer
    from .reference import Reference


class Groups:
    """Which consumer each group is pinned to.

    A message whose consumer has no credit is set aside in that consumer's ``held`` list, so that it does not keep
    other groups waiting behind it; it stays pending and counts for the ring.
    """

    __slots__ = ("owners",)

    def __init__(self) -> None:
        self.owners: dict[bytes, Consumer] = {}

    def owner(self, ref: Reference) -> Consumer | None:
        """To whom its group is pinned, None for nobody."""
        group = ref.message.traits.group
        return None if group is None else self.owners.get(group)

    def claim(self, ref: Reference, consumer: Consumer) -> Consumer:
        """Whose message this is: the owner of its group, who is ``consumer`` when nobody was.

        What the selector of the owner refuses is ``consumer``'s too: nobody else would ever get it.
        """
        group = ref.message.traits.group
        if group is None:
            return consumer
        owner = self.owners.setdefault(group, consumer)
        refused = owner is not consumer and owner.matches is not None and not owner.matches(ref.message)
        return consumer if refused else owner

    def delivered(self, ref: Reference) -> list[Reference]:
        """A group ends with a message whose sequence is -1 (JMSXGroupSeq, _AMQ_GROUP_SEQUENCE).

        Returns what had been set aside for its owner, in order: the group may be pinned anew.
        """
        traits = ref.message.traits
        if traits.group_sequence >= 0 or traits.group is None:
            return []
        owner = self.owners.pop(traits.group, None)
        if owner is None or owner.held is None:
            return []
        held, owner.held = owner.held, None
        freed = []
        for other in held:
            if other.message.traits.group == traits.group:
                freed.append(other)
            else:
                self.set_aside(other, owner)
        return freed

    def set_aside(self, ref: Reference, owner: Consumer) -> None:
        """Keep a message for an owner that cannot take it now."""
        if owner.held is None:
            owner.held = Pending()
        owner.held.restore(ref)

    def leave(self, consumer: Consumer) -> list[Reference]:
        """Forget a consumer: its groups are free again, and what was set aside for it is returned, in order."""
        for group in [group for group, owner in self.owners.items() if owner is consumer]:
            del self.owners[group]
        held, consumer.held = consumer.held, None
        return [] if held is None else list(held)
