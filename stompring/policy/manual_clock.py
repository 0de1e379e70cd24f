"""Time for tests: it stands still until it is told to go on."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

#: When every test begins: epoch milliseconds.
BEGIN = 1_700_000_000_000


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
        """Let time go by; everything that is due happens, at its own time."""
        until = self._now + round(seconds * 1_000_000)
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heappop(self._timers)
            self._now = max(self._now, due)
            call, timer.call = timer.call, None
            if call is not None:
                call()
        self._now = until
