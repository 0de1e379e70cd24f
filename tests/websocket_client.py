"""A WebSocket client of a few lines, which says exactly what it is told to, and a `Dialogue` over it.

It shares no code with the broker or with the library `websockets`: RFC 6455 as read a second time.
"""

from __future__ import annotations

import base64
import hashlib
import os
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .stomp_client import StompClient
from .wire import PATIENCE, REAL_TIME, SocketWire, Time, Wire

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10

_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@dataclass(frozen=True, slots=True)
class Answer:
    """The broker's answer to an HTTP request."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A WebSocket frame of the broker."""

    opcode: int
    payload: bytes
    fin: bool
    rsv: int

    @property
    def code(self) -> int:
        """Of a Close frame."""
        assert self.opcode == CLOSE, self
        return int(struct.unpack("!H", self.payload[:2])[0])

    @property
    def reason(self) -> str:
        """Of a Close frame."""
        return self.payload[2:].decode()


def piece_bytes(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    rsv: int = 0,
    mask: bytes | None = b"\x01\x02\xa3\x04",
) -> bytes:
    """A frame as clients send it; ``mask`` None: not masked, which is against the rules."""
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    bit = 0x80 if mask is not None else 0
    if len(payload) < 126:
        head = struct.pack("!BB", first, bit | len(payload))
    elif len(payload) < 65536:
        head = struct.pack("!BBH", first, bit | 126, len(payload))
    else:
        head = struct.pack("!BBQ", first, bit | 127, len(payload))
    if mask is None:
        return head + payload
    length = len(payload)
    key = int.from_bytes((mask * (length // 4 + 1))[:length], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(length, "big")


class WebSocketClient:
    """One connection, to talk HTTP and then WebSocket frames."""

    def __init__(
        self, port: int = 0, context: ssl.SSLContext | None = None, wire: Wire | None = None
    ) -> None:
        self.buffer = b""
        self.wire: Wire = wire or SocketWire(port, context=context)

    @property
    def socket(self) -> Any:
        """The socket of a connection that has one."""
        assert isinstance(self.wire, SocketWire)
        return self.wire.socket

    def ask(self, path: str = "/stomp", **changed: str | None) -> Answer:
        """Ask for a WebSocket; headers may be added, changed, or left out with None. ``_`` means ``-``."""
        key = base64.b64encode(os.urandom(16)).decode()
        headers: dict[str, str | None] = {
            "host": "127.0.0.1",
            "upgrade": "websocket",
            "connection": "keep-alive, Upgrade",
            "sec-websocket-key": key,
            "sec-websocket-version": "13",
            **{name.replace("_", "-"): value for name, value in changed.items()},
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value is not None)
        answer = self.request(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
        if answer.status == 101:
            digest = hashlib.sha1((key + _MAGIC).encode()).digest()
            assert answer.headers["sec-websocket-accept"] == base64.b64encode(digest).decode()
        return answer

    def request(self, request: bytes) -> Answer:
        """Send a request as it is; the answer to it."""
        self.wire.send(request)
        while b"\r\n\r\n" not in self.buffer:
            self._more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        length = int(headers.get("content-length", "0"))
        while len(self.buffer) < length:
            self._more()
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return Answer(int(status.split()[1]), headers, body.decode())

    def send(self, opcode: int, payload: bytes = b"", **options: object) -> None:
        """Send one frame (`piece_bytes`)."""
        self.wire.send(piece_bytes(opcode, payload, **options))  # type: ignore[arg-type]

    def cut(self) -> Piece | None:
        """The next frame, if it is all there."""
        data = self.buffer
        if len(data) < 2:
            return None
        assert not data[1] & 0x80, "a server must not mask"
        length, start = data[1] & 0x7F, 2
        if length > 125:
            start = 4 if length == 126 else 10
            if len(data) < start:
                return None
            length = int.from_bytes(data[2:start], "big")
            assert length > (125 if start == 4 else 65535), "not the shortest length"
        if len(data) < start + length:
            return None
        self.buffer = data[start + length :]
        return Piece(data[0] & 0xF, data[start : start + length], bool(data[0] & 0x80), data[0] >> 4 & 7)

    def ended(self) -> None:
        """The broker closes the connection and says nothing more."""
        assert self.buffer == b"", self.buffer
        assert self.wire.receive(PATIENCE) == b""

    def _more(self) -> None:
        data = self.wire.receive(PATIENCE)
        if not data:
            raise EOFError(f"the broker has closed the connection; left over: {self.buffer[:200]!r}")
        self.buffer += data

    def close(self) -> None:
        """Close the connection."""
        self.wire.close()


class WebSocketDialogue(StompClient):
    """A `Dialogue` whose bytes go through WebSocket messages. ``pieces`` are all that came, in order."""

    def __init__(
        self,
        port: int = 0,
        version: str = "1.2",
        *,
        path: str = "/stomp",
        opcode: int = BINARY,
        context: ssl.SSLContext | None = None,
        wire: Wire | None = None,
        time: Time = REAL_TIME,
        **headers: str | None,
    ) -> None:
        self.client = WebSocketClient(port, context, wire)
        super().__init__(version=version, wire=self.client.wire, time=time)
        self.opcode = opcode
        self.pieces: list[Piece] = []
        self.ended: Piece | None = None  # the Close frame
        headers = {"sec_websocket_protocol": "v12.stomp,v11.stomp,v10.stomp", **headers}
        self.answer_to_request = self.client.ask(path, **headers)
        assert self.answer_to_request.status == 101, self.answer_to_request

    def raw(self, data: bytes) -> None:
        """Send bytes as one message."""
        self.client.send(self.opcode, data)

    def _more(self, deadline: float) -> bool:
        while (piece := self.client.cut()) is None:
            try:
                data = self.wire.receive(deadline - self.time.steady())
            except TimeoutError:
                raise TimeoutError(f"nothing more came in time; left over: {self._buffer!r}") from None
            if not data:
                return False
            self.client.buffer += data
        self.pieces.append(piece)
        if piece.opcode in (TEXT, BINARY):
            self._buffer += piece.payload
        elif piece.opcode == CLOSE:
            self.ended = piece
            self.client.send(CLOSE, piece.payload[:2])
        return True
