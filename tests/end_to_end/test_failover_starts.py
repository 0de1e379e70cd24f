"""Starts of brokers of a replicated log: those that fail, and those with further options; on a real NATS cluster."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from stompring.cli.main import main
from stompring.replication.beat import Beat, encode_beat
from stompring.replication.engines import open_log
from stompring.replication.log import FileChange, Operation

from ..nats_cluster import NatsCluster
from .replicated import STANDBY, Brokers, brokers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with NatsCluster(tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture
def pair(cluster: NatsCluster, tmp_path: Path) -> Iterator[Brokers]:
    with brokers(cluster, tmp_path.name[-40:], tmp_path) as found:
        yield found


def write(pair: Brokers, *changes: FileChange) -> None:
    """Write to the log as an earlier broker would."""
    log = open_log(pair.settings)
    last = log.connect().last
    beat = encode_beat(Beat("earlier", reason="stopped"))
    assert log.claim(1, last, FileChange(Operation.CLAIM, data=beat))
    log.append([*changes, FileChange(Operation.RELEASE, data=beat)])
    log.close()


def test_brokers_that_cannot_read_the_data_do_not_hand_the_role_back_and_forth(
    pair: Brokers, tmp_path: Path
) -> None:
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
    shown = CliRunner().invoke(main, ["ha", "status", "--config", str(tmp_path / "a.xml")])
    assert shown.exit_code == 1 and "3 in a row became active and could not start" in shown.stdout


def test_broker_whose_port_is_in_use_leaves_the_role_to_another(pair: Brokers) -> None:
    active = pair.start("a")
    active.client().put("q", "kept", persistent="true")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        pair.document["acceptors"] = f'<acceptor name="t">tcp://127.0.0.1:{taken.getsockname()[1]}</acceptor>'
        blocked = pair.start("b")
        blocked.wait_for_log(STANDBY + " a")
        active.stop()
        blocked.wait_for_log("cannot listen on")
        assert blocked.exit_code() == 1
    survivor = pair.start("a")
    survivor.wait_for_log(r"active in the replicated log .*released by b \(failed\)")
    receiver = survivor.client()
    receiver.subscribe("q", ack="auto")
    receiver.message("kept")


def test_standby_warns_of_an_active_broker_with_its_name(pair: Brokers) -> None:
    active = pair.start("a")
    active.wait_for_log("is ready")
    standby = pair.start("b", broker="a")
    line = standby.wait_for_log("two brokers of the replicated log .* have the name a: ")
    assert f"process {active.pid} on " in line and f"process {standby.pid} on " in line
