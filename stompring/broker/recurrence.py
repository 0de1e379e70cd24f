"""Scheduled delivery: delay or time, period and repeat, or a cron expression (Artemis, ActiveMQ Classic)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cronsim import CronSim, CronSimError

from stompring.errors import Refused

from .clock import LOCAL

FOREVER = -1

#: Characters of a cron expression: every minute of an hour by its number is 170. Longer ones only take time to read.
LONGEST_CRON = 1000


@dataclass(slots=True)
class Recurrence:
    """What is left to do after the next delivery.

    ``period`` (ms) and ``repeat`` (times after the first, `FOREVER` for no end) are AMQ_SCHEDULED_PERIOD and
    AMQ_SCHEDULED_REPEAT. With ``cron`` (five fields, the broker's local time) each cron time starts such a series
    anew after ``delay`` ms.
    """

    period: int = 0
    repeat: int = 0
    cron: str | None = None
    delay: int = 0

    def __post_init__(self) -> None:
        if self.cron is not None:
            try:
                if len(self.cron) > LONGEST_CRON:
                    raise CronSimError(f"Longer than {LONGEST_CRON} characters")
                if not self.cron.isascii():  # blanks of other scripts would count as such
                    raise CronSimError("Not ASCII")
                if len(self.cron.split()) != 5:
                    raise CronSimError("Wrong number of fields")  # the library would take six, with seconds
                CronSim(self.cron, datetime.now())
            except CronSimError as fault:
                raise Refused(
                    f"AMQ_SCHEDULED_CRON '{self.cron}' is not a cron expression of five fields "
                    f"(minute hour day month weekday): {fault}",
                    status=400,
                ) from None

    def next_cron(self, now: int) -> int | None:
        """The next cron time after ``now`` (epoch ms), None when there never is one."""
        assert self.cron is not None
        try:
            # with a zone that knows its changes to and from summer time, a run is neither skipped nor doubled
            start = datetime.fromtimestamp(now / 1000, LOCAL)
            return int(next(CronSim(self.cron, start)).timestamp() * 1000)
        except (StopIteration, OverflowError):  # the latter: nothing more before the year 10000
            return None

    @property
    def series(self) -> Recurrence | None:
        """What one cron time starts, None when it is one message at once."""
        if self.delay <= 0 and self.repeat == 0:
            return None
        return Recurrence(self.period, self.repeat)

    def advance(self, due: int, now: int) -> int | None:
        """The due time after the one that has just come (epoch ms); None when it was the last.

        Times that were missed (a suspended machine) are not made up for: the next one lies after ``now``.
        """
        if self.cron is not None:
            return self.next_cron(max(due, now))
        if self.repeat == 0:
            return None
        if self.repeat > 0:
            self.repeat -= 1
        following = due + self.period
        if following <= now and self.period > 0:
            following += (now - following) // self.period * self.period + self.period
        return max(following, now)


class Schedule:
    """When messages with the same headers are delivered. A delay or time of 0 or below means "now", as in Artemis."""

    __slots__ = ("delay", "due", "recurrence")

    def __init__(self, due: int, delay: int, recurrence: Recurrence | None) -> None:
        self.due = max(0, due)  # epoch ms (AMQ_SCHEDULED_TIME)
        self.delay = max(0, delay)  # ms (AMQ_SCHEDULED_DELAY)
        self.recurrence = recurrence

    def due_at(self, now: int) -> int:
        """When a message sent ``now`` is delivered (epoch ms), 0 for at once. A time wins over a delay."""
        if self.due:
            return self.due
        if self.recurrence is not None and self.recurrence.cron is not None:
            return self.recurrence.next_cron(now) or 0
        if self.recurrence is not None:
            return now + self.delay
        return now + self.delay if self.delay else 0

    @property
    def is_delay(self) -> bool:
        """Whether `due_at` gives a delay from now, and no time of the wall clock."""
        return not self.due and (self.recurrence is None or self.recurrence.cron is None)

    def new_recurrence(self) -> Recurrence | None:
        """Each message counts its own repeats."""
        r = self.recurrence
        return None if r is None else Recurrence(r.period, r.repeat, r.cron, r.delay)
