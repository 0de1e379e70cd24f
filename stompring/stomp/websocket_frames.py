"""WebSocket frames (RFC 6455) that carry STOMP: reads short messages of clients, encodes the broker's messages as
binary ones, and encodes the HTTP errors that refuse handshakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from importlib import import_module
from typing import Any, Final

#: First byte (FIN and opcode) of a text frame and of a binary frame; mask bit in the second byte of a frame.
TEXT, BINARY, MASKED = 0x81, 0x82, 0x80

#: Last byte of each STOMP frame of the broker, after its NUL, and of a heart-beat. No other part of a frame ends in LF.
LF: Final = 0x0A

#: Cached frame headers of binary messages, by length of the payload up to `MAX_CACHED` bytes.
_HEADERS: dict[int, bytes] = {}
MAX_CACHED: Final = 4096

#: A module with `read_short_messages` and `pack_binary` in C; None in a build without native code.
NATIVE: Any
try:
    NATIVE = import_module("stompring.stomp._websocket")
except ImportError:
    NATIVE = None


def read_short_messages(
    data: bytes, longest: int, unmask: Callable[[bytes, bytes], bytes]
) -> tuple[bytes, int, bool]:
    """Return the payloads of the short messages at the start of ``data``, joined.

    A short message is a whole, valid message in one masked frame with a payload of at most ``longest`` bytes. The
    WebSocket library reads all other frames, invalid ones included, and takes ten times as long. ``unmask`` is called
    with a payload and its mask. Also returns the offset of the remaining bytes, and whether these may be the beginning
    of a short message.
    """
    payloads: list[bytes] = []
    at, end = 0, len(data)
    incomplete = False
    while True:
        if end - at < 2:
            incomplete = True
            break
        first, length = data[at], data[at + 1] - MASKED
        if (first != BINARY and first != TEXT) or length < 0 or length == 127:
            break
        start = at + 6
        if length == 126:
            if end - at < 4:
                incomplete = True
                break
            length = data[at + 2] << 8 | data[at + 3]
            if length < 126:
                break
            start = at + 8
        if length > longest:
            break
        stop = start + length
        if stop > end:
            incomplete = True
            break
        payload = unmask(data[start:stop], data[start - 4 : start])
        if first == TEXT and not is_utf8(payload):
            break
        payloads.append(payload)
        at = stop
    return b"".join(payloads), at, incomplete


def pack_binary(parts: list[bytes]) -> bytes:
    """Encode one binary message for each STOMP frame or heart-beat in ``parts``. A frame may have several parts."""
    packed: list[bytes] = [b""]
    slot = length = 0  # index in ``packed`` of the header of the message, and bytes of its payload
    for part in parts:
        packed.append(part)
        length += len(part)
        if part[-1] == LF:
            header = _HEADERS.get(length)
            packed[slot] = _header(length) if header is None else header
            slot = len(packed)
            length = 0
            packed.append(b"")
    del packed[slot:]
    return b"".join(packed)


def _header(length: int) -> bytes:
    if length < 126:
        header = bytes((BINARY, length))
    elif length < 65536:
        header = bytes((BINARY, 126, length >> 8, length & 0xFF))
    else:
        header = bytes((BINARY, 127)) + length.to_bytes(8, "big")
    if length <= MAX_CACHED:
        _HEADERS[length] = header
    return header


def is_utf8(data: bytes) -> bool:
    """Return whether ``data`` is well-formed UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def http_error_response(code: int, reason: str, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """Encode an HTTP error response with ``reason`` as its body."""
    body = f"{reason}\n".encode()
    lines = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", "close"),
        *headers,
    ]
    head = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\n{head}\r\n".encode() + body
