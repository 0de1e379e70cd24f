"""``/api/v1/broker`` and ``/api/v1/reload``: the broker as a whole."""

from __future__ import annotations

import stompring
from stompring.errors import Refused

from .answer import Answer, json_answer
from .broker_counters import BROKER, memory_percentage
from .counters import readers
from .health import open_listeners
from .listing import Fields, view
from .needs import edit_broker, view_broker
from .routes import Call, Route
from .served import Served

FIELDS: Fields[Served] = {
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
    return json_answer(view(call.served, FIELDS))


def reload(call: Call) -> Answer:
    """Read broker.xml again, as SIGHUP does. A broken file is refused with its fault, and changes nothing."""
    if call.served.configuration.file is None:
        raise Refused("The broker was not configured from a file")
    outcome = call.served.reload()
    if outcome.refused is not None:
        raise Refused(outcome.refused)
    return json_answer(
        {
            "configurationFile": call.served.configuration.file,
            "applied": outcome.applied,
            "restartRequired": outcome.restart_required,
            "failed": outcome.failed,
        }
    )


ROUTES = (
    Route("GET", "/api/v1/broker", show, view_broker),
    Route("POST", "/api/v1/reload", reload, edit_broker),
)
