"""One limit for everything that dispatch keeps in memory: blocks of pages, and messages read from them."""

from __future__ import annotations


class MemoryBudget:
    """Bytes used and the limit they share. It is the `Account` of every message that came from a page.

    The limit is soft: whoever has nothing at all may always have a little, so that everybody goes on.
    """

    __slots__ = ("blocks", "limit", "messages")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.messages = 0  # bytes of messages that a queue holds, wherever its references stand
        self.blocks = 0  # bytes of blocks in the pending cache

    def occupy(self, size: int) -> None:
        """A message of ``size`` bytes is held by a first queue."""
        self.messages += size

    def release(self, size: int) -> None:
        """The last queue has let go of it."""
        self.messages -= size

    @property
    def used(self) -> int:
        """Bytes in use."""
        return self.messages + self.blocks
