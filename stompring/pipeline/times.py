"""When the rows of a file are from: where in it the latest time so far rises, so that it can be cut at a time.

A file is read from the front, so what counts of a row that stands behind later ones is the latest time before it: a
cut at some time leaves all before it older than that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stompring.pipeline.arrays import milliseconds
from stompring.pipeline.columns import Messages
from stompring.pipeline.events import told_times
from stompring.pipeline.records import Records
from stompring.pipeline.samples import sample_times
from stompring.store.record import COPY, PREFIX


class Times:
    """``at`` are bytes at which records begin that have a row later than all rows before, ``latest`` its time (epoch
    ms): both ascend. ``begin`` is where the first record begins."""

    __slots__ = ("at", "begin", "latest")

    def __init__(self, records: Records, table: str | None) -> None:
        """Of the rows of one table; None: of all."""
        self.begin = int(records.first)
        rows, times = _row_times(records, table)
        order = np.argsort(rows, kind="stable")
        rows, times = rows[order], np.maximum.accumulate(times[order])
        if not len(rows):
            self.at = self.latest = np.zeros(0, np.int64)
            return
        rises = np.append(True, times[1:] > times[:-1])
        frames = records.frames  # a row of a transaction stands within its record
        outer = frames[np.searchsorted(frames, rows[rises], side="right") - 1] - PREFIX.size
        last = np.append(outer[:-1] != outer[1:], True)  # of the rows of one record the latest
        self.at, self.latest = outer[last], times[rises][last]

    @property
    def greatest(self) -> int:
        """The latest of all, 0 where there is no row."""
        return int(self.latest[-1]) if len(self.latest) else 0

    def cut(self, time: int) -> int:
        """The first byte behind which a row may not be older; -1 where all of them are."""
        place = int(np.searchsorted(self.latest, time))
        return int(self.at[place]) if place < len(self.at) else -1


def _row_times(records: Records, table: str | None) -> tuple[Any, Any]:
    """Where the records of rows begin, and the rows' times, as far as the records tell them."""
    parts = []
    if table != "samples":
        messages = Messages(records)
        own = messages.fixed["flags"] & COPY == 0  # copies are as old as their originals: they move nothing
        parts.append((messages.begins[own], milliseconds(messages.fixed["timestamp"][own])))
    if table in (None, "events"):
        parts += told_times(records)
    if table in (None, "samples"):
        parts.append(sample_times(records))
    rows, times = (np.concatenate(each) for each in zip(*parts, strict=True))
    return rows.astype(np.int64), times.astype(np.int64)
