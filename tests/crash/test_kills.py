"""The short form of the crash test; ``make crash`` is the long one."""

import os

import pytest

from ..management import Management
from . import campaign
from .campaign import BrokenPromise, Campaign

#: What must happen before the first kill. Seconds are no measure of that: a machine may be slow.
EACH = (
    *("receipts of SEND", "receipts of ACK", "receipts of NACK", "receipts of COMMIT"),
    *("ABORTs of an ACK", "purges"),
    *("queues made", "queues changed", "queues paused or resumed", "queues deleted", "addresses made"),
)


@pytest.mark.timeout(300)
def test_nothing_that_was_promised_is_lost(tmp_path):
    """Sixteen kills. The seed is in the report of a failure; STOMPRING_SEED repeats it."""
    seed = int(os.environ.get("STOMPRING_SEED", "1"))
    report = Campaign(tmp_path, seed, 16, hurry=0.5, begin_with=EACH, forked=True).run()
    assert report.kills == 16
    for what in (*EACH, "ids sent again"):
        assert report.counts.get(what), f"nothing was tested of {what}: {report}"
    assert report.paged and report.segments > 2, f"files did not matter: {report}"


def test_a_broker_without_a_store_is_found_out(tmp_path):
    """The whole apparatus fails where it must: at the first restart after a life in which anything was receipted."""
    with pytest.raises(BrokenPromise, match=r"seed 7, kill \d+: \d+ broken promises\n  lost: "):
        Campaign(tmp_path, 7, 20, persistence=False, forked=True).run()


@pytest.mark.timeout(300)
def test_a_queue_that_gives_nothing_more_is_found_out(tmp_path, monkeypatch):
    """One that is paused takes the place of one that a fault has stopped."""

    class Stopped(Campaign):
        async def _drain(self, victim):
            management = Management(victim.http_port)
            there = {queue["name"] for queue in management.ask("GET", "/queues", size=1000)["data"]}
            if "memory.grouped" not in there:
                management.ask("POST", "/queues", {"name": "memory.grouped", "routingType": "ANYCAST"})
            management.ask("PATCH", "/queues/memory.grouped", {"paused": True})
            await super()._drain(victim)

    monkeypatch.setattr(campaign, "DRAINING", 3.0)
    with pytest.raises(
        BrokenPromise, match=r"undrained: \d+ never came; the broker counts {'memory.grouped': \d+}"
    ):
        Stopped(tmp_path, 7, 1, areas=("memory",), forked=True).run()


def test_a_broker_that_forgets_ids_is_found_out(tmp_path):
    with pytest.raises(BrokenPromise, match=r"duplicate: of \d+ ids that .* had, \d+ were routed again"):
        Campaign(tmp_path, 7, 20, core={"persist-id-cache": "false"}, forked=True).run()
