"""``/api/v1/connections``: who is connected."""

from __future__ import annotations

from typing import Any

from stompring.errors import NotFound, Refused
from stompring.session.session import Session

from .access import edit_broker, view_broker
from .api import LISTING, NO_CONTENT, Answer, Call, Fields, Route, Steps, json_answer, paged, view
from .tasks import STEP

#: Of what is shown of a session, what lists show; one connection alone also shows its subscriptions.
FIELDS: Fields[dict[str, Any]] = {
    "connectionID": lambda c: c["connectionID"],
    "remoteAddress": lambda c: c["remoteAddress"],
    "user": lambda c: c["user"],
    "clientID": lambda c: c["clientID"],
    "protocol": lambda c: c["protocol"],
    "acceptor": lambda c: c["acceptor"],
    "creationTime": lambda c: c["creationTime"],
    "blocked": lambda c: c["blocked"],
    "messagesSent": lambda c: c["messagesSent"],
    "transactionCount": lambda c: c["transactionCount"],
    "subscriptionCount": lambda c: len(c["subscriptions"]),
}


def session_of(call: Call) -> Session:
    """The session that the path names. Raises `NotFound`."""
    number = call.names["id"]
    session = call.context.connections.open.get(number)
    if session is None:
        raise NotFound(f"Connection {number} does not exist")
    return session


def described(session: Session) -> dict[str, Any]:
    """All that is shown of a session."""
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
    """The open connections, the oldest first."""
    found = []
    for place, session in enumerate(call.context.connections):
        found.append(described(session))
        if place % STEP == STEP - 1:
            yield
    return (yield from paged(call.query, found, FIELDS, "connectionID"))


def show(call: Call) -> Answer:
    """Everything about one connection, its subscriptions too."""
    description = described(session_of(call))
    return json_answer({**view(description, FIELDS), "subscriptions": description["subscriptions"]})


def close(call: Call) -> Answer:
    """Close a connection: the client gets an ERROR, and what it has not settled comes back."""
    session_of(call).refuse(Refused("Connection closed by management"))
    return NO_CONTENT


WHOLE, ONE = "/api/v1/connections", "/api/v1/connections/{id}"
ROUTES = (
    Route("GET", WHOLE, list_connections, view_broker, parameters=LISTING | FIELDS.keys()),
    Route("GET", ONE, show, view_broker),
    Route("DELETE", ONE, close, edit_broker),
)
