"""The broker as a whole over HTTP.

The paths are ``/api/v1/broker``, ``/api/v1/reload`` and those below ``/health``. ``/api/v1/broker`` also lists the
current problems: reasons why the broker is not ready, full addresses, memory, disk, policies, certificates.

``/api/v1/drain`` refuses new STOMP connections while existing clients continue, until ``/api/v1/undrain``.
"""

from __future__ import annotations

from collections.abc import Iterator

import stompring
from stompring.broker.address import Address
from stompring.broker.limits import LIMITS
from stompring.broker.queue import Queue
from stompring.errors import Refused, counted
from stompring.session.subscription import Subscription
from stompring.settings.model import FullPolicy, HttpAcceptor, StompAcceptor

from .api import (
    CONFLICT,
    Answer,
    Body,
    Call,
    Json,
    Response,
    edit_broker,
    flag,
    json_answer,
    no_permission,
    route,
    view,
    view_broker,
)
from .context import AdminContext
from .counters import BROKER, fields_of, memory_percentage
from .json_schema import (
    TEXT,
    Component,
    Field,
    Fields,
    JsonObject,
    array,
    boolean,
    integer,
    keyword,
    number,
    object_of,
    string,
    string_or_null,
    structure,
    timestamp,
)

ERROR, WARNING = "error", "warning"

#: Maximum number of problems that one answer lists.
MAX_PROBLEMS = 100

#: Usage of a limit (connections, memory) in percent from which it is reported as a problem.
HIGH_USAGE = 80

#: Percentage points below max-disk-usage from which the usage of the disk is reported as a problem.
DISK_MARGIN = 5

#: Milliseconds before the expiry of a certificate from which the certificate is reported as a problem.
EXPIRY = 30 * 86_400_000

PROBLEM = Component(
    "BrokerProblem",
    structure(
        {
            "severity": string("How bad it is.", enum=[ERROR, WARNING]),
            "text": string("What is wrong."),
            "address": string("Address."),
            "queue": string("Queue."),
        },
        required=("severity", "text"),
    ),
)


def problems(context: AdminContext) -> list[JsonObject]:
    """The current problems, errors first; at most `MAX_PROBLEMS`."""
    found = sorted(_problems(context), key=lambda problem: problem["severity"])
    if len(found) > MAX_PROBLEMS:
        found[MAX_PROBLEMS:] = [_problem(WARNING, f"{len(found) - MAX_PROBLEMS} more problems")]
    return found


def _problem(severity: str, text: str, **names: str) -> JsonObject:
    return {"severity": severity, "text": text, **names}


