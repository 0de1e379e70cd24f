"""Reads of a WebSocket cut into frames: short ones are read here, all others are handed to autobahn one at a time.

autobahn takes a frame apart in some 20 µs, several times of what STOMP makes of it, and copies what is left of a read
after each frame. Programs send a message for each STOMP frame, mostly a short one. Only what is beyond doubt is taken
here: a whole message in one masked frame. Anything else, wrong ones included, is autobahn's to judge.
"""

from __future__ import annotations

#: Bytes of payload up to which it is faster here.
SHORT = 2048

_TEXT, _BINARY = 0x81, 0x82  # with FIN
_MASKED = 0x80


def take_short(data: bytes, at: int, most: int, taken: list[bytes]) -> int:
    """Append to ``taken`` the payloads of the short messages from ``at`` on; returns where something else begins.

    None with a payload of more than ``most`` bytes is taken.
    """
    end = len(data)
    while end - at >= 6:
        first = data[at]
        length = data[at + 1] - _MASKED
        if (first != _BINARY and first != _TEXT) or length < 0 or length == 127:
            break
        start = at + 6
        if length == 126:
            length = data[at + 2] << 8 | data[at + 3]
            if length < 126:
                break
            start = at + 8
        stop = start + length
        if length > most or stop > end:
            break
        mask = data[start - 4 : start]
        payload = (
            int.from_bytes(data[start:stop], "big")
            ^ int.from_bytes((mask * (length // 4 + 1))[:length], "big")
        ).to_bytes(length, "big")
        if first == _TEXT and not payload.isascii():
            try:
                payload.decode()
            except UnicodeDecodeError:
                break
        taken.append(payload)
        at = stop
    return at


def may_become_short(data: bytes, at: int, most: int) -> bool:
    """Whether what begins at ``at`` and is not all there may be one that `take_short` takes once it is."""
    begun = len(data) - at
    if begun < 2:
        return True
    length = data[at + 1] - _MASKED
    if data[at] not in (_BINARY, _TEXT) or length < 0 or length == 127:
        return False
    if length < 126:
        return length <= most and begun < 6 + length
    if begun < 8:
        return True
    length = data[at + 2] << 8 | data[at + 3]
    return 126 <= length <= most and begun < 8 + length


def frame_end(data: bytes, at: int) -> int:
    """Where the frame that begins at ``at`` ends; the end of ``data`` where that cannot be told yet."""
    end = len(data)
    if end - at < 2:
        return end
    length = data[at + 1] & 0x7F
    head = 2 + (4 if data[at + 1] & _MASKED else 0)
    if length > 125:
        size = 2 if length == 126 else 8
        if end - at < 2 + size:
            return end
        length = int.from_bytes(data[at + 2 : at + 2 + size], "big")
        head += size
    return min(at + head + length, end)
