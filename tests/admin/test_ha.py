"""The role of a broker and its replicated log over HTTP and in the metrics, of an active broker and of a standby."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from stompring.replication.log import Beat, LogStatus
from stompring.replication.role import NodeStatus, Role, Takeover
from stompring.server.service import BrokerRun
from stompring.settings.model import BrokerConfiguration, HttpAcceptor, ReplicatedLogSettings

from .admin_server import BEGIN, HTTP_PORT, AdminServer, pick

NOW = BEGIN * 1000

ACTIVE = NodeStatus(
    role=Role.ACTIVE,
    broker="b1",
    fresh=True,
    rebuilding=False,
    rebuilt_entries=0,
    rebuild_entries=0,
    rebuilt_bytes=0,
    rebuild_bytes=0,
    log=LogStatus("NATS", "x1", 90, 80, 7000, 100_000, 3, "n2", True),
    log_age=1.5,
    sequence=91,
    lag_entries=0,
    lag_bytes=0,
    lag_seconds=0.0,
    missing_entries=0,
    appends=40,
    append_seconds=0.0604,
    append_bytes=6000,
    fenced=0,
    takeovers=1,
    last_takeover=Takeover(NOW, "b2 is silent", 2.25),
    active=Beat("b1", "host1", 42, NOW - 5000, "1.0"),
    active_time=NOW - 100,
    fault="",
)
STANDBY = replace(
    ACTIVE,
    role=Role.STANDBY,
    broker="b2",
    fresh=False,
    rebuilding=True,
    rebuilt_entries=10,
    rebuild_entries=40,
    rebuilt_bytes=1000,
    rebuild_bytes=5000,
    sequence=60,
    lag_entries=30,
    lag_bytes=4000,
    lag_seconds=1.25,
    appends=0,
    append_seconds=0.0,
    append_bytes=0,
    takeovers=0,
    last_takeover=None,
)

SETTINGS = ReplicatedLogSettings("nats://n1", "orders", "b1", user="u", password="hills")
CONFIGURATION = BrokerConfiguration(
    security_enabled=False,
    replicated_log=SETTINGS,
    http_acceptors=(HttpAcceptor("http", "127.0.0.1", HTTP_PORT),),
)


def node_with(status):
    return SimpleNamespace(status=lambda: status)


def server_with(status):
    server = AdminServer(replicated_log=SETTINGS)
    server.service.node = node_with(status)
    return server


def standby(directory, status=None):
    """A server where a standby answers, which waits for a data directory that is not there."""
    server = AdminServer()
    process = BrokerRun(CONFIGURATION, str(directory / "none"), server.reactor, 0)
    process.wait_for_lock()
    process.standby.start()
    process.standby.node = status and node_with(status)
    server.serve(server.reactor.tcpServers[-1][1])
    return server


def samples(text):
    lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith("stompring_ha_")]
    return {name: float(value) for name, _, value in lines}


def scraped(status):
    return samples(server_with(status).ask("GET", "/metrics").text)


def test_without_a_log_the_broker_is_active_and_all_else_is_null(server):
    found = server.get("/api/v1/ha")
    assert (found.pop("enabled"), found.pop("role")) == (False, "active")
    assert set(found.values()) == {None}
    roles = samples(server.ask("GET", "/metrics").text)
    assert roles['stompring_ha_role{role="active"}'] == 1 and not roles['stompring_ha_role{role="standby"}']


def test_active_broker_shows_its_log():
    found = server_with(ACTIVE).get("/api/v1/ha")
    assert found["enabled"] is True and found["role"] == "active" and found["fault"] is None
    assert pick(found, "url", "stream", "takeoverTimeout") == ("nats://n1", "orders", 3000)
    assert pick(found, "engine", "leader", "replicas") == ("NATS", "n2", 3)
    assert pick(found, "logSize", "logMaxSize", "logEntries") == (7000, 100_000, 80)
    assert pick(found, "lastSequence", "sequence", "logAge") == (90, 91, 1500)
    assert pick(found, "appendCount", "appendTime") == (40, 60)
    assert pick(found, "lastTakeover", "lastTakeoverDuration") == (NOW, 2250)
    assert pick(found, "activeBroker", "activeHost", "lastBeat") == ("b1", "host1", NOW - 100)
    assert "hills" not in str(found)


def test_standby_shows_how_far_it_is_behind():
    found = server_with(STANDBY).get("/api/v1/ha")
    assert pick(found, "lagEntries", "lagBytes", "lagTime") == (30, 4000, 1250)
    assert pick(found, "rebuilding", "rebuiltBytes", "rebuildBytes") == (True, 1000, 5000)
    assert pick(found, "rebuiltPercent", "rebuiltEntries", "rebuildEntries") == (25, 10, 40)
    assert found["lastTakeover"] is None and found["takeoverReason"] is None


@pytest.mark.parametrize("role", Role)
def test_role_is_one_of_all(role):
    found = scraped(replace(ACTIVE, role=role))
    roles = {name: value for name, value in found.items() if name.startswith("stompring_ha_role")}
    assert len(roles) == len(Role)
    assert [name for name, value in roles.items() if value] == [f'stompring_ha_role{{role="{role.value}"}}']


def test_metrics_have_the_numbers_in_base_units():
    found = scraped(replace(ACTIVE, lag_seconds=1.25))
    assert found["stompring_ha_lag_seconds"] == 1.25
    assert found["stompring_ha_append_seconds_total"] == 0.06
    assert found["stompring_ha_last_takeover_timestamp_seconds"] == BEGIN
    assert found["stompring_ha_last_takeover_duration_seconds"] == 2.25
    assert found["stompring_ha_log_healthy"] == 1.0


def test_every_number_is_read_also_before_the_engine_has_answered():
    status = replace(STANDBY, log=None, active=None, active_time=0, role=Role.CONNECTING, fault="no answer")
    shown = scraped(status)
    assert "stompring_ha_log_bytes" not in shown and "stompring_ha_lag_entries" in shown
    found = server_with(status).get("/api/v1/ha")
    assert found["fault"] == "no answer" and found["logSize"] is None and found["lastBeat"] is None


def test_standby_site_answers_with_its_log(tmp_path):
    server = standby(tmp_path, STANDBY)
    assert server.get("/api/v1/ha") == server_with(STANDBY).get("/api/v1/ha")
    assert samples(server.ask("GET", "/metrics").text) == scraped(STANDBY)


def test_standby_that_waits_for_a_lock_says_what_for(tmp_path):
    server = standby(tmp_path)
    shown = server.get("/api/v1/ha")
    assert shown["role"] == "standby" and "waiting for the data directory" in shown["fault"]
    found = samples(server.ask("GET", "/metrics").text)
    assert found['stompring_ha_role{role="standby"}'] == 1 and len(found) == len(Role)


def test_fields_without_a_log_are_those_with_one(server):
    assert list(server.get("/api/v1/ha")) == list(server_with(ACTIVE).get("/api/v1/ha"))
