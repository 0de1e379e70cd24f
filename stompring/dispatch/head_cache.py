"""The head cache: messages in memory at the head of queues that nobody takes from just now, for consumers that come.

It is what the queues' lists hold anyway, and this knows which may be sent back to disk: in each queue the newest
first. Whenever memory is wanted elsewhere it shrinks, to nothing under load.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .memory_budget import MemoryBudget
    from .target_area import TargetArea


class HeadCache:
    """The areas that have something in memory and nobody to take it, those that were noted last at the end."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._areas: OrderedDict[TargetArea, None] = OrderedDict()

    def note(self, area: TargetArea) -> None:
        """Nobody takes messages from an area."""
        self._areas[area] = None

    def forget(self, area: TargetArea) -> None:
        """An area is closed."""
        self._areas.pop(area, None)

    def shrink(self, size: int) -> None:
        """Send messages of together ``size`` bytes back to disk, or as many as there are."""
        end = self._budget.messages - size
        for area in list(self._areas):
            if self._budget.messages <= end:
                return
            if not area.active:
                area.give_up(lambda: self._budget.messages <= end)
            if self._budget.messages > end:
                del self._areas[area]  # it comes again when it has something again

    @property
    def bytes(self) -> int:
        """Bytes of messages that could be given up."""
        return sum(area.ready_size for area in self._areas if not area.active)
