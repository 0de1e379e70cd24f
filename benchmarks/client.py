"""A small blocking STOMP 1.2 client, for measurements in which the client's own speed does not matter."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping

from benchmarks.brokers import Broker
from benchmarks.brokers.process import HOST

# maximum seconds for one answer: a slower broker counts as dead
ANSWER_SECONDS = 60.0


class Unexpected(Exception):
    """The broker sent an unexpected frame, which is the text of the error."""


class Client:
    """One connection. ``source``: its loopback address."""

    def __init__(self, broker: Broker, port: int | None = None, source: str = HOST) -> None:
        self._login = f"login:{broker.login}\npasscode:{broker.passcode}\n" if broker.login else ""
        self.socket = socket.socket()
        self.socket.settimeout(ANSWER_SECONDS)
        if source != HOST:
            self.socket.bind((source, 0))
        self.socket.connect((HOST, port or broker.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""

    def connect(self) -> None:
        """Send CONNECT without waiting, so that many clients can connect at once. `expect` reads the answer."""
        self.socket.sendall(
            f"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:0,0\n{self._login}\n\0".encode()
        )

    def send(
        self,
        destination: str,
        body: bytes,
        receipt: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a message. ``receipt``: number of the requested receipt; ``headers`` are not escaped."""
        asked = "" if receipt is None else f"receipt:{receipt}\n"
        asked += "".join(f"{name}:{value}\n" for name, value in (headers or {}).items())
        head = f"SEND\ndestination:{destination}\n{asked}content-length:{len(body)}\n\n"
        self.socket.sendall(head.encode() + body + b"\0")

    def subscribe(self, destination: str, selector: str | None = None, identifier: int = 0) -> None:
        """Subscribe with ack auto."""
        selects = "" if selector is None else f"selector:{selector}\n"
        self.socket.sendall(f"SUBSCRIBE\nid:{identifier}\ndestination:{destination}\n{selects}\n\0".encode())

    def expect(self, command: str) -> bytes:
        """Read one frame, whose body must not contain NUL. Raises `Unexpected` for another command."""
        while True:
            frame, nul, rest = self._unread.lstrip(b"\r\n").partition(b"\0")
            if nul:
                break
            read = self.socket.recv(65536)
            if not read:
                raise Unexpected(f"the broker closed the connection; {command} was expected")
            self._unread += read
        self._unread = rest
        if frame.split(b"\n", 1)[0].strip() != command.encode():
            raise Unexpected(frame.decode(errors="replace"))
        return frame

    def round_trip(self, destination: str, body: bytes = b"ping") -> float:
        """Measure the seconds from a SEND to its RECEIPT."""
        started = time.perf_counter()
        self.send(destination, body, receipt=0)
        self.expect("RECEIPT")
        return time.perf_counter() - started

    def close(self) -> None:
        """Disconnect without waiting for an answer."""
        try:
            self.socket.sendall(b"DISCONNECT\n\n\0")
        except OSError:
            pass
        self.socket.close()
