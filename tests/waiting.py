"""How long tests wait: `PATIENCE` on a machine that has time for them, longer on one that has not.

A process that is ready to run and does not run is not slow: the machine is busy. Linux counts that time for each
process (``/proc/PID/schedstat``). A `Deadline` moves by the time that this process or one of its children lost so, up
to `LONGEST` times the seconds that it was made for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

#: Seconds that anything may take that ought to happen at once. Generous: test machines are slow and shared.
PATIENCE = 30.0

#: A deadline is at most so many times as far as on an idle machine.
LONGEST = 5.0

#: Seconds between two looks at a condition.
PAUSE = 0.02


def children(process: object = "self") -> list[int]:
    """Process ids of the children of a process, of this one where no other is named."""
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:  # the thread has ended
            continue
    return found


class Delays:
    """`delays`, read at most once a second: each frame that a test awaits has a deadline."""

    def __init__(self) -> None:
        self._read = -1.0
        self._found: dict[int, float] = {}

    def __call__(self) -> dict[int, float]:
        now = time.monotonic()
        if now > self._read + 1:
            self._read, self._found = now, delays()
        return self._found


def delays() -> dict[int, float]:
    """Seconds that this process and its children were ready to run without running, by process id."""
    found = {}
    for pid in (os.getpid(), *children()):
        try:
            found[pid] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            continue
    return found


RECENT = Delays()


class Deadline:
    """A moment in the future that moves away while the machine is busy."""

    def __init__(
        self,
        seconds: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        delays: Callable[[], dict[int, float]] = RECENT,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._delays = delays
        self._began = clock()
        self._before = delays()

    def left(self) -> float:
        """Seconds until then; 0 or less if the moment has passed."""
        left = self._began + self._seconds - self._clock()
        if left > 0:
            return left
        lost = max((now - self._before.get(pid, 0.0) for pid, now in self._delays().items()), default=0.0)
        return left + min(lost, (LONGEST - 1) * self._seconds)

    def passed(self) -> bool:
        """Whether nothing is left."""
        return self.left() <= 0

    def pause(self, seconds: float = PAUSE) -> None:
        """Sleep between two looks at a condition."""
        time.sleep(max(0.0, min(seconds, self.left())))


def until(true: Callable[[], object], what: object, seconds: float = PATIENCE) -> None:
    """Look at a condition until it is true. Raises `AssertionError` with ``what``, or its result."""
    deadline = Deadline(seconds)
    while not true():
        assert not deadline.passed(), what() if callable(what) else what
        deadline.pause()
