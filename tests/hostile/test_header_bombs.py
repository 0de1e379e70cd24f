"""Frames that are made to be dear."""

from ..stomp_client import frame_bytes
from .conftest import CONNECT, HOSTILE

pytestmark = HOSTILE


def lines(count, size):
    """Header lines, each with a name of its own."""
    return b"".join(b"h%d:%s\n" % (number, b"v" * size) for number in range(count))


BOMBS = {
    "too many": (lines(2000, 10), "too many headers"),
    "too long": (b"a:" + b"v" * 200_000, "header line too long"),
    "too much of both": (lines(108, 10_000), "headers too large"),
    "one name again and again": (b"a:b\n" * 2000, "too many headers"),
    "nothing but escapes": (b"a:" + b"\\\\" * 40_000 + b"\n", "header line too long"),
    "a command without an end": (b"", "command line too long"),
}


def test_bombs_are_refused(connect, other_clients):
    """Each names the limit; the rest of what is sent is not waited for."""

    def throw():
        for text, reason in list(BOMBS.values()) * 3:
            client = connect()
            try:
                client.raw(b"SEND\n" + text if text else b"S" * 300_000)
            except OSError:
                continue  # it was told before all was sent
            client.error(reason)

    other_clients.beside(throw, memory=32)


def test_frames_that_are_never_alike(plug, name, other_clients):
    """What is remembered of frames, destinations and plans has an end, in each of many connections."""
    clients = [plug() for _ in range(10)]
    for client in clients:
        client.sendall(CONNECT)
        assert client.recv(4096).startswith(b"CONNECTED")
    number = 0

    def send():
        nonlocal number
        for _ in range(6):
            for client in clients:
                frames = []
                for _ in range(50):
                    number += 1
                    headers = {"destination": f"/topic/{name}", f"unique-{number}": "x" * 800}
                    frames.append(frame_bytes("SEND", headers, b"x"))
                client.sendall(b"".join(frames))

    other_clients.beside(send, memory=24)


def test_many_small_headers_in_every_frame(plug, name, other_clients):
    """Just within the limit: a thousand headers, escaped and repeated. Each costs the broker's one thread some
    milliseconds, and who sends nothing else leaves others little of it, but never makes them wait for long."""
    client = plug()
    client.sendall(CONNECT)
    headers = b"".join(b"\\c%d:\\\\\\n\n" % (number % 500) for number in range(990))
    frame = b"SEND\ndestination:/topic/%s\n%s\n\0" % (name.encode(), headers)

    def send():
        for _ in range(100):
            client.sendall(frame)

    other_clients.beside(send, memory=24, kept=0.02)


def test_heart_beats_by_the_megabyte(plug, other_clients):
    client = plug()
    client.sendall(CONNECT)

    def beat():
        for _ in range(60):
            client.sendall(b"\n" * 65_536)
            client.sendall(b"\r\n" * 32_768)

    other_clients.beside(beat, memory=16)
