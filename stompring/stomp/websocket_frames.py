"""The WebSocket frames (RFC 6455) of most STOMP frames: short messages of clients, binary messages of the broker.

And what a client gets instead of a WebSocket: an error of HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus

#: First bytes of frames: FIN with the opcode, and the bit of a masked one.
TEXT, BINARY, MASKED = 0x81, 0x82, 0x80

#: Ends every frame of STOMP of the broker, after its NUL, and is a heart-beat alone; no first piece of a frame ends so.
LF = 0x0A

#: Frame headers of binary messages by the length of the payload, up to `MAX_CACHED` bytes.
_HEADERS: dict[int, bytes] = {}
MAX_CACHED = 4096


def read_short_messages(
    data: bytes, longest: int, payloads: list[bytes], unmask: Callable[[bytes, bytes], bytes]
) -> tuple[int, bool]:
    """Append to ``payloads`` those of the short messages at the beginning of ``data``.

    Only what is beyond doubt is read: a whole message in one masked frame with a payload of at most ``longest`` bytes.
    Anything else, wrong frames included, is the WebSocket library's to judge, which takes ten times as long.
    ``unmask`` gets a payload and its mask. Returns where something else begins, and whether that is perhaps the
    beginning of another short message.
    """
    at, end = 0, len(data)
    while True:
        if end - at < 2:
            return at, True
        first, length = data[at], data[at + 1] - MASKED
        if (first != BINARY and first != TEXT) or length < 0 or length == 127:
            return at, False
        start = at + 6
        if length == 126:
            if end - at < 4:
                return at, True
            length = data[at + 2] << 8 | data[at + 3]
            if length < 126:
                return at, False
            start = at + 8
        if length > longest:
            return at, False
        stop = start + length
        if stop > end:
            return at, True
        payload = unmask(data[start:stop], data[start - 4 : start])
        if first == TEXT and not is_utf8(payload):
            return at, False
        payloads.append(payload)
        at = stop


def pack_binary(parts: list[bytes]) -> bytes:
    """Binary messages of ``parts``: frames, of which each may be in several pieces, and heart-beats."""
    packed: list[bytes] = [b""]
    slot = length = 0  # where the header of the message goes
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
    """Whether ``data`` is well-formed UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def http_error_response(code: int, reason: str, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """The whole answer."""
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
