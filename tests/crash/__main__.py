"""The long form of the crash test: ``python -m tests.crash``, or ``make crash``.

Environment: FAULTS (500), SEED (from the clock), AREAS (memory,paged,always).
"""

import os
import sys

from ..campaigns import campaigns, tell
from . import topology
from .campaign import Campaign


def _one(directory, seed, kills):
    areas = tuple(filter(None, os.environ.get("AREAS", "").split(","))) or tuple(topology.AREAS)
    return Campaign(directory, seed, kills, areas=areas, tell=tell).run()


if __name__ == "__main__":
    sys.exit(campaigns("crash", 500, 25, _one, "AREAS"))  # kills of one data directory
