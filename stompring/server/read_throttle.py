"""The read throttle: connections with slow reads get half of the time, and leave the other half to all others.

The reactor reads from every socket in turn, up to 64 KiB at a time. Most reads take a few milliseconds; one with
thousands of escaped headers or a dozen long selectors takes some hundred, and a client that sends nothing else would
leave a few per cent to clients that wait for an answer before they send the next frame.

A connection with a slow read is paused for as long as the read took, and paused connections are resumed one after the
other. Where nothing else is read for a tenth of that time it is resumed early, so that little is lost where it is
alone, as a producer with a thousand subscribers may be.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from stompring.session.backpressure import Reading

#: Seconds from which on a read is slow: some ten times as much as 64 KiB of ordinary frames.
SLOW_READ = 0.02

#: Seconds, the longest pause for one read.
MAX_PAUSE = 1.0

#: Seconds between checks, and the part of a pause without other reads that ends it early.
CHECK_INTERVAL, IDLE_FRACTION = 0.002, 0.1


class Throttled(NamedTuple):
    """A paused connection: until when (seconds of the reactor), and how many idle seconds end the pause."""

    reading: Reading
    until: float
    idle: float


class ReadThrottle:
    """The paused connections. ``reads`` counts the reads of all connections; their protocols increment it."""

    def __init__(self) -> None:
        self.reads = 0
        self._paused: deque[Throttled] = deque()
        self._before = 0  # reads at the last check
        self._last_read = 0.0  # of another connection, or the beginning of a pause

    def throttle(self, reading: Reading, spent: float, reactor: Any) -> None:
        """Pause a connection whose read has taken ``spent`` seconds, more than `SLOW_READ`."""
        now = reactor.seconds()
        pause = min(spent, MAX_PAUSE)
        begin = self._paused[-1].until if self._paused else now
        self._paused.append(Throttled(reading, begin + pause, pause * IDLE_FRACTION))
        reading.suspend()
        if len(self._paused) == 1:
            self._before, self._last_read = self.reads, now
            reactor.callLater(CHECK_INTERVAL, self._check, reactor)

    def _check(self, reactor: Any) -> None:
        now = reactor.seconds()
        if self.reads != self._before:
            self._before, self._last_read = self.reads, now
        first = self._paused[0]
        if now >= first.until or now - self._last_read >= first.idle:
            self._paused.popleft()
            self._last_read = now
            first.reading.unsuspend()
        if self._paused:
            reactor.callLater(CHECK_INTERVAL, self._check, reactor)
