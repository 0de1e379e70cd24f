"""The line ends between frames: heart-beats, and the LF that most clients send after a frame's NUL."""

from __future__ import annotations

from stompring.errors import ProtocolError
from stompring.stomp.spec import CR, LF

_CHUNK = 4096  # bytes looked at in one go, so that a megabyte of heart-beats is not copied again and again


def skip_line_ends(data: bytes, start: int) -> int:
    """The offset of the first byte from ``start`` on that is no line end, or ``len(data)``.

    The offset may be that of a CR when it is the last byte of all: its LF may be still to come.
    `ProtocolError` for any other CR without LF.
    """
    size = len(data)
    if data[start] == LF:  # nearly always just one
        start += 1
        if start == size or data[start] > CR:
            return start
    while start < size - 1 or (start < size and data[start] != CR):
        chunk = data[start : start + _CHUNK]
        frame = chunk.lstrip(b"\r\n")
        gap = chunk[: len(chunk) - len(frame)]
        if not frame:  # a CR at the end of the chunk is cut from its LF
            gap = gap.removesuffix(b"\r")
        if gap.count(b"\r") != gap.count(b"\r\n"):
            raise ProtocolError("carriage return without line feed between frames")
        start += len(gap)
        if frame:
            break
    return start
