"""Logging to standard error, as text or as one JSON object per line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from twisted.logger import STDLibLogObserver, globalLogBeginner

#: Fields of the JSON format beside time, level, logger and message, in this order. A log call passes the fields that
#: apply with ``extra=``. The text format has the same facts in its message.
FIELDS = (
    "queue",
    "address",
    "divert",
    "connection",
    "user",
    "peer",
    "acceptor",
    "carrier",
    "client_id",
    "version",
    "reason",
    "unacknowledged",
    "unacknowledged_by_queue",
    "open_transactions",
    "method",
    "path",
    "status",
    "result",
    "policy",
    "hook",
    "suppressed",
)


class JsonLines(logging.Formatter):
    """A formatter that writes one JSON object per record: time (UTC), level, logger, message, `FIELDS`, traceback."""

    def format(self, record: logging.LogRecord) -> str:
        given = record.__dict__
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((field, given[field]) for field in FIELDS if field in given)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def begin_logging(level: str, style: str) -> None:
    """Set up logging for the process, including Twisted's own lines."""
    output = logging.StreamHandler(sys.stderr)
    if style == "json":
        output.setFormatter(JsonLines())
    else:
        output.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(level.upper())
    logging.getLogger("twisted").setLevel(max(logging.WARNING, root.level))
    globalLogBeginner.beginLoggingTo(
        [STDLibLogObserver(name="twisted")], redirectStandardIO=False, discardBuffer=True
    )
