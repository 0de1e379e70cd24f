"""Someone who takes messages from a queue: what a queue must know of a subscription."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .message import Message
    from .pending import Pending
    from .queue import Queue
    from .reference import Reference

#: Decides whether a message may go to a consumer or into a queue.
Matches = Callable[["Message"], bool]


def not_from(origin: object, matches: Matches | None) -> Matches:
    """A filter that also turns away what ``origin`` sent (no-local)."""

    def accepts(message: Message) -> bool:
        return message.traits.origin != origin and (matches is None or matches(message))

    return accepts


class Consumer:
    """Base of the session's subscriptions. A queue calls the ``take`` methods; the rest is data it keeps here.

    ``willing`` is the subscription's word: it has credit and its socket has room. ``ready`` is the queue's: the
    consumer stands in the queue's turn. The two differ on exclusive queues.
    """

    __slots__ = ("held", "matches", "matches_key", "queue", "ready", "settled", "source", "willing")

    queue: Queue
    remote = ""  # host and port of its client
    taker_name = ""  # by which a store that keeps everything tells who has acknowledged

    def __init__(self, matches: Matches | None = None, matches_key: object = None) -> None:
        self.matches = matches
        self.matches_key = matches_key  # consumers with equal keys share one list of what matches
        self.willing = True
        self.ready = False
        self.source: Pending | None = None  # where the queue looks for this consumer's next message
        self.settled = 0  # messages that it took care of: by which it is known as slow
        self.held: Pending | None = None  # messages of groups that are pinned here, waiting for credit

    def take(self, message: Message) -> None:
        """A message straight from its sender; no reference to it exists yet."""
        raise AssertionError("a consumer takes messages")

    def take_reference(self, ref: Reference) -> None:
        """A message that waited in the queue, or comes again."""
        raise AssertionError("a consumer takes references")

    def cancelled(self, reason: str) -> None:
        """The queue is gone; the consumer gets nothing any more."""
        raise AssertionError("a consumer hears of its queue's end")

    def unsettled_references(self) -> Iterable[Reference]:
        """What it was given and has not settled, in the order of delivery, for management."""
        return ()

    def describe(self) -> dict[str, object]:
        """What management shows of it."""
        return {}
