"""Spark's Python workers: short texts for expected errors, and a launcher of Python that makes workers start faster.

Spark shows an exception of a Python worker as text, with a traceback before the message and its own stack after it. An
error that the user can correct becomes ``stompring: MESSAGE`` at the beginning of that text.

Spark puts its own ``pyspark.zip`` first into the search path of each worker. Each process compiles the modules that it
imports from an archive, which takes three times as long as the rest of its start. No setting prevents that, and a
stream's worker that does not connect within ten seconds fails the query. So a launcher removes the archive from the
search path, and workers import the installed PySpark.
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
    """Shown as ``stompring: …``."""


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
    """Decorate ``streamReader``: in a worker, if an expected error occurs, it returns a reader whose methods raise it.

    Spark 4.3 hides an error of ``streamReader`` itself behind an error of its own.
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


#: Removes Spark's two archives from the search path, which then equals the driver's.
_LAUNCHER = """#!/bin/sh
PYTHONPATH=${{PYTHONPATH#*/pyspark.zip:}}
PYTHONPATH=${{PYTHONPATH#*/py4j-*-src.zip:}}
export PYTHONPATH
exec {python} "$@"
"""


def worker_python(directory: Path) -> str:
    """Write a launcher for the Python of this process to ``directory``, and return its path.

    Returns the path of this Python instead if its PySpark is only in an archive, or if files in ``directory`` cannot be
    executed.
    """
    import pyspark

    if not Path(pyspark.__file__).is_file():  # PySpark is in an archive
        return sys.executable
    launcher = directory / "python"
    launcher.write_text(_LAUNCHER.format(python=quote(sys.executable)), encoding="utf-8")
    launcher.chmod(0o755)
    return str(launcher) if os.access(launcher, os.X_OK) else sys.executable
