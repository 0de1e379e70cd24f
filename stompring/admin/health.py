"""``GET /health/live`` and ``/health/ready``, for whoever starts and stops brokers."""

from __future__ import annotations

from typing import Any

from .answer import Answer, json_answer
from .needs import nothing
from .routes import Call, Route
from .served import Served


def live(call: Call) -> Answer:
    """200 as long as the process serves: an answer is all that is asked for."""
    return json_answer({"status": "UP"})


def ready(call: Call) -> Answer:
    """200 while every listener is open, what must be kept can be written, and the broker is not stopping, else 503.

    Listeners are those that the broker was started with: a reload opens none, and HTTP comes after STOMP.
    """
    served = call.served
    open_ports = open_listeners(served)
    missing = sorted(
        {name for name, _, _ in served.listening} - {listener["acceptor"] for listener in open_ports}
    )
    disk_fault, store_fault = served.broker.disk.fault, served.broker.storage.room.fault
    up = not served.stopping and not missing and disk_fault is None and store_fault is None
    details = {
        "status": "UP" if up else "DOWN",
        "stopping": served.stopping,
        "listeners": open_ports,
        "missingListeners": missing,
        "diskFault": disk_fault,
        "storeFault": store_fault,
    }
    return json_answer(details, status=200 if up else 503)


def open_listeners(served: Served) -> list[dict[str, Any]]:
    """Where the broker can be reached now."""
    bound = {
        getattr(port.getHost(), "port", None) for port in served.ports if getattr(port, "connected", True)
    }
    return [
        {"acceptor": name, "host": host, "port": port}
        for name, host, port in served.listening
        if port in bound
    ]


ROUTES = (
    Route("GET", "/health/live", live, nothing, public=True),
    Route("GET", "/health/ready", ready, nothing, public=True),
)
