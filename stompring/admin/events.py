"""``/api/v1/events``: recent events of the broker, as a list or as a stream of Server-Sent Events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from stompring.broker.clock import cancel
from stompring.broker.notifications import HEADERS, MAX_EVENTS, TYPES, Event, Notifications
from stompring.session.destination import Authorizer

from .api import (
    MANAGEMENT,
    VIEW,
    Answer,
    Call,
    Json,
    Parameter,
    Problem,
    Response,
    encode,
    manages,
    route,
    view_broker,
)
from .context import AdminContext
from .json_schema import Component, array, integer, string, structure, timestamp

EVENT_STREAM = "text/event-stream"

#: Maximum and default number of events of a list.
MAX_SIZE = MAX_EVENTS * len(TYPES)

#: Streams of one broker at a time.
MAX_STREAMS = 50

#: Events that may wait for a client that does not read; with more its stream ends.
MAX_WAITING = 1000

#: Seconds after which a comment is sent while nothing happens. Proxies close connections that are silent for longer.
KEEP_ALIVE = 15.0

#: Milliseconds after which a browser connects again.
RETRY = 3000

#: Events of one piece.
EVENTS_PER_PIECE = 50

#: Ends of a stream and gaps in it are events without an id.
STREAM_ENDED, EVENTS_LOST = "STREAM_ENDED", "EVENTS_LOST"


def described(event: Event) -> dict[str, Any]:
    """An event as a JSON object."""
    return {
        "id": event.id,
        "time": event.time,
        "type": event.type,
        "text": event.text,
        **dict(event.fields),
    }


def _selected(call: Call) -> frozenset[str]:
    """The requested types; none: all. Raises 400."""
    types = frozenset(call.query.all("type[]"))
    unknown = sorted(types - TYPES.keys())
    if unknown:
        raise Problem(400, f"type[]: unknown type {unknown[0]!r}", parameter="type[]")
    return types


def _last_seen(call: Call) -> int | None:
    """The id after which events are wanted. Raises 400."""
    if call.query.text("since") is not None:
        return call.query.number("since", 0, 0)
    number = call.last_event_id
    return int(number) if number and number.isascii() and number.isdigit() and len(number) < 19 else None


class EventStream:
    """The events of one client, as pieces of an answer."""

    def __init__(self, context: AdminContext, authorizer: Authorizer, types: frozenset[str]) -> None:
        self._context = context
        self._notifications: Notifications = context.broker.notifications
        self._authorizer = authorizer
        self._types = types
        self._waiting: deque[Event] = deque()
        self._reason: str | None = None  # why it ends
        self._sleep: Deferred[None] | None = None
        self._timer: IDelayedCall | None = None

    def pieces(self, since: int | None) -> Iterator[bytes | Deferred[None]]:
        """The stream, from the event after ``since`` on. A Deferred fires when there is more."""
        notifications = self._notifications
        try:
            if since is not None:
                if notifications.has_lost(since):
                    text = (
                        f"events after {since} are not known: the broker was restarted, or they were too many"
                    )
                    yield self._notice(EVENTS_LOST, text)
                    since = since if since <= notifications.last_id else 0
                self._waiting.extend(event for event in notifications.since(since) if self._wants(event))
            notifications.listeners[self._add] = None
            yield b"retry: %d\n: stompring events\n\n" % RETRY
            while self._reason is None or self._waiting:
                if not self._may_read():
                    self._end("the permission view on activemq.management was revoked")
                    self._waiting.clear()
                elif self._waiting:
                    yield self._next_piece()
                else:
                    yield self._wait()
                    if not self._waiting and self._reason is None:
                        yield b": keep-alive\n\n"
            yield self._notice(STREAM_ENDED, self._reason or "")
        finally:
            notifications.listeners.pop(self._add, None)
            self._wake()

    def _notice(self, kind: str, text: str) -> bytes:
        """About the stream itself: without an id, so that the client keeps that of the last event."""
        return _piece(kind, {"time": self._context.broker.clock.now, "type": kind, "text": text})

    def _wants(self, event: Event) -> bool:
        return not self._types or event.type in self._types

    def _may_read(self) -> bool:
        return manages(self._authorizer) or self._authorizer.allows(VIEW, MANAGEMENT)

    def _next_piece(self) -> bytes:
        waiting = self._waiting
        events = [waiting.popleft() for _ in range(min(len(waiting), EVENTS_PER_PIECE))]
        return b"".join(_piece(event.type, described(event), event.id) for event in events)

    def _add(self, event: Event) -> None:
        if self._wants(event):
            self._waiting.append(event)
        if event.type == "SHUTDOWN":
            self._end("the broker is stopping")
        elif len(self._waiting) > MAX_WAITING:
            self._waiting.clear()
            self._end(f"the client did not read {MAX_WAITING} events")
        if self._waiting or self._reason is not None:
            self._wake()

    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._notifications.listeners.pop(self._add, None)

    def _wait(self) -> Deferred[None]:
        self._sleep = Deferred()
        self._timer = self._context.reactor.callLater(KEEP_ALIVE, self._wake)
        return self._sleep

    def _wake(self) -> None:
        timer, self._timer = self._timer, None
        cancel(timer)
        sleep, self._sleep = self._sleep, None
        if sleep is not None:
            sleep.callback(None)


def _piece(kind: str, data: dict[str, Any], number: int | None = None) -> bytes:
    head = "" if number is None else f"id: {number}\n"
    return f"{head}event: {kind}\n".encode() + b"data: " + encode(data) + b"\n\n"


MEANINGS = {
    "bridge": "Name of the bridge.",
    "queue": "Queue.",
    "address": "Address.",
    "routingType": "Routing type of a new queue, or of an address.",
    "filter": "Selector of the queue or the consumer.",
    "consumer": "Id of the subscription.",
    "consumerCount": "Consumers of the queue after the event.",
    "connectionID": "Id of the connection.",
    "clientID": "The client-id header of CONNECT.",
    "user": "User.",
    "remoteAddress": "Address and port of the client.",
}

EVENT = Component(
    "Event",
    structure(
        {
            "id": integer("Number of the event; later events, also after a restart, have higher ones."),
            "time": timestamp("Time of the event."),
            "type": string("Type of the event.", enum=list(TYPES)),
            "text": string("Description for people."),
            **{
                name: integer(MEANINGS[name]) if name == "consumerCount" else string(MEANINGS[name])
                for name in HEADERS
            },
        },
        required=("id", "time", "type", "text"),
    ),
)
EVENTS = structure(
    {
        "data": array(EVENT, "Events, the newest last."),
        "count": integer("Number of events that match."),
    }
)


@route(
    "GET /api/v1/events",
    view_broker,
    Response("The events, or a stream of Server-Sent Events.", EVENTS, ("application/json", EVENT_STREAM)),
    parameters=(
        Parameter(
            "since",
            "Only events with a higher id.",
            {"type": "integer", "minimum": 0},
            component="eventsSince",
        ),
        Parameter(
            "type[]",
            "Only events of these types.",
            {"type": "array", "items": {"type": "string", "enum": list(TYPES)}},
            component="eventTypes",
        ),
        Parameter(
            "size",
            "Maximum number of events of a list: the newest.",
            {"type": "integer", "minimum": 1, "maximum": MAX_SIZE, "default": MAX_SIZE},
            component="eventsSize",
        ),
    ),
    errors=(503,),
)
def show_events(call: Call) -> Answer | Json:
    """List recent events of the broker, or stream events as they happen.

    With Accept: text/event-stream the answer is a stream: events after `since` or the header Last-Event-ID, then
    events as they happen.
    """
    types, since = _selected(call), _last_seen(call)
    notifications = call.context.broker.notifications
    if EVENT_STREAM in call.accept.lower():
        if len(notifications.listeners) >= MAX_STREAMS:
            raise Problem(503, f"More than {MAX_STREAMS} streams of events are open", {"Retry-After": "10"})
        stream = EventStream(call.context, call.authorizer, types)
        return Answer(stream.pieces(since), content_type=EVENT_STREAM, headers={"X-Accel-Buffering": "no"})
    size = call.query.number("size", MAX_SIZE, 1, MAX_SIZE)
    found = [event for event in notifications.since(since or 0) if not types or event.type in types]
    return {"data": [described(event) for event in found[-size:]], "count": len(found)}
