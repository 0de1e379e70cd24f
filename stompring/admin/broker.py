"""``/api/v1/broker``, ``/api/v1/reload`` and ``/health``: the broker as a whole."""

from __future__ import annotations

from typing import Any

import stompring
from stompring.broker.rejections import LIMITS
from stompring.errors import Refused
from stompring.settings.acceptor import HttpAcceptor, StompAcceptor

from .access import edit_broker, no_permission, view_broker
from .api import Answer, Body, Call, Response, Route, flag, json_answer, view
from .context import AdminContext
from .counters import BROKER, fields_of, memory_percentage
from .json_schema import (
    Component,
    Field,
    Fields,
    array,
    boolean,
    integer,
    keyword,
    number,
    shown,
    string,
    structure,
    timestamp,
)
from .problems import PROBLEM, problems


def live(call: Call) -> Answer:
    return json_answer({"status": "UP"})


def ready(call: Call) -> Answer:
    """200 if every listener is open, the store is writable and the broker is not stopping or draining, else 503.

    So it is while a replicated log does not store, and nothing is delivered.

    The listeners are those of the start: a reload opens none, and HTTP listeners open after STOMP.
    """
    context = call.context
    open_ports = open_listeners(context)
    missing = sorted(
        {name for name, _, _ in context.listening} - {listener["acceptor"] for listener in open_ports}
    )
    disk_fault, store_fault = context.broker.disk.fault, context.broker.storage.write_limit.fault
    draining = context.drain.since is not None
    faults = missing or context.stopping or draining
    replication_fault = context.replication_fault
    up = not faults and disk_fault is None and store_fault is None and replication_fault is None
    details = {
        "status": "UP" if up else "DOWN",
        "stopping": context.stopping,
        "draining": draining,
        "listeners": open_ports,
        "missingListeners": missing,
        "diskFault": disk_fault,
        "storeFault": store_fault,
        "replicationFault": replication_fault,
    }
    return json_answer(details, status=200 if up else 503)


def open_listeners(context: AdminContext) -> list[dict[str, Any]]:
    """Acceptor, host and port of each open listener."""
    bound = {
        getattr(port.getHost(), "port", None) for port in context.ports if getattr(port, "connected", True)
    }
    return [
        {"acceptor": name, "host": host, "port": port, **_protocols(context.acceptors.get(name))}
        for name, host, port in context.listening
        if port in bound
    ]


def _protocols(acceptor: StompAcceptor | HttpAcceptor | None) -> dict[str, Any]:
    protocols, path = ["HTTP"], None
    if isinstance(acceptor, StompAcceptor):
        websocket = acceptor.websocket
        over_websocket = websocket.only or websocket.web_socket_upgrade
        protocols = [*([] if websocket.only else ["STOMP"]), *(["WebSocket"] if over_websocket else [])]
        path = (websocket.path or "/") if over_websocket else None
    return {
        "protocols": protocols,
        "tls": acceptor is not None and acceptor.tls is not None,
        "webSocket": path,
    }


def policy_errors(context: AdminContext) -> list[dict[str, Any]]:
    """Errors of address policies since the broker started."""
    return [
        {"policy": policy, "hook": hook, "count": count}
        for (policy, hook), count in context.broker.policies.errors.items()
    ]


LISTENER = Component(
    "Listener",
    structure(
        {
            "acceptor": string("Name of the acceptor in broker.xml."),
            "host": string("Configured host."),
            "port": integer("Bound port.", None),
            "protocols": array(
                {"enum": ["STOMP", "WebSocket", "HTTP"]}, "What clients may speak; WebSocket: STOMP over it."
            ),
            "tls": boolean("Whether clients must use TLS."),
            "webSocket": string("Path of WebSockets; null: the listener accepts none.", null=True),
        }
    ),
)
POLICY_ERROR = structure(
    {
        "policy": string("Name of the policy in broker.xml."),
        "hook": string("Name of the hook."),
        "count": integer("Number of errors.", 1),
    }
)
REFUSALS = structure(
    {limit: integer(f"Rejected because of {limit}.") for limit in LIMITS},
    "Connections, frames and requests rejected because a limit was reached, by limit.",
)

FIELDS: Fields[AdminContext] = {
    "name": Field(lambda s: s.configuration.name, string("Name of the broker.")),
    "version": Field(lambda s: stompring.__version__, string("Version of stompring.")),
    "build": Field(
        lambda s: stompring.build(),
        keyword(stompring.BUILDS, "compiled: the modules of the hot path run as extension modules."),
    ),
    "reactor": Field(
        lambda s: s.reactor_name,
        string("Event loop: stompring, or the class of Twisted's stock one, as EPollReactor."),
    ),
    "started": Field(lambda s: s.broker.started_at, timestamp("Start of the broker.")),
    **fields_of(BROKER),
    "addressMemoryUsagePercentage": Field(
        memory_percentage, number("addressMemoryUsage in percent of globalMaxSize; 0: no limit.")
    ),
    "listeners": Field(open_listeners, array(LISTENER, "Open listeners.")),
    "policyErrors": Field(
        policy_errors, array(POLICY_ERROR, "Errors of address policies, by policy and hook.")
    ),
    "refusals": Field(lambda s: s.broker.rejections.counts, REFUSALS),
    "stopping": Field(lambda s: s.stopping, boolean("Whether the broker is stopping.")),
    "draining": Field(
        lambda s: s.drain.since is not None, boolean("Whether new STOMP connections are refused.")
    ),
    "problems": Field(
        problems, array(PROBLEM, "What is wrong now, errors first: severity, text, and address or queue.")
    ),
    "configurationFile": Field(
        lambda s: s.configuration.file, string("Path of the broker.xml in use.", null=True)
    ),
    "securityEnabled": Field(lambda s: s.security is not None, boolean("Whether security is enabled.")),
    "persistenceEnabled": Field(
        lambda s: s.configuration.persistence_enabled, boolean("Whether durable messages survive a restart.")
    ),
}


