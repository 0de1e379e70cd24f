"""The long form of the failover test: ``python -m tests.failover``, or ``make failover``.

Environment: FAULTS (200), SEED (from the clock), KINDS (all; names separated by ``;``), REPORT (build/failover.json),
LADEN (0,0): messages that wait in memory and in pages all the time; ENGINE (nats).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from ..nats_cluster import nats_server
from . import clock, network
from .campaign import BrokenPromise, FailoverCampaign
from .report import Report
from .world import DISK, World

#: Faults in one world, before the next one begins with empty disks.
OF_ONE_WORLD = 40


def main():
    """Campaigns until there were enough faults; ends at the first broken promise."""
    left = int(os.environ.get("FAULTS", "200"))
    seed = int(os.environ.get("SEED") or time.time())
    kinds = tuple(filter(None, os.environ.get("KINDS", "").split(";")))
    engine = os.environ.get("ENGINE", "nats")
    memory, paged = map(int, os.environ.get("LADEN", "0,0").split(","))
    disk = DISK + (memory + paged) // 1500
    if engine == "nats" and nats_server() is None:
        print("nats-server is not installed")
        return 2
    no_namespaces, no_clocks = network.why_not(), clock.why_not()
    for reason in filter(None, (no_namespaces, no_clocks)):
        print(f"left out: {reason}")
    total = Report(seed)
    while left > 0:
        count = min(left, OF_ONE_WORLD)
        print(f"seed {seed}, {count} faults", flush=True)
        directory = Path(tempfile.mkdtemp(prefix=f"stompring-failover-{seed}-"))
        try:
            with World(directory, seed, engine, no_namespaces is None, no_clocks is None, disk) as world:
                campaign = FailoverCampaign(world, seed, count, kinds, laden=(memory, paged), tell=_tell)
                try:
                    campaign.run()
                finally:
                    _add(total, campaign.report)
        except BrokenPromise as fault:
            print(f"\n{fault}\n\n{total.text()}", flush=True)
            chosen = f"KINDS='{';'.join(kinds)}' " if kinds else ""
            print(f"\nagain: {chosen}SEED={seed} FAULTS={count} make failover", flush=True)
            return 1
        shutil.rmtree(directory)
        left -= count
        seed += 1
    print(f"\n{total.text()}", flush=True)
    total.write(Path(os.environ.get("REPORT", "build/failover.json")))
    return 0


def _add(total, one):
    total.outcomes += one.outcomes
    for what, number in one.counts.items():
        total.counts[what] = total.counts.get(what, 0) + number
    total.elapsed += one.elapsed
    total.writers += one.writers
    total.entries += one.entries


def _tell(line):
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
