"""Brokers of a replicated log: takeover, fencing, step-down, a log that does not answer; on a real NATS cluster."""

import shutil
import time

import pytest

from stompring.replication.copy import MARKER_INTERVAL

from ..broker_process import BrokerProcess
from .replicated import (
    PAGES,
    STANDBY,
    brokers,
    killed_broker_is_replaced,
    of_cluster,
    stopped_broker_exits_with_75,
)
from .steps import say


@pytest.fixture
def pair(cluster, tmp_path):
    with brokers(cluster, tmp_path.name[-40:], tmp_path, settings=PAGES) as found:
        yield found


def test_killed_broker_is_replaced_and_loses_no_receipted_message(pair):
    killed_broker_is_replaced(pair)


def test_broker_that_was_stopped_for_a_while_exits_with_75(pair):
    stopped_broker_exits_with_75(pair)


def test_delivery_is_suspended_while_the_log_has_no_majority(pair, cluster):
    active = pair.start("a")
    client = active.client()
    client.put("q", "one", "two", persistent="true")
    client.subscribe("q")
    first, second = client.message("one"), client.message("two")
    cluster.wait_current(pair.stream)
    for node in cluster.nodes[1:]:
        node.suspend()
    try:
        active.wait_for_log("delivery suspended")
        assert active.unready()["replicationFault"]
        say(client, "q", b"three", persistent="true", receipt="s")
        client.send("ACK", {"id": first["ack"], "receipt": "a"})
        other = active.client()
        other.put("plain", "in memory")
        other.send("SUBSCRIBE", {"destination": "plain", "id": "s"})
        client.hear(1.0)
        assert not client.inbox and not other.inbox
    finally:
        for node in cluster.nodes[1:]:
            node.resume()
    active.wait_for_log("delivery resumed")
    frames = [client.frame() for _ in range(3)]
    assert {frame["receipt-id"] for frame in frames if frame.command == "RECEIPT"} == {"s", "a"}
    assert [frame.body for frame in frames if frame.command == "MESSAGE"] == [b"three"]
    other.message("in memory")
    client.answer("ACK", second)
    active.stop()


def test_step_down_hands_over_to_the_standby(pair):
    active = pair.start("a")
    active.put("kept")
    standby = pair.standby("b")
    assert pair.request("release")
    assert active.exit_code() == 75
    assert any("stepping down: release" in line for line in active.log)
    standby.wait_for_log(r"active in the replicated log .*released by a")
    standby.receive("kept")
    assert pair.request("leave")
    assert standby.exit_code() == 0


def test_standby_stops_with_0_and_its_copy_is_used_again(pair):
    active = pair.start("a")
    active.put("kept")
    standby = pair.standby("b")
    standby.stop()
    again = pair.start("b")
    again.wait_for_log(r"standby of the replicated log .*; the local copy has entry [1-9]")
    again.wait_for_log(STANDBY + " a")
    assert "in effect when this broker is active" in again.reload()
    again.stop()
    active.stop()
    alone = BrokerProcess(pair.plain("b"), pair.data("b"))
    alone.wait_for_log("is the local copy of a replicated log")
    assert alone.exit_code() == 1


def test_entries_that_the_log_has_lost_are_written_again_for_a_new_standby(pair):
    active = pair.start("a")
    messages = [f"m{number}" for number in range(300)]
    active.put(*messages)
    follower = pair.start("b")
    follower.wait_for_log(STANDBY + " a")  # by now the active broker has looked at the log that it took over
    follower.stop()
    shutil.rmtree(pair.data("b"))
    pair.lose_entries()
    standby = pair.start("b")
    standby.wait_for_log(r"lost entries: [1-9]\d* or more are missing in the local copy")
    active.wait_for_log(r"has lost [1-9]\d* entries of 1 files; they are written again")
    active.wait_for_log("has all files again: 1 were written")
    standby.wait_for_log("the local copy is complete")
    assert standby.management.ask("GET", "/ha")["missingEntries"] == 0
    active.terminate(9)
    standby.wait_for_log("is ready")
    standby.receive(*messages).nothing()


def test_a_new_broker_does_not_take_over_with_what_is_left_of_a_log(pair):
    active = pair.start("a")
    active.put("one", "two", "three")
    time.sleep(MARKER_INTERVAL)  # then the marker says that this copy is complete
    active.put("four")
    active.terminate(9)
    pair.lose_entries()
    standby = pair.start("b")
    standby.wait_for_log("with which this broker does not take over")
    assert standby.management.ask("GET", "/ha")["missingEntries"] > 0
    standby.wait_for_log(
        "standby: following the replicated log .* entries that are missing here: no takeover"
    )
    again = pair.start("a")
    again.wait_for_log("is ready")
    standby.wait_for_log("the local copy is complete")
    again.terminate(9)
    standby.wait_for_log("is ready")
    standby.receive("one", "two", "three", "four").nothing()


def test_missing_log_and_unsafe_directory_are_refused_with_the_reason(cluster, tmp_path):
    missing = of_cluster(cluster, "not-made", tmp_path)
    broker = missing.start("a")
    broker.wait_for_log("cannot start the broker: .*stompring ha init")
    assert broker.exit_code() == 1
    missing.create()
    (missing.data("a") / "journal").mkdir(parents=True, exist_ok=True)
    (missing.data("a") / "journal" / "000000001.journal").write_bytes(b"x")
    (missing.data("a") / "replicated-log").unlink(missing_ok=True)
    broker = missing.start("a")
    broker.wait_for_log("has messages that are not in the replicated log")
    assert broker.exit_code() == 1
    assert (missing.data("a") / "journal" / "000000001.journal").exists()


def test_full_log_blocks_producers_and_takes_acknowledgements(cluster, tmp_path):
    core = (
        "<journal-file-size>100K</journal-file-size><journal-compact-min-files>2</journal-compact-min-files>"
    )
    with brokers(cluster, tmp_path.name[-40:], tmp_path, max_bytes=6_000_000, core=core) as pair:
        active = pair.start("a")
        producer, consumer = active.client(), active.client()
        body = b"x" * 20_000
        producer.put("q", b"first", persistent="true")
        for number in range(400):
            say(producer, "q", body, persistent="true", receipt=number)
        active.wait_for_log("the replicated log is full: .* max-disk-usage 90 %")
        problem = active.unready()
        assert "replicated log is full" in problem["diskFault"]
        assert problem["replicationFault"] is None, "the broker stays active"
        consumer.subscribe("q")
        consumer.answer("ACK", consumer.message(b"first"))
        for _ in range(400):
            consumer.answer("ACK", consumer.message(body))
        for number in range(400):
            assert producer.frame()["receipt-id"] == str(number)
        active.wait_for_log("disk no longer full: .*replicated log")
        active.stop()