def _problems(context: AdminContext) -> Iterator[JsonObject]:
    broker, configuration = context.broker, context.configuration
    if context.stopping:
        yield _problem(WARNING, "the broker is stopping")
    if context.drain.since is not None:
        yield _problem(WARNING, "the broker is draining: it refuses new connections")
    # faults of the replicated log, except a full one: ``broker.disk.fault`` reports that
    if context.node is not None:
        fault, log = context.replication_fault, context.node.status().log
        if fault is not None:
            yield _problem(ERROR, f"nothing is delivered: {fault}")
        elif log is not None and not log.healthy:
            yield _problem(
                WARNING,
                "too few nodes of the replicated log answer: one more that is lost stops the broker",
            )
    bound = bound_ports(context)
    for name, host, port in context.listening:
        if port not in bound and not context.stopping:
            yield _problem(ERROR, f"acceptor {name} does not listen on {host}:{port}")
    limit = context.connections.global_limit.limit
    if 0 < limit * HIGH_USAGE <= len(context.connections) * 100:
        yield _problem(
            WARNING, f"{len(context.connections)} of {limit} connections are open (global-max-connections)"
        )
    now = broker.clock.now
    for name, certificate in context.listener_stack.identities():
        left = certificate.not_after.timestamp() * 1000 - now
        if left < EXPIRY:
            subject = f"certificate {certificate.subject} of acceptor {name}"
            when = f"{certificate.not_after:%Y-%m-%d %H:%M} UTC"
            severity, verb = (ERROR, "expired") if left < 0 else (WARNING, "expires")
            yield _problem(severity, f"{subject} {verb} on {when}")
    store_fault = broker.storage.write_limit.fault
    if store_fault is not None:
        yield _problem(ERROR, store_fault)
    reading = None if context.disk_monitor is None else context.disk_monitor.reading
    if broker.disk.fault is not None:
        yield _problem(ERROR, broker.disk.fault)
    elif reading is not None and configuration.min_disk_free < 0:
        most = configuration.max_disk_usage
        if most >= 0 and reading.usage * 100 >= most - DISK_MARGIN:
            yield _problem(
                WARNING, f"the disk is {reading.usage * 100:.1f} % full, max-disk-usage is {most} %"
            )
    memory = broker.memory
    for used, limit, name in (
        (memory.bytes, memory.max_bytes, "global-max-size"),
        (memory.messages, memory.max_messages, "global-max-messages"),
    ):
        if limit > 0 and used * 100 >= limit * HIGH_USAGE:
            severity, full = (ERROR, "memory is full: ") if used >= limit else (WARNING, "")
            yield _problem(severity, f"{full}{used * 100 // limit} % of {name} ({limit}) is in use")
    for address in broker.directory.addresses.values():
        if address.memory_limit.full or address.pages is not None or address.blocked_producers:
            yield _of_address(address)
    # One problem for each queue with stalled consumers. The text names the consumer that has the oldest unacknowledged
    # message.
    stalled = context.sampler.stalled()
    by_queue: dict[Queue, list[Subscription]] = {}
    for consumer in stalled:
        by_queue.setdefault(consumer.queue, []).append(consumer)
    for queue, consumers in by_queue.items():
        worst, count = max(consumers, key=stalled.__getitem__), len(consumers)
        text = (
            f"queue {queue.name}: consumer {worst.connection_id}/{worst.identifier} ({worst.remote}) has held messages "
            f"unacknowledged for {stalled[worst]} seconds while more wait"
        )
        more = f", and {counted(count - 1, 'other consumer')} too" if count > 1 else ""
        yield _problem(WARNING, f"{text}{more}", address=queue.address.name, queue=queue.name)
    for (policy, hook), count in broker.policies.errors.items():
        yield _problem(WARNING, f"policy {policy} failed {counted(count, 'time')} in {hook}: see the log")


def _of_address(address: Address) -> JsonObject:
    name, blocked = address.name, address.blocked_producers
    if blocked:
        many = "1 producer is" if blocked == 1 else f"{blocked} producers are"
        return _problem(ERROR, f"address {name}: {many} blocked", address=name)
    if address.pages is not None:
        return _problem(WARNING, f"address {name} is paging", address=name)
    consequence = {
        FullPolicy.DROP: "messages are dropped",
        FullPolicy.FAIL: "messages are rejected",
        FullPolicy.BLOCK: "producers are blocked",
    }.get(address.policy or FullPolicy.PAGE, "a policy decides about messages")
    return _problem(WARNING, f"{address.describe_full()}: {consequence}", address=name)


def bound_ports(context: AdminContext) -> set[int | None]:
    """The ports of the open listeners."""
    return {
        getattr(port.getHost(), "port", None) for port in context.ports if getattr(port, "connected", True)
    }


def open_listeners(context: AdminContext) -> list[JsonObject]:
    """Acceptor, host and port of each open listener."""
    bound = bound_ports(context)
    return [
        {"acceptor": name, "host": host, "port": port, **_protocols(context.acceptors.get(name))}
        for name, host, port in context.listening
        if port in bound
    ]


def _protocols(acceptor: StompAcceptor | HttpAcceptor | None) -> JsonObject:
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


LISTENER = object_of(
    "Listener",
    {
        "acceptor": string("Name of the acceptor in broker.xml."),
        "host": string("Configured host."),
        "port": integer("Bound port.", minimum=None),
        "protocols": array(
            {"enum": ["STOMP", "WebSocket", "HTTP"]}, "What clients may speak; WebSocket: STOMP over it."
        ),
        "tls": boolean("Whether clients must use TLS."),
        "webSocket": string_or_null("Path of WebSockets; null: the listener accepts none."),
    },
)
POLICY_ERROR = structure(
    {
        "policy": string("Name of the policy in broker.xml."),
        "hook": string("Name of the hook."),
        "count": integer("Number of errors.", minimum=1),
    }
)
REFUSALS = structure(
    {limit: integer(f"Rejected because of {limit}.") for limit in LIMITS},
    "Connections, frames and requests rejected because a limit was reached, by limit.",
)

