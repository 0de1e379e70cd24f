"""A STOMP connection over a blocking socket, as tasks and receivers need one: much out at once, and much in.

The socket itself never blocks: while it takes nothing more, what comes in is read. A broker that must be rid of its
answers before it reads on would otherwise wait for us, and we for it.
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

#: What stands for a user or a password in texts for people.
HIDDEN = "***"


#: What may stand before the address, and whether it means TLS.
SCHEMES = {"tcp": False, "stomp": False, "ssl": True, "stomp+ssl": True}


def parse_address(text: str) -> tuple[str, int, bool]:
    """Host and port of ``HOST:PORT``, ``[::1]:61613`` for IPv6, and whether ``ssl://`` before it asks for TLS.

    Raises `ValueError`.
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
    """Without what may be a login before the host."""
    before, sign, behind = text.rpartition("@")
    scheme, separator, _ = before.partition("://")
    return f"{scheme + separator if separator else ''}{HIDDEN}@{behind}" if sign else text


@dataclass(frozen=True)
class Endpoint:
    """A broker. ``timeout`` is seconds: for connecting, and for any step of the conversation in which nothing comes.

    ``heart_beat`` is milliseconds between the line ends by which both sides show that they are there, 0 for none.
    ``password_file`` is read where the connection is made: its first line is the password.
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
        """``HOST:PORT``, for people."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def passcode(self) -> str | None:
        """The password, from its file where it is in one. Raises `OSError`."""
        if self.password_file is None:
            return self.password
        return self.password_file.read_text(encoding="utf-8").partition("\n")[0].removesuffix("\r")

    def without_secrets(self, text: str, passcode: str | None) -> str:
        """``text`` with signs in the places of user and password: brokers repeat them in what they say."""
        for secret in filter(None, (passcode, self.user)):
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
        return text


#: Bytes of one read.
CHUNK = 1 << 18

#: How late a broker's heart-beat may be: as often as it promised to come.
GRACE = 2.0

_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ConnectionFailed(OSError):
    """The broker cannot be reached, went away, or is silent. The text names it and the reason."""


class BrokerError(PipelineError):
    """The broker sent an ERROR frame. The text has its ``message`` header and its body."""

    def __init__(self, text: str, receipt: str | None = None) -> None:
        super().__init__(text)
        self.receipt = receipt  # that of the frame which was refused, where the broker tells

    def __reduce__(self) -> tuple[type[BrokerError], tuple[str, str | None]]:
        return BrokerError, (str(self), self.receipt)


class Connection:
    """One connection, open once it is made. Use as a context manager: leaving it drops the socket.

    Whatever is called raises `BrokerError` when the broker has sent an ERROR, and `ConnectionFailed` when it is gone;
    the connection is of no use after either.
    """

    version = b"1.2"

    def __init__(
        self, endpoint: Endpoint, versions: str = "1.2", on_receipt: Callable[[bytes], None] | None = None
    ) -> None:
        """``versions`` of STOMP, by commas, may be spoken; ``on_receipt`` as of a `StompClient`."""
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
        """The ``server`` header of CONNECTED: name and version of the broker, empty if it does not tell."""
        opening = self._client.connected
        return "" if opening is None else opening.headers.get(b"server", b"").decode("utf-8", "replace")

    # ---- saying

    def send(self, data: bytes | memoryview) -> None:
        """Write encoded frames, all of them, and read what comes meanwhile."""
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
        """Send one frame with a receipt and wait for that."""
        self.say(command, [*headers, ("receipt", self.next_receipt())], body)
        self.await_receipts()

    def next_receipt(self) -> str:
        """What to write into the ``receipt`` of a frame that is sent next; `await_receipts` waits for it."""
        return self._client.next_receipt()

    @property
    def unconfirmed(self) -> int:
        """Receipts that were asked for and have not come."""
        return self._client.unconfirmed

    def await_receipts(self, most: int = 0) -> None:
        """Wait until no more than ``most`` of the receipts that were asked for are still to come."""
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
        """SUBSCRIBE, so that `acknowledge` of a message settles all before it too. Waits for the receipt."""
        self.ask("SUBSCRIBE", [("id", "0"), ("destination", destination), ("ack", "client"), *headers])

    def receive(self, timeout: float, most: int = 1 << 22) -> list[tuple[Head, bytes]]:
        """The MESSAGE frames that have come, about ``most`` bytes of them at once; none after ``timeout`` seconds.

        Heart-beats are answered here: call it again and again.
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
                break  # a part of something long
        messages = list(self._client.messages)
        self._client.messages.clear()
        return messages

    def acknowledge(self, message: Head) -> None:
        """ACK a message and all that came before it, without waiting: what is not acknowledged comes again."""
        self.send(ack(message, self.version))

    def listen(self, seconds: float = 0.0) -> None:
        """Read once what comes within some seconds, and send a heart-beat if one is due. `receive` has the messages."""
        self._check()
        if self._wait(select.POLLIN, seconds):
            self._read()
        self._beat(time.monotonic())
        self._check()

    @property
    def attention(self) -> float:
        """Seconds between two calls of `listen` or `receive` that keep the connection."""
        return min(self._client.send_interval / 2 or 1.0, 1.0)

    # ---- ending

    def close(self) -> None:
        """DISCONNECT, and wait for its receipt: all that was sent has been dealt with then. Drops the socket."""
        try:
            self.ask("DISCONNECT")
        finally:
            self.drop()

    def drop(self) -> None:
        """Close the socket as it is. What was neither acknowledged nor committed is as if it had not been said."""
        self.interrupt()
        self._socket.close()

    def interrupt(self) -> None:
        """Let whatever another thread waits for here fail with `ConnectionFailed`."""
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
        """What the socket is ready for; 0 after some seconds."""
        if isinstance(self._socket, ssl.SSLSocket) and events & select.POLLIN and self._socket.pending():
            return select.POLLIN
        try:
            self._poll.modify(self._socket, events)
            ready = self._poll.poll(max(seconds, 0.0) * 1000)  # a negative one would be for ever
        except (OSError, ValueError) as reason:  # closed by another thread
            raise self._gone(reason) from None
        if not ready:
            return 0
        found = ready[0][1]
        return select.POLLIN | found if found & (select.POLLHUP | select.POLLERR | select.POLLNVAL) else found

    def _read(self) -> int:
        """Take what the socket has; returns how many bytes that was."""
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
        """Return the error of a lost connection. Raises the ERROR that the broker sent before it closed, if it sent
        one: writing fails before that is read."""
        with suppress(OSError, ValueError, ProtocolError):
            while self._client.error is None and (data := self._socket.recv(CHUNK)):
                self._client.receive(data)
        self._check()
        return self._failed(f"is gone: {_why(reason)}")

    def _failed(self, what: str) -> ConnectionFailed:
        return ConnectionFailed(f"{self.endpoint.address} {what}")


def _why(reason: Exception) -> str:
    return (reason.strerror if isinstance(reason, OSError) else None) or str(reason) or type(reason).__name__
