"""The queues that a message goes to, with what has to be done for each, made once for all messages with the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from stompring.broker.paging import TIMED

from .record import MESSAGE, PREFIX, encode_traits

if TYPE_CHECKING:
    from stompring.broker.message import Message, Traits

    from .cursor import Cursor
    from .holding import Holding
    from .page import Page


class Plan:
    """``holdings`` are those of ``page``: another page needs others.

    ``rest`` is what the records of messages with ``traits`` have between their numbers and their tails.
    """

    __slots__ = ("cursors", "holdings", "ids", "page", "rest", "traits", "wants_sync")

    def __init__(self, cursors: list[Cursor], sync: bool) -> None:
        self.cursors = cursors
        self.ids = b"".join([cursor.queue.number.to_bytes(4, "little") for cursor in cursors])
        self.wants_sync = sync and any(cursor.durable for cursor in cursors)  # its durable messages
        self.page: Page | None = None
        self.holdings: list[Holding] = []
        self.traits: Traits | None = None
        self.rest = b""

    def describe(self, traits: Traits) -> None:
        """Messages with other traits follow."""
        self.traits = traits
        self.rest = self.ids + (traits.record or encode_traits(traits))[2:]

    def size_of(self, messages: Iterable[Message]) -> int:
        """Bytes of their records; they have the traits that were described last."""
        before = PREFIX.size + MESSAGE.size + len(self.rest)
        return sum([before + len(message.tail) for message in messages])

    def give(self, index: int, level: int, due: int) -> None:
        """A message was written, and is each queue's; timed where it has a due time."""
        for holding in self.holdings:
            states, cursor = holding.states, holding.cursor
            gap = index - len(states)
            if gap:
                states.extend(bytes(gap))
            if not holding.remaining:
                cursor.enlist(holding)
            holding.remaining += 1
            cursor.remaining += 1
            if due:
                states.append(TIMED)
                holding.timed += 1
                cursor.timed += 1
            else:
                states.append(level + 1)
                holding.levels[level] += 1
                cursor.levels[level] += 1
                cursor.waiting += 1

    def give_many(self, index: int, level: int, number: int) -> None:
        """As many messages were written one behind the other."""
        for holding in self.holdings:
            states, cursor = holding.states, holding.cursor
            states.extend(bytes(index - len(states)) + bytes((level + 1,)) * number)
            if not holding.remaining:
                cursor.enlist(holding)
            holding.remaining += number
            holding.levels[level] += number
            cursor.remaining += number
            cursor.levels[level] += number
            cursor.waiting += number
