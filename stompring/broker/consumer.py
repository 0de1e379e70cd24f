"""A consumer of a queue: what the queue must know of a subscription."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from .message import Message, Traits
    from .message_groups import GroupOwner
    from .queue import Queue
    from .reference import PendingList, Reference

#: Decides whether a message may go to a consumer or into a queue.
Matches = Callable[["Message"], bool]


def not_from(origin: object, matches: Matches | None) -> Matches:
    """A filter that also rejects what ``origin`` sent (no-local)."""

    def accepts(message: Message) -> bool:
        return message.traits.origin != origin and (matches is None or matches(message))

    return accepts


@mypyc_attr(allow_interpreted_subclasses=True)  # of the kit for tests of policies
class Consumer:
    """Base of the session's subscriptions. A queue calls the ``deliver`` methods; the attributes are its dispatcher's.

    ``willing``: the subscription has credit and its socket takes more. ``ready``: the consumer is among those that the
    dispatcher serves in turn. The two differ on exclusive queues.
    """

    __slots__ = (
        "group_backlog",
        "group_owner",
        "matches",
        "matches_key",
        "priority",
        "queue",
        "ready",
        "settled",
        "source",
        "willing",
        "writes_tails",
    )

    queue: Queue
    settles_on_delivery = (
        False  # a message that it is given is acknowledged, and it leaves no trace of that elsewhere
    )
    connection_id = ""  # the session header of its connection
    consumer_name = ""  # recorded with what it acknowledges by a store that retains everything

    def __init__(self, matches: Matches | None = None, matches_key: object = None) -> None:
        self.matches = matches
        self.matches_key = matches_key  # consumers with equal keys share one list of what matches
        self.priority = 0  # those with the highest are served first
        self.willing = True
        self.ready = False
        self.source: PendingList | None = None  # of this consumer's next message
        self.settled = 0  # messages that it acknowledged: by which it is known as slow
        self.writes_tails = False  # `write_tail` may be called: a message is settled by being written
        self.group_backlog: PendingList | None = None  # of groups that are pinned here, waiting for credit
        self.group_owner: GroupOwner | None = None  # made with the first group that is pinned here

    def deliver_message(self, message: Message) -> None:
        """A message straight from its sender; no reference to it exists yet."""
        raise AssertionError("a consumer is given messages")

    def write_tail(self, traits: Traits, tail: bytes, body_at: int) -> None:
        """As `deliver_message`, of a message that needs nothing but its bytes. Only where ``writes_tails``."""
        raise AssertionError("a consumer that writes tails is given them")

    def deliver_reference(self, ref: Reference) -> None:
        """A message that waited in the queue, or comes again."""
        raise AssertionError("a consumer is given references")

    def additional_header(self, name: bytes, value: bytes) -> AbstractContextManager[None]:
        """What is delivered in this context has one header more."""
        return nullcontext()

    @property
    def has_waiting(self) -> bool:
        """Whether a message waits that it would be given next, if it could take one."""
        source, backlog, paged = self.source, self.group_backlog, self.queue.paged
        if source is not None and source.head() is not None:
            return True
        if backlog is not None and backlog.head() is not None:
            return True
        return paged is not None and paged.waiting > 0 and self.matches is None

    @property
    def remote(self) -> str:
        """Host and port of its client."""
        return ""

    @property
    def group_count(self) -> int:
        """Message groups, or buckets of them, that are pinned to this consumer."""
        return 0 if self.group_owner is None else self.group_owner.count

    def cancelled(self, reason: str) -> None:
        """The queue is gone; the consumer gets nothing any more."""
        raise AssertionError("a consumer is cancelled with its queue")

    def unsettled_references(self) -> Iterable[Reference]:
        """What it was given and has not settled, in the order of delivery, for management."""
        return ()

    @property
    def identifier(self) -> str:
        """What its client calls it."""
        return ""
