"""A STOMP 1.2 connection over a blocking socket, as tasks and receivers need one: much out at once, and much in.

The socket itself never blocks: while it takes nothing more, what comes in is read. A broker that must be rid of its
answers before it reads on would otherwise wait for us, and we for it.

Receipts come in the order of the frames that asked for them, and tell that all frames before were dealt with too
(STOMP 1.2, "RECEIPT"): one at the end of a group is enough.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

from stompring.errors import ProtocolError
from stompring.pipeline.stomp.endpoint import Endpoint
from stompring.pipeline.worker_errors import PipelineError
from stompring.stomp.frames import Head, encode_frame
from stompring.stomp.replies import Replies

#: Bytes of one read.
CHUNK = 1 << 18

#: How late a broker's heart-beat may be: as often as it promised to come.
GRACE = 2.0

#: ms. A broker that wants heart-beats less often than once a day wants none, and longer times would overflow timers.
LONGEST_BEAT = 24 * 3600 * 1000

#: Digits of a number that a broker sends. Ours have fewer; int() would refuse 4301.
DIGITS = 18

_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

Pairs = Iterable[tuple[str, str]]


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

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._passcode = self._secret()
        self._replies = Replies()
        self._messages: deque[tuple[Head, bytes]] = deque()
        self._receipts = 0  # asked for
        self._answered = 0
        self._opened: Head | None = None
        self._error: BrokerError | None = None
        self._beat_out = self._beat_in = 0.0  # seconds between heart-beats, 0 for none
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

    def __repr__(self) -> str:
        return f"<Connection to {self.endpoint.address}>"

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
        self.send(frame(command, headers, body))

    def ask(self, command: str, headers: Pairs = (), body: bytes = b"") -> None:
        """Send one frame with a receipt and wait for that."""
        receipt = self.next_receipt()
        self.say(command, [*headers, ("receipt", receipt)], body)
        self.await_receipts()

    def next_receipt(self) -> str:
        """What to write into the ``receipt`` of a frame that is sent next; `await_receipts` waits for it."""
        self._receipts += 1
        return str(self._receipts)

    def await_receipts(self, most: int = 0) -> None:
        """Wait until no more than ``most`` of the receipts that were asked for are still to come."""
        deadline, before = self._deadline(), self._answered
        while self._receipts - self._answered > most:
            self._check()
            if self._wait(select.POLLIN, max(0.0, deadline - time.monotonic())):
                self._read()
            elif time.monotonic() >= deadline:
                raise self._failed(f"sends no RECEIPT for {self.endpoint.timeout:g} s")
            if self._answered > before:
                deadline, before = self._deadline(), self._answered
        self._check()

    # ---- transactions

    def begin(self, transaction: str) -> None:
        """BEGIN, without waiting."""
        self.say("BEGIN", [("transaction", transaction)])

    def commit(self, transaction: str) -> None:
        """COMMIT, and wait until it has happened. `BrokerError` tells that nothing of it did."""
        self.ask("COMMIT", [("transaction", transaction)])

    def abort(self, transaction: str) -> None:
        """ABORT, and wait until it has happened."""
        self.ask("ABORT", [("transaction", transaction)])

    # ---- receiving

    def subscribe(self, destination: str, headers: Pairs = ()) -> None:
        """SUBSCRIBE, so that `acknowledge` of a message settles all before it too. Waits for the receipt."""
        self.ask("SUBSCRIBE", [("id", "0"), ("destination", destination), ("ack", "client"), *headers])

    def receive(self, timeout: float, most: int = 1 << 22) -> list[tuple[Head, bytes]]:
        """The MESSAGE frames that have come, about ``most`` bytes of them at once; none after ``timeout`` seconds.

        Heart-beats are answered here: call it again and again.
        """
        deadline = time.monotonic() + timeout
        while not self._messages:
            self._check()
            now = time.monotonic()
            self._beat(now)
            left = deadline - now
            if left <= 0 and timeout:
                return []
            if self._wait(select.POLLIN, min(left, self._beat_out / 2 or left)):
                self._read()
            elif left <= 0:
                return []
        size = sum(len(body) for _, body in self._messages)
        while size < most and self._error is None and self._wait(select.POLLIN, 0.0):
            before = len(self._messages)
            size += self._read()
            if len(self._messages) == before:
                break  # a part of something long
        messages = list(self._messages)
        self._messages.clear()
        return messages

    def acknowledge(self, message: Head) -> None:
        """ACK a message and all that came before it, without waiting: what is not acknowledged comes again."""
        reference = message.headers.get(b"ack") or message.headers.get(b"message-id", b"")
        self.send(encode_frame(b"ACK", [(b"id", reference)]))

    # ---- ending

    def close(self) -> None:
        """DISCONNECT, and wait for its receipt: all that was sent has been dealt with then. Drops the socket."""
        try:
            self.ask("DISCONNECT")
        finally:
            self.drop()

    def drop(self) -> None:
        """Close the socket as it is. What was neither acknowledged nor committed is as if it had not been said."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def interrupt(self) -> None:
        """Let whatever another thread waits for here fail with `ConnectionFailed`."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    # ---- opening

    def _secret(self) -> str | None:
        try:
            return self.endpoint.passcode()
        except (OSError, UnicodeDecodeError) as reason:
            raise ConnectionFailed(f"the file with the password cannot be read: {reason}") from None

    def _open(self) -> socket.socket:
        endpoint = self.endpoint
        try:
            opened = socket.create_connection((endpoint.host, endpoint.port), timeout=endpoint.timeout)
        except OSError as reason:
            raise ConnectionFailed(f"{endpoint.address} cannot be reached: {_why(reason)}") from None
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if endpoint.tls:
                opened = endpoint.tls_context().wrap_socket(opened, server_hostname=endpoint.host)
            opened.setblocking(False)
        except OSError as reason:
            opened.close()
            what = "does not speak TLS with us" if endpoint.tls else "is gone"
            raise ConnectionFailed(f"{endpoint.address} {what}: {_why(reason)}") from None
        return opened

    def _greet(self) -> None:
        endpoint = self.endpoint
        headers = [("accept-version", "1.2"), ("host", endpoint.virtual_host or endpoint.host)]
        headers.append(("heart-beat", f"{endpoint.heart_beat},{endpoint.heart_beat}"))
        optional = (("login", endpoint.user), ("passcode", self._passcode), ("client-id", endpoint.client_id))
        headers += [(name, value) for name, value in optional if value is not None]
        self._poll.register(self._socket, select.POLLIN)
        self.say("CONNECT", headers)
        deadline = self._deadline()
        while self._opened is None:
            if not self._wait(select.POLLIN, max(0.0, deadline - time.monotonic())):
                raise self._failed(f"sends no CONNECTED for {endpoint.timeout:g} s")
            self._read()
            self._check()
        if self._opened.headers.get(b"version") != b"1.2":
            raise self._failed("does not speak STOMP 1.2")
        self._agree_on_beats(self._opened.headers.get(b"heart-beat", b"0,0"))

    def _agree_on_beats(self, text: bytes) -> None:
        sends, _, wants = text.partition(b",")
        own = self.endpoint.heart_beat
        if own and (interval := _number(wants)):
            self._beat_out = max(own, min(interval, LONGEST_BEAT)) / 1000
        if own and (interval := _number(sends)):
            self._beat_in = max(own, min(interval, LONGEST_BEAT)) / 1000

    # ---- the socket

    def _deadline(self) -> float:
        return time.monotonic() + self.endpoint.timeout

    def _wait(self, events: int, seconds: float) -> int:
        """What the socket is ready for; 0 after some seconds."""
        secure = self._socket
        if isinstance(secure, ssl.SSLSocket) and events & select.POLLIN and secure.pending():
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
            frames = self._replies.feed(data)
        except ProtocolError as fault:
            raise self._failed(f"sends what is not STOMP: {fault}") from None
        for head, body in frames:
            self._take(head, body)
        return len(data)

    def _take(self, head: Head, body: bytes) -> None:
        command = head.command
        if command == b"MESSAGE":
            self._messages.append((head, body))
        elif command == b"RECEIPT":
            self._answered = max(self._answered, _number(head.headers.get(b"receipt-id", b"")))
        elif command == b"CONNECTED":
            self._opened = head
        elif command == b"ERROR" and self._error is None:
            self._error = self._as_error(head, body)

    def _as_error(self, head: Head, body: bytes) -> BrokerError:
        message = head.headers.get(b"message", b"").decode("utf-8", "replace")
        more = body.decode("utf-8", "replace").strip()
        text = f"{message}: {more}" if message and more and more != message else message or more
        shown = self.endpoint.without_secrets(text, self._passcode) or "no reason given"
        receipt = head.headers.get(b"receipt-id")
        refused = None if receipt is None else receipt.decode("utf-8", "replace")
        return BrokerError(f"{self.endpoint.address} refuses: {shown}", refused)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _beat(self, now: float) -> None:
        if self._beat_out and now - self._sent >= self._beat_out / 2:
            self.send(b"\n")
        if self._beat_in and now - self._heard > GRACE * self._beat_in:
            raise self._failed(f"sends nothing for {GRACE * self._beat_in:g} s, not even heart-beats")

    # ---- faults

    def _gone(self, reason: Exception) -> Exception:
        """The ERROR that the broker sent before it closed, where there is one: writing fails before it is read."""
        while self._error is None:
            try:
                data = self._socket.recv(CHUNK)
                frames = self._replies.feed(data) if data else []
            except (OSError, ValueError, ProtocolError):
                break
            if not data:
                break
            for head, body in frames:
                self._take(head, body)
        return self._error or self._failed(f"is gone: {_why(reason)}")

    def _failed(self, what: str) -> ConnectionFailed:
        return ConnectionFailed(f"{self.endpoint.address} {what}")


def frame(command: str, headers: Pairs = (), body: bytes = b"") -> bytes:
    """One frame of STOMP 1.2."""
    return encode_frame(command.encode(), [(name.encode(), value.encode()) for name, value in headers], body)


def _why(reason: Exception) -> str:
    return (reason.strerror if isinstance(reason, OSError) else None) or str(reason) or type(reason).__name__


def _number(text: bytes) -> int:
    """A whole number that a broker wrote; 0 for anything else."""
    digits = text.strip()
    return int(digits) if digits.isdigit() and len(digits) <= DIGITS else 0
