"""Hosts and clocks that the failover test makes."""

import subprocess
import sys
import time

import pytest

from . import clock, network
from .network import CLIENTS, Namespaces

LISTEN = """
import socket
listener = socket.create_server(("{address}", 9000))
while True:
    connection, _ = listener.accept()
    connection.sendall(connection.recv(10))
"""
ASK = """
import socket
with socket.create_connection(("{address}", 9000), 0.4) as connection:
    connection.sendall(b"x")
    assert connection.recv(10) == b"x"
"""


@pytest.fixture(scope="module")
def hosts():
    """Two hosts, the second of which answers."""
    reason = network.why_not()
    if reason is not None:
        pytest.skip(reason)
    made = Namespaces(["a", "b"])
    program = LISTEN.format(address=made.address("b"))
    server = subprocess.Popen(made.command("b", [sys.executable, "-c", program]))
    deadline = time.monotonic() + 30
    while not _reaches(made, "a"):
        assert time.monotonic() < deadline
    yield made
    server.kill()
    server.wait()
    made.close()


def _reaches(hosts, host):
    words = [sys.executable, "-c", ASK.format(address=hosts.address("b"))]
    command = words if host == CLIENTS else hosts.command(host, words)
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.parametrize("source, target", [("a", "b"), ("b", "a")])
def test_one_direction_is_cut(hosts, source, target):
    hosts.cut(source, target)
    assert not _reaches(hosts, "a")
    assert _reaches(hosts, CLIENTS)
    hosts.heal()
    assert _reaches(hosts, "a")


def test_a_clock_jumps_for_one_process(tmp_path):
    reason = clock.why_not()
    if reason is not None:
        pytest.skip(reason)
    made = clock.Clock(clock.build(tmp_path), tmp_path / "clock")
    made.jump(3600)
    program = "import time; print(time.time(), time.monotonic())"
    done = subprocess.run(
        [sys.executable, "-c", program], env=made.environment, capture_output=True, check=True
    )
    wall, steady = map(float, done.stdout.split())
    assert 3500 < wall - time.time() <= 3601
    assert abs(steady - time.monotonic()) < 100
