"""Retention and the replicated log over HTTP.

``/api/v1/retention``: retained journal, page and sample files, and the lakes that ingest them.

``/api/v1/ha``: the role of this broker in its replicated log, and metrics of the log. A standby answers this route too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from twisted.internet.threads import deferToThreadPool

from stompring.replication.role import Node, NodeStatus, Role, rebuild_percent
from stompring.settings.model import BrokerConfiguration, ReplicatedLogSettings
from stompring.store.retention import LakeBacklog, lake_backlogs

from .api import Call, Json, Response, Steps, route, view, view_broker
from .context import awaited
from .counters import Counter, Counters, families_of, fields_of, labelled_families, of_part
from .json_schema import (
    Field,
    Fields,
    JsonObject,
    Schema,
    array,
    boolean,
    integer,
    nullable,
    object_of,
    string,
    structure,
    timestamp,
)

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LAKE: Fields[LakeBacklog] = {
    "lakeID": string("Id of the lake.", "lake.id"),
    "path": string("Path or URL of the lake.", "lake.name"),
    "ingestedUpTo": timestamp("Time of its last ingest.", "lake.time"),
    "filesNotIngested": integer("Retained files that it lacks, at least in part.", "files"),
    "bytesNotIngested": integer("Bytes of these that it lacks.", "bytes"),
    "lag": integer("Age of the oldest of these files, in milliseconds.", "since"),
}
RETENTION: Mapping[str, Schema] = {
    "enabled": boolean("Whether the broker has a journal-retention-directory."),
    **nullable(
        {
            "directory": string("The directory."),
            "bytes": integer("Size of the retained files."),
            "files": integer("Retained files."),
            "oldest": timestamp("Time since which the oldest file is retained."),
            "newest": timestamp("Time since which the newest file is retained."),
            "deleted": integer("Files deleted since the broker started."),
            "deletedNotIngested": integer("Files of these that not every lake had ingested."),
            "period": integer("How long a file is retained, in milliseconds; -1: without limit.", minimum=-1),
            "storageLimit": integer("Maximum size of all files; -1: without limit.", minimum=-1),
            "fault": string("Reason why the state of the lakes cannot be read."),
        }
    ),
    "lakes": array(structure(LAKE), "Lakes that ingest the files."),
}


@route(
    "GET /api/v1/retention",
    view_broker,
    Response("The retention.", object_of("Retention", RETENTION)),
)
def show_retention(call: Call) -> Steps:
    """Show retained files and the lakes that ingest them.

    If retention is not configured, `enabled` is false, and the other fields are null.
    """
    # A thread counts the files that lakes have not ingested yet, because it reads files.
    context = call.context
    retention = None if context.store is None else context.store.retention
    if retention is None:
        return {**dict.fromkeys(RETENTION), "enabled": False, "lakes": []}
    retained = retention.retained
    lags: list[LakeBacklog] = []
    fault: str | None = None
    try:
        lags = yield from awaited(
            deferToThreadPool(
                context.reactor, context.reactor.getThreadPool(), lake_backlogs, retention.directory, retained
            )
        )
    except (OSError, ValueError) as error:
        fault = f"{retention.directory}: {error}"
    settings, now = retention.settings, context.broker.clock.now
    return {
        "enabled": True,
        "directory": str(retention.directory),
        "bytes": retention.bytes,
        "files": retention.files,
        "oldest": retained[0].since if retained else None,
        "newest": retained[-1].since if retained else None,
        "deleted": retention.deleted,
        "deletedNotIngested": retention.deleted_not_ingested,
        "period": settings.period,
        "storageLimit": settings.storage_limit,
        "fault": fault,
        "lakes": [
            {**view(lag, LAKE), "lag": 0 if lag.since is None else max(0, now - lag.since)} for lag in lags
        ],
    }


NO_LOG = "Null without a replicated log."
NOT_ANSWERED = "Null without a replicated log, and until its engine has answered."
NOT_ACTIVE = "Null without a replicated log, and on a standby."

HA: Counters[NodeStatus] = (
    Counter(
        "lagEntries",
        "stompring_ha_lag_entries",
        "Entries of the log that this standby has not applied yet.",
        "lag_entries",
    ),
    Counter(
        "lagBytes",
        "stompring_ha_lag_bytes",
        "Bytes of these entries.",
        "lag_bytes",
    ),
    Counter(
        "lagTime",
        "stompring_ha_lag_seconds",
        "Time by which this standby is behind the log.",
        lambda s: round(s.lag_seconds * 1000),
    ),
    Counter(
        "missingEntries",
        "stompring_ha_missing_entries",
        "Entries that the log has lost and this standby lacks, at least: above 0 it does not take over until they are "
        "written again.",
        "missing_entries",
    ),
    Counter(
        "rebuilding",
        "stompring_ha_rebuilding",
        "1 while this standby has not reached the end of the log since it connected.",
        "rebuilding",
        type="boolean",
    ),
    Counter(
        "appendCount",
        "stompring_ha_appends_total",
        "Appends to the log that were stored; one has the entries of a whole batch.",
        "appends",
    ),
    Counter(
        "appendTime",
        "stompring_ha_append_seconds_total",
        "Time that these appends have taken.",
        lambda s: round(s.append_seconds * 1000),
    ),
    Counter(
        "appendedBytes",
        "stompring_ha_appended_bytes_total",
        "Bytes of these entries that change files.",
        "append_bytes",
    ),
    Counter(
        "fencedCount",
        "stompring_ha_fenced_total",
        "Times that this broker was fenced: another one has written to the log.",
        "fenced",
    ),
    Counter(
        "takeoverCount",
        "stompring_ha_takeovers_total",
        "Times that this process became active.",
        "takeovers",
    ),
    *of_part(
        "last_takeover",
        NOT_ACTIVE,
        Counter(
            "lastTakeover",
            "stompring_ha_last_takeover_timestamp_seconds",
            "When this process became active.",
            "time",
        ),
        Counter(
            "lastTakeoverDuration",
            "stompring_ha_last_takeover_duration_seconds",
            "Time from the claim of the log to open listeners.",
            lambda takeover: None if takeover.seconds is None else round(takeover.seconds * 1000),
        ),
    ),
    *of_part(
        "log",
        NOT_ANSWERED,
        Counter("logEntries", "stompring_ha_log_entries", "Entries in the log.", "entries"),
        Counter("logSize", "stompring_ha_log_bytes", "Size of the log, in bytes.", "bytes"),
        Counter(
            "logMaxSize",
            "stompring_ha_log_max_bytes",
            "Limit of the log in bytes; -1: no limit.",
            "max_bytes",
            minimum=-1,
        ),
        Counter(
            "logHealthy",
            "stompring_ha_log_healthy",
            "1 while enough nodes of the engine answer to store entries.",
            "healthy",
            type="boolean",
        ),
    ),
)


def ha_families(node: Node | None, role: Role) -> Iterator[Metric]:
    """Yield the metrics of an active or standby broker that uses a replicated log. Without one, yield only the role."""
    status = None if node is None else node.status()
    own = role if status is None else status.role
    yield from labelled_families(
        "stompring_ha_role",
        "1 for the role of this broker. JSON: role.",
        "role",
        [(each.value, float(each is own)) for each in Role],
    )
    if status is not None:
        yield from families_of(status, HA)


class Member(NamedTuple):
    """The status of this broker in its replicated log, and the settings of the log."""

    status: NodeStatus
    settings: ReplicatedLogSettings | None


FIELDS: Fields[Member] = {
    "enabled": boolean("Whether the broker has a replicated log.", lambda member: True),
    "role": Field(
        {
            "enum": [each.value for each in Role],
            "description": "Role of the broker: `active`, also without a replicated log; `suspended`: active, but the "
            "engine does not answer, and nothing is delivered; `standby`; `connecting` to the engine; `released`, "
            "`fenced` or `failed` while it stops.",
        },
        "status.role.value",
    ),
    **nullable(
        {
            "broker": string("Name of the broker among those of the log.", "status.broker"),
            "fresh": boolean("Whether it is active and has stored an entry lately.", "status.fresh"),
            "fault": string(
                "Reason why the broker waits or stops.", lambda member: member.status.fault or None
            ),
            "url": string("URL of the engine.", "settings.url"),
            "stream": string("Name of the log.", "settings.stream"),
            "takeoverTimeout": integer(
                "Silence of the active broker after which a standby takes over, in milliseconds.",
                "settings.takeover_timeout",
            ),
            "engine": string("Name of the engine.", "status.log.engine"),
            "identity": string(
                "Identity of the log. A new identity means that the log was deleted and created again.",
                "status.log.identity",
            ),
            "replicas": integer("Copies of each entry.", "status.log.replicas"),
            "leader": string("Node of the engine that orders the entries.", "status.log.leader"),
            "lastSequence": integer(
                "Sequence of the last entry in the latest report of the engine.", "status.log.last"
            ),
            "logAge": integer(
                "Age of the latest report of the engine in milliseconds.",
                lambda member: None if member.status.log is None else round(member.status.log_age * 1000),
            ),
            "sequence": integer(
                "Sequence of the last entry that this broker has applied or appended.", "status.sequence"
            ),
            "rebuiltPercent": integer(
                "How far a standby is with its copy, by entries; 100: it has reached the end of the log.",
                lambda member: rebuild_percent(member.status) if member.status.role is Role.STANDBY else None,
            ),
            "rebuiltEntries": integer(
                "Entries that a rebuilding standby has applied.", "status.rebuilt_entries"
            ),
            "rebuildEntries": integer("Entries that it has to apply, at most.", "status.rebuild_entries"),
            "rebuiltBytes": integer("Bytes that a rebuilding standby has applied.", "status.rebuilt_bytes"),
            "rebuildBytes": integer(
                "Bytes that it has to apply, about; 0: not known, since it had a part of the log before.",
                "status.rebuild_bytes",
            ),
            "takeoverReason": string("Why this process became active.", "status.last_takeover.reason"),
            "activeBroker": string("Name of the active broker, by its last beat.", "status.active.broker"),
            "activeHost": string("Its machine.", "status.active.host"),
            "activeVersion": string("Its version of stompring.", "status.active.version"),
            "lastBeat": timestamp("Time of its last beat.", lambda member: member.status.active_time or None),
        }
    ),
    **fields_of(of_part("status", NO_LOG, *HA)),
}


def describe(node: Node | None, configuration: BrokerConfiguration, role: Role) -> JsonObject:
    """Return the answer of an active or standby broker. ``role``: its role, used only without a replicated log."""
    if node is None:
        return {**dict.fromkeys(FIELDS), "enabled": False, "role": role.value}
    return view(Member(node.status(), configuration.replicated_log), FIELDS)


@route(
    "GET /api/v1/ha", view_broker, Response("The role and the log.", object_of("HighAvailability", FIELDS))
)
def show_ha(call: Call) -> Json:
    """Show the role of the broker and its replicated log.

    Without a replicated log `enabled` is false, and all fields but the role are null. A standby answers too.
    """
    return describe(call.context.node, call.context.configuration, Role.ACTIVE)
