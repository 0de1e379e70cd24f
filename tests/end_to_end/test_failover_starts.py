"""Starts of brokers of a replicated log: those that fail, and those with further options; on a real NATS cluster."""

import signal
import socket

import pytest
from click.testing import CliRunner

from stompring.cli.main import main
from stompring.replication.engines import open_log
from stompring.replication.log import Beat, FileChange, Operation, encode_beat

from ..management import Answered
from .replicated import STANDBY, brokers
from .steps import receive, say
from .test_retention import bodies, retention


@pytest.fixture
def pair(cluster, tmp_path):
    with brokers(cluster, tmp_path.name[-40:], tmp_path) as found:
        yield found


def write(pair, *changes):
    """Write to the log as an earlier broker would."""
    log = open_log(pair.settings)
    last = log.connect().last
    beat = encode_beat(Beat("earlier", reason="stopped"))
    assert log.claim(1, last, FileChange(Operation.CLAIM, data=beat))
    log.append([*changes, FileChange(Operation.RELEASE, data=beat)])
    log.close()


def test_brokers_that_cannot_read_the_data_do_not_hand_the_role_back_and_forth(pair):
    write(pair, FileChange(Operation.WHOLE, "schema-version", data=b"99\n"))
    for name in ("a", "b"):
        broker = pair.start(name)
        broker.wait_for_log("cannot start the broker: .*schema version 99 is newer")
        broker.wait_for_log("released the replicated log: failed")
        assert broker.exit_code() == 1
        assert not any("was a standby" in line for line in broker.log)
    third = pair.start("a")
    third.wait_for_log("failed to start, 2 in a row, b the last one: the next takeover is 2 s later")
    assert third.exit_code() == 1
    shown = CliRunner().invoke(main, ["ha", "status", "--config", str(pair.config("a"))])
    assert shown.exit_code == 1 and "3 in a row became active and could not start" in shown.stdout


def test_broker_whose_port_is_in_use_leaves_the_role_to_another(pair):
    active = pair.start("a")
    active.put("kept")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        pair.document["acceptors"] = f'<acceptor name="t">tcp://127.0.0.1:{taken.getsockname()[1]}</acceptor>'
        blocked = pair.start("b")
        blocked.wait_for_log(STANDBY + " a")
        active.stop()
        blocked.wait_for_log("cannot listen on")
        assert blocked.exit_code() == 1
    survivor = pair.start("a")
    survivor.wait_for_log(r"active in the replicated log .*released by b \(failed\)")
    survivor.receive("kept")


def test_broker_that_waits_for_its_directory_is_a_standby_after_that(pair):
    first = pair.start("a")
    first.put("kept")
    refused = pair.start("a")
    refused.wait_for_log("is in use by process")
    assert refused.exit_code() == 1
    second = pair.start("a", "--wait")
    second.wait_for_log(f"standby: waiting for the lock of .* in use by process {first.pid}")
    first.terminate(signal.SIGKILL)
    second.wait_for_log("standby of the replicated log")
    with pytest.raises(Answered) as refusal:
        second.management.text("/health/ready")
    assert "the replicated log" in refusal.value.problem["reason"]
    second.wait_for_log("is ready")
    second.receive("kept")


def test_stock_reactor_takes_over_and_delivers_nothing_when_fenced(pair):
    active = pair.start("a", "--reactor", "stock")
    producer, consumer = active.client(), active.client()
    producer.put("q", "one", "two", persistent="true")
    consumer.subscribe("q")
    consumer.answer("ACK", consumer.message("one"))
    consumer.message("two")
    standby = pair.start("b", "--reactor", "stock")
    standby.wait_for_log("reactor: EPollReactor")
    standby.wait_for_log(STANDBY + " a")
    active.terminate(signal.SIGSTOP)
    standby.wait_for_log("is ready")
    say(producer, "q", b"three", persistent="true", receipt="late")
    producer.send("SUBSCRIBE", {"id": "s", "destination": "q", "ack": "auto"})
    active.terminate(signal.SIGCONT)
    assert active.exit_code() == 75
    producer.closed()  # neither a receipt nor a message came
    survivor = standby.client()
    receive(survivor, "q", "two")
    survivor.nothing()
    standby.stop()


def test_each_broker_retains_the_files_of_both_terms(pair):
    pair.document["core"] = retention()
    sent = [f"message {number:03d}" for number in range(200)]

    def pass_on(broker, messages):
        client = broker.client()
        client.subscribe("q", ack="auto")
        for at in range(0, len(messages), 10):
            client.put("q", *messages[at : at + 10], persistent="true")
            client.messages(*messages[at : at + 10])

    active = pair.start("a")
    active.wait_for_log("is ready")
    standby = pair.standby("b")
    pass_on(active, sent[:100])
    active.terminate(signal.SIGKILL)
    active.exit_code()
    # the other broker completes and moves this file: where that comes first, here it is not complete, and is deleted
    unfinished = set(bodies(pair.data("a") / "journal"))
    standby.wait_for_log("is ready")
    again = pair.standby("a", of="b")
    pass_on(standby, sent[100:])
    standby.stop()
    again.wait_for_log("is ready")
    again.stop()
    for name, deleted in (("a", unfinished), ("b", set())):
        assert set(bodies(pair.data(name))) | deleted == {text.encode() for text in sent}
        assert list((pair.data(name) / "retention" / "journal").iterdir())


def test_standby_warns_of_an_active_broker_with_its_name(pair):
    active = pair.start("a")
    active.wait_for_log("is ready")
    standby = pair.start("b", broker="a")
    line = standby.wait_for_log("two brokers of the replicated log .* have the name a: ")
    assert f"process {active.pid} on " in line and f"process {standby.pid} on " in line
