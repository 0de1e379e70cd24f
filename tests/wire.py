"""A client's end of a connection, and the time by which clients wait: of sockets here, in memory in `service`."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from typing import Protocol

from .waiting import PATIENCE, Deadline


class Time(Protocol):
    """The clock of a broker and its clients."""

    def now(self) -> float:
        """Epoch seconds."""

    def steady(self) -> float:
        """Seconds since some moment."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


class RealTime:
    """The clock of this machine."""

    def now(self) -> float:
        return time.time()

    def steady(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


REAL_TIME = RealTime()


#: Whoever waits no longer than so many seconds expects nothing, and does not wait longer on a busy machine.
SHORT = 2.0


class Wire(Protocol):
    """A connection that is open."""

    def send(self, data: bytes) -> None:
        """Send all of it."""

    def receive(self, seconds: float) -> bytes:
        """The next bytes; none when the broker has closed the connection. Raises TimeoutError."""

    def kill(self) -> None:
        """Lose the connection."""

    def close(self) -> None:
        """Close the connection, whatever state it is in."""


class SocketWire:
    """A TCP connection, or one with TLS where there is a ``context``. ``before`` is sent in front of everything."""

    def __init__(
        self,
        port: int,
        address: str = "127.0.0.1",
        context: ssl.SSLContext | None = None,
        host: str = "localhost",
        before: bytes = b"",
        source: str = "",
    ) -> None:
        """``source`` is the client's own address."""
        self.socket = socket.create_connection((address, port), PATIENCE, (source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(before)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname=host)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, seconds: float) -> bytes:
        deadline = Deadline(seconds)
        while True:
            self.socket.settimeout(max(0.001, seconds))
            try:
                return self.socket.recv(1 << 18)
            except ConnectionResetError:
                return b""
            except TimeoutError:
                seconds = deadline.left() if seconds > SHORT else 0
                if seconds <= 0:
                    raise

    def kill(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()
