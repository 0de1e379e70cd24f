"""``/api/v1/ha``: the role of this broker in its replicated log; and the metrics of that, on a standby too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from stompring.replication.role import NodeStatus, Role, rebuild_percent
from stompring.settings.model import BrokerConfiguration

from .api import Answer, Call, Response, Route, json_answer, view_broker
from .counters import COUNTER, GAUGE, Counter
from .json_schema import Component, Schema, boolean, integer, string, structure, timestamp

ROLE = "stompring_ha_role"
ROLE_HELP = "1 for the role of this broker. JSON: role."

_SECONDS_AS_MS = 0.001

NO_LOG = "Null without a replicated log."
NOT_ANSWERED = "Null without a replicated log, and until its engine has answered."
NOT_ACTIVE = "Null without a replicated log, and on a standby."

HA: tuple[Counter[NodeStatus], ...] = (
    Counter(
        "lagEntries",
        "stompring_ha_lag_entries",
        GAUGE,
        "Entries of the log that this standby has not applied yet.",
        lambda s: s.lag_entries,
        null=NO_LOG,
    ),
    Counter(
        "lagBytes",
        "stompring_ha_lag_bytes",
        GAUGE,
        "Bytes of these entries.",
        lambda s: s.lag_bytes,
        null=NO_LOG,
    ),
    Counter(
        "lagTime",
        "stompring_ha_lag_seconds",
        GAUGE,
        "Time by which this standby is behind the log.",
        lambda s: round(s.lag_seconds * 1000),
        scale=_SECONDS_AS_MS,
        null=NO_LOG,
    ),
    Counter(
        "missingEntries",
        "stompring_ha_missing_entries",
        GAUGE,
        "Entries that the log has lost and this standby lacks, at least: above 0 it does not take over until they are "
        "written again.",
        lambda s: s.missing_entries,
        null=NO_LOG,
    ),
    Counter(
        "rebuilding",
        "stompring_ha_rebuilding",
        GAUGE,
        "1 while this standby has not reached the end of the log since it connected.",
        lambda s: s.rebuilding,
        type="boolean",
        null=NO_LOG,
    ),
    Counter(
        "appendCount",
        "stompring_ha_appends_total",
        COUNTER,
        "Appends to the log that were stored; one has the entries of a whole batch.",
        lambda s: s.appends,
        null=NO_LOG,
    ),
    Counter(
        "appendTime",
        "stompring_ha_append_seconds_total",
        COUNTER,
        "Time that these appends have taken.",
        lambda s: round(s.append_seconds * 1000),
        scale=_SECONDS_AS_MS,
        null=NO_LOG,
    ),
    Counter(
        "appendedBytes",
        "stompring_ha_appended_bytes_total",
        COUNTER,
        "Bytes of these entries that change files.",
        lambda s: s.append_bytes,
        null=NO_LOG,
    ),
    Counter(
        "fencedCount",
        "stompring_ha_fenced_total",
        COUNTER,
        "Times that this broker was fenced: another one has written to the log.",
        lambda s: s.fenced,
        null=NO_LOG,
    ),
    Counter(
        "takeoverCount",
        "stompring_ha_takeovers_total",
        COUNTER,
        "Times that this process became active.",
        lambda s: s.takeovers,
        null=NO_LOG,
    ),
    Counter(
        "lastTakeover",
        "stompring_ha_last_takeover_timestamp_seconds",
        GAUGE,
        "When this process became active.",
        lambda s: None if s.last_takeover is None else s.last_takeover.time,
        scale=_SECONDS_AS_MS,
        null=NOT_ACTIVE,
    ),
    Counter(
        "lastTakeoverDuration",
        "stompring_ha_last_takeover_duration_seconds",
        GAUGE,
        "Time from the claim of the log to open listeners.",
        lambda s: (
            None
            if s.last_takeover is None or s.last_takeover.seconds is None
            else round(s.last_takeover.seconds * 1000)
        ),
        scale=_SECONDS_AS_MS,
        null=NOT_ACTIVE,
    ),
    Counter(
        "logEntries",
        "stompring_ha_log_entries",
        GAUGE,
        "Entries in the log.",
        lambda s: None if s.log is None else s.log.entries,
        null=NOT_ANSWERED,
    ),
    Counter(
        "logSize",
        "stompring_ha_log_bytes",
        GAUGE,
        "Size of the log, in bytes.",
        lambda s: None if s.log is None else s.log.bytes,
        null=NOT_ANSWERED,
    ),
    Counter(
        "logMaxSize",
        "stompring_ha_log_max_bytes",
        GAUGE,
        "Limit of the log in bytes; -1: no limit.",
        lambda s: None if s.log is None else s.log.max_bytes,
        minimum=-1,
        null=NOT_ANSWERED,
    ),
    Counter(
        "logHealthy",
        "stompring_ha_log_healthy",
        GAUGE,
        "1 while enough nodes of the engine answer to store entries.",
        lambda s: None if s.log is None else s.log.healthy,
        type="boolean",
        null=NOT_ANSWERED,
    ),
)


#: Values of the label of `ROLE`.
ROLES = tuple([each.value for each in Role])


def role_families(role: str) -> Iterator[Metric]:
    """The metric of the role: 1 for it, 0 for the others."""
    family = GaugeMetricFamily(ROLE, ROLE_HELP, labels=("role",))
    for each in ROLES:
        family.add_metric((each,), float(each == role))
    yield family


def ha_families(status: NodeStatus) -> Iterator[Metric]:
    """The metrics of a broker in a replicated log, active or standby."""
    yield from role_families(status.role.value)
    for _, alike in groupby(HA, key=lambda counter: counter.metric):
        first, *_others = alike
        value = first.read(status)
        if value is None:
            continue
        kind = GaugeMetricFamily if first.kind == GAUGE else CounterMetricFamily
        family: Metric = kind(first.metric, f"{first.help} JSON: {first.json}.")
        family.add_sample(first.metric, {}, value * first.scale)
        yield family


FIELDS: dict[str, Schema] = {
    "enabled": boolean("Whether the broker has a replicated log."),
    "role": {
        "enum": [each.value for each in Role],
        "description": "Role of the broker: `active`, also without a replicated log; `suspended`: active, but the "
        "engine does not answer, and nothing is delivered; `standby`; `connecting` to the engine; `released`, `fenced` "
        "or `failed` while it stops.",
    },
    "broker": string("Name of the broker among those of the log.", null=True),
    "fresh": boolean("Whether it is active and has stored an entry lately.", null=True),
    "fault": string("What the broker waits for, or why it stops.", null=True),
    "url": string("URL of the engine.", null=True),
    "stream": string("Name of the log.", null=True),
    "takeoverTimeout": integer(
        "Silence of the active broker after which a standby takes over, in milliseconds.", null=True
    ),
    "engine": string("Name of the engine.", null=True),
    "identity": string("Identity of the log; another one: the log was created anew.", null=True),
    "replicas": integer("Copies of each entry.", null=True),
    "leader": string("Node of the engine that orders the entries.", null=True),
    "lastSequence": integer("Sequence of the last entry, as the engine said last.", null=True),
    "logAge": integer("Milliseconds since the engine said so.", null=True),
    "sequence": integer("Sequence of the last entry that this broker has applied or appended.", null=True),
    "rebuiltPercent": integer(
        "How far a standby is with its copy, by entries; 100: it has reached the end of the log.", null=True
    ),
    "rebuiltEntries": integer("Entries that a rebuilding standby has applied.", null=True),
    "rebuildEntries": integer("Entries that it has to apply, at most.", null=True),
    "rebuiltBytes": integer("Bytes that a rebuilding standby has applied.", null=True),
    "rebuildBytes": integer(
        "Bytes that it has to apply, about; 0: not known, since it had a part of the log before.", null=True
    ),
    "takeoverReason": string("Why this process became active.", null=True),
    "activeBroker": string("Name of the active broker, by its last beat.", null=True),
    "activeHost": string("Its machine.", null=True),
    "activeVersion": string("Its version of stompring.", null=True),
    "lastBeat": timestamp("Time of its last beat.", null=True),
    **{counter.json: counter.schema for counter in HA},
}


def without_log(role: str = Role.ACTIVE.value) -> dict[str, Any]:
    """The answer of a broker without a replicated log."""
    return {**dict.fromkeys(FIELDS), "enabled": False, "role": role}


def describe(status: NodeStatus, configuration: BrokerConfiguration) -> dict[str, Any]:
    """The answer of a broker with a replicated log, active or standby."""
    settings, log, active, takeover = (
        configuration.replicated_log,
        status.log,
        status.active,
        status.last_takeover,
    )
    return {
        "enabled": True,
        "role": status.role.value,
        "broker": status.broker,
        "fresh": status.fresh,
        "fault": status.fault or None,
        "url": None if settings is None else settings.url,
        "stream": None if settings is None else settings.stream,
        "takeoverTimeout": None if settings is None else settings.takeover_timeout,
        "engine": None if log is None else log.engine,
        "identity": None if log is None else log.identity,
        "replicas": None if log is None else log.replicas,
        "leader": None if log is None else log.leader,
        "lastSequence": None if log is None else log.last,
        "logAge": None if log is None else round(status.log_age * 1000),
        "sequence": status.sequence,
        "rebuiltPercent": rebuild_percent(status) if status.role is Role.STANDBY else None,
        "rebuiltEntries": status.rebuilt_entries,
        "rebuildEntries": status.rebuild_entries,
        "rebuiltBytes": status.rebuilt_bytes,
        "rebuildBytes": status.rebuild_bytes,
        "takeoverReason": None if takeover is None else takeover.reason,
        "activeBroker": None if active is None else active.broker,
        "activeHost": None if active is None else active.host,
        "activeVersion": None if active is None else active.version,
        "lastBeat": status.active_time or None,
        **{counter.json: counter.read(status) for counter in HA},
    }


def show(call: Call) -> Answer:
    node, context = call.context.node, call.context
    if node is None:
        return json_answer(without_log())
    return json_answer(describe(node.status(), context.configuration))


ROUTES = (
    Route(
        "GET",
        "/api/v1/ha",
        show,
        view_broker,
        "ha",
        "Show the role of the broker and its replicated log.",
        {200: Response("The role and the log.", Component("HighAvailability", structure(FIELDS)))},
        "Without a replicated log enabled is false, and all fields but the role are null. A standby answers too.",
    ),
)
