"""Clients that say little, hear nothing, or are gone without a word."""

import os
import signal
import subprocess
import sys
import time

import pytest

from ..broker_process import PATIENCE, ROOT
from ..stomp_client import frame_bytes
from .conftest import CONNECT, HOSTILE

pytestmark = HOSTILE

#: Slow clients at a time.
MANY = 150


def test_bytes_one_at_a_time_before_connect(plug, other_clients):
    """Who has not said CONNECT in time is sent away, however busily it says nothing."""
    slow = [plug() for _ in range(MANY)]

    def drip():
        deadline = time.monotonic() + 0.8
        at = 0
        while time.monotonic() < deadline:
            for one in slow:
                try:
                    one.send(CONNECT[at % 7 : at % 7 + 1])
                except OSError:
                    pass  # it was sent away
            at += 1
            time.sleep(0.05)

    other_clients.beside(drip)
    for one in slow:
        one.settimeout(PATIENCE)
        try:
            heard = one.recv(4096)
        except ConnectionResetError:
            continue
        assert heard.startswith(b"ERROR") or not heard, heard


REQUESTS = {
    "stomp": b"SEND\ndestination:/queue/slow\ncontent-length:100000\n\nxxxxxxxx",
    "http": b"POST /api/v1/queues HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{",
}


@pytest.mark.parametrize("acceptor", REQUESTS)
def test_bytes_one_at_a_time_within_frames_and_requests(plug, broker, other_clients, acceptor):
    """They may: it costs the broker what they have sent, and no more."""
    slow = [plug(broker.ports[acceptor]) for _ in range(MANY)]
    for one in slow:
        if acceptor == "stomp":
            one.sendall(CONNECT)
            assert one.recv(4096).startswith(b"CONNECTED")

    def drip():
        for byte in REQUESTS[acceptor]:
            for one in slow:
                one.send(bytes([byte]))
            time.sleep(0.01)

    other_clients.beside(drip)


def test_a_client_that_is_gone_without_a_word(broker, connect, management, name):
    """A process that is stopped is to the network what a host without power is: its socket stays open. It had promised
    to beat, and so its messages are given to others soon."""
    victim = subprocess.Popen(
        [sys.executable, "-c", _VICTIM, str(broker.port), name], stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    try:
        assert victim.stdout.readline() == "has it\n"
        os.kill(victim.pid, signal.SIGSTOP)
        other = connect()
        other.subscribe(f"/queue/{name}")
        assert other.message("only one")["redelivered"] == "true"
    finally:
        victim.kill()
        victim.wait(PATIENCE)


_VICTIM = """
import sys, time
from tests.stomp_client import StompClient
client = StompClient(int(sys.argv[1]))
client.connect({"heart-beat": "300,0"})
client.subscribe(f"/queue/{sys.argv[2]}")
client.put(f"/queue/{sys.argv[2]}", "only one")
client.message("only one")
print("has it", flush=True)
while True:
    client.raw(b"\\n")
    time.sleep(0.1)
"""


def test_a_reader_that_never_reads(plug, connect, name, other_clients):
    """Subscribed to a busy topic: what it does not take stays within the limit of the address."""
    topic = f"/topic/busy.{name}"
    deaf = [plug() for _ in range(10)]
    for one in deaf:
        one.sendall(CONNECT + frame_bytes("SUBSCRIBE", {"destination": topic, "id": "1", "ack": "auto"}))
    producer = connect()
    reader = connect()
    reader.subscribe(topic, ack="auto")

    def load():
        for _ in range(20):
            producer.put(topic, *[b"x" * 10_000] * 20)
            for _ in range(20):
                reader.message()

    other_clients.beside(load, memory=48)


def test_a_client_that_asks_and_never_listens(plug, name, other_clients):
    """It sends and sends, each with a receipt, and reads none of them: its answers must not fill the memory."""
    deaf = plug()
    deaf.sendall(CONNECT)
    deaf.settimeout(0.5)
    asking = frame_bytes("BEGIN", {"transaction": "t", "receipt": "r" * 1000}) + frame_bytes(
        "ABORT", {"transaction": "t", "receipt": "r" * 1000}
    )

    def ask():
        try:
            for _ in range(300):
                deaf.sendall(asking * 100)
        except TimeoutError:
            pass  # the broker does not read any more

    other_clients.beside(ask, memory=32)
