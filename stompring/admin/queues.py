"""Queues and dead letters over HTTP.

``/api/v1/queues``: list, create, change, delete and trim queues.

``GET /api/v1/dead-letters``: dead letters, expired messages and other copies that the broker made, grouped by origin.
The broker recognizes these messages in any queue, by the headers that name their origin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any

from stompring.broker.directory import check_not_internal
from stompring.broker.message import EXPIRED, UNKNOWN, MessageOrigin, origin_of
from stompring.broker.queue import Queue
from stompring.broker.queue_browser import iterate_timed, pending
from stompring.broker.reference import GONE, Reference
from stompring.errors import Refused, counted
from stompring.settings import model
from stompring.settings.match import is_internal
from stompring.settings.model import Option, QueueConfiguration, RoutingType
from stompring.settings.value_types import VALUE_TYPES

from .api import (
    CONFLICT,
    FORCE,
    Answer,
    Body,
    BodyField,
    Call,
    Json,
    Listed,
    Reader,
    Response,
    Steps,
    choice,
    created,
    created_response,
    edit_queue,
    flag,
    invalid,
    listing,
    number,
    queue_creation,
    queue_deletion,
    read_fields,
    required,
    route,
    text,
    text_or_none,
    view,
    view_broker,
    view_queue,
)
from .connections import CONSUMER, CONSUMER_FIELDS, consumers_of
from .context import ITEMS_PER_STEP, background_done, in_slices
from .counters import QUEUE, fields_of, oldest_age
from .json_schema import (
    Field,
    Fields,
    JsonObject,
    Schema,
    array,
    boolean,
    integer,
    keyword,
    object_of,
    string,
    string_or_null,
    structure,
    timestamp,
)
from .sampler import QUEUE_RATES, rate_fields
from .verdict import of_queue, verdict_fields

#: The options of queues that the HTTP interface shows.
OPTIONS = [row for row in model.options_of(QueueConfiguration) if row.http]

ROUTING_TYPE: Schema = keyword(RoutingType, "Routing type of the queue.")


def schema_of(row: Option) -> Schema:
    """The schema of an option's value in an answer."""
    value_type = VALUE_TYPES[row.type]
    meaning = f"{row.meaning} In milliseconds." if row.unit == "ms" else row.meaning
    if value_type.choices is not None:
        return keyword(value_type.choices, meaning)
    if value_type.kind is int:
        return integer(meaning, minimum=-1)
    return boolean(meaning) if value_type.kind is bool else string_or_null(meaning)


def body_field(row: Option) -> BodyField:
    """The field of a request body that sets an option. If the option is a number, the field may also be -1."""
    value_type = VALUE_TYPES[row.type]
    schema = schema_of(row)
    if row.http == model.CREATE_ONLY:
        schema = create_only(schema)
    reader: Reader
    if value_type.choices is not None:
        reader = partial(choice, value_type.choices)
    elif value_type.kind is int:
        reader = partial(number, value_type.least)
        if value_type.least > 0:
            schema = integer(
                schema["description"], minimum=None, anyOf=[{"const": -1}, {"minimum": value_type.least}]
            )
    elif row.type in ("messageHeader", "keyHeader"):
        reader = partial(header_or_none, value_type.read)
    else:
        reader = flag if value_type.kind is bool else text_or_none
    return BodyField(row.name, reader, schema)


def header_or_none(check: Callable[[str], object], name: str, value: Any) -> object:
    """The name of a header, checked by ``check``; None for null. Raises 400."""
    given = text_or_none(name, value)
    try:
        return None if given is None else check(given)
    except ValueError as fault:
        raise invalid(name, str(fault)) from None


def create_only(schema: Schema) -> Schema:
    """The schema of an attribute that only POST sets. Its description says that PATCH does not change it."""
    return {
        **schema,
        "description": f"{schema['description']} A PATCH may repeat the value, but not change it.",
    }


COUNTERS = fields_of(QUEUE)

