"""A reactor and a disk for a broker that serves nobody: an import turns them by hand."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import Any


class StillReactor:
    """Time for a broker that serves nobody: what it wants to do later is done when `turn` is called."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._order = count()

    def seconds(self) -> float:
        """See IReactorTime."""
        return time.time()

    def callLater(self, delay: float, call: Callable[..., object], /, *args: Any, **kw: Any) -> Call:
        """See IReactorTime."""
        made = Call(self.seconds() + delay, next(self._order), lambda: call(*args, **kw))
        heapq.heappush(self._calls, made)
        return made

    def turn(self) -> None:
        """Do all that is due, and what comes of it."""
        while self._calls and self._calls[0].due <= self.seconds():
            made = heapq.heappop(self._calls)
            if made.call is not None:
                call, made.call = made.call, None
                call()


class Call:
    """Something to be done later."""

    def __init__(self, due: float, order: int, call: Callable[[], object]) -> None:
        self.due = due
        self.call: Callable[[], object] | None = call
        self._order = order

    def __lt__(self, other: Call) -> bool:
        return (self.due, self._order) < (other.due, other._order)

    def active(self) -> bool:
        """See IDelayedCall."""
        return self.call is not None

    def cancel(self) -> None:
        """See IDelayedCall."""
        self.call = None


class NearDisk:
    """Does what is to be done in this thread: nobody else needs it. See `store.disk.Disk`."""

    def __init__(self, reactor: StillReactor) -> None:
        self._results: list[tuple[Callable[[Any], None], Any]] = []
        self._reactor = reactor

    def run(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """See `Disk.run`."""
        try:
            result = job()
        except Exception as fault:
            result = fault
        self._results.append((done, result))
        self._reactor.callLater(0, self.finish)

    def finish(self) -> None:
        """See `Disk.finish`."""
        while self._results:
            done, result = self._results.pop(0)
            done(result)
