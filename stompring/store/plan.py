"""The queues that a message goes to, with what has to be done for each, made once for all messages with the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .record import encode_traits

if TYPE_CHECKING:
    from stompring.broker.message import Traits

    from .cursor import Cursor
    from .holding import Holding
    from .page import Page


class Plan:
    """``holdings`` are those of ``page``: another page needs others.

    ``rest`` is what the records of messages with ``traits`` have between their numbers and their tails.
    """

    __slots__ = ("cursors", "holdings", "ids", "page", "rest", "sole", "traits", "wants_sync")

    def __init__(self, cursors: list[Cursor], sync: bool) -> None:
        self.cursors = cursors
        self.ids = b"".join([cursor.queue.number.to_bytes(4, "little") for cursor in cursors])
        self.wants_sync = sync and any(cursor.durable for cursor in cursors)  # its durable messages
        self.page: Page | None = None
        self.holdings: list[Holding] = []
        self.sole: Holding | None = None  # where there is just one
        self.traits: Traits | None = None
        self.rest = b""

    def describe(self, traits: Traits) -> None:
        """Messages with other traits follow."""
        self.traits = traits
        self.rest = self.ids + (traits.record or encode_traits(traits))[2:]
