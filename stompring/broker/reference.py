"""A message's place in one queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .consumer import Consumer
    from .message import Message
    from .paging import Position
    from .queue import Queue
    from .recurrence import Recurrence

PENDING, DELIVERING, SCHEDULED, GONE = range(4)
STATES = ("pending", "delivering", "scheduled", "gone")


class Reference:
    """One message in one queue: where it stands and what happened to it so far.

    ``sequence`` is its place in the queue's order and never changes, so that a message that comes back finds its
    old place. ``state`` is one of PENDING, DELIVERING, SCHEDULED, GONE: lists may still hold a reference that has
    moved on, and skip it by its state.
    """

    __slots__ = (
        "attempts",
        "avoid",
        "deliveries",
        "due",
        "message",
        "place",
        "queue",
        "recurrence",
        "sequence",
        "state",
        "watched",
    )

    def __init__(self, message: Message, queue: Queue, sequence: int, state: int) -> None:
        self.message = message
        self.queue = queue
        self.sequence = sequence
        self.state = state
        self.deliveries = 0  # how often it went out: `redelivered` is true from the second time on
        self.attempts = 0  # how many of those failed, for max-delivery-attempts
        #: Who refused it last: another one is asked first. Where a store keeps everything, at the end who took it.
        self.avoid: Consumer | None = None
        self.due = 0  # epoch ms, while SCHEDULED
        self.recurrence: Recurrence | None = None
        self.watched = False  # known to the expiry clock
        self.place: Position | None = None  # in a page, for a message that was read back from there

    def __lt__(self, other: Reference) -> bool:
        return self.sequence < other.sequence

    @property
    def order(self) -> tuple[int, int]:
        """The key that sorts references as the queue would deliver them."""
        return (-self.message.traits.priority, self.sequence)
