"""Faults that a user can do something about, raised in a process of Spark's: the sentence, and no traceback.

Spark shows what its Python workers raise as text, with a traceback before the sentence and its own stack behind it.
Here such an exception becomes ``stompring: SENTENCE``, the first that Spark has to show of it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from stompring.errors import StoreError
from stompring.pipeline.backlog import DataLoss, DirectoryReplaced
from stompring.pipeline.options import OptionError


class PipelineError(Exception):
    """One more of those, for faults that are no other class."""


#: What is told by its text alone. Anything else is a mistake of ours, and keeps its traceback.
EXPECTED = (OptionError, DataLoss, DirectoryReplaced, StoreError, OSError, PipelineError)

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
    """What goes wrong within, as a user of Spark is to read it. Outside of Spark's workers nothing is changed."""
    try:
        yield
    except EXPECTED as fault:
        if not _is_worker():
            raise
        os.environ[_HIDE_TRACEBACK] = "1"  # of this process alone, which ends with the exception
        raise _WorkerError(str(fault)) from None


def reports_errors(function: Callable[P, T]) -> Callable[P, T]:
    """The same around a function that Spark calls."""

    @wraps(function)
    def called(*arguments: P.args, **keywords: P.kwargs) -> T:
        with error_reporting():
            return function(*arguments, **keywords)

    return called


def defers_errors(function: Callable[P, Any]) -> Callable[P, Any]:
    """The same around ``streamReader``, whose fault is told by the first that Spark asks of the reader.

    What ``streamReader`` itself raises Spark 4.3 hides behind an error of its own.
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
    from pyspark.sql.datasource import DataSourceStreamReader

    class Refused(DataSourceStreamReader):
        """A stream that cannot be read."""

        @reports_errors
        def initialOffset(self) -> Any:  # noqa: N802 - Spark's name
            """Nowhere."""
            raise fault

        @reports_errors
        def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802 - Spark's name
            """Nowhere."""
            raise fault

        @reports_errors
        def partitions(self, start: Any, end: Any) -> Any:
            """None."""
            raise fault

        @reports_errors
        def read(self, partition: Any) -> Any:
            """Nothing."""
            raise fault

    return Refused()


def reporting_errors(items: Iterator[Any]) -> Iterator[Any]:
    """The same around what Spark iterates over."""
    with error_reporting():
        yield from items


def worker_message(text: str) -> str | None:
    """Of what Spark shows of an exception, our sentence; None where there is none."""
    found = _MESSAGE.search(text)
    return None if found is None else found[1].strip()


def _is_worker() -> bool:
    """Whether this process is one that Spark has started for Python code."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
