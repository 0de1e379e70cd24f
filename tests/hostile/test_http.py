"""Hostile requests to the HTTP listener, over a real socket."""

import json

import pytest

from ..broker_process import PATIENCE
from ..management import Answered
from .conftest import HOSTILE

pytestmark = HOSTILE

START = (
    b"POST /api/v1/queues HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)

BODIES = {
    "nested lists": b"[" * 500_000,
    "nested objects": b'{"a":' * 150_000,
    "a long number": b'{"ringSize": ' + b"9" * 1_000_000 + b"}",
    "a long fraction": b'{"ringSize": 1.' + b"9" * 1_000_000 + b"}",
    "a greater number than there is": b'{"name": "x", "ringSize": 1e999999}',
    "not a number": b'{"name": "x", "ringSize": NaN}',
    "twice": b'{"name": "x", "name": "y"}',
    "half a pair": b'{"name": "\\ud800"}',
    "no text": b'{"name": "\\u0000"}',
    "bytes that are no text": b'{"name": "\xff"}',
    "ten thousand bytes": json.dumps({"name": "x" * 10_000}).encode(),
    "ten thousand members": json.dumps({f"m{number}": number for number in range(10_000)}).encode(),
    "colliding members": json.dumps({str(number * (2**61 - 1)): 1 for number in range(5_000)}).encode(),
    "a selector without an end": json.dumps({"name": "x", "filter": "(" * 8000}).encode(),
    "an escape without an end": b'{"name": "\\u12',
}


def test_bodies(plug, broker, other_clients):
    """Each is refused with 400 in a problem document of bounded length."""

    def post():
        for name, body in BODIES.items():
            one = plug(broker.http_port)
            one.sendall(START % len(body) + body)
            answer = one.recv(65536)
            assert answer.startswith(b"HTTP/1.1 400 "), (name, answer[:500])
            assert len(answer) < 4000, name
            one.close()

    other_clients.beside(post, memory=48)


def test_a_body_without_an_end(plug, broker, other_clients):
    """What is beyond the limit is thrown away, and after sixteen times as much so is the connection."""

    def post():
        one = plug(broker.http_port)
        one.sendall(START % 10**12)
        with pytest.raises(OSError):
            for _ in range(1000):
                one.sendall(b" " * 100_000)

    other_clients.beside(post, memory=24)


def test_headers_without_an_end(plug, broker, other_clients):
    def ask():
        for line in (b"X-%d: y\r\n", b"X" * 100 + b"%d"):
            one = plug(broker.http_port)
            one.settimeout(PATIENCE)
            with pytest.raises(OSError):
                one.sendall(b"GET / HTTP/1.1\r\n")
                for number in range(200_000):
                    one.sendall(line % number)

    other_clients.beside(ask, memory=16)


PATHS = [
    "/../../etc/passwd",
    "/api/v1/../../../etc/passwd",
    "/api/v1/queues/..%2f..%2fetc%2fpasswd",
    "/api/v1/queues/%00",
    "/api/v1/queues/" + "a" * 10_000,
    "/api/v1/queues/%ff",
    "//",
    "/api/v1/queues/%2e%2e",
    "/api/v1/queues?" + "&".join(f"a{number}=1" for number in range(500)),
    "/api/v1/queues?page=" + "9" * 5000,
    "/api/v1/queues?size=1000000000",
    "/api/v1/queues?sort=" + "x" * 5000,
    "/api/v1/queues?%ff=%ff",
    "/api/v1/queues/x/messages?filter=" + "%28" * 3000,
    "/api/v1/queues/x/messages/" + "9" * 5000,
]


@pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))
def test_paths(path, management):
    """None of them is a file, and each is refused for a reason."""
    with pytest.raises(Answered) as answered:
        management.text(path)
    assert answered.value.status in (400, 404, 405, 414)
    assert "root:" not in str(answered.value)
