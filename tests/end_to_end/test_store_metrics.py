"""The numbers of a real store and of dispatch, as they change."""

import re

import pytest

from .steps import say

pytestmark = pytest.mark.in_memory


PAGED = pytest.mark.broker(settings={"paged.#": {"max-size-messages": 10, "page-size-bytes": "16K"}})


def meters(management):
    """Samples of the broker as a whole, labels and all in the name."""
    lines = re.findall(r"^(stompring_[^ ]+) ([0-9.e+-]+)$", management.text("/metrics"), re.MULTILINE)
    return {name: float(value) for name, value in lines}


def wait_until(management, **least):
    """The meters once each named one is at least so much."""
    management.until(
        lambda: all(meters(management)[f"stompring_{name}"] >= value for name, value in least.items())
    )
    return meters(management)


def test_a_durable_message_is_written_and_synced(connect, name, management):
    before = meters(management)
    connect().put(name, *(f"{number} {'x' * 1000}" for number in range(20)), persistent="true")
    after = meters(management)
    for counter in ("batches_total", "written_bytes_total", "disk_seconds_total"):
        assert after[f"stompring_store_{counter}"] > before[f"stompring_store_{counter}"], counter
    written = after["stompring_store_written_bytes_total"] - before["stompring_store_written_bytes_total"]
    assert 20_000 < written < 40_000
    assert after["stompring_journal_segments"] >= 1
    grown = after["stompring_journal_size_bytes"] - before["stompring_journal_size_bytes"]
    assert 0 <= written - grown < 200, "but for the head of the file"
    assert after["stompring_journal_live_bytes"] - before["stompring_journal_live_bytes"] > 20_000
    assert after["stompring_store_failing"] == after["stompring_store_failures_total"] == 0
    assert after["stompring_messages_lost_total"] == after["stompring_journal_lost_bytes_total"] == 0
    assert 0 < after["stompring_disk_usage_ratio"] <= 1 and after["stompring_disk_free_bytes"] > 0


@PAGED
def test_paging_shows_and_goes(connect, name, management):
    address = f"paged.{name}"
    count = 200
    connect().put(address, *(f"{number} {'x' * 500}" for number in range(count)))
    found = meters(management)
    labels = f'{{address="{address}"}}'
    assert found[f"stompring_address_paging{labels}"] == 1
    assert found[f"stompring_address_times_paged_total{labels}"] == 1
    assert found[f"stompring_address_pages{labels}"] > 3
    assert found[f"stompring_address_pages_bytes{labels}"] > (count - 20) * 500
    assert management.queue(address)["messageCount"] == count
    assert found["stompring_dispatch_used_bytes"] <= found["stompring_dispatch_budget_bytes"]
    consumer = connect()
    consumer.subscribe(address, ack="auto")
    for number in range(count):
        consumer.message(f"{number} {'x' * 500}")
    management.expect(address, messageCount=0, pagedCount=0, messagesAcknowledged=count)
    management.expect_address(address, paging=False, numberOfPages=0, pagesSize=0)
    after = wait_until(management, dispatch_blocks_read_total=0)
    assert after["stompring_dispatch_watermark_lag"] == 0


def test_reading_from_pages_is_counted(serve):
    _, management, client = serve(
        core="<dispatch-memory>1MB</dispatch-memory>",
        settings={"q": {"max-size-messages": 1, "page-size-bytes": "256K", "page-max-cache-size": 1}},
    )
    body = "x" * 10_000
    client.put("q", *(body for _ in range(300)))
    shown = management.queue("q")
    assert shown["messageCount"] == 300 and 100 < shown["pagedCount"] < 300
    used = meters(management)["stompring_dispatch_used_bytes"]
    assert used <= 1024 * 1024 + 300_000, "the budget, and a block beyond it"
    client.subscribe("q", ack="auto")
    for _ in range(300):
        client.message(body)
    after = meters(management)
    assert after["stompring_dispatch_blocks_read_total"] > 0
    assert after["stompring_pages_read_bytes_total"] > 1_000_000
    assert after["stompring_dispatch_budget_bytes"] == 1024 * 1024


def test_entries_of_target_lists(serve):
    """A selective consumer with a small window: what was found for it is known, and waits."""
    _, management, client = serve(settings={"q": {"max-size-messages": 1}})
    for number in range(300):
        say(client, "q", str(number).encode(), colour="red" if number % 3 else "blue")
    client.ask("SEND", {"destination": "other"})
    client.subscribe("q", ack="client-individual", selector="colour = 'blue'", prefetch_count=1)
    client.message("0")
    kinds = [f'stompring_dispatch_target_entries{{kind="{kind}"}}' for kind in ("direct", "reference")]
    management.until(lambda: any(meters(management)[kind] > 0 for kind in kinds))
