"""``GET /api/v1/dead-letters``: dead letters, expired messages and other copies of the broker by where they came from.

They are found by the headers of their origin, whatever the names of the queues that they are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from stompring.broker.queue import Queue
from stompring.broker.queue_browser import PageRead, iterate_timed, pending
from stompring.broker.reference import GONE, Reference
from stompring.broker.transfer import EXPIRED, UNKNOWN, MessageOrigin, origin_of

from .access import view_broker
from .api import LISTING, Call, Response, Route, Steps, paged
from .json_schema import (
    Component,
    Field,
    Fields,
    boolean,
    integer,
    page_of,
    shown,
    string,
    structure,
    timestamp,
)
from .tasks import page_read

#: Messages of one queue that are looked at.
MAX_EXAMINED = 10_000

#: Messages looked at per step; queues without messages cost a part of that.
EXAMINED_PER_STEP = 200


class DeadLetterGroup:
    """Messages of one queue that came from the same queue for the same reason."""

    def __init__(self, queue: Queue, origin: MessageOrigin) -> None:
        self.queue = queue.name
        self.address = queue.address.name
        self.origin = origin
        self.count = 0
        self.oldest = self.newest = 0
        self.complete = True

    def add(self, arrived: int) -> None:
        """One more, that arrived here at that time (epoch ms)."""
        self.oldest = min(self.oldest, arrived) if self.count else arrived
        self.newest = max(self.newest, arrived)
        self.count += 1

    @property
    def filter(self) -> str:
        """The selector that matches the messages of this group."""
        origin = self.origin
        parts = [_equals("_AMQ_ORIG_ADDRESS", origin.address), _equals("_AMQ_ORIG_QUEUE", origin.queue)]
        if origin.reason == EXPIRED:
            parts.append("_AMQ_ACTUAL_EXPIRY IS NOT NULL")
        elif origin.reason == UNKNOWN:
            parts.append("_AMQ_ORIG_REASON IS NULL AND _AMQ_ACTUAL_EXPIRY IS NULL")
        else:
            parts.append(_equals("_AMQ_ORIG_REASON", origin.reason))
        return " AND ".join(parts)


def _equals(name: str, value: str) -> str:
    literal = value.replace("'", "''")
    return f"{name} = '{literal}'" if value else f"{name} IS NULL"


def list_dead_letters(call: Call) -> Steps:
    groups: list[DeadLetterGroup] = []
    examined = 0
    queues = list(call.context.broker.directory.queues.values())
    only = call.query.text("queue")
    for queue in queues:
        examined += 1
        if queue.message_count and (only is None or queue.name == only) and not queue.deleted:
            of_queue: dict[MessageOrigin, DeadLetterGroup] = {}
            looked_at = 0
            for ref in _messages(queue):
                if isinstance(ref, PageRead):
                    yield page_read(ref)
                    continue
                if looked_at == MAX_EXAMINED:
                    for group in of_queue.values():
                        group.complete = False
                    break
                looked_at += 1
                if ref.state != GONE and (origin := origin_of(ref.message)) is not None:
                    found = of_queue.get(origin)
                    if found is None:
                        found = of_queue[origin] = DeadLetterGroup(queue, origin)
                    found.add(ref.message.timestamp)
                examined += 5
                if examined >= 5 * EXAMINED_PER_STEP:
                    examined = 0
                    yield None
            groups += of_queue.values()
        if examined >= 5 * EXAMINED_PER_STEP:
            examined = 0
            yield None
    return (yield from paged(call.query, groups, FIELDS, "queue"))


def _messages(queue: Queue) -> Iterator[Reference | PageRead]:
    return chain(pending(queue), list(queue.scheduled.values()), iterate_timed(queue))


FIELDS: Fields[DeadLetterGroup] = {
    "queue": Field(lambda g: g.queue, string("Queue that has the messages.")),
    "address": Field(lambda g: g.address, string("Address of that queue.")),
    "originAddress": Field(lambda g: g.origin.address, string("Original address of the messages.")),
    "originQueue": Field(lambda g: g.origin.queue, string("Original queue of the messages.")),
    "reason": Field(
        lambda g: g.origin.reason,
        string(
            "max-delivery-attempts, expired, no-route, evicted, management, policy, a reason that a policy gives, or "
            "unknown."
        ),
    ),
    "count": Field(lambda g: g.count, integer("Messages of the group, without those in delivery.")),
    "oldest": Field(lambda g: g.oldest, timestamp("When the first of them arrived in the queue.")),
    "newest": Field(lambda g: g.newest, timestamp("When the last of them arrived in the queue.")),
    "complete": Field(
        lambda g: g.complete,
        boolean(f"False if the queue has more than {MAX_EXAMINED} messages: only these are counted."),
    ),
    "filter": Field(
        lambda g: g.filter,
        string("The selector of the group, for retry, remove, move and the list of messages."),
    ),
}

DEAD_LETTER_GROUP = Component("DeadLetterGroup", structure(shown(FIELDS)))

ROUTES = (
    Route(
        "GET",
        "/api/v1/dead-letters",
        list_dead_letters,
        view_broker,
        "listDeadLetters",
        "List dead letters and expired messages of all queues, in groups by queue, origin and reason.",
        {200: Response("One page of groups.", page_of(DEAD_LETTER_GROUP))},
        parameters=LISTING,
        filters={name: field for name, field in FIELDS.items() if name != "filter"},
    ),
)
