"""A blocking STOMP connection for large amounts of data in both directions, for tasks and receivers of Spark.

While the send buffer of the socket is full, the connection reads. Some brokers stop reading until the client has read
their frames: a client that only wrote would wait for such a broker forever.
"""

from __future__ import annotations

import re
import select
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from stompring.errors import PipelineError, ProtocolError
from stompring.stomp.client import Pairs, StompClient, ack, frame, spoken_version
from stompring.stomp.frames import Head

#: Text that replaces users and passwords in errors.
HIDDEN = "***"


#: Schemes accepted before an address, and whether they mean TLS.
SCHEMES = {"tcp": False, "stomp": False, "ssl": True, "stomp+ssl": True}


def parse_address(text: str) -> tuple[str, int, bool]:
    """Return host, port, and whether to use TLS, from ``HOST:PORT`` or ``SCHEME://HOST:PORT`` (see `SCHEMES`).

    An IPv6 address is in brackets: ``[::1]:61613``. Raises `ValueError`.
    """
    place, tls = text.strip(), False
    scheme, separator, rest = place.partition("://")
    if separator and scheme in SCHEMES:
        place, tls = rest, SCHEMES[scheme]
    host, colon, port = place.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "[" in host:
        raise ValueError(f"must be HOST:PORT, an IPv6 address in brackets, not {_shown(text)!r}")
    if not colon or not host or "/" in host or "@" in host:
        raise ValueError(f"must be HOST:PORT, as localhost:61613, not {_shown(text)!r}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65_536):
        raise ValueError(f"must end in a port from 1 to 65535, not {_shown(text)!r}")
    return host, int(port), tls


def _shown(text: str) -> str:
    """Return an address for an error: if it has a user and password before the host, they are replaced."""
    before, sign, behind = text.rpartition("@")
    scheme, separator, _ = before.partition("://")
    return f"{scheme + separator if separator else ''}{HIDDEN}@{behind}" if sign else text


@dataclass(frozen=True)
class Endpoint:
    """Address of a broker and settings of connections to it.

    ``timeout``: maximum seconds for connecting, and for waiting without progress, for example for a RECEIPT.
    ``heart_beat``: interval of heart-beats in both directions in ms; 0: no heart-beats. ``password_file``: file with
    the password in its first line. The process that connects reads the file.
    """

    host: str
    port: int
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    password_file: Path | None = None
    virtual_host: str | None = None
    client_id: str | None = None
    timeout: float = 30.0
    heart_beat: int = 0
    tls: bool = False
    ca_file: Path | None = None

    @property
    def address(self) -> str:
        """``HOST:PORT`` for logs and errors."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def passcode(self) -> str | None:
        """Return the password, from ``password_file`` if that is set. Raises `OSError`."""
        if self.password_file is None:
            return self.password
        return self.password_file.read_text(encoding="utf-8").partition("\n")[0].removesuffix("\r")

    def without_secrets(self, text: str, passcode: str | None) -> str:
        """Return ``text`` with user and password hidden: brokers repeat them in ERROR frames."""
        for secret in filter(None, (passcode, self.user)):
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
        return text


#: Maximum bytes of one read.
CHUNK = 1 << 18

#: Number of heart-beat intervals without data after which the broker counts as dead.
GRACE = 2.0

_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ConnectionFailed(OSError):
    """The broker cannot be reached, closed the connection, or is silent. The text has its address and the reason."""


class BrokerError(PipelineError):
    """The broker sent an ERROR frame. The text has its ``message`` header and its body."""

    def __init__(self, text: str, receipt: str | None = None) -> None:
        super().__init__(text)
        self.receipt = receipt  # header ``receipt-id`` of the ERROR: it identifies the refused frame

    def __reduce__(self) -> tuple[type[BrokerError], tuple[str, str | None]]:
        return BrokerError, (str(self), self.receipt)


class Connection:
    """An open connection to a broker. As a context manager, it closes the socket at the end.

    Methods that send or read raise `BrokerError` after an ERROR of the broker, and `ConnectionFailed` if the connection
    is lost. After one of these errors the connection cannot be used any longer.
    """

    version = b"1.2"

    def __init__(
        self, endpoint: Endpoint, versions: str = "1.2", on_receipt: Callable[[bytes], None] | None = None
    ) -> None:
        """``versions`` are the accepted versions of STOMP, separated by commas; ``on_receipt`` as in `StompClient`."""
        self.endpoint = endpoint
        self._versions = versions
        try:
            self._passcode = endpoint.passcode()
        except (OSError, UnicodeDecodeError) as reason:
            raise ConnectionFailed(f"the file with the password cannot be read: {reason}") from None
        self._client = StompClient(endpoint.heart_beat, versions=versions, on_receipt=on_receipt)
        self._socket = self._open()
        self._poll = select.poll()
        self._sent = self._heard = time.monotonic()
        try:
            self._greet()
        except BaseException:
            self.drop()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exception: object) -> None:
        self.drop()

    @property
    def peer(self) -> str:
        """The address and port of the broker's socket."""
        try:
            return str(self._socket.getpeername()[:2])
        except OSError as reason:
            raise self._gone(reason) from None

    @property
    def server(self) -> str:
        """The ``server`` header of CONNECTED (name and version of the broker), empty if it is missing."""
        opening = self._client.connected
        return "" if opening is None else opening.headers.get(b"server", b"").decode("utf-8", "replace")

    # ---- sending

    def send(self, data: bytes | memoryview) -> None:
        """Write all bytes of encoded frames, and read incoming frames meanwhile."""
        left = memoryview(data)
        deadline = self._deadline()
        while len(left):
            try:
                taken = self._socket.send(left)
            except _WOULD_BLOCK:
                if time.monotonic() > deadline:
                    raise self._failed(f"takes nothing for {self.endpoint.timeout:g} s") from None
                if self._wait(select.POLLIN | select.POLLOUT, 1.0) & select.POLLIN:
                    self._read()
                    self._check()
            except OSError as reason:
                raise self._gone(reason) from None
            else:
                left = left[taken:]
                deadline = self._deadline()
        self._sent = time.monotonic()
        if self._wait(select.POLLIN, 0.0):
            self._read()
        self._check()

    def say(self, command: str, headers: Pairs = (), body: bytes = b"") -> None:
        """Send one frame."""
        self.send(frame(command, headers, body, self.version))

    def ask(self, command: str, headers: Pairs = (), body: bytes = b"") -> None:
        """Send one frame with a ``receipt`` header, and wait for all outstanding receipts."""
        self.say(command, [*headers, ("receipt", self.next_receipt())], body)
        self.await_receipts()

    def next_receipt(self) -> str:
        """Return the value of a ``receipt`` header for the next frame. `await_receipts` waits for its RECEIPT."""
        return self._client.next_receipt()

    @property
    def unconfirmed(self) -> int:
        """Number of requested receipts that have not arrived."""
        return self._client.unconfirmed

    def await_receipts(self, most: int = 0) -> None:
        """Wait until at most ``most`` receipts are `unconfirmed`."""
        client, deadline, before = self._client, self._deadline(), self._client.unconfirmed
        while client.unconfirmed > most:
            self._check()
            if self._wait(select.POLLIN, deadline - time.monotonic()):
                self._read()
            elif time.monotonic() >= deadline:
                raise self._failed(f"sends no RECEIPT for {self.endpoint.timeout:g} s")
            if client.unconfirmed < before:
                deadline, before = self._deadline(), client.unconfirmed
        self._check()

    # ---- receiving

    def subscribe(self, destination: str, headers: Pairs = ()) -> None:
        """Subscribe with cumulative acknowledgement (``ack:client``), and wait for the receipt."""
        self.ask("SUBSCRIBE", [("id", "0"), ("destination", destination), ("ack", "client"), *headers])

    def receive(self, timeout: float, most: int = 1 << 22) -> list[tuple[Head, bytes]]:
        """Wait up to ``timeout`` seconds for messages, and return the received messages, with about ``most`` bytes of
        bodies.

        The method also sends and checks heart-beats: at most `attention` seconds may pass between two calls.
        """
        deadline = time.monotonic() + timeout
        while not self._client.messages:
            self._check()
            now = time.monotonic()
            self._beat(now)
            left = deadline - now
            if left <= 0 and timeout:
                return []
            if self._wait(select.POLLIN, min(left, self._client.send_interval / 2 or left)):
                self._read()
            elif left <= 0:
                return []
        size = sum(len(body) for _, body in self._client.messages)
        while size < most and self._client.error is None and self._wait(select.POLLIN, 0.0):
            before = len(self._client.messages)
            size += self._read()
            if len(self._client.messages) == before:
                break  # the next message is incomplete: return the complete ones instead of waiting for it
        messages = list(self._client.messages)
        self._client.messages.clear()
        return messages

    def acknowledge(self, message: Head) -> None:
        """Send an ACK of a message and all messages before it, without a receipt."""
        self.send(ack(message, self.version))

    def listen(self, seconds: float = 0.0) -> None:
        """Wait up to ``seconds`` for data, read once, and send a heart-beat if it is due. A later `receive` returns the
        messages that were read."""
        self._check()
        if self._wait(select.POLLIN, seconds):
            self._read()
        self._beat(time.monotonic())
        self._check()

    @property
    def attention(self) -> float:
        """Maximum seconds between two calls of `listen` or `receive`, for timely heart-beats."""
        return min(self._client.send_interval / 2 or 1.0, 1.0)

    # ---- closing

    def close(self) -> None:
        """Send DISCONNECT, wait for its receipt, and close the socket. The broker has then processed all frames."""
        try:
            self.ask("DISCONNECT")
        finally:
            self.drop()

    def drop(self) -> None:
        """Close the socket without a DISCONNECT. The broker aborts open transactions."""
        self.interrupt()
        self._socket.close()

    def interrupt(self) -> None:
        """Make a call that waits in another thread fail with `ConnectionFailed`."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    # ---- opening

    def _open(self) -> socket.socket:
        endpoint = self.endpoint
        try:
            opened = socket.create_connection((endpoint.host, endpoint.port), timeout=endpoint.timeout)
        except OSError as reason:
            raise self._failed(f"cannot be reached: {_why(reason)}") from None
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if endpoint.tls:
                context = ssl.create_default_context(cafile=endpoint.ca_file)
                opened = context.wrap_socket(opened, server_hostname=endpoint.host)
            opened.setblocking(False)
        except OSError as reason:
            opened.close()
            what = "does not speak TLS with us" if endpoint.tls else "is gone"
            raise self._failed(f"{what}: {_why(reason)}") from None
        return opened

    def _greet(self) -> None:
        endpoint = self.endpoint
        self._poll.register(self._socket, select.POLLIN)
        host = endpoint.virtual_host or endpoint.host
        self.send(self._client.connect(host, endpoint.user, self._passcode, endpoint.client_id))
        deadline = self._deadline()
        while (connected := self._client.connected) is None:
            if not self._wait(select.POLLIN, deadline - time.monotonic()):
                raise self._failed(f"sends no CONNECTED for {endpoint.timeout:g} s")
            self._read()
            self._check()
        self.version = spoken_version(connected)
        if self.version.decode() not in self._versions.split(","):
            raise self._failed(f"does not speak STOMP {self._versions}")

    # ---- the socket

    def _deadline(self) -> float:
        return time.monotonic() + self.endpoint.timeout

    def _wait(self, events: int, seconds: float) -> int:
        """Wait up to ``seconds`` for ``events`` of ``poll``. Returns the events that occurred, 0 if there were none."""
        if isinstance(self._socket, ssl.SSLSocket) and events & select.POLLIN and self._socket.pending():
            return select.POLLIN
        try:
            self._poll.modify(self._socket, events)
            ready = self._poll.poll(max(seconds, 0.0) * 1000)  # negative times would mean: wait without limit
        except (OSError, ValueError) as reason:  # another thread has closed the socket
            raise self._gone(reason) from None
        if not ready:
            return 0
        found = ready[0][1]
        return select.POLLIN | found if found & (select.POLLHUP | select.POLLERR | select.POLLNVAL) else found

    def _read(self) -> int:
        """Read from the socket, and return the number of bytes, 0 if none have arrived."""
        try:
            data = self._socket.recv(CHUNK)
        except _WOULD_BLOCK:
            return 0
        except OSError as reason:
            raise self._gone(reason) from None
        if not data:
            self._check()
            raise self._failed("has closed the connection")
        self._heard = time.monotonic()
        try:
            self._client.receive(data)
        except ProtocolError as fault:
            raise self._failed(f"sends what is not STOMP: {fault}") from None
        return len(data)

    def _check(self) -> None:
        client = self._client
        if client.error is not None:
            shown = self.endpoint.without_secrets(client.error_text, self._passcode)
            receipt = client.error[0].headers.get(b"receipt-id")
            refused = None if receipt is None else receipt.decode("utf-8", "replace")
            raise BrokerError(f"{self.endpoint.address} refuses: {shown or 'no reason given'}", refused)

    def _beat(self, now: float) -> None:
        sends, receives = self._client.send_interval, self._client.receive_interval
        if sends and now - self._sent >= sends / 2:
            self.send(b"\n")
        if receives and now - self._heard > GRACE * receives:
            raise self._failed(f"sends nothing for {GRACE * receives:g} s, not even heart-beats")

    # ---- faults

    def _gone(self, reason: Exception) -> ConnectionFailed:
        """Return the error of a lost connection. Raises `BrokerError` if an unread ERROR of the broker explains it."""
        with suppress(OSError, ValueError, ProtocolError):
            while self._client.error is None and (data := self._socket.recv(CHUNK)):
                self._client.receive(data)
        self._check()
        return self._failed(f"is gone: {_why(reason)}")

    def _failed(self, what: str) -> ConnectionFailed:
        return ConnectionFailed(f"{self.endpoint.address} {what}")


def _why(reason: Exception) -> str:
    return (reason.strerror if isinstance(reason, OSError) else None) or str(reason) or type(reason).__name__
