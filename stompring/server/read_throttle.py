"""Connections whose reads are dear take their turns in half of the time, and leave the other half to all others.

The reactor reads from every socket in turn, up to 64 KiB at a time. Most reads take a few milliseconds; one with
thousands of escaped headers or a dozen long selectors takes some hundred, and whoever sends nothing else would leave a
few per cent to clients that wait for an answer before they ask the next question.

A connection that was dear rests for as long as it took, and all of them rest one after the other. Where nobody else
says anything for a tenth of that time it goes on, so that little is lost where it is alone, as a producer with a
thousand subscribers may be.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from stompring.session.backpressure import Reading

#: Seconds that one read may take before it is dear: some ten times as much as 64 KiB of ordinary frames.
SLOW_READ = 0.02

#: Seconds, the longest rest for one read.
MAX_PAUSE = 1.0

#: Seconds between looks, and the part of a rest that must pass in silence to end it.
CHECK_INTERVAL, IDLE_FRACTION = 0.002, 0.1


class Throttled(NamedTuple):
    """Who rests, until when (seconds of the reactor), and how much silence would end that."""

    reading: Reading
    until: float
    silence: float


class ReadThrottle:
    """Who rests. ``reads`` counts what is read from anybody, and is counted up where that happens."""

    def __init__(self) -> None:
        self.reads = 0
        self._tired: deque[Throttled] = deque()
        self._before = 0  # reads at the last look
        self._heard = 0.0  # when somebody was read last, or a rest began

    def throttle(self, reading: Reading, spent: float, reactor: Any) -> None:
        """A read has taken ``spent`` seconds, more than `DEAR`: nothing more is read there for a while."""
        now = reactor.seconds()
        rest = min(spent, MAX_PAUSE)
        begin = self._tired[-1].until if self._tired else now
        self._tired.append(Throttled(reading, begin + rest, rest * IDLE_FRACTION))
        reading.rest()
        if len(self._tired) == 1:
            self._before, self._heard = self.reads, now
            reactor.callLater(CHECK_INTERVAL, self._look, reactor)

    def _look(self, reactor: Any) -> None:
        now = reactor.seconds()
        if self.reads != self._before:
            self._before, self._heard = self.reads, now
        first = self._tired[0]
        if now >= first.until or now - self._heard >= first.silence:
            self._tired.popleft()
            self._heard = now
            first.reading.wake()
        if self._tired:
            reactor.callLater(CHECK_INTERVAL, self._look, reactor)
