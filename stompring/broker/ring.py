"""The ring of a queue: what a queue with a ring-size gives up. What that is, its policies say (`Hooks.overflow`).

Only pending messages count. A message that comes back or falls due is lost itself where there is no place for it; of
several that fall due together the newest sent stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .paged import Paged
from .reference import GONE, Reference

if TYPE_CHECKING:
    from .due import DueBatch
    from .hooks import Listener


class Ring(Paged):
    """Base of `Queue`, between it and `Paged`. Without a ``ring_size`` nothing is given up."""

    __slots__ = ("evicted", "messages_replaced", "ring_size", "view")

    def __init__(self) -> None:
        self.ring_size = self.attributes.ring_size
        self.messages_replaced = 0
        self.view: object = None  # what stands for the queue before policies, once one has asked
        self.hooks = self.address.hooks
        self.evicted: Listener | None = self.broker.policies.evicted(self)
        super().__init__()

    def review_hooks(self) -> None:
        """The policies of its address are others, or what becomes of what its ring gives up."""
        self.hooks = self.address.hooks
        self.evicted = self.broker.policies.evicted(self)
        self.review()

    @property
    def ring_count(self) -> int:
        """What counts for the ring: what is pending, with what is paged if ``ring-counts-paged`` says so."""
        if self.area is None or not self.attributes.ring_counts_paged:
            return self.count
        return self.count + self.area.waiting

    @property
    def ring_is_full_on_disk(self) -> bool:
        """See `Paged.ring_is_full_on_disk`."""
        return self.attributes.ring_counts_paged and 0 <= self.ring_size <= self.ring_count

    def make_way(self, comes_back: bool = False) -> None:
        """The ring is over its size, or full for a message that comes back: its policy gives something up."""
        self.hooks.overflow(self.view or self.broker.policies.view_of(self), comes_back)

    def has_no_place(self, ref: Reference, batch: DueBatch | None = None) -> bool:
        """Whether a message that comes back or falls due (in ``batch``) is lost to a full ring; it is gone then."""
        if self.ring_size < 0:
            return False
        if self.ring_size <= self.ring_count:
            self.make_way(comes_back=True)
            if 0 <= self.ring_size <= self.ring_count:
                older = None if batch is None else batch.older_than(ref)
                if older is None:
                    self.replace(ref)
                    return True
                self.give_up(older)
        if batch is not None:
            batch.waits(ref)
        return False

    def evict_head(self) -> bool:
        """Give up the next message that would have been delivered; False where there is none."""
        ref = self.first()
        if self.area is not None and self.attributes.ring_counts_paged:
            position = self.area.leads(ref)
            if position is not None:
                self.area.evict(position)
                return True
        if ref is None:
            return False
        self.give_up(ref)
        return True

    def give_up(self, ref: Reference) -> None:
        """Give up a pending message, as a ring does."""
        self.take_out(ref)
        self.replace(ref)

    def replace(self, ref: Reference) -> None:
        """The ring has no place for a message (Artemis: reason REPLACED)."""
        ref.state = GONE
        self.messages_replaced += 1
        self.broker.replaced(ref)

    def trim(self) -> int:
        """Enforce a lowered ring-size now; returns how many were replaced."""
        trimmed = 0
        while 0 <= self.ring_size < self.ring_count:
            self.make_way()
            trimmed += 1
        return trimmed
