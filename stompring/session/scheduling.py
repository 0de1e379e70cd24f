"""When a SEND wants to be delivered: the AMQ_SCHEDULED_… headers (Artemis, ActiveMQ Classic)."""

from __future__ import annotations

from collections.abc import Mapping

from stompring.broker.recurrence import FOREVER, Recurrence
from stompring.errors import Refused

from .text import shortened, text_of

DELAY, TIME = b"AMQ_SCHEDULED_DELAY", b"AMQ_SCHEDULED_TIME"
PERIOD, REPEAT, CRON = b"AMQ_SCHEDULED_PERIOD", b"AMQ_SCHEDULED_REPEAT", b"AMQ_SCHEDULED_CRON"
SCHEDULING = frozenset((DELAY, TIME, PERIOD, REPEAT, CRON))

#: Epoch ms up to the year 9999: larger numbers are mistakes, and overflow what clients make of them.
LATEST = 253_402_300_799_999


class Timing:
    """What the headers say. A delay or time of 0 or below means "now", as in Artemis."""

    __slots__ = ("delay", "due", "recurrence")

    def __init__(self, headers: Mapping[bytes, bytes]) -> None:
        """Read the headers. Raises `Refused` naming the one that is wrong."""
        self.due = max(0, number(headers, TIME, -LATEST, LATEST))
        self.delay = max(0, number(headers, DELAY, -LATEST, LATEST))
        self.recurrence = _recurrence(headers, self.delay)

    def due_at(self, now: int) -> int:
        """When to deliver (epoch ms), 0 for now. AMQ_SCHEDULED_TIME wins over the delay."""
        if self.due:
            return self.due
        if self.recurrence is not None and self.recurrence.cron is not None:
            return self.recurrence.next_cron(now) or 0
        if self.recurrence is not None:
            return now + self.delay
        return now + self.delay if self.delay else 0

    @property
    def is_delay(self) -> bool:
        """Whether what `due_at` says is so much later, and no time of the wall clock."""
        return not self.due and (self.recurrence is None or self.recurrence.cron is None)

    def new_recurrence(self) -> Recurrence | None:
        """Each message counts its own repeats."""
        r = self.recurrence
        return None if r is None else Recurrence(r.period, r.repeat, r.cron, r.delay)


def _recurrence(headers: Mapping[bytes, bytes], delay: int) -> Recurrence | None:
    cron = text_of(headers.get(CRON, b"").strip())
    period = number(headers, PERIOD, 0, LATEST)
    forever = headers.get(REPEAT, b"").strip() == b"-1"
    repeat = FOREVER if forever else number(headers, REPEAT, 0, 2**31 - 1)
    if repeat and not period:
        raise Refused("AMQ_SCHEDULED_REPEAT needs an AMQ_SCHEDULED_PERIOD of at least 1 ms", status=400)
    if not cron and not repeat:
        return None
    return Recurrence(period, repeat, cron or None, delay)


def number(headers: Mapping[bytes, bytes], name: bytes, least: int, most: int, default: int = 0) -> int:
    """A header that is a whole number. Raises `Refused` naming the header, the value and what it may be."""
    value = headers.get(name)
    if value is None:
        return default
    text = value.strip()
    digits = text[1:] if text.startswith(b"-") else text
    if digits.isdigit() and len(digits) < 20 and least <= (found := int(text)) <= most:
        return found
    raise Refused(
        f"{text_of(name)} must be a whole number from {max(least, 0)} to {most}, not '{shortened(value)}'",
        status=400,
    )
