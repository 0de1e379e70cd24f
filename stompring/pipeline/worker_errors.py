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
from stompring.pipeline.backlog import DataLoss, Replaced
from stompring.pipeline.options import OptionError


class PipelineError(Exception):
    """One more of those, for faults that are no other class."""


#: What is told by its text alone. Anything else is a mistake of ours, and keeps its traceback.
EXPECTED = (OptionError, DataLoss, Replaced, StoreError, OSError, PipelineError)

#: Tells PySpark's workers to show an exception without its traceback.
_HIDE = "SPARK_HIDE_TRACEBACK"

_SENTENCE = re.compile(r"(?:^|: |\n)stompring: (.+)")

P = ParamSpec("P")
T = TypeVar("T")


class _Sentence(Exception):
    """Shown as ``stompring: …``."""


_Sentence.__module__, _Sentence.__qualname__ = "builtins", "stompring"


@contextmanager
def told() -> Iterator[None]:
    """What goes wrong within, as a user of Spark is to read it. Outside of Spark's workers nothing is changed."""
    try:
        yield
    except EXPECTED as fault:
        if not _is_worker():
            raise
        os.environ[_HIDE] = "1"  # of this process alone, which ends with the exception
        raise _Sentence(str(fault)) from None


def tells(function: Callable[P, T]) -> Callable[P, T]:
    """The same around a function that Spark calls."""

    @wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> T:
        with told():
            return function(*arguments, **named)

    return called


def tells_of_stream(function: Callable[P, Any]) -> Callable[P, Any]:
    """The same around ``streamReader``, whose fault is told by the first that Spark asks of the reader.

    What ``streamReader`` itself raises Spark 4.3 hides behind an error of its own.
    """

    @wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> Any:
        try:
            return function(*arguments, **named)
        except EXPECTED as fault:
            if not _is_worker():
                raise
            return _refused(fault)

    return called


def _refused(fault: Exception) -> Any:
    from pyspark.sql.datasource import DataSourceStreamReader

    class Refused(DataSourceStreamReader):
        """A stream that cannot be read."""

        @tells
        def initialOffset(self) -> Any:  # noqa: N802 - Spark's name
            """Nowhere."""
            raise fault

        @tells
        def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802 - Spark's name
            """Nowhere."""
            raise fault

        @tells
        def partitions(self, start: Any, end: Any) -> Any:
            """None."""
            raise fault

        @tells
        def read(self, partition: Any) -> Any:
            """Nothing."""
            raise fault

    return Refused()


def telling(items: Iterator[Any]) -> Iterator[Any]:
    """The same around what Spark iterates over."""
    with told():
        yield from items


def sentence(text: str) -> str | None:
    """Of what Spark shows of an exception, our sentence; None where there is none."""
    found = _SENTENCE.search(text)
    return None if found is None else found[1].strip()


def _is_worker() -> bool:
    """Whether this process is one that Spark has started for Python code."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
