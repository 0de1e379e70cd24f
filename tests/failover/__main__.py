"""The long form of the failover test: ``python -m tests.failover``, or ``make failover``.

Environment: FAULTS (200), SEED (from the clock), KINDS (all; names separated by ``;``), REPORT (build/failover.json),
LADEN (0,0): messages that wait in memory and in pages all the time; ENGINE (nats).
"""

import os
import sys
from pathlib import Path

from ..campaigns import campaigns, tell
from ..nats_cluster import nats_server
from . import clock, network
from .campaign import FailoverCampaign
from .report import Report
from .world import DISK, World

#: Of all worlds.
TOTAL = Report(0)


def main():
    """Campaigns until there were enough faults; the exit code."""
    if os.environ.get("ENGINE", "nats") == "nats" and nats_server() is None:
        print("nats-server is not installed")
        return 2
    for reason in filter(None, (network.why_not(), clock.why_not())):
        print(f"left out: {reason}")
    # faults in one world, before the next one begins with empty disks
    code = campaigns("failover", 200, 40, _one, "KINDS", "LADEN", "ENGINE")
    tell(f"\n{TOTAL.text()}")
    TOTAL.write(Path(os.environ.get("REPORT", "build/failover.json")))
    return code


def _one(directory, seed, count):
    kinds = tuple(filter(None, os.environ.get("KINDS", "").split(";")))
    laden = tuple(map(int, os.environ.get("LADEN", "0,0").split(",")))
    can = (network.why_not() is None, clock.why_not() is None)
    disk = DISK + sum(laden) // 1500
    with World(directory, seed, os.environ.get("ENGINE", "nats"), *can, disk) as world:
        campaign = FailoverCampaign(world, seed, count, kinds, laden=laden, tell=tell)
        try:
            campaign.run()
        finally:
            TOTAL.add(campaign.report)
    return f"{campaign.report.elapsed:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
