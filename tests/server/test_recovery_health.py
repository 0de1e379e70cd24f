"""Health that a thread answers while the reactor recovers."""

import json
import socket
import urllib.error
import urllib.request

import pytest

from stompring.admin.api import Answer
from stompring.server import persistence
from stompring.server.persistence import answer_health

LIVE = Answer(b'{"status":"UP"}')
READY = Answer(b'{"status":"RECOVERING"}', 503)


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as found:
        host, port = found.getsockname()
        return host, port


@pytest.fixture
def address():
    found = free_address()
    with answer_health([found], LIVE, READY):
        yield found


def ask(address, path, method="GET"):
    request = urllib.request.Request(f"http://{address[0]}:{address[1]}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read()


@pytest.mark.parametrize(
    "path, method, status, body",
    [
        ("/health/live", "GET", 200, LIVE.body),
        ("/health/live?x=1", "GET", 200, LIVE.body),
        ("/health/live", "HEAD", 200, b""),
        ("/health/ready", "GET", 503, READY.body),
    ],
)
def test_health_is_live_and_not_ready(address, path, method, status, body):
    assert ask(address, path, method) == (status, body)


@pytest.mark.parametrize("path, method", [("/metrics", "GET"), ("/health/live", "POST"), ("/", "DELETE")])
def test_everything_else_is_refused_with_the_reason(address, path, method):
    status, body = ask(address, path, method)
    problem = json.loads(body)
    assert status == problem["status"] == 503
    assert problem["detail"] == "This broker is recovering to become active"
    assert (problem["role"], problem["instance"]) == ("active", path)


def test_clients_that_send_nothing_or_nonsense_delay_nobody(address):
    silent = socket.create_connection(address)
    with socket.create_connection(address) as nonsense:
        nonsense.sendall(b"\x16\x03\x01" * 10_000)
    with socket.create_connection(address) as gone:
        gone.sendall(b"GET /health/li")
    assert ask(address, "/health/live")[0] == 200
    silent.sendall(b"GET /health/live HTTP/1.0\r\n")
    silent.sendall(b"\r\n")
    assert silent.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
    silent.close()


def test_connections_beyond_the_limit_are_closed(monkeypatch, address):
    monkeypatch.setattr(persistence, "MAX_CONNECTIONS", 2)
    first, second = socket.create_connection(address), socket.create_connection(address)
    with socket.create_connection(address) as third:
        third.settimeout(10)
        assert third.recv(1) == b""
    first.sendall(b"GET /health/live HTTP/1.1\r\n\r\n")
    assert first.recv(12) == b"HTTP/1.1 200"
    first.close()
    second.close()


def test_address_is_free_after_the_recovery_and_open_connections_are_closed():
    address = free_address()
    with answer_health([address], LIVE, READY):
        client = socket.create_connection(address)
        assert ask(address, "/health/live")[0] == 200
    client.settimeout(10)
    assert client.recv(1) == b""
    client.close()
    socket.create_server(address).close()


def test_address_in_use_is_left_out():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        other = free_address()
        with answer_health([taken.getsockname(), other], LIVE, READY):
            assert ask(other, "/health/live")[0] == 200
        with answer_health([taken.getsockname()], LIVE, READY), answer_health([], LIVE, READY):
            pass
