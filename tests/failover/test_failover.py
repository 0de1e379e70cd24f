"""The short form of the failover test; ``make failover`` is the long one."""

import os
from contextlib import contextmanager
from dataclasses import replace

import pytest

from ..campaigns import BrokenPromise
from ..nats_cluster import installed
from . import clock, network
from .campaign import FailoverCampaign
from .probes import PROFILES
from .world import World

#: A fifth of the load: other tests run at the same time.
SLOWER = tuple(replace(profile, pause=5 * profile.pause) for profile in PROFILES)
SEED = int(os.environ.get("SEED", "1"))


@contextmanager
def _campaign(directory, seed, faults, kinds, engine, **more):
    namespaces = network.why_not() is None
    with World(directory, seed, engine, namespaces, clock.why_not() is None) as world:
        areas = ("memory", "always")
        yield FailoverCampaign(world, seed, faults, kinds, areas=areas, profiles=SLOWER, tell=print, **more)


def _run(*arguments):
    with _campaign(*arguments) as campaign:
        return campaign.run()


#: Ten faults, in two worlds that can run at the same time.
SHARDS = (
    (
        "active killed",
        "active stopped, continued after the takeover",
        "machine of the active lost, with the stream leader",
        "standby killed, directory wiped",
        "stream leader killed",
    ),
    (
        "active cut from the log",
        "quorum lost and back",
        "log full",
        "disk of the active full",
        "files of one node damaged",
    ),
)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "shard",
    [
        pytest.param(0, marks=pytest.mark.xdist_group("failover: 0")),
        pytest.param(1, marks=pytest.mark.xdist_group("failover: 1")),
    ],
)
def test_nothing_is_lost_with_a_replicated_log(tmp_path, shard):
    installed()
    kinds = SHARDS[shard]
    report = _run(tmp_path, SEED + shard, len(kinds), kinds, "nats")
    assert len(report.outcomes) == len(kinds), report.text()
    assert report.entries > 100 and report.counts["receipts of SEND"], report.text()


@pytest.mark.timeout(300)
@pytest.mark.xdist_group("failover: shared directory")
@pytest.mark.parametrize(
    "kinds",
    [("active killed",), pytest.param(("active killed", "active ends in order"), marks=pytest.mark.long)],
    ids=len,
)
def test_nothing_is_lost_when_a_waiting_broker_takes_over_the_directory(tmp_path, kinds):
    report = _run(tmp_path, SEED, len(kinds), kinds, "shared")
    assert sum(outcome.takeover for outcome in report.outcomes) == len(kinds), report.text()
    assert report.counts["receipts of SEND"] and report.counts["audits"] == len(kinds) + 1, report.text()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("failover: shared directory")
def test_a_lost_message_is_found_out(tmp_path):
    """A client that believes it has a receipt for what it never sent takes the place of a broker that lost it."""
    with _campaign(tmp_path, 1, 1, ("standby killed",), "shared", draining=3.0) as campaign:
        for account in campaign.probes.accounts:
            if account.profile.identified:
                account.sends[1000_000] += 1
                account.receipted[1000_000] = 0.0
        with pytest.raises(
            BrokenPromise, match=r"seed 1, fault 1 \(end\): 3 broken promises\n  lost: 1 of probe"
        ):
            campaign.run()
