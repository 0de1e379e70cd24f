"""Connections that come and go by the thousand."""

import time

import pytest

from ..stomp_client import frame_bytes
from ..waiting import Deadline
from .conftest import CONNECT, HOSTILE

pytestmark = HOSTILE


#: What each of them does before it vanishes.
LAST_WORDS = {
    "nothing": b"",
    "half a frame": b"CONN",
    "a whole conversation": CONNECT
    + frame_bytes("SUBSCRIBE", {"destination": "/queue/vanish", "id": "1", "ack": "client"})
    + frame_bytes("BEGIN", {"transaction": "t"})
    + frame_bytes("SEND", {"destination": "/queue/vanish.more", "transaction": "t"}, b"never committed")
    + b"SEND\ndestination:/queue/vanish.more\ncontent-length:50000\n\nhalf of",
}


@pytest.mark.parametrize("words", LAST_WORDS.values(), ids=LAST_WORDS)
def test_a_thousand_connections_that_vanish(words, plug, connect, management, other_clients):
    """A reset, a thousand times over; a message that some of them were given is still there."""
    client = connect()
    client.put("/queue/vanish", "still here")

    def vanish():
        for _ in range(10):
            batch = [plug() for _ in range(100)]
            for one in batch:
                one.sendall(words)
            for one in batch:
                one.close()  # with a reset, as `plug` has it

    other_clients.beside(vanish, memory=24, kept=0.02)
    client.subscribe("/queue/vanish", ack="client")
    client.answer("ACK", client.message("still here"))
    deadline = Deadline()
    while management.ask("GET", "/connections", size=1)["count"] > 3:
        assert not deadline.passed(), "connections are remembered that are gone"
        time.sleep(0.05)
    queues = management.ask("GET", "/queues", search="vanish.more")
    assert all(queue["messageCount"] == 0 for queue in queues["data"])
