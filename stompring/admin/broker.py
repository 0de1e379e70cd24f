"""``/api/v1/broker``, ``/api/v1/reload`` and ``/health``: the broker as a whole."""

from __future__ import annotations

from typing import Any

import stompring
from stompring.errors import Refused

from .access import edit_broker, no_permission, view_broker
from .api import Answer, Call, Fields, Route, json_answer, view
from .context import AdminContext
from .counters import BROKER, memory_percentage, readers


def live(call: Call) -> Answer:
    """200 as long as the process serves: an answer is all that is asked for."""
    return json_answer({"status": "UP"})


def ready(call: Call) -> Answer:
    """200 while every listener is open, what must be kept can be written, and the broker is not stopping, else 503.

    Listeners are those that the broker was started with: a reload opens none, and HTTP comes after STOMP.
    """
    context = call.context
    open_ports = open_listeners(context)
    missing = sorted(
        {name for name, _, _ in context.listening} - {listener["acceptor"] for listener in open_ports}
    )
    disk_fault, store_fault = context.broker.disk.fault, context.broker.storage.room.fault
    up = not context.stopping and not missing and disk_fault is None and store_fault is None
    details = {
        "status": "UP" if up else "DOWN",
        "stopping": context.stopping,
        "listeners": open_ports,
        "missingListeners": missing,
        "diskFault": disk_fault,
        "storeFault": store_fault,
    }
    return json_answer(details, status=200 if up else 503)


def open_listeners(context: AdminContext) -> list[dict[str, Any]]:
    """Where the broker can be reached now."""
    bound = {
        getattr(port.getHost(), "port", None) for port in context.ports if getattr(port, "connected", True)
    }
    return [
        {"acceptor": name, "host": host, "port": port}
        for name, host, port in context.listening
        if port in bound
    ]


HEALTH_ROUTES = (
    Route("GET", "/health/live", live, no_permission, public=True),
    Route("GET", "/health/ready", ready, no_permission, public=True),
)


FIELDS: Fields[AdminContext] = {
    "name": lambda s: s.configuration.name,
    "version": lambda s: stompring.__version__,
    "started": lambda s: s.broker.started_at,
    **readers(BROKER),
    "addressMemoryUsagePercentage": memory_percentage,
    "listeners": open_listeners,
    "policyErrors": lambda s: [
        {"policy": policy, "hook": hook, "count": number}
        for (policy, hook), number in s.broker.policies.errors.items()
    ],
    "refusals": lambda s: s.broker.refusals.counts,
    "stopping": lambda s: s.stopping,
    "configurationFile": lambda s: s.configuration.file,
    "securityEnabled": lambda s: s.security is not None,
    "persistenceEnabled": lambda s: s.configuration.persistence_enabled,
}


def show(call: Call) -> Answer:
    """Everything about the broker."""
    return json_answer(view(call.context, FIELDS))


def reload(call: Call) -> Answer:
    """Read broker.xml again, as SIGHUP does. A broken file is refused with its fault, and changes nothing."""
    if call.context.configuration.file is None:
        raise Refused("The broker was not configured from a file")
    outcome = call.context.reload()
    if outcome.refused is not None:
        raise Refused(outcome.refused)
    return json_answer(
        {
            "configurationFile": call.context.configuration.file,
            "applied": outcome.applied,
            "restartRequired": outcome.restart_required,
            "failed": outcome.failed,
        }
    )


ROUTES = (
    Route("GET", "/api/v1/broker", show, view_broker),
    Route("POST", "/api/v1/reload", reload, edit_broker),
)
