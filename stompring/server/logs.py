"""Where log lines go: one stream, standard error, as text or as one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from twisted.logger import STDLibLogObserver, globalLogBeginner


class JsonLines(logging.Formatter):
    """One JSON object a record: time (UTC), level, logger, message, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def begin_logging(level: str, style: str) -> None:
    """Set up logging for the process; Twisted's own lines come along."""
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
