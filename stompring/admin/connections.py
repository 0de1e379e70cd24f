"""``/api/v1/connections``: list, show and close STOMP connections."""

from __future__ import annotations

from typing import Any

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
from .queues import CONSUMER
from .tasks import ITEMS_PER_STEP

#: The fields in lists; GET of one connection adds its subscriptions.
FIELDS: Fields[dict[str, Any]] = {
    "connectionID": Field(
        lambda c: c["connectionID"], string("Id of the connection: session header of CONNECTED.")
    ),
    "remoteAddress": Field(lambda c: c["remoteAddress"], string("Address and port of the client.")),
    "user": Field(lambda c: c["user"], string("User who logged in.", null=True)),
    "clientID": Field(lambda c: c["clientID"], string("The client-id header of CONNECT.", null=True)),
    "protocol": Field(
        lambda c: c["protocol"],
        string("`STOMP 1.2`, or `STOMP 1.2 over WebSocket`, with the version in use."),
    ),
    "acceptor": Field(lambda c: c["acceptor"], string("Name of the acceptor.")),
    "creationTime": Field(lambda c: c["creationTime"], timestamp("Time of the connection.")),
    "blocked": Field(lambda c: c["blocked"], boolean("Whether the connection is blocked by a full address.")),
    "messagesSent": Field(lambda c: c["messagesSent"], integer("SEND frames received from the client.")),
    "transactionCount": Field(lambda c: c["transactionCount"], integer("Open transactions.")),
    "subscriptionCount": Field(lambda c: len(c["subscriptions"]), integer("Subscriptions.")),
}


def session_of(call: Call) -> Session:
    """The session in the path. Raises `NotFound`."""
    number = call.names["id"]
    session = call.context.connections.open.get(number)
    if session is None:
        raise NotFound(f"Connection {number} does not exist")
    return session


def described(session: Session) -> dict[str, Any]:
    """The fields of a session, and its subscriptions."""
    return {
        "connectionID": session.number,
        "remoteAddress": session.peer,
        "user": session.login.user,
        "clientID": session.client_id,
        "protocol": _protocol(session),
        "acceptor": session.acceptor.name,
        "creationTime": session.connected_at,
        "blocked": session.blocked,
        "messagesSent": session.messages_in,
        "transactionCount": len(session.transactions),
        "subscriptions": [subscription.describe() for subscription in session.subscriptions.values()],
    }


def _protocol(session: Session) -> str:
    spoken = f"STOMP {session.version.decode()}" if session.connected else "STOMP"
    return spoken if session.wire.carrier == "TCP" else f"{spoken} over {session.wire.carrier}"


def list_connections(call: Call) -> Steps:
    found = []
    for index, session in enumerate(call.context.connections):
        found.append(described(session))
        if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
            yield
    return (yield from paged(call.query, found, FIELDS, "connectionID"))


def show(call: Call) -> Answer:
    description = described(session_of(call))
    return json_answer({**view(description, FIELDS), "subscriptions": description["subscriptions"]})


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
