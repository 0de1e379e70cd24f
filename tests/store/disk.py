"""Disks for tests of the store, without a thread: one that does its work at once, one that is told when to."""

from collections import deque


def outcome_of(job):
    """What a job returns or raises."""
    try:
        return job()
    except Exception as fault:
        return fault


class ImmediateDisk:
    """Does each job as it comes; its result is there in the next turn of the clock."""

    def __init__(self, clock):
        self.clock = clock
        self._results = deque()

    def run(self, job, done):
        self._results.append((done, outcome_of(job)))
        self.clock.callLater(0, self._next)

    def _next(self):
        if self._results:
            done, result = self._results.popleft()
            done(result)

    def finish(self):
        while self._results:
            self._next()


class ManualDisk:
    """Does nothing until it is told to."""

    def __init__(self):
        self.jobs = deque()

    def run(self, job, done):
        self.jobs.append((job, done))

    def step(self):
        """Do the oldest job, and tell its result."""
        job, done = self.jobs.popleft()
        done(outcome_of(job))

    def do(self):
        """Do the oldest job; nobody hears of it, as the broker dies now."""
        job, _ = self.jobs.popleft()
        outcome_of(job)

    def finish(self):
        while self.jobs:
            self.step()
