"""What is sent by WebSocket: a message of its own for each STOMP frame, as Artemis and most brokers do.

Clients that read a stream (@stomp/stompjs) would take frames cut up and packed together; others take a message for a
frame. One write holds as many of them as there are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

FIN, COMPRESSED = 0x80, 0x40
TEXT, BINARY = 0x1, 0x2

#: Ends every frame of the broker, after its NUL, and is a heart-beat alone; no first piece of a frame ends so.
LF = 0x0A

Compress = Callable[[bytes], bytes]


def header(length: int, first: int) -> bytes:
    """What goes before ``length`` bytes of a server (RFC 6455, 5.2); ``first`` has the opcode and the flags."""
    if length < 126:
        return bytes((first, length))
    if length < 65536:
        return struct.pack("!BBH", first, 126, length)
    return struct.pack("!BBQ", first, 127, length)


def pack(parts: Sequence[bytes], *, text: bool = False, compress: Compress | None = None) -> bytes:
    """WebSocket messages of ``parts``: frames, of which each may be in several pieces, and heart-beats.

    As ``text`` goes what is UTF-8; any other frame is binary all the same. ``compress`` makes the payload of one
    message into that of permessage-deflate.
    """
    packed: list[bytes] = []
    if not text and compress is None:
        begun = length = 0
        for at, part in enumerate(parts, 1):
            length += len(part)
            if part[-1] == LF:
                packed.append(header(length, FIN | BINARY))
                packed += parts[begun:at]
                begun, length = at, 0
        return b"".join(packed)
    pieces: list[bytes] = []
    for part in parts:
        pieces.append(part)
        if part[-1] == LF:
            message = b"".join(pieces)
            pieces.clear()
            first = FIN | (TEXT if text and _is_utf8(message) else BINARY)
            if compress is not None:
                message = compress(message)
                first |= COMPRESSED
            packed += (header(len(message), first), message)
    return b"".join(packed)


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
