"""The memory budget of paged queues (``dispatch-memory``), and how it is used."""

from __future__ import annotations

from stompring.broker.message import REFERENCE_OVERHEAD

#: Bytes of an answer of a selector for certain headers: its place in a dictionary, and a part of the headers.
ANSWER_SIZE = 256

#: The part of the budget that such answers may use: 1/16.
ANSWERS_SHARE = 16


class MemoryBudget:
    """Bytes used and the limit they share. It is the `Account` of every message that came from a page.

    The limit is soft: a consumer without any messages may always have a few, so that each consumer makes progress.
    """

    __slots__ = ("answers", "blocks", "limit", "messages")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.messages = 0  # bytes of messages that a queue holds, wherever its references stand
        self.blocks = 0  # bytes of blocks in the pending cache
        self.answers = 0  # bytes of answers that selectors remember for headers

    def occupy(self, size: int) -> None:
        """A message of ``size`` bytes is held by a first queue."""
        self.messages += size

    def release(self, size: int) -> None:
        """The last queue has released a message of ``size`` bytes."""
        self.messages -= size

    def occupy_reference(self) -> None:
        """See `Account`."""
        self.messages += REFERENCE_OVERHEAD

    def release_reference(self) -> None:
        """See `Account`."""
        self.messages -= REFERENCE_OVERHEAD

    @property
    def used(self) -> int:
        """Bytes in use."""
        return self.messages + self.blocks + self.answers

    @property
    def has_room_for_answers(self) -> bool:
        """Whether a selector may remember one more answer."""
        return self.answers + ANSWER_SIZE <= self.limit // ANSWERS_SHARE
