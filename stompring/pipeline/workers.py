"""Spark's Python workers: short texts for expected errors, and a launcher of Python that makes workers start faster.

Spark shows an exception of a Python worker as text: a traceback, the message, and the stack of Spark's own code. For an
error that the user can correct, this text begins with ``stompring: MESSAGE`` instead.

Spark puts its own ``pyspark.zip`` first into the search path of each worker. Python stores no compiled modules for an
archive, so each worker compiles the modules again, which takes three times as long as the rest of its start. If the
worker of a stream does not connect within ten seconds, the query fails. Spark has no setting for this, so a launcher
removes the archive from the search path, and workers import the installed PySpark.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from shlex import quote
from typing import Any, ParamSpec, TypeVar

from stompring.errors import PipelineError, StoreError

#: Errors shown with their message only. Any other exception is a defect and keeps its traceback.
EXPECTED = (PipelineError, StoreError, OSError)

#: Environment variable: PySpark's workers show an exception without its traceback.
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"

_MESSAGE = re.compile(r"(?:^|: |\n)stompring: (.+)")

P = ParamSpec("P")
T = TypeVar("T")


class _WorkerError(Exception):
    """An expected error in a worker. Its class is renamed, so that Spark shows it as ``stompring: MESSAGE``."""


_WorkerError.__module__, _WorkerError.__qualname__ = "builtins", "stompring"


@contextmanager
def error_reporting() -> Iterator[None]:
    """Context manager: in a Python worker of Spark, raise expected errors as `_WorkerError`. Otherwise do nothing."""
    try:
        yield
    except EXPECTED as fault:
        if not _is_worker():
            raise
        os.environ[_HIDE_TRACEBACK] = "1"  # affects only this process, which ends with the exception
        raise _WorkerError(str(fault)) from None


#: Decorator of functions that Spark calls: they run in `error_reporting`.
reports_errors = error_reporting()


def defers_errors(function: Callable[P, Any]) -> Callable[P, Any]:
    """Decorator for ``streamReader``. If an expected error occurs in a worker, return a reader whose methods raise it.

    If ``streamReader`` itself raised the error, Spark 4.3 would show an error of its own instead.
    """

    @wraps(function)
    def called(*arguments: P.args, **keywords: P.kwargs) -> Any:
        try:
            return function(*arguments, **keywords)
        except EXPECTED as fault:
            if not _is_worker():
                raise
            return _failing_reader(fault)

    return called


def _failing_reader(fault: Exception) -> Any:
    """Return a stream reader whose methods raise ``fault``."""
    from pyspark.sql.datasource import DataSourceStreamReader

    @reports_errors
    def fail(*_: Any) -> Any:
        raise fault

    names = ("initialOffset", "latestOffset", "partitions", "read")
    return type("Refused", (DataSourceStreamReader,), dict.fromkeys(names, fail))()


def worker_message(text: str) -> str | None:
    """Return the ``stompring:`` message in Spark's text of an exception, None if it has none."""
    found = _MESSAGE.search(text)
    return None if found is None else found[1].strip()


def _is_worker() -> bool:
    """Return whether this process is a Python worker of Spark."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


#: A launcher that removes Spark's two archives from Python's search path. The rest is the search path of the driver.
_LAUNCHER = """#!/bin/sh
PYTHONPATH=${{PYTHONPATH#*/pyspark.zip:}}
PYTHONPATH=${{PYTHONPATH#*/py4j-*-src.zip:}}
export PYTHONPATH
exec {python} "$@"
"""


def worker_python(directory: Path) -> str:
    """Write a launcher for the Python of this process to ``directory``, and return the launcher's path.

    Returns the path of this Python itself if its PySpark is in an archive, or if files in ``directory`` cannot be
    executed.
    """
    import pyspark

    if not Path(pyspark.__file__).is_file():  # PySpark is in an archive
        return sys.executable
    launcher = directory / "python"
    launcher.write_text(_LAUNCHER.format(python=quote(sys.executable)), encoding="utf-8")
    launcher.chmod(0o755)
    return str(launcher) if os.access(launcher, os.X_OK) else sys.executable
