"""Times of a report: from when to when, and the steps that its plots go in. All of it is UTC, in µs since the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND

#: Steps that people can read at the axis of a plot.
READABLE_STEPS = (
    *(millis * SECOND // 1000 for millis in (10, 20, 50, 100, 200, 500)),
    *(seconds * SECOND for seconds in (1, 2, 5, 10, 15, 30)),
    *(minutes * MINUTE for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR for hours in (1, 2, 3, 6, 12)),
    *(days * DAY for days in (1, 2, 7, 14, 28, 91, 364)),
)


def microseconds(time: datetime) -> int:
    """Since the epoch; a time without a zone is UTC."""
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND


def as_datetime(time: int) -> datetime:
    """The time of so many microseconds."""
    return EPOCH + timedelta(microseconds=time)


@dataclass(frozen=True, slots=True)
class Period:
    """``since`` <= the time of what is reported < ``until``; None: from the first, to the last that there is.

    A time without a zone is UTC. Raises ValueError where ``until`` is not later than ``since``.
    """

    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        begin, end = self.begin, self.end
        if begin is not None and end is not None and begin >= end:
            raise ValueError("until must be later than since")

    @property
    def begin(self) -> int | None:
        """``since`` in µs."""
        return None if self.since is None else microseconds(self.since)

    @property
    def end(self) -> int | None:
        """``until`` in µs."""
        return None if self.until is None else microseconds(self.until)


@dataclass(frozen=True, slots=True)
class Grid:
    """``count`` steps of ``step`` µs, the first of which begins at ``start``."""

    start: int
    step: int
    count: int

    @classmethod
    def nice(cls, begin: int, end: int, at_most: int, least: int = 1) -> Grid:
        """Steps from ``begin`` to ``end``, both included, that are no more than ``at_most`` and easy to read."""
        for step in READABLE_STEPS:
            start = begin // step * step
            count = (end - start) // step + 1
            if step >= least and count <= at_most:
                return cls(start, step, count)
        return cls.fine(begin, end, at_most)

    @classmethod
    def fine(cls, begin: int, end: int, at_most: int) -> Grid:
        """Steps as short as they can be."""
        step = max(1, -(-(end - begin + 1) // at_most))
        return cls(begin, step, (end - begin) // step + 1)

    @property
    def end(self) -> int:
        """Where the last step ends."""
        return self.start + self.step * self.count

    @property
    def seconds(self) -> float:
        """How long a step is."""
        return self.step / SECOND

    def step_sql(self, column: str) -> str:
        """SQL: which step a column of µs is in; -1 for what was before all of them."""
        return f"IF({column} < {self.start}, -1, CAST(({column} - {self.start}) DIV {self.step} AS INT))"
