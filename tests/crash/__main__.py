"""The long form of the crash test: ``python -m tests.crash``, or ``make crash``.

Environment: STOMPRING_KILLS (500), STOMPRING_SEED (from the clock), STOMPRING_AREAS (memory,paged,always).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from . import topology
from .campaign import Campaign

#: Kills of one data directory, before the next campaign begins with an empty one.
OF_ONE_DIRECTORY = 25


def main():
    """Run campaigns until enough was killed; stops at the first broken promise."""
    left = int(os.environ.get("STOMPRING_KILLS", "500"))
    seed = int(os.environ.get("STOMPRING_SEED", str(int(time.time()))))
    areas = tuple(filter(None, os.environ.get("STOMPRING_AREAS", "").split(","))) or tuple(topology.AREAS)
    total, began = left, time.monotonic()
    print(f"{total} kills, {OF_ONE_DIRECTORY} to a data directory; the first seed is {seed}", flush=True)
    while left > 0:
        kills = min(left, OF_ONE_DIRECTORY)
        directory = Path(tempfile.mkdtemp(prefix=f"stompring-crash-{seed}-"))
        try:
            report = Campaign(directory, seed, kills, areas=areas, tell=_tell).run()
        except AssertionError as fault:
            print(f"\n{fault}\n", flush=True)
            print(f"again: STOMPRING_SEED={seed} STOMPRING_KILLS={kills} make crash", flush=True)
            return 1
        shutil.rmtree(directory)
        left -= report.kills
        seconds = time.monotonic() - began
        print(f"{total - left}/{total} kills after {seconds:.0f} s; seed {seed}: {report}", flush=True)
        seed += 1
    return 0


def _tell(line):
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