FIELDS: Fields[Queue] = {
    "name": string("Name of the queue, unique in the broker.", "name"),
    "address": string("Address of the queue.", "address.name"),
    "routingType": Field(ROUTING_TYPE, "attributes.routing_type"),
    **COUNTERS,
    **rate_fields(
        QUEUE_RATES,
        {
            "added": "Messages added.",
            "delivered": "Messages delivered to consumers.",
            "acknowledged": "Messages acknowledged.",
            "redelivered": "Messages that came back from a consumer.",
            "evicted": "Messages evicted by the ring.",
            "expired": "Messages expired.",
            "paged": "Messages by which pagedCount grew.",
        },
    ),
    "pendingCount": integer(
        "Pending messages in memory; with pagedCount, deliveringCount and scheduledCount they make messageCount.",
        "count",
    ),
    "oldestAge": integer(
        "Time since the oldest pending message was sent, of any priority. Milliseconds.",
        oldest_age,
        null=True,
    ),
    "rebalancing": boolean(
        "Whether delivery waits until everything in delivery is settled, because a consumer came "
        "(groupRebalancePauseDispatch).",
        "dispatcher.rebalancing",
    ),
    "paused": boolean("Whether delivery to consumers is paused.", "paused"),
    **{
        row.json_name: Field(schema_of(row), attrgetter(f"attributes.{row.name}"))
        for row in OPTIONS
        if row.json_name not in COUNTERS
    },
    "autoCreated": boolean("Whether the queue was created automatically.", "attributes.auto_created"),
    "autoDelete": boolean(
        "Whether the queue is deleted automatically when it is no longer used.", "attributes.auto_delete"
    ),
    "temporary": boolean("Whether the queue is deleted with its connection.", "attributes.temporary"),
    "configured": boolean(
        "Whether broker.xml defines the queue: a reload resets it to the file.", "attributes.configured"
    ),
}

#: Attributes that a request sets: first the attributes for POST only, then those for POST and PATCH.
ATTRIBUTES: dict[str, BodyField] = {
    "routingType": BodyField("routing_type", partial(choice, RoutingType), create_only(ROUTING_TYPE)),
    **{
        row.json_name: body_field(row)
        for kind in (model.CREATE_ONLY, model.CHANGEABLE)
        for row in OPTIONS
        if row.http == kind
    },
}

DETAILS: Fields[Queue] = {**verdict_fields(of_queue), **FIELDS}

QUEUE_DETAIL = object_of("QueueDetail", {**DETAILS, "consumers": array(CONSUMER, "Consumers of the queue.")})


def detailed(call: Call, queue: Queue) -> JsonObject:
    """All fields of a queue, and its consumers."""
    return {
        **view(queue, DETAILS),
        "consumers": [view(each, CONSUMER_FIELDS) for each in consumers_of(call.context, queue)],
    }


def queue_of(call: Call) -> Queue:
    """The queue that the path names. Raises `NotFound`."""
    return call.directory.queue(call.names["name"])


SETTABLE = {
    **{name: field.schema for name, field in ATTRIBUTES.items()},
    "paused": boolean("Pause or resume the queue."),
}
NEW = {
    "name": string("Name of the queue.", minLength=1),
    "address": string("Address of the queue. Default: the name of the queue.", minLength=1),
    **SETTABLE,
}


#: Maximum number of messages of one queue that the list of dead letters examines.
MAX_EXAMINED = 10_000


@dataclass
class DeadLetterGroup:
    """The messages of ``queue`` that came from the same original queue for the same reason."""

    queue: Queue
    origin: MessageOrigin
    count: int = 0
    oldest: int = 0
    newest: int = 0
    complete: bool = True

    def add(self, arrived: int) -> None:
        """Count a message that arrived in the queue at ``arrived`` (epoch ms)."""
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


GROUP_FIELDS: Fields[DeadLetterGroup] = {
    "queue": string("Queue that has the messages.", "queue.name"),
    "address": string("Address of that queue.", "queue.address.name"),
    "originAddress": string("Original address of the messages.", "origin.address"),
    "originQueue": string("Original queue of the messages.", "origin.queue"),
    "reason": string(
        "max-delivery-attempts, expired, no-route, evicted, management, policy, a reason that a policy gives, or "
        "unknown.",
        "origin.reason",
    ),
    "count": integer("Messages of the group, without those in delivery.", "count"),
    "oldest": timestamp("When the first of them arrived in the queue.", "oldest"),
    "newest": timestamp("When the last of them arrived in the queue.", "newest"),
    "complete": boolean(
        f"False if the queue has more than {MAX_EXAMINED} messages: only these are counted.", "complete"
    ),
    "filter": string(
        "The selector of the group, for retry, remove, move and the list of messages.", "filter"
    ),
}


@listing("/api/v1/queues", view_broker, "queues", "Queue", FIELDS)
def list_queues(call: Call) -> list[Queue]:
    """List queues."""
    return [q for q in call.directory.queues.values() if not is_internal(q.name)]


@route(
    "POST /api/v1/queues",
    queue_creation,
    created_response("The new queue.", QUEUE_DETAIL),
    body=Body(NEW, ("name",), "NewQueue"),
    errors=CONFLICT,
)
def create_queue(call: Call) -> Answer:
    """Create a queue, and its address if it does not exist.

    Missing fields get the values of the address-settings. A missing routingType is the routing type of the address
    if the address has only one, else default-queue-routing-type.
    """
    directory, body = call.directory, call.body
    name = required(body, "name")
    address = text("address", body.get("address", name))
    for each in (name, address):
        check_not_internal(each)
    default = directory.settings.lookup(address).default_queue_routing_type
    if address in directory.addresses and len(directory.addresses[address].routing_types) == 1:
        (default,) = directory.addresses[address].routing_types
    attributes = {
        "routing_type": default,
        "user": call.user,
        **read_fields(body, ATTRIBUTES),
    }
    paused = flag("paused", body.get("paused", False))
    if name not in directory.queues:
        directory.resource_limits.check_queue(attributes["user"])
        if address not in directory.addresses:
            directory.resource_limits.check_address(address)
    queue = directory.create_queue(QueueConfiguration(name=name, address=address, **attributes))
    if paused:
        queue.pause()
    return created(detailed(call, queue), "queues", name)


