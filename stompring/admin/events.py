"""History and events of the broker over HTTP.

``…/history``: rates and gauges of the broker, a queue, an address or a connection over time.

``/api/v1/events``: recent events of the broker, as a list or as a stream of Server-Sent Events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from twisted.internet.defer import Deferred

from stompring.broker.history import RESOLUTIONS, History
from stompring.broker.notifications import HEADERS, MAX_EVENTS, TYPES, Event, Notifications

from .addresses import address_of
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
    view_address,
    view_broker,
    view_queue,
)
from .connections import session_of
from .json_schema import Component, JsonObject, Schema, array, integer, string, structure, timestamp
from .queues import queue_of
from .sampler import (
    ADDRESS_RATES,
    BROKER_GAUGES,
    BROKER_RATES,
    CONNECTION_GAUGES,
    CONNECTION_RATES,
    DISK_UNIT,
    QUEUE_GAUGES,
    QUEUE_RATES,
)

NAMES = {"1s": 0, "10s": 1, "1m": 2}

#: The meaning of each series.
SERIES = {
    "added": "Messages added to queues.",
    "delivered": "Messages delivered to consumers, each delivery counted.",
    "acknowledged": "Messages acknowledged by consumers, or removed one by one by management.",
    "redelivered": "Messages that came back from a consumer, to be delivered again.",
    "evicted": "Messages evicted because a ring was full.",
    "expired": "Messages expired.",
    "killed": "Messages removed after max-delivery-attempts, by a purge, or with their queue.",
    "paged": "Messages by which pagedCount grew.",
    "unrouted": "Messages sent to the address and routed to no queue.",
    "dropped": "Messages dropped because the address, its pages or the disk were full (DROP), or by a plugin.",
    "sent": "SEND frames received from the client.",
    "messageCount": "Messages in queues: pending, scheduled, delivering and paged.",
    "deliveringCount": "Messages delivered to a consumer and not yet acknowledged.",
    "scheduledCount": "Scheduled messages that are not due yet.",
    "pagedCount": "Pending messages that are only on disk.",
    "connectionCount": "Open STOMP connections.",
    "memoryUsage": "Memory of all messages, in bytes.",
    "diskUsage": "Used share of the disk of journal and pages, 0 to 1; 0 without persistence.",
    "outgoingBytes": "Bytes that wait to be read by the client.",
}


def _answer(call: Call, history: History | None, rates: Sequence[str], gauges: Sequence[str]) -> Json:
    """Return the series of a history as JSON. The request names their resolution and start. Raises `Problem` 400."""
    name = call.query.text("resolution")
    resolution = 0 if name is None else NAMES.get(name)
    if resolution is None:
        raise Problem(400, f"resolution must be {', '.join(NAMES)}, not {name!r}", parameter="resolution")
    seconds, most = RESOLUTIONS[resolution]
    sampler = call.context.sampler
    shift = sampler.shift()
    end = sampler.memory.second // seconds
    since = call.query.number("since", 0, 0) - shift
    first = min(end, max(end - most, -(-since // (seconds * 1000))))
    names = (*rates, *gauges)
    points: list[list[float | None]] = [[] for _ in names]
    if history is not None:
        points = history.points(resolution, first)
    series = dict(zip(names, points, strict=True))
    if "diskUsage" in series:
        series["diskUsage"] = [None if each is None else each / DISK_UNIT for each in series["diskUsage"]]
    return {"resolution": seconds * 1000, "start": first * seconds * 1000 + shift, "series": series}


def _response(rates: Sequence[str], gauges: Sequence[str]) -> Response:
    point: Schema = {"type": ["number", "null"], "minimum": 0}
    series: dict[str, Schema] = {
        name: array(point, f"{SERIES[name]}{' Per second.' if name in rates else ''}")
        for name in (*rates, *gauges)
    }
    return Response(
        "The points.",
        structure(
            {
                "resolution": integer("Length of a point in milliseconds.", minimum=1000),
                "start": integer("Beginning of the first point. Milliseconds since the epoch.", minimum=None),
                "series": structure(series, "One number per point, the oldest first; null if unknown."),
            }
        ),
    )


RESOLUTION = Parameter(
    "resolution",
    "Length of a point: 1s for 5 minutes, 10s for an hour, 1m for a day.",
    {"type": "string", "enum": list(NAMES), "default": "1s"},
)
SINCE = Parameter(
    "since",
    "Only points that begin at this time (milliseconds since the epoch) or later.",
    {"type": "integer", "minimum": 0, "default": 0},
    component="historySince",
)


HISTORY = (RESOLUTION, SINCE)


@route("GET /api/v1/broker/history", view_broker, _response(BROKER_RATES, BROKER_GAUGES), parameters=HISTORY)
def show_broker_history(call: Call) -> Json:
    """Show rates and gauges of the broker over time.

    The series are empty without samples.
    """
    return _answer(call, call.context.sampler.history, BROKER_RATES, BROKER_GAUGES)


@route(
    "GET /api/v1/queues/{name}/history", view_queue, _response(QUEUE_RATES, QUEUE_GAUGES), parameters=HISTORY
)
def show_queue_history(call: Call) -> Json:
    """Show rates and gauges of a queue over time.

    The series are empty without samples.
    """
    return _answer(call, queue_of(call).history, QUEUE_RATES, QUEUE_GAUGES)


@route(
    "GET /api/v1/addresses/{name}/history",
    view_address,
    _response(ADDRESS_RATES, QUEUE_GAUGES),
    parameters=HISTORY,
)
def show_address_history(call: Call) -> Json:
    """Show rates and gauges of an address over time.

    The series are empty without samples.
    """
    return _answer(call, address_of(call).history, ADDRESS_RATES, QUEUE_GAUGES)


@route(
    "GET /api/v1/connections/{id}/history",
    view_broker,
    _response(CONNECTION_RATES, CONNECTION_GAUGES),
    parameters=HISTORY,
)
def show_connection_history(call: Call) -> Json:
    """Show rates and gauges of a connection over time.

    The series are empty without samples.
    """
    return _answer(call, session_of(call).history, CONNECTION_RATES, CONNECTION_GAUGES)


EVENT_STREAM = "text/event-stream"

#: Maximum and default number of events of a list.
MAX_SIZE = MAX_EVENTS * len(TYPES)

#: Maximum number of concurrent streams of a broker.
MAX_STREAMS = 50

#: Maximum number of events that wait for a slow client. One more event ends the client's stream.
MAX_WAITING = 1000

#: Seconds without an event after which the stream sends a comment: proxies close connections that are idle for longer.
KEEP_ALIVE = 15.0

#: Milliseconds after which a browser reconnects.
RETRY = 3000

#: Maximum number of events in one piece of the stream.
EVENTS_PER_PIECE = 50

#: Types of two events without an id: the stream ends; the stream lacks earlier events.
STREAM_ENDED, EVENTS_LOST = "STREAM_ENDED", "EVENTS_LOST"


def described(event: Event) -> JsonObject:
    """An event as a JSON object."""
    return {"id": event.id, "time": event.time, "type": event.type, "text": event.text, **dict(event.fields)}


def _last_seen(call: Call) -> int | None:
    """The id of the last event that the client has received, None without one. Raises 400."""
    if call.query.text("since") is not None:
        return call.query.number("since", 0, 0)
    number = call.last_event_id
    return int(number) if number and number.isascii() and number.isdigit() and len(number) < 19 else None


class EventStream:
    """The events of one client, as pieces of an answer."""

    _reason = ""  # why the stream ends
    _sleep: Deferred[None] | None = None

    def __init__(self, call: Call, types: frozenset[str]) -> None:
        self._context = call.context
        self._notifications: Notifications = call.context.broker.notifications
        self._authorizer = call.authorizer
        self._types = types
        self._waiting: deque[Event] = deque()

    def pieces(self, since: int | None) -> Iterator[bytes | Deferred[None]]:
        """Yield the pieces of the stream, with the events after the id ``since``; None: only events from now on.

        A yielded Deferred fires at the next event, or after `KEEP_ALIVE` seconds.
        """
        notifications, waiting = self._notifications, self._waiting
        try:
            if since is not None:
                if notifications.has_lost(since):
                    yield self._notice(
                        EVENTS_LOST,
                        f"events after {since} are not known: the broker was restarted, or they were too many",
                    )
                    since = since if since <= notifications.last_id else 0
                waiting.extend(event for event in notifications.since(since) if self._wants(event))
            notifications.listeners[self._add] = None
            yield b"retry: %d\n: stompring events\n\n" % RETRY
            while not self._reason or waiting:
                if not (manages(self._authorizer) or self._authorizer.allows(VIEW, MANAGEMENT)):
                    self._end("the permission view on activemq.management was revoked")
                    waiting.clear()
                elif waiting:
                    taken = [waiting.popleft() for _ in range(min(len(waiting), EVENTS_PER_PIECE))]
                    yield b"".join(_piece(event.type, described(event), event.id) for event in taken)
                else:
                    self._sleep = Deferred()
                    yield self._sleep.addTimeout(KEEP_ALIVE, self._context.reactor, lambda *_: None)
                    if not waiting and not self._reason:
                        yield b": keep-alive\n\n"
            yield self._notice(STREAM_ENDED, self._reason)
        finally:
            notifications.listeners.pop(self._add, None)
            self._wake()

    def _notice(self, kind: str, text: str) -> bytes:
        """Return an event about the stream itself. It has no id: the client keeps the id of the last other event."""
        return _piece(kind, {"time": self._context.broker.clock.now, "type": kind, "text": text})

    def _wants(self, event: Event) -> bool:
        return not self._types or event.type in self._types

    def _add(self, event: Event) -> None:
        if self._wants(event):
            self._waiting.append(event)
        if event.type == "SHUTDOWN":
            self._end("the broker is stopping")
        elif len(self._waiting) > MAX_WAITING:
            self._waiting.clear()
            self._end(f"the client did not read {MAX_WAITING} events")
        if self._waiting or self._reason:
            self._wake()

    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._notifications.listeners.pop(self._add, None)

    def _wake(self) -> None:
        sleep, self._sleep = self._sleep, None
        if sleep is not None:
            sleep.callback(None)


def _piece(kind: str, data: JsonObject, number: int | None = None) -> bytes:
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
    types = frozenset(call.query.all("type[]"))  # empty: all types
    unknown = sorted(types - TYPES.keys())
    if unknown:
        raise Problem(400, f"type[]: unknown type {unknown[0]!r}", parameter="type[]")
    since = _last_seen(call)
    notifications = call.context.broker.notifications
    if EVENT_STREAM in call.accept.lower():
        if len(notifications.listeners) >= MAX_STREAMS:
            raise Problem(503, f"More than {MAX_STREAMS} streams of events are open", {"Retry-After": "10"})
        return Answer(
            EventStream(call, types).pieces(since),
            content_type=EVENT_STREAM,
            headers={"X-Accel-Buffering": "no"},
        )
    size = call.query.number("size", MAX_SIZE, 1, MAX_SIZE)
    found = [event for event in notifications.since(since or 0) if not types or event.type in types]
    return {"data": [described(event) for event in found[-size:]], "count": len(found)}
