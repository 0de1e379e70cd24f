"""The eager loader: does what is wanted of pages in the background, in slices of the reactor's time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from stompring.broker.clock import Clock

#: Most and least seconds of work at a time, after which the reactor serves everybody else.
SLICE, MINIMUM = 0.003, 0.0005


class Work(Protocol):
    """Something that can be done bit by bit."""

    requested: bool  # stands in the loader's line

    def work(self, in_time: Callable[[], bool]) -> None:
        """Do some of it, until it is not ``in_time`` any more; who has more to do says so with `Loader.want`."""


def no_work() -> int:
    """No queue keeps up."""
    return 0


class Loader:
    """A line of work; each gets its turn.

    ``others`` says how many queues keep up without it. Each piece of work in the line takes as much of the reactor's
    time as each of them: who comes back to a long backlog does not slow down those who have none.
    """

    def __init__(
        self,
        clock: Clock,
        others: Callable[[], int] = no_work,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._others = others
        self._now = now
        self._line: deque[Work] = deque()
        self._called = False
        self._since = 0.0  # when somebody else had the reactor
        self._end = 0.0
        self.stopped = False

    def request(self, work: Work) -> None:
        """Have something done soon."""
        if work.requested or self.stopped:
            return
        work.requested = True
        self._line.append(work)
        if not self._called:
            self._called = True
            self._since = self._now()
            self._clock.soon(self._run)

    def _in_time(self) -> bool:
        return self._now() < self._end

    def _run(self) -> None:
        self._clock.refresh()
        now, others, most = self._now(), self._others(), SLICE
        if others:
            share = (now - self._since) * len(self._line) / others
            most = min(SLICE, max(MINIMUM, share))
        self._end = now + most
        try:
            for _ in range(len(self._line)):
                work = self._line.popleft()
                work.requested = False
                work.work(self._in_time)
                if not self._in_time():
                    break
        finally:
            self._called = bool(self._line) and not self.stopped
            if self._called:
                self._since = self._now()
                self._clock.soon(self._run)

    def stop(self) -> None:
        """Do nothing more."""
        self.stopped = True
        self._line.clear()