@route("GET /api/v1/queues/{name}", view_queue, Response("The queue.", QUEUE_DETAIL))
def show_queue(call: Call) -> Json:
    """Show one queue."""
    return detailed(call, queue_of(call))


@route(
    "PATCH /api/v1/queues/{name}",
    edit_queue,
    Response("The changed queue.", QUEUE_DETAIL),
    body=Body(SETTABLE, name="QueueChange"),
    errors=CONFLICT,
)
def change_queue(call: Call) -> Json:
    """Change attributes of a queue: all of them or none.

    A lower ringSize removes no message; trim does. A reload of broker.xml resets the attributes of a queue that
    broker.xml defines.
    """
    queue, body = queue_of(call), call.body
    changes = read_fields(body, ATTRIBUTES)
    paused = flag("paused", body.get("paused", queue.paused))
    call.directory.update_queue(queue, changes)
    if paused != queue.paused:
        if paused:
            queue.pause()
        else:
            queue.resume()
    return detailed(call, queue)


@route(
    "DELETE /api/v1/queues/{name}",
    queue_deletion,
    Response("The queue is deleted."),
    parameters=(FORCE,),
    errors=CONFLICT,
)
def delete_queue(call: Call) -> Steps:
    """Delete a queue and its messages.

    A queue with consumers requires force=true; the consumers get an ERROR.
    """
    directory, queue = call.directory, queue_of(call)
    check_not_internal(queue.name)
    if queue.consumers and not call.query.flag("force"):
        raise Refused(
            f"Queue {queue.name} has {counted(len(queue.consumers), 'consumer')}; use force=true to delete it anyway"
        )
    directory.delete_queue(queue.name, force=True)
    yield background_done(queue.broker.background, queue)  # fires when the messages of the queue are deleted


@route(
    "POST /api/v1/queues/{name}/groups/reset",
    edit_queue,
    Response(
        "The number of groups unpinned.",
        structure(
            {
                "reset": integer(
                    "Number of groups that were pinned to a consumer; with groupBuckets above 0, of buckets."
                )
            }
        ),
    ),
    body=Body({"group": string("The group; without it all groups.", minLength=1)}, name="GroupReset"),
)
def reset_groups(call: Call) -> Json:
    """Unpin message groups from their consumers.

    The next message of a group pins the group again. Messages in delivery stay with their consumers.
    """
    return {
        "reset": queue_of(call).dispatcher.reset_groups(
            text("group", call.body["group"]).encode() if "group" in call.body else None
        )
    }


@route(
    "POST /api/v1/queues/{name}/trim",
    edit_queue,
    Response(
        "The number of evicted messages.",
        structure({"replaced": integer("Number of evicted messages; each counts as replaced.")}),
    ),
)
def trim_queue(call: Call) -> Steps:
    """Evict messages until the queue does not exceed its ringSize."""
    replaced = 0
    for one in queue_of(call).trim():
        replaced += one
        if replaced % ITEMS_PER_STEP == 0:
            yield
    return {"replaced": replaced}


@listing(
    "/api/v1/dead-letters",
    view_broker,
    "groups",
    "DeadLetterGroup",
    GROUP_FIELDS,
    searched="queue",
    unfiltered=("filter",),
)
def list_dead_letters(call: Call) -> Listed[DeadLetterGroup]:
    """List dead letters and expired messages of all queues, in groups by queue, origin and reason."""
    groups: list[DeadLetterGroup] = []
    only = call.query.text("queue")
    for index, queue in enumerate(list(call.directory.queues.values())):
        if queue.message_count and only in (None, queue.name) and not queue.deleted:
            of_queue: dict[MessageOrigin, DeadLetterGroup] = {}
            examined = 0
            for ref in in_slices(chain(pending(queue), list(queue.scheduled.values()), iterate_timed(queue))):
                if not isinstance(ref, Reference):
                    yield ref
                    continue
                if examined == MAX_EXAMINED:
                    for group in of_queue.values():
                        group.complete = False
                    break
                examined += 1
                if ref.state != GONE and (origin := origin_of(ref.message)) is not None:
                    found = of_queue.get(origin)
                    if found is None:
                        found = of_queue[origin] = DeadLetterGroup(queue, origin)
                    found.add(ref.message.timestamp)
            groups += of_queue.values()
            yield None
        if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
            yield None
    return groups