def show(call: Call) -> Answer:
    return json_answer(view(call.context, FIELDS))


def reload(call: Call) -> Answer:
    if call.context.configuration.file is None:
        raise Refused("The broker has no configuration file to reload")
    dry = flag("dryRun", call.body.get("dryRun", False))
    outcome = call.context.preview_reload() if dry else call.context.reload()
    if outcome.refused is not None:
        raise Refused(outcome.refused)
    return json_answer(
        {
            "configurationFile": call.context.configuration.file,
            "applied": outcome.applied,
            "restartRequired": outcome.restart_required,
            "failed": outcome.failed,
            "dryRun": dry,
            "warnings": outcome.warnings,
            "ignored": outcome.ignored,
            "changes": [
                {
                    "what": change.what,
                    "name": change.name,
                    "setting": change.setting,
                    "before": change.before,
                    "after": change.after,
                    "restart": change.restart,
                }
                for change in outcome.changes
            ],
        }
    )


TEXTS = {"type": "string"}
CHANGED_VALUE = structure(
    {
        "what": keyword(
            ("broker", "address-setting", "security-setting", "broker-plugin", "divert", "queue"),
            "Kind of object.",
        ),
        "name": string(
            "match of the setting, or name of the plugin, divert or queue; null for the broker.", null=True
        ),
        "setting": string("Name in broker.xml."),
        "before": {"description": "Value in force; null: not set."},
        "after": {"description": "Value of the file; null: not set."},
        "restart": boolean("Whether the change needs a restart."),
    }
)
RELOAD = structure(
    {
        "configurationFile": string("Path of the file."),
        "applied": array(TEXTS, "Changes applied by this reload."),
        "restartRequired": array(TEXTS, "Differences from the running configuration that need a restart."),
        "failed": array(TEXTS, "Changes that failed, with the reason."),
        "dryRun": boolean("Whether nothing was changed: the answer tells what a reload would do."),
        "warnings": array(TEXTS, "Warnings about the file."),
        "ignored": array(TEXTS, "Settings of Artemis in the file that have no effect here."),
        "changes": array(CHANGED_VALUE, "Values that differ; those of acceptors are not shown."),
    }
)
LIVENESS = Component("Liveness", structure({"status": {"const": "UP"}}))
READINESS = Component(
    "Readiness",
    structure(
        {
            "status": {"enum": ["UP", "DOWN"]},
            "stopping": boolean("Whether the broker is stopping."),
            "draining": boolean("Whether new STOMP connections are refused."),
            "listeners": array(LISTENER, "Open listeners."),
            "missingListeners": array(TEXTS, "Acceptors whose listener is not open."),
            "diskFault": string("Reason why the disk counts as full, or null.", null=True),
            "storeFault": string("Reason why writes to the store fail, or null.", null=True),
            "replicationFault": string(
                "Reason why no message is delivered: the replicated log does not store; or null.", null=True
            ),
        }
    ),
)

ROUTES = (
    Route(
        "GET",
        "/health/live",
        live,
        no_permission,
        "live",
        "Check that the process responds.",
        {200: Response("The process responds.", LIVENESS)},
        public=True,
    ),
    Route(
        "GET",
        "/health/ready",
        ready,
        no_permission,
        "ready",
        "Check that the broker can serve clients.",
        {
            200: Response(
                "Every listener is open, the store is writable, and the broker is not stopping or draining.",
                READINESS,
            ),
            503: Response("The broker cannot serve all clients.", READINESS),
        },
        public=True,
    ),
    Route(
        "GET",
        "/api/v1/broker",
        show,
        view_broker,
        "broker",
        "Show the broker.",
        {200: Response("The broker.", Component("Broker", structure(shown(FIELDS))))},
    ),
    Route(
        "POST",
        "/api/v1/reload",
        reload,
        edit_broker,
        "reload",
        "Reload broker.xml, as SIGHUP does.",
        {200: Response("The changes that were applied.", RELOAD)},
        "A file with an error changes nothing; detail contains the error and its line. With dryRun nothing is changed: "
        "the answer is that of a reload now.",
        body=Body(
            {"dryRun": boolean("Show what a reload would do, without changing anything.")}, optional=True
        ),
        errors=(409,),
    ),
)
