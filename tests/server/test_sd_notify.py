"""What systemd would be told, over a real datagram socket."""

import logging
import os
import re
import socket
import time

import pytest

from ..admin.admin_server import AdminServer
from ..broker_document import broker_xml
from ..broker_process import PATIENCE, BrokerProcess


class Listening:
    """The manager's end."""

    def __init__(self, address):
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)

    def heard(self):
        """The lines of each datagram that is there."""
        found = []
        self._socket.settimeout(None)
        while True:
            try:
                found.append(self._socket.recv(4096, socket.MSG_DONTWAIT).decode().split("\n"))
            except BlockingIOError:
                return found

    def wait_for(self, first):
        """The next datagram that begins so; others are skipped."""
        self._socket.settimeout(PATIENCE)
        while True:
            lines = self._socket.recv(4096).decode().split("\n")
            if lines[0] == first:
                return lines

    def close(self):
        self._socket.close()


READY = [["READY=1", "STATUS=ready"]]


@pytest.fixture
def notifier(monkeypatch):
    """Of a broker in this environment, and its clock."""
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)

    def make(address, **environment):
        for name, value in {"NOTIFY_SOCKET": address, **environment}.items():
            monkeypatch.setenv(name, value)
        server = AdminServer()
        return server.service.systemd, server.reactor

    return make


def reload(supervisor):
    with supervisor.reloading():
        pass


@pytest.fixture(params=["path", "abstract"])
def listening(request, tmp_path):
    abstract = f"@stompring-{os.getpid()}-{time.monotonic_ns()}"
    found = Listening(str(tmp_path / "notify") if request.param == "path" else abstract)
    yield found
    found.close()


def test_ready_reloading_stopping(notifier, listening):
    supervisor, _ = notifier(listening.address)
    reload(supervisor)
    assert listening.heard() == [], "it is not ready, whoever asks for a reload"
    supervisor.ready()
    assert listening.heard() == READY
    before = time.monotonic_ns() // 1000
    with supervisor.reloading():
        ((state, moment, _),) = listening.heard()
        assert state == "RELOADING=1" and moment.startswith("MONOTONIC_USEC=")
        assert before <= int(moment.partition("=")[2]) <= time.monotonic_ns() // 1000
    supervisor.stopping()
    assert [lines[0] for lines in listening.heard()] == ["READY=1", "STOPPING=1"]
    reload(supervisor)
    assert listening.heard() == []


@pytest.mark.parametrize("pid", [{}, {"WATCHDOG_PID": str(os.getpid())}])
def test_signs_of_life_come_at_half_of_the_time(notifier, listening, pid):
    supervisor, clock = notifier(listening.address, WATCHDOG_USEC="30000000", **pid)
    clock.advance(60)
    assert listening.heard() == []
    supervisor.ready()
    assert listening.heard() == [*READY, ["WATCHDOG=1"]]
    clock.advance(14.9)
    assert listening.heard() == []
    clock.advance(0.1)
    assert listening.heard() == [["WATCHDOG=1"]]
    reload(supervisor)
    supervisor.stopping()
    listening.heard()
    clock.advance(15)
    assert listening.heard() == [["WATCHDOG=1"]], "also while it stops"


@pytest.mark.parametrize(
    "watch",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "-1"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "\u0661"},
        {"WATCHDOG_USEC": "9" * 5001},
        {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"},
    ],
)
def test_nobody_watches(notifier, listening, watch):
    supervisor, clock = notifier(listening.address, **watch)
    supervisor.ready()
    assert listening.heard() == READY and clock.calls == []


def test_without_a_manager(notifier):
    supervisor, clock = notifier("", WATCHDOG_USEC="30000000")
    supervisor.ready()
    supervisor.stopping()
    assert clock.calls == []


def test_a_socket_that_is_not_there_is_a_warning(notifier, tmp_path, caplog):
    supervisor, _ = notifier(str(tmp_path / "none"))
    with caplog.at_level(logging.WARNING):
        supervisor.ready()
        supervisor.stopping()
    (record,) = caplog.records
    assert re.match(r"cannot notify the service manager at .*/none: ", record.getMessage())


def test_a_broker_tells_it(tmp_path, monkeypatch):
    listening = Listening(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", listening.address)
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    config = tmp_path / "broker.xml"
    config.write_text(broker_xml())
    with BrokerProcess(config, forked=False) as broker:
        listening.wait_for("READY=1")
        socket.create_connection(("127.0.0.1", broker.port), PATIENCE).close()
        for _ in range(3):
            listening.wait_for("WATCHDOG=1")
        broker.reload()
        assert listening.wait_for("RELOADING=1")[1].startswith("MONOTONIC_USEC=")
        listening.wait_for("READY=1")
    listening.wait_for("STOPPING=1")
    listening.close()


def test_standby_is_started_and_the_watchdog_is_served_during_recovery(notifier, tmp_path):
    listening = Listening(str(tmp_path / "notify"))
    supervisor, _ = notifier(listening.address, WATCHDOG_USEC="40000")
    supervisor.standby("waiting for\nthe lock")
    assert listening.heard()[0] == ["READY=1", "STATUS=standby: waiting for the lock"]
    reload(supervisor)
    assert listening.heard()[-1] == ["READY=1", "STATUS=standby: waiting for the lock"]
    with supervisor.recovering():
        assert listening.wait_for("STATUS=recovering")
        assert listening.wait_for("WATCHDOG=1"), "the reactor has no time for it"
    listening.heard()
    supervisor.ready()
    assert listening.heard() == READY
    supervisor.stopping()
    listening.close()


def test_recovery_before_the_start_sends_nothing(notifier, tmp_path):
    listening = Listening(str(tmp_path / "notify"))
    supervisor, _ = notifier(listening.address, WATCHDOG_USEC="2000")
    with supervisor.recovering():
        time.sleep(0.01)
    assert listening.heard() == []
    listening.close()
