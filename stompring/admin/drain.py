"""``/api/v1/drain`` and ``/api/v1/undrain``: refuse new connections while existing clients continue."""

from __future__ import annotations

from typing import Any

from .access import edit_broker, view_broker
from .api import Answer, Call, Response, Route, json_answer
from .context import AdminContext
from .json_schema import Component, boolean, integer, structure, timestamp


def state(context: AdminContext) -> dict[str, Any]:
    """Whether the broker drains, and what is left."""
    queues = context.broker.directory.queues.values()
    return {
        "draining": context.drain.since is not None,
        "since": context.drain.since,
        "connections": len(context.connections),
        "deliveringCount": sum(queue.delivering for queue in queues),
        "messageCount": sum(queue.message_count for queue in queues),
    }


def show(call: Call) -> Answer:
    return json_answer(state(call.context))


def begin(call: Call) -> Answer:
    call.context.drain.begin()
    return json_answer(state(call.context))


def end(call: Call) -> Answer:
    call.context.drain.end()
    return json_answer(state(call.context))


DRAIN = Component(
    "Drain",
    structure(
        {
            "draining": boolean("Whether new STOMP connections are refused."),
            "since": timestamp("Time of the drain's beginning.", null=True),
            "connections": integer("Open STOMP connections."),
            "deliveringCount": integer("Messages delivered to consumers and not yet acknowledged."),
            "messageCount": integer("Messages in all queues."),
        }
    ),
)
RESPONSES = {200: Response("The state of the drain.", DRAIN)}

ROUTES = (
    Route(
        "GET", "/api/v1/drain", show, view_broker, "drainState", "Show whether the broker drains.", RESPONSES
    ),
    Route(
        "POST",
        "/api/v1/drain",
        begin,
        edit_broker,
        "drain",
        "Refuse new STOMP connections; existing clients continue.",
        RESPONSES,
        "/health/ready answers 503. A restart ends it.",
    ),
    Route(
        "POST",
        "/api/v1/undrain",
        end,
        edit_broker,
        "undrain",
        "Accept STOMP connections again.",
        RESPONSES,
    ),
)
