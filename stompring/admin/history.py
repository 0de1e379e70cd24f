"""``/history``: rates and gauges of the broker, a queue, an address or a connection over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps

from stompring.broker.history import RESOLUTIONS, History

from .addresses import address_of
from .api import (
    Call,
    Json,
    Parameter,
    PermissionRule,
    Problem,
    Response,
    Route,
    route,
    view_address,
    view_broker,
    view_queue,
)
from .connections import CONNECTION_ID, session_of
from .json_schema import Schema, array, integer, structure
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

MEANINGS = {
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


def _answer(call: Call, history: History | None, names: Sequence[str]) -> Json:
    """The points of the requested resolution and time. Raises 400."""
    name = call.query.text("resolution")
    resolution = 0 if name is None else NAMES.get(name)
    if resolution is None:
        text = f"resolution must be {', '.join(NAMES)}, not {name!r}"
        raise Problem(400, text, parameter="resolution")
    seconds, most = RESOLUTIONS[resolution]
    sampler = call.context.sampler
    shift = sampler.shift()
    end = sampler.memory.second // seconds
    since = call.query.number("since", 0, 0) - shift
    first = min(end, max(end - most, -(-since // (seconds * 1000))))
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
        name: array(point, f"{MEANINGS[name]}{' Per second.' if name in rates else ''}")
        for name in (*rates, *gauges)
    }
    schema = structure(
        {
            "resolution": integer("Length of a point in milliseconds.", minimum=1000),
            "start": integer("Beginning of the first point. Milliseconds since the epoch.", minimum=None),
            "series": structure(series, "One number per point, the oldest first; null where it is unknown."),
        }
    )
    return Response("The points.", schema)


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


def _history(
    where: str,
    permissions: PermissionRule,
    rates: Sequence[str],
    gauges: Sequence[str],
    *parameters: Parameter,
) -> Callable[[Callable[[Call], History | None]], Route]:
    """Make a function that finds a history the route that shows it."""

    def make(find: Callable[[Call], History | None]) -> Route:
        @wraps(find)
        def answer(call: Call) -> Json:
            return _answer(call, find(call), (*rates, *gauges))

        response = _response(rates, gauges)
        return route(where, permissions, response, parameters=(*parameters, RESOLUTION, SINCE))(answer)

    return make


@_history("GET /api/v1/broker/history", view_broker, BROKER_RATES, BROKER_GAUGES)
def show_broker_history(call: Call) -> History | None:
    """Show rates and gauges of the broker over time.

    Empty series where nothing is known.
    """
    return call.context.sampler.history


@_history("GET /api/v1/queues/{name}/history", view_queue, QUEUE_RATES, QUEUE_GAUGES)
def show_queue_history(call: Call) -> History | None:
    """Show rates and gauges of a queue over time.

    Empty series where nothing is known.
    """
    return queue_of(call).history


@_history("GET /api/v1/addresses/{name}/history", view_address, ADDRESS_RATES, QUEUE_GAUGES)
def show_address_history(call: Call) -> History | None:
    """Show rates and gauges of an address over time.

    Empty series where nothing is known.
    """
    return address_of(call).history


@_history(
    "GET /api/v1/connections/{id}/history", view_broker, CONNECTION_RATES, CONNECTION_GAUGES, CONNECTION_ID
)
def show_connection_history(call: Call) -> History | None:
    """Show rates and gauges of a connection over time.

    Empty series where nothing is known.
    """
    return session_of(call).history
