"""``/api/v1/retention``: retained journal, page and sample files, and the lakes that ingest them."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.threads import deferToThreadPool

from stompring.store.retention import LakeBacklog, lake_backlogs

from .api import Call, Response, Steps, route, view, view_broker
from .context import awaited
from .json_schema import (
    Fields,
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

LAKE: Fields[LakeBacklog] = {
    "lakeID": string("Id of the lake.", "lake.id"),
    "path": string("Path or URL of the lake.", "lake.name"),
    "ingestedUpTo": timestamp("Time of its last ingest.", "lake.time"),
    "filesNotIngested": integer("Retained files that it lacks, at least in part.", "files"),
    "bytesNotIngested": integer("Bytes of these that it lacks.", "bytes"),
    "lag": integer("Age of the oldest of these files, in milliseconds.", "since"),
}
FIELDS: Mapping[str, Schema] = {
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
    Response("The retention.", object_of("Retention", FIELDS)),
)
def show_retention(call: Call) -> Steps:
    """Show retained files and the lakes that ingest them.

    Without a retention enabled is false, and the other fields are null.
    """
    # The state of the retention. What lakes lack is counted in a thread: it reads files.
    context = call.context
    retention = None if context.store is None else context.store.retention
    if retention is None:
        return {**dict.fromkeys(FIELDS), "enabled": False, "lakes": []}
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
