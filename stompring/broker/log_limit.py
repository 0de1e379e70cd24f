"""A limit on log lines: a storm of connections or of management requests must not fill the disk with its log."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from .clock import Clock, Timer

#: Milliseconds of one interval.
INTERVAL = 10_000

#: Lines of one kind that are logged in an interval. A kind has some 10 lines a second then, and 100 at once.
LINES = 100


class LogLimit:
    """Logs at INFO, at most `LINES` lines of each kind in `INTERVAL`.

    An interval begins with a line. Those beyond the limit are counted, and one line says how many they were when the
    interval is over. A timer runs only while lines are suppressed.
    """

    __slots__ = ("_clock", "_intervals")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._intervals: dict[str, _Interval] = {}

    def info(
        self, log: logging.Logger, kind: str, text: str, *values: object, fields: Mapping[str, object]
    ) -> None:
        """Log ``text % values`` with ``fields`` for the JSON format, unless there were too many lines of ``kind``.

        ``kind`` stands in the line about suppressed ones, before the word "lines".
        """
        if not log.isEnabledFor(logging.INFO):
            return
        now = self._clock.now
        interval = self._intervals.get(kind)
        if interval is None or (
            not interval.suppressed and not interval.begun <= now < interval.begun + INTERVAL
        ):
            interval = self._intervals[kind] = _Interval(log, now)
        if interval.lines < LINES:
            interval.lines += 1
            log.info(text, *values, extra=fields)
            return
        interval.suppressed += 1
        if interval.timer is None:
            interval.timer = self._clock.call_at(interval.begun + INTERVAL, lambda: self._end(kind))

    def _end(self, kind: str) -> None:
        _report(kind, self._intervals.pop(kind))

    def stop(self) -> None:
        """Report what was suppressed, and set no timer any more."""
        for kind, interval in self._intervals.items():
            if interval.timer is not None and interval.timer.active():
                interval.timer.cancel()
            _report(kind, interval)
        self._intervals.clear()


class _Interval:
    """Of one kind of line."""

    __slots__ = ("begun", "lines", "log", "suppressed", "timer")

    def __init__(self, log: logging.Logger, begun: int) -> None:
        self.log = log
        self.begun = begun
        self.lines = 0
        self.suppressed = 0
        self.timer: Timer | None = None


def _report(kind: str, interval: _Interval) -> None:
    if interval.suppressed:
        interval.log.info(
            "%d %s lines suppressed: more than %d in %d s",
            interval.suppressed,
            kind,
            LINES,
            INTERVAL // 1000,
            extra={"suppressed": interval.suppressed},
        )
