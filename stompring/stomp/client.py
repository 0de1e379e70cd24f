"""A STOMP 1.2 client without I/O: it encodes frames, and decodes bytes into messages, receipts and errors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from .frames import Head, encode_frame
from .parser import Frames, Parser

#: Limits on frames of a broker. They are large: a broker is trusted, and passes on large frames of its clients.
_MAX_BODY, _MAX_HEADERS, _MAX_LINE = 1 << 31, 1 << 16, 1 << 20

#: Maximum interval of heart-beats in ms: one day. Longer intervals would overflow timers.
MAX_HEART_BEAT: Final = 24 * 3600 * 1000

#: Maximum digits of a number from a broker. From 4301 digits on int() raises an error.
MAX_DIGITS: Final = 18

Pairs = Iterable[tuple[str, str]]


class FrameReader:
    """Reads the frames of one connection. After CONNECTED the version in that frame applies. The first frame is read
    without escapes: CONNECTED has none in any version, and an ERROR in its place is sent before a version is agreed on.
    """

    def __init__(self) -> None:
        self._parser = Parser(_MAX_BODY, _MAX_HEADERS, _MAX_LINE)

    def feed(self, data: bytes) -> Frames:
        """Return the frames that ``data`` completes.

        Raises `ProtocolError` for a fault of the broker, after earlier calls have returned the frames before it.
        """
        parser = self._parser
        frames = parser.feed(data)
        if frames and parser.version is None:
            parser.negotiated(spoken_version(frames[0][0]))
            frames += parser.feed(b"")
        if parser.error is not None and not frames:
            raise parser.error
        return frames


def spoken_version(opening: Head) -> bytes:
    """Return the version in the first frame of a broker. CONNECTED without a version: 1.0, ERROR: 1.2."""
    spoken = opening.headers.get(b"version", b"1.0" if opening.command == b"CONNECTED" else b"1.2")
    return spoken if spoken in (b"1.0", b"1.1") else b"1.2"


class StompClient:
    """The state of one connection. The caller owns the socket: it sends the bytes that methods return, and passes
    received bytes to `receive`.

    Receipts arrive in the order of the frames that requested them, and confirm all earlier frames too (STOMP 1.2,
    "RECEIPT"): one receipt for the last frame of a group is enough. After CONNECTED ``send_interval`` and
    ``receive_interval`` are the agreed seconds between heart-beats, 0 for none.
    """

    def __init__(
        self,
        heart_beat: int = 0,
        wanted_heart_beat: int | None = None,
        versions: str = "1.2",
        on_receipt: Callable[[bytes], None] | None = None,
    ) -> None:
        """``heart_beat``: interval in ms (0: none) of the heart-beats that the client offers, and that it requests
        from the broker unless ``wanted_heart_beat`` is given.

        ``versions``: value of accept-version. ``on_receipt`` is called with the id of each receipt, for a caller that
        chooses the ids.
        """
        self.connected: Head | None = None
        self.messages: deque[tuple[Head, bytes]] = deque()
        self.error: tuple[Head, bytes] | None = None  # the first ERROR
        self.send_interval = self.receive_interval = 0.0
        self._heart_beat = heart_beat
        self._wanted_heart_beat = heart_beat if wanted_heart_beat is None else wanted_heart_beat
        self._versions = versions
        self._on_receipt = on_receipt
        self._reader = FrameReader()
        # number of the last requested, and of the last confirmed receipt
        self._requested = self._confirmed = 0

    def connect(
        self, host: str, login: str | None = None, passcode: str | None = None, client_id: str | None = None
    ) -> bytes:
        """Encode CONNECT to the virtual host ``host``."""
        headers = (
            ("accept-version", self._versions),
            ("host", host),
            ("heart-beat", f"{self._heart_beat},{self._wanted_heart_beat}"),
            ("login", login),
            ("passcode", passcode),
            ("client-id", client_id),
        )
        return frame("CONNECT", [(name, value) for name, value in headers if value is not None])

    def next_receipt(self) -> str:
        """Return a value for the ``receipt`` header of the next frame."""
        self._requested += 1
        return str(self._requested)

    @property
    def unconfirmed(self) -> int:
        """The number of requested receipts that have not arrived."""
        return self._requested - self._confirmed

    @property
    def error_text(self) -> str:
        """The ``message`` header of the received ERROR, and its body if that differs; empty without an ERROR."""
        if self.error is None:
            return ""
        head, body = self.error
        message = head.headers.get(b"message", b"").decode("utf-8", "replace")
        more = body.decode("utf-8", "replace").strip()
        return f"{message}: {more}" if message and more and more != message else message or more

    def receive(self, data: bytes) -> None:
        """Process bytes from the broker. Raises `ProtocolError` if they are not STOMP."""
        for head, body in self._reader.feed(data):
            command = head.command
            if command == b"MESSAGE":
                self.messages.append((head, body))
            elif command == b"RECEIPT":
                identifier = head.headers.get(b"receipt-id", b"")
                if self._on_receipt is not None:
                    self._on_receipt(identifier)
                self._confirmed = min(max(self._confirmed, _number(identifier)), self._requested)
            elif command == b"CONNECTED":
                self._connected(head)
            elif command == b"ERROR" and self.error is None:
                self.error = head, body

    def _connected(self, head: Head) -> None:
        self.connected = head
        sends, _, wants = head.headers.get(b"heart-beat", b"0,0").partition(b",")
        own = self._heart_beat
        if own and (interval := _number(wants)):
            self.send_interval = max(own, min(interval, MAX_HEART_BEAT)) / 1000
        own = self._wanted_heart_beat
        if own and (interval := _number(sends)):
            self.receive_interval = max(own, min(interval, MAX_HEART_BEAT)) / 1000


def frame(command: str, headers: Pairs = (), body: bytes = b"", version: bytes = b"1.2") -> bytes:
    """Encode one frame."""
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    return encode_frame(command.encode(), pairs, body, version)


def ack(message: Head, version: bytes = b"1.2") -> bytes:
    """Encode the ACK of a MESSAGE."""
    headers = message.headers
    identifier = headers.get(b"message-id", b"")
    if version == b"1.2":
        return encode_frame(b"ACK", [(b"id", headers.get(b"ack") or identifier)])
    pairs = [(b"message-id", identifier)]
    if b"subscription" in headers:
        pairs.append((b"subscription", headers[b"subscription"]))
    return encode_frame(b"ACK", pairs, version=version)


def _number(text: bytes) -> int:
    """Decode a whole number from a broker; 0 for any other text."""
    digits = text.strip()
    return int(digits) if digits.isdigit() and len(digits) <= MAX_DIGITS else 0
