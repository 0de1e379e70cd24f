"""stomp.py, the usual client for Python, over each version of STOMP."""

import queue
from typing import NamedTuple

import pytest

from ..broker_process import PATIENCE

stomp = pytest.importorskip("stomp", reason="stomp.py is not installed")


class Seen(NamedTuple):
    """What stomp.py tells its listener."""

    kind: str
    headers: dict[str, str]
    body: str


class Ears(stomp.ConnectionListener):
    """Keeps what comes until a test asks for it."""

    def __init__(self):
        self._seen = queue.Queue()

    def on_connected(self, frame):
        self._seen.put(Seen("connected", frame.headers, frame.body))

    def on_message(self, frame):
        self._seen.put(Seen("message", frame.headers, frame.body))

    def on_receipt(self, frame):
        self._seen.put(Seen("receipt", frame.headers, frame.body))

    def on_error(self, frame):
        self._seen.put(Seen("error", frame.headers, frame.body))

    def next(self, kind):
        """What comes next must be of that kind."""
        seen = self._seen.get(timeout=PATIENCE)
        assert seen.kind == kind, seen
        return seen


class Client:
    """A connected stomp.py connection with its ears."""

    def __init__(self, version, port):
        kinds = {
            "1.0": stomp.StompConnection10,
            "1.1": stomp.StompConnection11,
            "1.2": stomp.StompConnection12,
        }
        self.ears = Ears()
        self.link = kinds[version]([("127.0.0.1", port)])
        self.link.set_listener("ears", self.ears)
        self.link.connect("user", "password", wait=True)
        assert self.ears.next("connected").headers.get("version", "1.0") == version


@pytest.fixture
def client(broker, version):
    """Connects clients of the version; they are disconnected after the test."""
    opened = []

    def open_client():
        opened.append(Client(version, broker.port))
        return opened[-1]

    yield open_client
    for one in opened:
        if one.link.is_connected():
            one.link.disconnect()


def test_send_and_receive(client, name):
    one = client()
    one.link.subscribe(f"/queue/{name}", id="1", ack="auto")
    for n in range(20):
        one.link.send(f"/queue/{name}", f"zażółć {n} 🐢", headers={"n": str(n), "colon": "a:b"})
    for n in range(20):
        message = one.ears.next("message")
        assert message.body == f"zażółć {n} 🐢"
        assert message.headers["n"] == str(n)
        assert message.headers["colon"] == "a:b"
        assert message.headers["destination"] == f"/queue/{name}"
