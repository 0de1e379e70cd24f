"""A STOMP client of a few lines over a plain socket, which says exactly what it is told to and hides nothing.

It shares no code with the broker: its own small reader of frames is the second opinion.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .wire import PATIENCE, REAL_TIME, SocketWire, Time, Wire

Headers = Mapping[str, object] | Iterable[tuple[str, object]]

_ESCAPES = {"1.0": {}, "1.1": {"\\": "\\\\", ":": "\\c", "\n": "\\n"}}
_ESCAPES["1.2"] = {**_ESCAPES["1.1"], "\r": "\\r"}


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as it came: ``headers`` are decoded by the rules of the version, ``raw`` is the whole as bytes."""

    command: str
    headers: list[tuple[str, str]]
    body: bytes
    raw: bytes

    def __getitem__(self, name: str) -> str:
        """The first header of that name."""
        for key, value in self.headers:
            if key == name:
                return value
        raise AssertionError(f"{self.command} has no header {name}: {self.raw!r}")

    def get(self, name: str) -> str | None:
        """The first header of that name, or None."""
        return dict(reversed(self.headers)).get(name)


def frame_bytes(command: str, headers: Headers = (), body: bytes = b"", version: str = "1.2") -> bytes:
    """One frame ending in NUL, headers escaped as the version says; no content-length unless it is given."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    if command in ("CONNECT", "STOMP"):
        version = "1.0"
    lines = "".join(f"{_escape(name, version)}:{_escape(value, version)}\n" for name, value in pairs)
    return f"{command}\n{lines}\n".encode() + body + b"\0"


def spelled(headers: Mapping[str, object]) -> dict[str, object]:
    """Headers given as Python arguments: ``_`` means ``-`` in names that are all small letters."""
    return {name.replace("_", "-") if name.islower() else name: value for name, value in headers.items()}


def _escape(text: object, version: str) -> str:
    escapes = _ESCAPES[version]
    return "".join(escapes.get(character, character) for character in str(text))


def _unescape(text: str, version: str) -> str:
    meanings = {code: character for character, code in _ESCAPES[version].items()}
    if not meanings:
        return text
    return re.sub(r"\\.", lambda found: meanings[found[0]], text)


class StompClient:
    """One connection. Whatever is awaited fails after `PATIENCE` seconds of ``time``.

    ``wire`` is an open connection; without it there is a new one to ``port``, with what `SocketWire` takes.
    """

    def __init__(
        self,
        port: int = 0,
        version: str = "1.2",
        *,
        context: ssl.SSLContext | None = None,
        host: str = "localhost",
        before: bytes = b"",
        address: str = "127.0.0.1",
        wire: Wire | None = None,
        time: Time = REAL_TIME,
    ) -> None:
        self.version = version
        self.time = time
        self.beats: list[float] = []  # when line ends came between frames, seconds of the steady clock
        self.inbox: list[Frame] = []  # messages that came while something else was awaited
        self.connected: Frame | None = None
        self._buffer = b""
        self._receipts = 0
        self.wire: Wire = wire or SocketWire(port, address, context, host, before)

    @property
    def socket(self) -> Any:
        """The socket of a connection that has one."""
        assert isinstance(self.wire, SocketWire)
        return self.wire.socket

    # ---- saying

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.wire.send(data)

    def send(self, command: str, headers: Headers = (), body: bytes = b"") -> None:
        """Send one frame."""
        self.raw(frame_bytes(command, headers, body, self.version))

    def connect(self, headers: Headers = ()) -> Frame:
        """CONNECT with the version of this dialogue; returns the CONNECTED frame."""
        pairs = dict(headers)
        if self.version != "1.0":
            pairs = {"accept-version": self.version, "host": "localhost", **pairs}
        self.send("CONNECT", pairs)
        self.connected = self.expect("CONNECTED")
        return self.connected

    def ask(self, command: str, headers: Headers = (), body: bytes = b"") -> Frame:
        """Send a frame with a receipt and wait for that; messages that come first go to the inbox."""
        self._receipts += 1
        receipt = f"receipt-{self._receipts}"
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        self.send(command, [*pairs, ("receipt", receipt)], body)
        while True:
            frame = self.frame()
            if frame.command == "MESSAGE":
                self.inbox.append(frame)
                continue
            assert frame.command == "RECEIPT" and frame["receipt-id"] == receipt, frame.raw
            return frame

    def put(self, destination: str, *bodies: bytes | str, **headers: object) -> None:
        """SEND each body, the last with a receipt, so that all have arrived on return. Headers by `spelled`."""
        named = spelled(headers)
        for number, body in enumerate(bodies, 1):
            data = body.encode() if isinstance(body, str) else body
            (self.ask if number == len(bodies) else self.send)(
                "SEND", {"destination": destination, **named}, data
            )

    def subscribe(
        self, destination: str, ack: str = "client-individual", id: str = "s", **headers: object
    ) -> None:
        """SUBSCRIBE and wait for the receipt. Headers by `spelled`."""
        self.ask("SUBSCRIBE", {"destination": destination, "id": id, "ack": ack, **spelled(headers)})

    def answer(self, command: str, message: Frame, **headers: object) -> None:
        """ACK or NACK a message in the way of the version, and wait for the receipt."""
        self.ask(command, {**self.reference(message), **headers})

    def reference(self, message: Frame) -> dict[str, object]:
        """The headers by which ACK and NACK name a message in this version."""
        if self.version == "1.2":
            return {"id": message["ack"]}
        if self.version == "1.1":
            return {"message-id": message["message-id"], "subscription": message["subscription"]}
        return {"message-id": message["message-id"]}

    def in_ms(self, milliseconds: int) -> int:
        """The time in so many milliseconds, as ``expires`` and ``AMQ_SCHEDULED_TIME`` have it."""
        return int(self.time.now() * 1000) + milliseconds

    # ---- hearing

    def frame(self, patience: float = PATIENCE) -> Frame:
        """The next frame of any kind; line ends before it are counted as beats."""
        deadline = self.time.steady() + patience
        while True:
            found = self._cut()
            if found is not None:
                return found
            if not self._more(deadline):
                raise AssertionError(f"the broker has closed the connection; left over: {self._buffer!r}")

    def expect(self, command: str, **headers: str) -> Frame:
        """The next frame, which must be of that command and have these headers (``_`` means ``-``)."""
        frame = self.frame()
        assert frame.command == command, frame.raw
        for name, value in headers.items():
            assert frame[name.replace("_", "-")] == value, frame.raw
        return frame

    def message(self, body: bytes | str | None = None) -> Frame:
        """The next MESSAGE, with that body where one is given."""
        frame = self.inbox.pop(0) if self.inbox else self.frame()
        assert frame.command == "MESSAGE", frame.raw
        if body is not None:
            assert frame.body == (body.encode() if isinstance(body, str) else body), frame.raw
        return frame

    def messages(self, *bodies: str) -> list[Frame]:
        """The next messages, with these bodies in this order."""
        return [self.message(body) for body in bodies]

    def waiting(self) -> int:
        """How many messages are there: one that was on its way comes before the answer to what is asked here."""
        self.ask("BEGIN", {"transaction": "round trip"})
        self.ask("ABORT", {"transaction": "round trip"})
        return len(self.inbox)

    def nothing(self) -> None:
        """No message is there."""
        assert not self.waiting(), [frame.raw for frame in self.inbox]

    def error(self, *words: str, receipt: str | None = None) -> Frame:
        """An ERROR that has all the words in its ``message`` and in its body, then the end of the connection."""
        frame = self.frame()
        assert frame.command == "ERROR", frame.raw
        for word in words:
            assert word.lower() in frame["message"].lower(), (word, frame.raw)
            assert word.lower() in frame.body.decode().lower(), (word, frame.raw)
        assert frame.get("receipt-id") == receipt, frame.raw
        assert "Internal error" not in frame["message"], frame.raw
        self.closed()
        return frame

    def provoke(self) -> Frame:
        """Make a mistake, so that the broker ends the connection with an ERROR."""
        self.send("ABORT")
        return self.error("ABORT")

    def closed(self) -> None:
        """The broker closes the connection and says nothing more."""
        deadline = self.time.steady() + PATIENCE
        while self._more(deadline):
            pass
        assert not self._buffer.strip(b"\n"), self._buffer

    def hear(self, seconds: float) -> None:
        """Listen for a while to what is not awaited (heart-beats); frames stay for later."""
        deadline = self.time.steady() + seconds
        while self.time.steady() < deadline:
            self._skip_beats()
            try:
                if not self._more(deadline):
                    return
            except TimeoutError:
                break
        self._skip_beats()

    def _more(self, deadline: float) -> bool:
        try:
            data = self.wire.receive(deadline - self.time.steady())
        except TimeoutError:
            raise TimeoutError(f"nothing more came in time; left over: {self._buffer!r}") from None
        self._buffer += data
        return bool(data)

    def _skip_beats(self) -> None:
        rest = self._buffer.lstrip(b"\n")
        self.beats += [self.time.steady()] * (len(self._buffer) - len(rest))
        self._buffer = rest

    def _cut(self) -> Frame | None:
        self._skip_beats()
        end = self._buffer.find(b"\n\n")
        if end < 0:
            return None
        command, *lines = self._buffer[:end].decode().split("\n")
        version = "1.0" if command == "CONNECTED" else self.version
        headers = []
        for line in lines:
            name, colon, value = line.partition(":")
            assert colon, f"a header line without a colon: {self._buffer!r}"
            headers.append((_unescape(name, version), _unescape(value, version)))
        start = end + 2
        length = dict(reversed(headers)).get("content-length")
        stop = self._buffer.find(b"\0", start) if length is None else start + int(length)
        if stop < 0 or stop >= len(self._buffer):
            return None
        assert self._buffer[stop] == 0, f"no NUL after the body: {self._buffer!r}"
        frame = Frame(command, headers, self._buffer[start:stop], self._buffer[: stop + 1])
        # the LF after the NUL belongs to the frame: it is no beat
        self._buffer = self._buffer[stop + 1 :].removeprefix(b"\n")
        return frame

    # ---- the end

    def disconnect(self) -> None:
        """DISCONNECT with a receipt, as the specification recommends."""
        self.ask("DISCONNECT")
        self.closed()
        self.close()

    def kill(self) -> None:
        """The connection is lost: a reset, without a word."""
        self.wire.kill()

    def close(self) -> None:
        """Close the connection, whatever state it is in."""
        self.wire.close()
