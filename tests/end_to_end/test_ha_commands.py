"""``stompring ha``, ``status`` and the HTTP interface with two real brokers of a log on a real NATS cluster."""

import json
import re
import time

import pytest
from click.testing import CliRunner

from stompring.cli.main import main

from ..docs.pages import text_of
from ..waiting import Deadline
from .replicated import data_directory_moves_into_the_log, of_cluster


def call(*words):
    return CliRunner().invoke(main, list(words))


def metrics(member):
    lines = [line.rpartition(" ") for line in member.management.text("/metrics").splitlines()]
    return {name: float(value) for name, _, value in lines if name.startswith("stompring_ha_")}


def role(member):
    return json.loads(member.management.text("/api/v1/ha"))


def url(member):
    """Of the HTTP listener that the broker opened last."""
    (*_, port) = [found[1] for line in member.log if (found := re.search(r"HTTP listens on \S+:(\d+)", line))]
    return f"http://127.0.0.1:{port}"


def eventually(check, *words):
    """The result of a command once it is as it should be: brokers look for requests twice a second."""
    deadline = Deadline()
    while not check(result := call(*words)):
        assert not deadline.passed(), result.output
        time.sleep(0.2)
    return result


def level(result, check):
    """What the doctor says of a check."""
    return {each["check"]: each["level"] for each in json.loads(result.stdout)["findings"]}[check]


@pytest.fixture
def pair(cluster, tmp_path, request):
    found = of_cluster(cluster, request.node.name[5:40], tmp_path)
    yield found
    found.stop()


def test_an_existing_data_directory_moves_into_a_log_without_loss(pair):
    data_directory_moves_into_the_log(pair)


def test_commands_and_views_of_a_log_from_its_creation_to_its_end(pair, tmp_path):
    directory = tmp_path  # the first start finds no log
    early = pair.start("a")
    assert early.exit_code() == 1 and any("stompring ha init" in line for line in early.log)
    config = ("--config", str(directory / "a.xml"))
    assert f"would create log {pair.stream}" in call("ha", "init", "--dry-run", *config).stdout
    assert call("ha", "init", "--max-bytes", "1GB", *config).exit_code == 0
    again = call("ha", "init", *config)
    assert again.exit_code == 1 and "exists already" in again.stderr
    assert call("ha", "status", *config).exit_code == 1

    active = pair.start("a")
    active.put("kept")
    standby = pair.standby("b")
    found = json.loads(call("ha", "status", "--json", *config).stdout)
    assert found["healthy"] and found["activeBroker"] == "a" and found["maxBytes"] == 1024**3
    assert found["safe"] and found["replicas"] == 3 and found["entries"] > 0

    shown, waiting = role(active), role(standby)
    assert (shown["role"], shown["broker"], shown["activeBroker"], shown["enabled"]) == (
        "active",
        "a",
        "a",
        True,
    )
    assert (waiting["role"], waiting["broker"], waiting["activeBroker"]) == ("standby", "b", "a")
    assert waiting["fault"] is None and shown["logMaxSize"] == 1024**3
    assert metrics(active)['stompring_ha_role{role="active"}'] == 1
    of_standby = metrics(standby)
    assert of_standby['stompring_ha_role{role="standby"}'] == 1
    assert of_standby["stompring_ha_log_max_bytes"] == 1024**3
    documented = text_of("docs/metrics.md")
    missing = set(re.findall(r"\| `(stompring_ha_\w+)` \|", documented)) - of_standby.keys()
    assert all("last_takeover" in name for name in missing)

    state = call("status", "--server", url(standby))
    assert (
        state.exit_code == 1
        and f"the broker is a standby: following the replicated log {pair.stream}" in state.stdout
    )
    assert (
        f"replicated log\t{pair.stream}: this broker is b, standby" in state.stdout
        and "behind\t" in state.stdout
    )
    state = call("status", "--server", url(active))
    assert state.exit_code == 0 and f"replicated log\t{pair.stream}: this broker is a, active" in state.stdout
    # a node of a busy machine may be behind for a moment
    words = ("doctor", "--json", "--data", str(pair.data("a")), *config)
    eventually(lambda result: level(result, "replicated log") == "ok", *words)

    assert (
        eventually(lambda result: "no standby c" in result.stderr, "ha", "promote", "c", *config).exit_code
        == 1
    )
    result = eventually(lambda result: result.exit_code == 0, "ha", "promote", "b", *config)
    assert result.stdout == "b is active; a has stepped down\n" and active.exit_code() == 75
    standby.wait_for_log("is ready")
    standby.receive("kept")
    events = json.loads(standby.management.text("/api/v1/events"))["data"]
    (takeover,) = [each["text"] for each in events if each["type"] == "TAKEOVER"]
    assert re.fullmatch(r"this broker is active: .*, ready after [0-9.]+ s", takeover)
    assert metrics(standby)["stompring_ha_takeovers_total"] == 1

    left = eventually(lambda result: result.exit_code == 0, "ha", "leave", "b", *config)
    assert left.stdout == "b stops\n" and standby.exit_code() == 0
    ended = call("ha", "status", *config)
    assert ended.exit_code == 1 and "b has stepped down (leave)" in ended.stdout
