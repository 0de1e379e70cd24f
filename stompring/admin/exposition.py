"""Metrics as Prometheus reads them, in pieces: the text format, or OpenMetrics where it is asked for.

prometheus_client renders what there is once (the process, the build, the broker); what there is ten thousand times is
written here, because a Python object for each sample would cost ten times as much. The rules are its own: see
``prometheus_client.exposition``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from .counters import COUNTER, Counter
from .slices import STEP

Thing = TypeVar("Thing")

#: Sample lines of one piece: about 64 KiB, which is what a transport takes before it asks for a rest.
PIECE = 500

PAUSE = b""

#: The labels of a thing and its numbers: tuples, which the garbage collector soon leaves alone.
Row = tuple[str, tuple[Any, ...]]


def escaped(value: str) -> str:
    """The value of a label."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def heading(counter: Counter[Any], openmetrics: bool) -> str:
    """The HELP and TYPE lines of a family. OpenMetrics names a counter without its ``_total``."""
    name, kind = counter.metric, counter.kind
    if openmetrics and kind == COUNTER:
        name = name.removesuffix("_total")
    return f"# HELP {name} {counter.help}\n# TYPE {name} {kind}\n"


def families(
    counters: Sequence[Counter[Thing]],
    things: Iterable[Thing],
    labels: Callable[[Thing], str],
    openmetrics: bool,
) -> Iterator[bytes]:
    """All families, each with the samples of all things together, as the formats want it.

    First all things are read, each in one go, so that the numbers of one thing fit together; things that vanish
    meanwhile do no harm. Then the lines are written.
    """
    if not counters:
        return
    reads = [counter.read for counter in counters]
    rows: list[Row] = []
    for place, thing in enumerate(things):
        rows.append((labels(thing), tuple([read(thing) for read in reads])))
        if place % STEP == STEP - 1:
            yield PAUSE
    for column, counter in enumerate(counters):
        yield heading(counter, openmetrics).encode()
        for start in range(0, len(rows), PIECE):
            yield _lines(counter, column, rows[start : start + PIECE])


def _lines(counter: Counter[Any], column: int, rows: list[Row]) -> bytes:
    name, scale = counter.metric, counter.scale
    if scale == 1:
        lines = [f"{name}{labels} {int(values[column])}\n" for labels, values in rows]
    else:
        lines = [f"{name}{labels} {(values[column] or 0) * scale:.3f}\n" for labels, values in rows]
    return "".join(lines).encode("utf-8", "replace")
