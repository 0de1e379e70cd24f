"""Rejections because a limit was reached: a counter for each limit, and limits on log lines, so that neither rejections
nor a storm of connections can flood the log.
"""

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


log = logging.getLogger(__name__)

#: Every limit, by the name of its setting. ``open-files`` is the system's; ``first-frame``, ``address-words`` and those
#: of HTTP, which begin with ``http-``, have no settings either.
LIMITS = (
    "global-max-connections",
    "connectionsAllowed",
    "connectionsAllowedPerHost",
    "open-files",
    "handshake-timeout",
    "maxBodyLength",
    "maxHeaders",
    "maxHeaderLength",
    "first-frame",
    "global-max-unfinished-size",
    "subscriptionsAllowed",
    "global-max-subscription-size",
    "min-scheduled-period",
    "transactionsAllowed",
    "maxTransactionBytes",
    "global-max-transaction-size",
    "global-max-queues",
    "global-max-addresses",
    "global-max-wildcard-words",
    "address-words",
    "max-sessions",
    "max-queues",
    "http-connections",
    "http-connections-per-host",
    "http-head",
    "http-body",
    "http-request-time",
    "http-answer-time",
)

#: Milliseconds for which what else is refused by the same limit is counted, and told in one line.
QUIET = 10_000


class RejectionLog:
    """One counter for each of `LIMITS`, kept where the refusal is told to whom it concerns.

    The first refusal by a limit is logged as it is. Those of the next ten seconds are added up and told when these
    are over, so that the log grows by two lines in ten seconds for each limit, however many try.
    """

    __slots__ = ("_clock", "_more", "_timers", "counts")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.counts = dict.fromkeys(LIMITS, 0)  # since the start
        self._more: dict[str, int] = {}  # not logged yet, of limits that rest
        self._timers: dict[str, Timer] = {}

    def add(
        self, limit: str, who: str, text: str, number: int = 1, fields: Mapping[str, object] | None = None
    ) -> None:
        """``who`` was refused by ``limit``, ``number`` times at once, and was told ``text``.

        ``fields`` describe ``who`` in the JSON format of the log.
        """
        self.counts[limit] += number
        if limit in self._more:
            self._more[limit] += number
            return
        log.warning("%s: %s", who, text, extra=fields)
        self._rest(limit)

    def add_error(
        self, error: Exception, who: str, text: str, fields: Mapping[str, object] | None = None
    ) -> bool:
        """`add` a refusal if it is one by a limit, and say whether it is."""
        limit: str | None = getattr(error, "limit", None)
        if limit is not None:
            self.add(limit, who, text, fields=fields)
        return limit is not None

    def _rest(self, limit: str) -> None:
        self._more[limit] = 0
        self._timers[limit] = self._clock.call_at(self._clock.refresh() + QUIET, lambda: self._sum_up(limit))

    def _sum_up(self, limit: str) -> None:
        del self._timers[limit]
        more = self._more.pop(limit)
        if more:
            log.warning("rejected %d more times within %d s by %s", more, QUIET // 1000, limit)
            self._rest(limit)

    def stop(self) -> None:
        """Tell what was not told yet, and set no timer any more."""
        for timer in self._timers.values():
            if timer.active():
                timer.cancel()
        for limit, more in self._more.items():
            if more:
                log.warning("rejected %d more times by %s", more, limit)
        self._timers.clear()
        self._more.clear()
