"""``/api/v1/connections``: list, show and close STOMP connections."""

from __future__ import annotations

from stompring.errors import NotFound, Refused
from stompring.session.session import Session

from .access import edit_broker, view_broker
from .api import (
    LISTING,
    NO_CONTENT,
    Answer,
    Call,
    Parameter,
    Response,
    Route,
    Steps,
    json_answer,
    paged,
    view,
)
from .consumers import CONSUMER, consumers_of_connection, is_slow_reader, protocol
from .json_schema import (
    Component,
    Field,
    Fields,
    array,
    boolean,
    integer,
    page_of,
    shown,
    string,
    structure,
    timestamp,
)
from .sampler import CONNECTION_RATES, rate_fields

#: The fields in lists; GET of one connection adds its subscriptions.
FIELDS: Fields[Session] = {
    "connectionID": Field(lambda c: c.number, string("Id of the connection: session header of CONNECTED.")),
    "remoteAddress": Field(lambda c: c.peer, string("Address and port of the client.")),
    "user": Field(lambda c: c.login.user, string("User who logged in.", null=True)),
    "clientID": Field(lambda c: c.client_id, string("The client-id header of CONNECT.", null=True)),
    "protocol": Field(
        protocol,
        string("`STOMP 1.2`, or `STOMP 1.2 over WebSocket`, with the version in use."),
    ),
    "acceptor": Field(lambda c: c.acceptor.name, string("Name of the acceptor.")),
    "creationTime": Field(lambda c: c.connected_at, timestamp("Time of the connection.")),
    "blocked": Field(lambda c: c.blocked, boolean("Whether the connection is blocked by a full address.")),
    "slow": Field(
        is_slow_reader,
        boolean("Whether the client has read nothing for 10 seconds while the outbox was full."),
    ),
    "messagesSent": Field(lambda c: c.messages_in, integer("SEND frames received from the client.")),
    "messagesDelivered": Field(
        lambda c: c.messages_delivered, integer("Messages delivered to the client, each delivery counted.")
    ),
    "deliveringCount": Field(
        lambda c: sum(each.unsettled_count for each in c.subscriptions.values()),
        integer("Messages delivered and not yet settled."),
    ),
    "outgoingBytes": Field(
        lambda c: max(0, c.outbox.size - c.outbox.capacity),
        integer("Bytes that wait to be read by the client; at `outboxSize` it gets no more messages."),
    ),
    **rate_fields(
        CONNECTION_RATES,
        {
            "sent": "SEND frames received.",
            "delivered": "Messages delivered to the client.",
            "acknowledged": "Messages acknowledged by the client.",
        },
    ),
    "transactionCount": Field(lambda c: len(c.transactions), integer("Open transactions.")),
    "subscriptionCount": Field(lambda c: len(c.subscriptions), integer("Subscriptions.")),
    "queues": Field(
        lambda c: sorted({each.queue.name for each in c.subscriptions.values()}),
        array({"type": "string"}, "Names of the queues of its subscriptions."),
    ),
}


def session_of(call: Call) -> Session:
    """The session in the path. Raises `NotFound`."""
    number = call.names["id"]
    session = call.context.connections.open.get(number)
    if session is None:
        raise NotFound(f"Connection {number} does not exist")
    return session


def list_connections(call: Call) -> Steps:
    return paged(call.query, list(call.context.connections), FIELDS, "connectionID")


def show(call: Call) -> Answer:
    session = session_of(call)
    return json_answer({**view(session, FIELDS), "subscriptions": consumers_of_connection(session)})


def close(call: Call) -> Answer:
    session_of(call).refuse(Refused("Connection closed by management"))
    return NO_CONTENT


CONNECTION = Component("Connection", structure(shown(FIELDS)))
CONNECTION_DETAIL = Component(
    "ConnectionDetail",
    structure({**shown(FIELDS), "subscriptions": array(CONSUMER, "Subscriptions of the connection.")}),
)
CONNECTION_ID = Parameter(
    "id", "The connectionID.", {"type": "string"}, "path", component="connectionID", required=True
)

CONNECTIONS_PATH, CONNECTION_PATH = "/api/v1/connections", "/api/v1/connections/{id}"
ROUTES = (
    Route(
        "GET",
        CONNECTIONS_PATH,
        list_connections,
        view_broker,
        "listConnections",
        "List STOMP connections.",
        {200: Response("One page of connections.", page_of(CONNECTION))},
        parameters=LISTING,
        filters=FIELDS,
    ),
    Route(
        "GET",
        CONNECTION_PATH,
        show,
        view_broker,
        "connection",
        "Show one connection.",
        {200: Response("The connection.", CONNECTION_DETAIL)},
        parameters=(CONNECTION_ID,),
    ),
    Route(
        "DELETE",
        CONNECTION_PATH,
        close,
        edit_broker,
        "closeConnection",
        "Close a connection; the client gets an ERROR.",
        {204: Response("The connection is closed.")},
        parameters=(CONNECTION_ID,),
    ),
)
