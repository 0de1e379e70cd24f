"""What a case costs: seconds of processor time of this process and of the processes that the case started.

Time on the clock says more of the machine than of a test. Processor time does not grow by waiting. It does on a slow
processor and where another process shares its core, up to twice as much. So a case above `LIMIT` is judged by the speed
of the processor at that moment: a short loop is measured beside it.
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from .waiting import children

#: Seconds that a case may take, unless it has the mark `long`.
LIMIT = 6.0

#: Processor time of `_loop` on a processor for which `LIMIT` is meant.
REFERENCE = 0.006

#: Modules with cases that take longer and have not become cheaper yet. This list may only shrink.
EXPENSIVE: frozenset[str] = frozenset(
    {
        "tests/crash/test_kills.py",  # 4.8 s alone, 11 s beside other tests: brokers work until they are killed
    }
)

_TICK = os.sysconf("SC_CLK_TCK")


def _loop() -> float:
    before = time.thread_time()
    total = 0
    for number in range(200_000):
        total += number & 7
    return time.thread_time() - before


def limit() -> float:
    """`LIMIT` on this processor, as fast as it is at this moment."""
    return LIMIT * max(1.0, median(_loop() for _ in range(9)) / REFERENCE)


@dataclass(frozen=True, slots=True)
class Spent:
    """Processor time up to a moment: of this process, of its children that have ended, and of each that runs."""

    own: float
    ended: float
    running: dict[tuple[int, str], float]

    @classmethod
    def now(cls) -> Spent:
        """Up to now."""
        running = {}
        for pid in children():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            running[pid, fields[19]] = (
                sum(map(int, fields[11:15])) / _TICK
            )  # with the children that it waited for
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(time.process_time(), ended.ru_utime + ended.ru_stime, running)

    def since(self, before: Spent) -> float:
        """Seconds between two moments, without processes that were there before and still run: what tests share."""
        shared = sum(seconds for key, seconds in before.running.items() if key not in self.running)
        started = sum(seconds for key, seconds in self.running.items() if key not in before.running)
        return self.own - before.own + self.ended - before.ended - shared + started
