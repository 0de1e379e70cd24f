"""The other end of a connection: a broker of a few lines, that says what a test wants."""

import socket
import threading

from ...broker_process import PATIENCE

CONNECTED = b"CONNECTED\nversion:1.2\n\n\0"


class ScriptedBroker:
    """Listens on a free port and lets each of ``plays`` talk on a connection. Use as a context manager.

    Leaving it waits for the last of them, and raises what one raised.
    """

    def __init__(self, *plays):
        self._plays = plays
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(PATIENCE)
        self.port = self._listening.getsockname()[1]
        self._fault = None
        self._thread = threading.Thread(target=self._run, name="counterpart")

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._thread.join(PATIENCE)
        self._listening.close()
        if self._fault is not None and exception[0] is None:
            raise self._fault

    def _run(self):
        try:
            for play in self._plays:
                opened, _ = self._listening.accept()
                with opened:
                    opened.settimeout(PATIENCE)
                    play(opened)
        except BaseException as fault:
            self._fault = fault


def receive_until(opened, wanted):
    """What comes until some bytes are in it, and what has come with them."""
    data = b""
    while wanted not in data:
        more = opened.recv(1 << 16)
        assert more, f"closed after {data!r}"
        data += more
    return data


def greet(opened, answer=CONNECTED):
    """The first frame of a client, which is answered."""
    asked = receive_until(opened, b"\0\n")
    opened.sendall(answer)
    return asked
