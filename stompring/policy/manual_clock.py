"""Time for tests: it stands still until it is told to go on."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

#: When every test begins: epoch milliseconds.
BEGIN = 1_700_000_000_000

#: Seconds, and milliseconds, beyond which a time is taken for one in the wrong unit.
DAY, YEAR = 86_400, 366 * 86_400_000


class HarnessError(BaseException):
    """A test, or the policy that it tests, uses what there is in a way that cannot be meant.

    Not an `Exception`: what a policy raises is caught and counted, and this must reach the test.
    """


def check_seconds(what: str, seconds: object) -> None:
    """Raise `HarnessError` unless that may be a time in seconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise HarnessError(f"{what} takes seconds, 0 or more, not {seconds!r}")
    if seconds > DAY:
        raise HarnessError(
            f"{what} takes seconds: {seconds!r} would be {seconds / DAY:.1f} days, and looks like milliseconds"
        )


def check_milliseconds(what: str, milliseconds: object) -> None:
    """Raise `HarnessError` unless that may be a time in milliseconds."""
    if isinstance(milliseconds, float):
        raise HarnessError(f"{what} takes whole milliseconds: {milliseconds!r} looks like seconds")
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int) or milliseconds < 0:
        raise HarnessError(f"{what} takes whole milliseconds, 0 or more, not {milliseconds!r}")
    if milliseconds > YEAR:
        raise HarnessError(
            f"{what} takes milliseconds: {milliseconds!r} would be more than a year, and looks like a point in time"
        )


class ManualTimer:
    """What `ManualClock.callLater` returns."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def active(self) -> bool:
        """Whether it will still ring."""
        return self.call is not None

    def cancel(self) -> None:
        """It will not."""
        self.call = None


class ManualClock:
    """Time that stands still until it is told to go on."""

    def __init__(self) -> None:
        self._now = BEGIN * 1000  # microseconds: sums of seconds would not be exact
        self._timers: list[tuple[int, int, ManualTimer]] = []
        self._order = count()

    def seconds(self) -> float:
        """Seconds since the epoch."""
        return (self._now + 0.5) / 1_000_000  # whole milliseconds must not come out as a little less

    def callLater(self, delay: float, call: Callable[..., object], /, *args: Any, **kw: Any) -> ManualTimer:
        """As the reactor's."""
        timer = ManualTimer(lambda: call(*args, **kw))
        heappush(self._timers, (self._now + round(delay * 1_000_000), next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Let time go by; everything that is due happens, at its own time. Raises `HarnessError`."""
        check_seconds("clock.advance", seconds)
        self._forward(seconds)

    def forward(self, milliseconds: int) -> None:
        """As `advance`, in milliseconds. Raises `HarnessError`."""
        check_milliseconds("advance", milliseconds)
        self._forward(milliseconds / 1000)

    def _forward(self, seconds: float) -> None:
        until = self._now + round(seconds * 1_000_000)
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heappop(self._timers)
            self._now = max(self._now, due)
            call, timer.call = timer.call, None
            if call is not None:
                call()
        self._now = until
