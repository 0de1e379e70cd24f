"""A report on what a real broker did, beside what was sent to it and taken from it."""

# ruff: noqa: E402 - modules are imported where their libraries are installed

import time

import pytest

for library in ("numpy", "pyspark", "deltalake", "matplotlib"):
    pytest.importorskip(library)

from ...broker_document import anycast
from ...end_to_end.lasting import DURABLE, take
from ...end_to_end.test_retention import retention

pytestmark = [pytest.mark.spark, pytest.mark.long]


def bodies(count):
    return [f"message {number:03d}" for number in range(count)]


def test_figures_are_those_of_what_was_sent_over_a_restart_and_a_kill(spark, lasting, tmp_path):
    from stompring.pipeline.files import DataFiles
    from stompring.pipeline.lake.ingest import Ingest
    from stompring.pipeline.lake.lake import Lake
    from stompring.pipeline.report import Lake as Tables
    from stompring.pipeline.report.findings import ReportRequest, gather
    from stompring.pipeline.report.queries import Period

    ring = anycast("ring", 'ring-size="10"')
    lasting.start(core=retention(sample_period=100), addresses=anycast("q") + anycast("telemetry") + ring)
    client = lasting.connect()
    client.put("q", *bodies(120), **DURABLE)
    client.put("q", *bodies(80))
    client.put("telemetry", *bodies(30))
    client.put("ring", *bodies(50), **DURABLE)
    time.sleep(0.3)  # a sample
    lasting.again("stop")
    client = lasting.connect()
    client.put("q", *bodies(20), **DURABLE)
    client.put("q", *bodies(5))
    time.sleep(0.3)
    lasting.again("kill")
    client = lasting.connect(client_id="shop")
    assert len(take(client, "q", 140)) == 140
    client.disconnect()
    lasting.stop()

    lake = Lake(str(tmp_path / "lake"))
    lake.create(1)
    for _ in Ingest(spark, DataFiles(str(lasting.data)), lake).batches():
        pass
    found = gather(Tables(**lake.frames(spark)), ReportRequest(Period()), lambda stage: None)
    assert found.coverage is not None
    traffic = {one.queue: one for one in found.traffic}
    # What a start finds on disk was there before: it has not come again.
    added = {"q": 225, "telemetry": 30, "ring": 50}
    assert {name: (one.added, one.counted) for name, one in traffic.items() if one.added} == {
        name: (count, count) for name, count in added.items()
    }
    covered = {"q": 140, "telemetry": 0, "ring": 50}
    assert {one.queue: (one.came, one.covered) for one in found.coverage.queues} == {
        name: (count, covered[name]) for name, count in added.items()
    }
    assert (traffic["ring"].replaced, traffic["ring"].depth) == (40, 10)
    assert sum(one.depth for one in found.traffic) == 10
    assert [one.queue for one in found.unread] == ["ring", "telemetry"]
    assert not found.rings  # nobody reads it, so no size is better than another
    (consumer,) = found.consumer_counts
    assert (consumer.queue, consumer.consumer, consumer.count) == ("q", "shop/take", 140)
    assert found.stays["q", "shop/take"].count == found.latencies["q"].count == 140
    assert found.total("redelivered") == found.total("dead-lettered") == 0
