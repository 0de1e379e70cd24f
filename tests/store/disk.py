"""Disks for tests of the store, without a thread: one that does its work at once, one that is told when to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock

Job = Callable[[], Any]
Done = Callable[[Any], None]


def outcome_of(job: Job) -> Any:
    """What a job returns or raises."""
    try:
        return job()
    except Exception as fault:
        return fault


class ImmediateDisk:
    """Does each job as it comes; its result is there in the next turn of the clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._results: deque[tuple[Done, Any]] = deque()

    def run(self, job: Job, done: Done) -> None:
        self._results.append((done, outcome_of(job)))
        self.clock.callLater(0, self._next)

    def _next(self) -> None:
        if self._results:
            done, result = self._results.popleft()
            done(result)

    def finish(self) -> None:
        while self._results:
            self._next()


class ManualDisk:
    """Does nothing until it is told to."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Job, Done]] = deque()

    def run(self, job: Job, done: Done) -> None:
        self.jobs.append((job, done))

    def step(self) -> None:
        """Do the oldest job, and tell its result."""
        job, done = self.jobs.popleft()
        done(outcome_of(job))

    def do(self) -> None:
        """Do the oldest job; nobody hears of it, as the broker dies now."""
        job, _ = self.jobs.popleft()
        outcome_of(job)

    def finish(self) -> None:
        while self.jobs:
            self.step()