FIELDS: Fields[AdminContext] = {
    "name": string("Name of the broker.", "configuration.name"),
    "version": string("Version of stompring.", lambda s: stompring.__version__),
    "build": keyword(
        stompring.BUILDS,
        "compiled: the modules of the hot path run as extension modules.",
        lambda s: stompring.build(),
    ),
    "buildAdvice": string_or_null(
        "What the pure Python build costs, and how to get the compiled one; null: it is compiled.",
        lambda s: stompring.advice(),
    ),
    "reactor": string(
        "Event loop: stompring, or the class of Twisted's stock one, as EPollReactor.", "reactor_name"
    ),
    "started": timestamp("Start of the broker.", "broker.started_at"),
    **fields_of(BROKER),
    "addressMemoryUsagePercentage": number(
        "addressMemoryUsage in percent of globalMaxSize; 0: no limit.", memory_percentage
    ),
    "listeners": array(LISTENER, "Open listeners.", open_listeners),
    "policyErrors": array(
        POLICY_ERROR,
        "Errors of address policies, by policy and hook.",
        lambda s: [
            {"policy": policy, "hook": hook, "count": count}
            for (policy, hook), count in s.broker.policies.errors.items()
        ],
    ),
    "refusals": Field(REFUSALS, "broker.rejections.counts"),
    "stopping": boolean("Whether the broker is stopping.", "stopping"),
    "draining": boolean("Whether new STOMP connections are refused.", lambda s: s.drain.since is not None),
    "problems": array(
        PROBLEM, "Current problems, errors first: severity, text, and address or queue.", problems
    ),
    "configurationFile": string_or_null("Path of the broker.xml in use.", "configuration.file"),
    "securityEnabled": boolean("Whether security is enabled.", lambda s: s.security is not None),
    "persistenceEnabled": boolean(
        "Whether durable messages survive a restart.", "configuration.persistence_enabled"
    ),
}


