"""History of counters: points in three resolutions, in bounded memory, written by the sampler of the counters.

A point has two bytes: 11 bits and an exponent, exact up to 2047 and to 0.05 % above. A series has columns only for
values that were not 0 within it, so that an idle counter needs no points.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

#: Seconds of a point, and number of points, for each resolution; the finest resolution is first.
Resolutions = tuple[tuple[int, int], ...]

#: Points of 1 second for 5 minutes, of 10 seconds for an hour, of 60 seconds for a day.
RESOLUTIONS: Resolutions = ((1, 300), (10, 360), (60, 1440))

#: Minimum number of points of each resolution when `MAX_MEMORY` is used up.
MIN_POINTS: Final = 60

#: Maximum memory of all histories together, in bytes.
MAX_MEMORY: Final = 128 * 1024 * 1024

#: Seconds over which `History.rate` averages.
RATE_PERIOD: Final = 10

#: Bytes of a column without its points, and bytes of a series without its columns.
COLUMN_SIZE, SERIES_SIZE = 96, 400

#: A series drops its oldest points when it exceeds the maximum number of points by 1/`EXCESS` of that number.
EXCESS: Final = 8

#: Maximum seconds without a sample over which changes are spread evenly. A longer gap begins with idle points.
MAX_SPREAD: Final = 60

#: Values below this are stored exactly.
EXACT: Final = 2048


def pack(value: int) -> int:
    """Encode a value of at least 0 in 16 bits, for `unpack`."""
    if value < EXACT:
        return value
    shift = value.bit_length() - 11
    rounded = (value + (1 << (shift - 1))) >> shift
    if rounded == EXACT:
        shift, rounded = shift + 1, EXACT // 2
    return 0xFFFF if shift > 31 else shift << 11 | rounded


def unpack(code: int) -> int:
    """Decode the result of `pack`."""
    return code if code < EXACT else (code & 0x7FF) << (code >> 11)


class HistoryMemory:
    """State that all histories share: the time, the used memory, and the limits of points.

    ``second``: first second after the latest complete sample. ``sampling``: first second after the sample in progress,
    or else after the latest one. ``limits``: maximum number of points by resolution.
    """

    def __init__(self, resolutions: Resolutions = RESOLUTIONS) -> None:
        # bytes, exact after `review`: until the next call, growth of existing columns is not counted
        self.used = 0
        self.resolutions = resolutions
        self.second = self.sampling = 0
        self.max_bytes = MAX_MEMORY
        self.limits = [points for _, points in resolutions]

    def review(self, used: int) -> None:
        """Adapt the limits to ``used`` bytes of memory. If these are too many, lower one limit: first that of the
        coarsest points.
        """
        self.used = used
        limits = self.limits
        if used > self.max_bytes:
            for index in reversed(range(len(limits))):
                if limits[index] > MIN_POINTS:
                    limits[index] = max(MIN_POINTS, limits[index] * 3 // 4)
                    return
        elif used < self.max_bytes // 2:
            for index, (_, points) in enumerate(self.resolutions):
                if limits[index] < points:
                    limits[index] = min(points, limits[index] * 5 // 4)
                    return


class Series:
    """The points of one resolution. ``end`` is the number of the point after the last one."""

    __slots__ = ("base", "columns", "end", "size")

    def __init__(self, end: int, base: array[int]) -> None:
        self.columns: list[array[int] | None] = [None] * len(base)
        self.end = end
        self.size = 0
        self.base = base  # values of the counters at the beginning of point number ``end``

    def append(self, values: Sequence[int]) -> int:
        """Add a point. Return the bytes of new columns."""
        columns, size = self.columns, self.size
        created = 0
        for index, value in enumerate(values):
            column = columns[index]
            if column is None:
                if value <= 0:
                    continue
                columns[index] = column = array("H", bytes(2 * size))
                created += COLUMN_SIZE + 2 * size
            column.append(value if 0 <= value < EXACT else pack(max(0, value)))
        self.size = size + 1
        self.end += 1
        return created

    def append_idle(self, count: int, gauges: Sequence[int], limit: int) -> None:
        """Add ``count`` points, at most ``limit``, in which no counter grew. ``gauges``: values of the gauges."""
        columns = self.columns
        rates = len(columns) - len(gauges)
        points = min(count, limit)
        if count >= limit:
            columns[:] = [None] * len(columns)
            self.size = 0
        for index, column in enumerate(columns):
            value = 0 if index < rates else pack(max(0, gauges[index - rates]))
            if column is not None:
                column.extend(array("H", (value,)) * points)
            elif value:
                columns[index] = array("H", bytes(2 * self.size)) + array("H", (value,)) * points
        self.size += points
        self.end += count

    def trim(self, limit: int) -> None:
        """Remove the oldest points beyond a limit."""
        excess = self.size - limit
        if excess > 0:
            for column in self.columns:
                if column is not None:
                    del column[:excess]
            self.size = limit

    @property
    def bytes(self) -> int:
        """Memory in use, in bytes."""
        return SERIES_SIZE + sum(
            COLUMN_SIZE + 2 * len(column) for column in self.columns if column is not None
        )


class History:
    """The history of one object. The first ``rates`` of its values are counters, the others gauges.

    Point n of a resolution starts at second n times the length of its points.
    """

    __slots__ = ("changes", "last", "memory", "rates", "sampled", "series", "since")

    def __init__(self, memory: HistoryMemory, last: tuple[int, ...], rates: int, since: int) -> None:
        """``since``: first second of the history. ``last``: values of counters and gauges before this second."""
        self.memory = memory
        self.last = last
        self.rates = rates
        self.since = since
        self.sampled = since  # the first second that ``last`` does not include
        self.changes = 0  # sum of counters at the last sample, for the sampler: an equal sum means idle
        self.series: list[Series | None] = [None] * len(memory.resolutions)

    def record(self, values: tuple[int, ...], late: int = 1) -> list[int]:
        """Add the values at the second `HistoryMemory.sampling`, ``late`` seconds after the last sample of all objects.
        Return the growth of each counter, at least 0.
        """
        gauges, memory = values[self.rates :], self.memory
        now = memory.sampling
        changes = self._growth(self.last, values)
        for index, (seconds, _) in enumerate(memory.resolutions):
            series = self.series[index]
            point = (now - 1) // seconds
            if series is None:
                series = self._new_series(index, point)
                if series is None:
                    continue
            if seconds == 1:
                if late > 1:
                    self._spread(series, changes, gauges, min(late, MAX_SPREAD))
                else:
                    self._append_idle(series, index, point)
                    memory.used += series.append([*changes, *gauges])
            else:
                if series.end < point:
                    self._close(series, index, point)
                if now % seconds == 0:
                    memory.used += series.append([*self._growth(series.base, values), *gauges])
                    series.base = array("q", values)
            limit = memory.limits[index]
            if series.size > limit + limit // EXCESS:
                series.trim(limit)
        self.last = values
        self.sampled = now
        return changes

    def _new_series(self, index: int, point: int) -> Series | None:
        memory = self.memory
        if memory.used >= memory.max_bytes:
            self.since = memory.sampling
            return None
        seconds, limit = memory.resolutions[index][0], memory.limits[index]
        # the points from ``since`` to the first sample are known: no counter changed
        first = max(-(-self.since // seconds), point - limit)
        series = self.series[index] = Series(min(first, point), array("q", self.last))
        self._append_idle(series, index, point)
        memory.used += series.bytes
        return series

    def _spread(self, series: Series, changes: Sequence[int], gauges: Sequence[int], late: int) -> None:
        self._append_idle(series, 0, self.memory.sampling - late)
        number = self.memory.sampling - series.end
        for index in range(number):
            shares = [change * (index + 1) // number - change * index // number for change in changes]
            self.memory.used += series.append([*shares, *gauges])

    def _close(self, series: Series, index: int, point: int) -> None:
        """Complete the points before ``point`` with the values of the last sample."""
        last = self.last
        self.memory.used += series.append([*self._growth(series.base, last), *last[self.rates :]])
        self._append_idle(series, index, point)
        series.base = array("q", last)

    def _append_idle(self, series: Series, index: int, point: int) -> None:
        """Add points up to ``point`` (exclusive) in which nothing changed."""
        if series.end < point:
            series.append_idle(point - series.end, self.last[self.rates :], self.memory.limits[index])

    def _growth(self, base: Sequence[int], values: Sequence[int]) -> list[int]:
        """Return the growth of each counter from ``base`` to ``values``; 0 for a counter that was reset meanwhile."""
        rates = self.rates
        return [
            value - before if value > before else 0
            for value, before in zip(values[:rates], base[:rates], strict=True)
        ]

    def sweep(self) -> int:
        """Remove points older than the limits. Return the memory in use, in bytes."""
        memory = self.memory
        used = 0
        for index, (seconds, _) in enumerate(memory.resolutions):
            series = self.series[index]
            if series is None:
                continue
            limit = memory.limits[index]
            if memory.second // seconds - series.end > limit:
                self.series[index] = None  # no counter changed within the limit
            else:
                series.trim(limit)
                used += series.bytes
        return used

    def rate(self, index: int) -> float | None:
        """Return the changes per second of a counter over the last `RATE_PERIOD` seconds, None if unknown."""
        now = self.memory.second
        period = min(RATE_PERIOD, now - self.since)
        idle = now - self.sampled
        if period <= 0:
            return None
        if idle >= period:
            return 0.0
        series = self.series[0]
        if series is None:
            return None
        column = series.columns[index]
        if column is None:
            return 0.0
        begin = series.end - series.size  # number of the first point in the column
        points = column[max(0, now - period - begin) : now - begin]
        return round(sum(map(unpack, points)) / period, 2)

    def points(self, resolution: int, first: int) -> list[list[float | None]]:
        """Return for each value its points from number ``first`` to the last complete one. ``resolution``: an index.

        A point of a counter is its change per second. None: unknown.
        """
        memory, rates = self.memory, self.rates
        seconds = memory.resolutions[resolution][0]
        end = memory.second // seconds
        series = self.series[resolution]
        length = max(0, end - first)
        known = min(length, max(0, -(-self.since // seconds) - first))  # index of the first known point
        unknown: list[float | None] = [None]
        found: list[list[float | None]] = []
        for index, last in enumerate(self.last):
            gauge = index >= rates
            idle: float = last if gauge else 0.0
            if series is None:
                found.append([*unknown * known, *[idle] * (length - known)])
                continue
            column = series.columns[index]
            stored: list[float | None]
            begin = series.end - series.size
            if column is None:
                stored = [0.0] * series.size
            elif gauge:
                stored = [unpack(code) for code in column]
            else:
                stored = [round(unpack(code) / seconds, 3) for code in column]
            if series.end < end:  # no sample has completed the last point
                change = idle
                if not gauge and seconds > 1:
                    change = round(max(0, last - series.base[index]) / seconds, 3)
                stored += [change] + [idle] * (end - series.end - 1)
            stored = unknown * (begin - first) + stored[max(0, first - begin) :]
            found.append(unknown * known + stored[known:length])
        return found
