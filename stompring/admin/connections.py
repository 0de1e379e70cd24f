"""Connections and consumers over HTTP.

``/api/v1/consumers``: the consumers of queues, each with its connection.

``/api/v1/connections``: list, show and close STOMP connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stompring.broker.history import History
from stompring.broker.queue import Queue
from stompring.errors import Refused
from stompring.session.session import Session
from stompring.session.subscription import UNLIMITED, Subscription

from .api import (
    Call,
    Json,
    Listed,
    Response,
    edit_broker,
    listing,
    named,
    route,
    view,
    view_broker,
    view_queue,
)
from .context import ITEMS_PER_STEP, AdminContext
from .json_schema import (
    TEXT,
    Fields,
    array,
    boolean,
    integer,
    object_of,
    string,
    string_or_null,
    timestamp,
)
from .sampler import CONNECTION_RATES, CONSUMER_RATES, rate_fields
from .verdict import of_connection, of_consumer, verdict_fields


class ConsumerView(NamedTuple):
    """A consumer and its connection."""

    session: Session
    subscription: Subscription

    @property
    def history(self) -> History | None:
        """The rates of the consumer."""
        return self.subscription.history


def protocol(session: Session) -> str:
    """The STOMP version of a connection, followed by its transport if that is not TCP."""
    spoken = f"STOMP {session.version.decode()}" if session.connected else "STOMP"
    return spoken if session.wire.carrier == "TCP" else f"{spoken} over {session.wire.carrier}"


def is_slow_reader(session: Session) -> bool:
    """Whether a client has read nothing for 10 seconds while its outbox was full."""
    return session.outbox.outgoing.slow.is_slow(session.outbox)


def _is_slow(consumer: ConsumerView) -> bool:
    session, subscription = consumer
    return session.broker.slow_consumers.is_slow(subscription) or is_slow_reader(session)


def _oldest_delivering(consumer: ConsumerView) -> int | None:
    oldest = next(iter(consumer.subscription.unsettled_references()), None)
    return None if oldest is None else max(0, consumer.session.broker.clock.now - oldest.message.timestamp)


def _window(size: int) -> int:
    return -1 if size == UNLIMITED else size


CONSUMER_FIELDS: Fields[ConsumerView] = {
    "consumerID": string(
        "connectionID and subscription, with / between them.",
        lambda c: f"{c.session.number}/{c.subscription.identifier}",
    ),
    "subscription": string("Id of the subscription.", "subscription.identifier"),
    "queue": string("Queue of the consumer.", "subscription.queue.name"),
    "address": string("Address of the queue.", "subscription.queue.address.name"),
    "destination": string(
        "Destination as the client wrote it in SUBSCRIBE.",
        lambda c: c.subscription.terms.destination.decode("utf-8", "replace"),
    ),
    "ack": string("auto, client or client-individual.", "subscription.terms.ack"),
    "filter": string_or_null("Selector of the subscription.", "subscription.terms.selector"),
    "browser": boolean(
        "Whether it only browses; it is then listed with its connection only.", "subscription.terms.browser"
    ),
    "priority": integer(
        "Priority of the consumer (consumer-priority): those with the highest are served first.",
        "subscription.priority",
        -(2**31),
    ),
    "groupCount": integer(
        "Message groups pinned to the consumer; with group-buckets above 0, buckets of them.",
        "subscription.group_count",
    ),
    "deliveringCount": integer("Messages delivered and not yet settled.", "subscription.unsettled_count"),
    "oldestDelivering": integer(
        "Time since the message was sent that was delivered first of these, in milliseconds.",
        _oldest_delivering,
        null=True,
    ),
    "credit": integer(
        "Messages that it may be sent before it settles one; null: no limit in messages.",
        "subscription.credit",
        null=True,
    ),
    "prefetchCount": integer(
        "Limit on deliveringCount (prefetch-count); -1: no limit.",
        lambda c: _window(c.subscription.terms.window_messages),
        -1,
    ),
    "consumerWindowSize": integer(
        "Limit on the bytes of messages delivered and not settled (consumer-window-size); -1: no limit.",
        lambda c: _window(c.subscription.terms.window_bytes),
        -1,
    ),
    "messagesDelivered": integer(
        "Messages delivered to the consumer, each delivery counted.", "subscription.messages_delivered"
    ),
    "messagesAcknowledged": integer(
        "Messages that the consumer acknowledged, also in open transactions.",
        "subscription.messages_acknowledged",
    ),
    **rate_fields(
        CONSUMER_RATES,
        {"delivered": "Messages delivered.", "acknowledged": "Messages acknowledged."},
    ),
    "slow": boolean(
        "Whether it was below slow-consumer-threshold at the last check, or its client has read nothing for 10 "
        "seconds while the outbox was full.",
        _is_slow,
    ),
    "connectionID": string("Id of the connection.", "session.number"),
    "remoteAddress": string("Address and port of the client.", "session.peer"),
    "user": string_or_null("User who logged in.", "session.login.user"),
    "clientID": string_or_null("The client-id header of CONNECT.", "session.client_id"),
    "protocol": string(
        "`STOMP 1.2`, or `STOMP 1.2 over WebSocket`, with the version in use.", lambda c: protocol(c.session)
    ),
    "acceptor": string("Name of the acceptor.", "session.acceptor.name"),
    "creationTime": timestamp("Time of SUBSCRIBE.", "subscription.created"),
    **verdict_fields(lambda c: of_consumer(c.subscription)),
}

CONSUMER = object_of("Consumer", CONSUMER_FIELDS)


def consumers_of(context: AdminContext, queue: Queue) -> Iterator[ConsumerView]:
    """The consumers of a queue, in the order of their subscriptions."""
    sessions = context.connections.open
    for consumer in queue.consumers:
        if isinstance(consumer, Subscription):
            session = sessions.get(consumer.connection_id)
            if session is not None:
                yield ConsumerView(session, consumer)


#: Fields of a connection in a list. GET of one connection adds its verdict and its subscriptions.
FIELDS: Fields[Session] = {
    "connectionID": string("Id of the connection: session header of CONNECTED.", "number"),
    "remoteAddress": string("Address and port of the client.", "peer"),
    "user": string_or_null("User who logged in.", "login.user"),
    "clientID": string_or_null("The client-id header of CONNECT.", "client_id"),
    "protocol": string("`STOMP 1.2`, or `STOMP 1.2 over WebSocket`, with the version in use.", protocol),
    "acceptor": string("Name of the acceptor.", "acceptor.name"),
    "creationTime": timestamp("Time of the connection.", "connected_at"),
    "blocked": boolean("Whether the connection is blocked by a full address.", "blocked"),
    "slow": boolean(
        "Whether the client has read nothing for 10 seconds while the outbox was full.", is_slow_reader
    ),
    "messagesSent": integer("SEND frames received from the client.", "messages_in"),
    "messagesDelivered": integer(
        "Messages delivered to the client, each delivery counted.", "messages_delivered"
    ),
    "deliveringCount": integer(
        "Messages delivered and not yet settled.",
        lambda c: sum(each.unsettled_count for each in c.subscriptions.values()),
    ),
    "outgoingBytes": integer(
        "Bytes that wait to be read by the client; at `outboxSize` it gets no more messages.",
        lambda c: max(0, c.outbox.size - c.outbox.capacity),
    ),
    **rate_fields(
        CONNECTION_RATES,
        {
            "sent": "SEND frames received.",
            "delivered": "Messages delivered to the client.",
            "acknowledged": "Messages acknowledged by the client.",
        },
    ),
    "transactionCount": integer("Open transactions.", lambda c: len(c.transactions)),
    "subscriptionCount": integer("Subscriptions.", lambda c: len(c.subscriptions)),
    "queues": array(
        TEXT,
        "Names of the queues of its subscriptions.",
        lambda c: sorted({each.queue.name for each in c.subscriptions.values()}),
    ),
}


def session_of(call: Call) -> Session:
    """Return the session that the path names by connectionID or client-id.

    Raises `NotFound`, or `Refused` if several sessions have the client-id.
    """
    connections, given = call.context.connections, call.names["id"]
    found = [] if given in connections.open else [each for each in connections if each.client_id == given]
    if len(found) > 1:
        numbers = ", ".join(each.number for each in found[:5])
        raise Refused(
            f"{len(found)} connections have the client-id {given}; name one by its connectionID: {numbers}"
        )
    return found[0] if found else named(call, connections.open, "Connection", "id")


DETAILS: Fields[Session] = {**verdict_fields(of_connection), **FIELDS}

CONNECTION_DETAIL = object_of(
    "ConnectionDetail", {**DETAILS, "subscriptions": array(CONSUMER, "Subscriptions of the connection.")}
)


@listing("/api/v1/consumers", view_broker, "consumers", "Consumer", CONSUMER_FIELDS, searched="queue")
def list_consumers(call: Call) -> Listed[ConsumerView]:
    """List the consumers of all queues."""
    found = []
    for index, session in enumerate(call.context.connections):
        found += [
            ConsumerView(session, each) for each in session.subscriptions.values() if not each.terms.browser
        ]
        if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
            yield
    return found


@listing(
    "/api/v1/queues/{name}/consumers", view_queue, "consumers", "Consumer", CONSUMER_FIELDS, searched="queue"
)
def list_queue_consumers(call: Call) -> list[ConsumerView]:
    """List the consumers of one queue."""
    return list(consumers_of(call.context, call.directory.queue(call.names["name"])))


@listing("/api/v1/connections", view_broker, "connections", "Connection", FIELDS, searched="connectionID")
def list_connections(call: Call) -> list[Session]:
    """List STOMP connections."""
    return list(call.context.connections)


@route(
    "GET /api/v1/connections/{id}",
    view_broker,
    Response("The connection.", CONNECTION_DETAIL),
)
def show_connection(call: Call) -> Json:
    """Show one connection."""
    session = session_of(call)
    return {
        **view(session, DETAILS),
        "subscriptions": [
            view(ConsumerView(session, each), CONSUMER_FIELDS) for each in session.subscriptions.values()
        ],
    }


@route(
    "DELETE /api/v1/connections/{id}",
    edit_broker,
    Response("The connection is closed."),
)
def close_connection(call: Call) -> None:
    """Close a connection; the client gets an ERROR."""
    session_of(call).refuse(Refused("Connection closed by management"))