CHANGED_VALUE = structure(
    {
        "what": keyword(
            ("broker", "address-setting", "security-setting", "broker-plugin", "divert", "queue"),
            "Kind of object.",
        ),
        "name": string_or_null(
            "match of the setting, or name of the plugin, divert or queue; null for the broker."
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
        "applied": array(TEXT, "Changes applied by this reload."),
        "restartRequired": array(TEXT, "Differences from the running configuration that need a restart."),
        "failed": array(TEXT, "Changes that failed, with the reason."),
        "dryRun": boolean("Whether nothing was changed: the answer tells what a reload would do."),
        "warnings": array(TEXT, "Warnings about the file."),
        "ignored": array(TEXT, "Settings of Artemis in the file that have no effect here."),
        "changes": array(CHANGED_VALUE, "Values that differ; those of acceptors are not shown."),
    }
)
LIVENESS = object_of("Liveness", {"status": {"const": "UP"}})
READINESS = object_of(
    "Readiness",
    {
        "status": {"enum": ["UP", "DOWN"]},
        "stopping": boolean("Whether the broker is stopping."),
        "draining": boolean("Whether new STOMP connections are refused."),
        "listeners": array(LISTENER, "Open listeners."),
        "missingListeners": array(TEXT, "Acceptors whose listener is not open."),
        "diskFault": string_or_null("Reason why the disk counts as full, or null."),
        "storeFault": string_or_null("Reason why writes to the store fail, or null."),
        "replicationFault": string_or_null(
            "Reason why no message is delivered: the replicated log does not store; or null."
        ),
        "loginFault": string_or_null(
            "Reason why the last login could not be checked: a directory does not answer; or null. Connections go on, "
            "and the status stays UP."
        ),
    },
)


DRAIN: Fields[AdminContext] = {
    "draining": FIELDS["draining"],
    "since": timestamp("Time of the drain's beginning.", "drain.since", null=True),
    "connections": integer("Open STOMP connections.", lambda context: len(context.connections)),
    "deliveringCount": integer(
        "Messages delivered to consumers and not yet acknowledged.",
        lambda context: sum(queue.delivering for queue in context.broker.directory.queues.values()),
    ),
    "messageCount": integer(
        "Messages in all queues.",
        lambda context: sum(queue.message_count for queue in context.broker.directory.queues.values()),
    ),
}
DRAIN_STATE = Response("The state of the drain.", object_of("Drain", DRAIN))


@route("GET /health/live", no_permission, Response("The process responds.", LIVENESS), public=True)
def live(call: Call) -> Json:
    """Check that the process responds."""
    return {"status": "UP"}


@route(
    "GET /health/ready",
    no_permission,
    Response(
        "Every listener is open, the store is writable, and the broker is not stopping or draining.",
        READINESS,
    ),
    Response("The broker cannot serve all clients.", READINESS, status=503),
    public=True,
)
def ready(call: Call) -> Answer:
    """Check that the broker can serve clients."""
    # The status is 200 if every listener is open, the store and the replicated log are writable, and the broker is
    # not stopping or draining, else 503. Only the start of the broker opens listeners, a reload does not. The HTTP
    # listeners open after the STOMP listeners.
    context = call.context
    open_ports = open_listeners(context)
    missing = sorted(
        {name for name, _, _ in context.listening} - {listener["acceptor"] for listener in open_ports}
    )
    disk_fault, store_fault = context.broker.disk.fault, context.broker.storage.write_limit.fault
    draining, replication_fault = context.drain.since is not None, context.replication_fault
    up = not (missing or context.stopping or draining or disk_fault or store_fault or replication_fault)
    return json_answer(
        {
            "status": "UP" if up else "DOWN",
            "stopping": context.stopping,
            "draining": draining,
            "listeners": open_ports,
            "missingListeners": missing,
            "diskFault": disk_fault,
            "storeFault": store_fault,
            "replicationFault": replication_fault,
            "loginFault": None if context.security is None else context.security.logins.fault,
        },
        status=200 if up else 503,
    )


@route("GET /api/v1/broker", view_broker, Response("The broker.", object_of("Broker", FIELDS)))
def show_broker(call: Call) -> Json:
    """Show the broker."""
    return view(call.context, FIELDS)


@route(
    "POST /api/v1/reload",
    edit_broker,
    Response("The changes that were applied.", RELOAD),
    body=Body({"dryRun": boolean("Show what a reload would do, without changing anything.")}, optional=True),
    errors=CONFLICT,
)
def reload(call: Call) -> Json:
    """Reload broker.xml, as SIGHUP does.

    A file with an error changes nothing; detail contains the error and its line. With dryRun the broker changes
    nothing, and reports what a reload would change now.
    """
    if call.context.configuration.file is None:
        raise Refused("The broker has no configuration file to reload")
    dry = flag("dryRun", call.body.get("dryRun", False))
    outcome = call.context.preview_reload() if dry else call.context.reload()
    if outcome.refused is not None:
        raise Refused(outcome.refused)
    return {
        "configurationFile": call.context.configuration.file,
        "applied": outcome.applied,
        "restartRequired": outcome.restart_required,
        "failed": outcome.failed,
        "dryRun": dry,
        "warnings": outcome.warnings,
        "ignored": outcome.ignored,
        "changes": [change._asdict() for change in outcome.changes],
    }


@route("GET /api/v1/drain", view_broker, DRAIN_STATE)
def show_drain_state(call: Call) -> Json:
    """Show whether the broker drains."""
    return view(call.context, DRAIN)


@route("POST /api/v1/drain", edit_broker, DRAIN_STATE)
def drain(call: Call) -> Json:
    """Refuse new STOMP connections; existing clients continue.

    /health/ready answers 503. A restart of the broker ends the drain.
    """
    call.context.drain.begin()
    return view(call.context, DRAIN)


@route("POST /api/v1/undrain", edit_broker, DRAIN_STATE)
def undrain(call: Call) -> Json:
    """Accept STOMP connections again."""
    call.context.drain.end()
    return view(call.context, DRAIN)
