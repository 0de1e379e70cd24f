"""The short form of the crash test; ``make crash`` is the long one."""

import asyncio
import os
from unittest.mock import Mock

import pytest

from ..campaigns import BrokenPromise
from ..management import Management
from .campaign import Campaign
from .duplicates import Identifiers
from .ledger import Ledger, State

#: What must happen before the first kill. Seconds are no measure of that: a machine may be slow.
EACH = (
    *("receipts of SEND", "receipts of ACK", "receipts of NACK", "receipts of COMMIT"),
    *("ABORTs of an ACK", "purges"),
    *("queues made", "queues changed", "queues paused or resumed", "queues deleted", "addresses made"),
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [4, pytest.param(16, marks=pytest.mark.long)])
def test_nothing_that_was_promised_is_lost(tmp_path, kills):
    """A few kills. The seed is in the report of a failure; SEED repeats it."""
    seed = int(os.environ.get("SEED", "1"))
    report = Campaign(tmp_path, seed, kills, hurry=0.5, begin_with=EACH, forked=True).run()
    assert report.kills == kills
    for what in (*EACH, "ids sent again"):
        assert report.counts.get(what), f"nothing was tested of {what}: {report}"
    assert report.paged and report.segments > 2, f"files did not matter: {report}"


@pytest.mark.long
def test_a_broker_without_a_store_is_found_out(tmp_path):
    """The whole apparatus fails where it must: at the first restart after a life in which anything was receipted."""
    with pytest.raises(BrokenPromise, match=r"seed 7, kill \d+: \d+ broken promises\n  lost: "):
        Campaign(tmp_path, 7, 20, persistence=False, forked=True).run()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_queue_that_gives_nothing_more_is_found_out(tmp_path):
    """One that is paused takes the place of one that a fault has stopped."""

    class Stopped(Campaign):
        async def drain(self, victim):
            management = Management(victim.http_port)
            there = {queue["name"] for queue in management.ask("GET", "/queues", size=1000)["data"]}
            if "memory.grouped" not in there:
                management.ask("POST", "/queues", {"name": "memory.grouped", "routingType": "ANYCAST"})
            management.ask("PATCH", "/queues/memory.grouped", {"paused": True})
            await super().drain(victim)

    with pytest.raises(
        BrokenPromise, match=r"undrained: \d+ never came; the broker counts {'memory.grouped': \d+}"
    ):
        Stopped(tmp_path, 7, 1, areas=("memory",), forked=True, draining=3.0).run()


@pytest.mark.long
def test_a_broker_that_forgets_ids_is_found_out(tmp_path):
    with pytest.raises(BrokenPromise, match=r"duplicate: of \d+ ids that .* had, \d+ were routed again"):
        Campaign(tmp_path, 7, 20, core={"persist-id-cache": "false"}, forked=True).run()


def sent(ledger):
    """A message with a receipt."""
    unit = ledger.unit("SEND")
    ledger.enter(unit, ["q"], "p")
    unit.move(State.DONE)
    return unit


def test_a_message_that_does_not_come_at_the_end_is_a_fault(tmp_path):
    campaign, world = Campaign(tmp_path, 7, 1, draining=0), Mock()
    world.management.ask.return_value = {"data": [{"name": "q", "messageCount": 1}]}
    sent(campaign.ledger)
    asyncio.run(campaign.until_drained(world))
    assert [fault.rule for fault in campaign.ledger.faults] == ["undrained"]


def test_an_id_that_is_routed_again_is_a_fault():
    ledger, identifiers, management = Ledger(), Identifiers(), Mock()
    identifiers.note("q", "1", sent(ledger), ledger.in_queue("q"))
    identifiers.settle([])
    counts = [{"routedMessageCount": routed, "duplicateMessageCount": 0} for routed in (1, 2)]
    management.address.side_effect = counts
    identifiers.offer(ledger, Mock(), management)
    assert [fault.rule for fault in ledger.faults] == ["duplicate"]
