"""Spark's Python workers: their errors and their Python.

Errors of Spark's Python workers that a user can correct: shown as one message without a traceback.

Spark shows an exception of a Python worker as text, with a traceback before the message and its own stack after it.
Here such an exception becomes ``stompring: MESSAGE`` at the beginning of that text.

The Python that Spark starts its workers with: they import PySpark from where it is installed, and so start sooner.

Spark puts ``pyspark.zip`` of its own directory first into the search path of each worker. What is imported from there
is compiled anew by each process that Spark starts, which takes three times as long as all the rest of its start. There
is no setting against it, and a worker of a stream that has not connected in ten seconds fails the query.
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

#: Errors shown by their message alone. Any other exception is a defect and keeps its traceback.
EXPECTED = (PipelineError, StoreError, OSError)

#: Tells PySpark's workers to show an exception without its traceback.
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"

_MESSAGE = re.compile(r"(?:^|: |\n)stompring: (.+)")

P = ParamSpec("P")
T = TypeVar("T")


class _WorkerError(Exception):
    """Shown as ``stompring: …``."""


_WorkerError.__module__, _WorkerError.__qualname__ = "builtins", "stompring"


@contextmanager
def error_reporting() -> Iterator[None]:
    """Convert expected errors to `_WorkerError` in Spark's Python workers; other processes see them unchanged."""
    try:
        yield
    except EXPECTED as fault:
        if not _is_worker():
            raise
        os.environ[_HIDE_TRACEBACK] = "1"  # of this process alone, which ends with the exception
        raise _WorkerError(str(fault)) from None


#: `error_reporting` around a function that Spark calls.
reports_errors = error_reporting()


def defers_errors(function: Callable[P, Any]) -> Callable[P, Any]:
    """`error_reporting` for ``streamReader``: the first call of a method of the reader raises its error.

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
    """A stream that cannot be read."""
    from pyspark.sql.datasource import DataSourceStreamReader

    @reports_errors
    def fail(*_: Any) -> Any:
        raise fault

    names = ("initialOffset", "latestOffset", "partitions", "read")
    return type("Refused", (DataSourceStreamReader,), dict.fromkeys(names, fail))()


def worker_message(text: str) -> str | None:
    """Our message in the text that Spark shows of an exception; None where there is none."""
    found = _MESSAGE.search(text)
    return None if found is None else found[1].strip()


def _is_worker() -> bool:
    """Whether this process is one that Spark has started for Python code."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


#: Takes the two archives out of the search path, which then is that of the driver.
_LAUNCHER = """#!/bin/sh
PYTHONPATH=${{PYTHONPATH#*/pyspark.zip:}}
PYTHONPATH=${{PYTHONPATH#*/py4j-*-src.zip:}}
export PYTHONPATH
exec {python} "$@"
"""


def worker_python(directory: Path) -> str:
    """The path of a launcher, written to ``directory``, that starts the Python of this process.

    It is this Python itself where that has no PySpark without the archives, or where nothing in the directory can be
    executed.
    """
    import pyspark

    if not Path(pyspark.__file__).is_file():  # it is in an archive
        return sys.executable
    launcher = directory / "python"
    launcher.write_text(_LAUNCHER.format(python=quote(sys.executable)), encoding="utf-8")
    launcher.chmod(0o755)
    return str(launcher) if os.access(launcher, os.X_OK) else sys.executable
