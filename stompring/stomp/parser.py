"""Bytes to frames: an incremental parser without I/O.

The loop of `Parser.feed` reads whole frames in the bytes object that came from the socket. The parser buffers the rest
of a read in one of these states, and `_resume` continues with the next read:

- inside a header block: a `HeadScan` knows how far the block was searched;
- inside a body: the head is decoded, and only new bytes are counted or searched;
- unparsed: an opening frame was returned, and the parser must know the version before it reads on.

So no byte is searched repeatedly, and a body that comes in many reads is copied once into the buffer and once out of
it. The result for a stream of bytes (frames, then at most one error) does not depend on the division into reads.

An exceeded limit is an error immediately. A header block that breaks another rule is an error when its frame ends in
NUL: the parser reports no such error about an incomplete frame.
"""

from __future__ import annotations

from enum import IntEnum

from stompring.errors import ProtocolError

from .frames import CONNECT_COMMANDS, CR, LF, Head, shown
from .headers import (
    FIRST_FRAME,
    HeaderUse,
    HeadLimits,
    HeadReader,
    HeadScan,
    MalformedHead,
    decode_plain,
    first_frame_too_long,
)

_A = ord("A")
_CHUNK = 4096  # bytes examined in one step, so that a megabyte of heart-beats is not copied repeatedly


def skip_line_ends(data: bytes, start: int) -> int:
    """Return the offset of the first byte after the line ends at ``start``, or ``len(data)``.

    A CR as the last byte of ``data`` may be the result: its LF may follow in the next read. Raises `ProtocolError` for
    any other CR without LF.
    """
    size = len(data)
    if data[start] == LF:  # mostly a frame follows one line end
        start += 1
        if start == size or data[start] > CR:
            return start
    while start < size - 1 or (start < size and data[start] != CR):
        chunk = data[start : start + _CHUNK]
        frame = chunk.lstrip(b"\r\n")
        gap = chunk[: len(chunk) - len(frame)]
        if not frame:  # the end of the chunk separates a CR from its LF
            gap = gap.removesuffix(b"\r")
        if gap.count(b"\r") != gap.count(b"\r\n"):
            raise ProtocolError("carriage return without line feed between frames")
        start += len(gap)
        if frame:
            break
    return start


Frames = list[tuple[Head, bytes]]


class _State(IntEnum):
    """The content of the buffer."""

    NOTHING = 0
    UNREAD = 1  # unparsed bytes
    OPENED = 2  # bytes that stay unparsed until `negotiated`
    HEAD = 3  # the start of a header block
    BODY = 4  # the start of a body
    FAULT = 5  # no bytes: the error is reported when the NUL of its frame arrives
    DEAF = 6  # no bytes; input is ignored


class Parser:
    """Parses the frames of one connection.

    Limits: ``max_body_length`` bytes of a body, ``max_headers`` header lines of a frame, ``max_header_length`` bytes of
    a line without its line feed; before `negotiated` at most `FIRST_FRAME` bytes of headers, and of body. ``use``: how
    the caller uses the headers of SENDs, which lets the parser read SENDs with different headers faster.

    ``buffer`` holds the bytes that are not parsed yet. ``error`` is set once, when the peer breaks a rule: `feed` still
    returns the frames before the fault, and discards all further input.
    """

    __slots__ = (
        "_fault",
        "_head",
        "_heads",
        "_state",
        "_later_body",
        "_max_body",
        "_scan",
        "buffer",
        "error",
    )

    def __init__(
        self, max_body_length: int, max_headers: int, max_header_length: int, use: HeaderUse | None = None
    ) -> None:
        self.error: ProtocolError | None = None
        self._later_body = max_body_length
        self._max_body = min(max_body_length, FIRST_FRAME)
        self._heads = HeadReader(HeadLimits(max_headers, max_header_length), self._max_body, use)
        self._state = _State.NOTHING
        self.buffer = bytearray()
        self._scan: HeadScan | None = None  # scan of the block in the buffer
        self._head: Head | None = None  # head of the body in the buffer
        self._fault: ProtocolError | None = None

    @property
    def version(self) -> bytes | None:
        """The version whose rules hold, None until `negotiated`."""
        return self._heads.version

    def negotiated(self, version: bytes) -> None:
        """Parse further frames by the rules of ``version``. Call ``feed(b"")`` to parse the buffer."""
        self._heads.negotiated(version)
        self._max_body = self._heads.max_body = self._later_body
        if self._state in (_State.OPENED, _State.HEAD):
            self._state = _State.UNREAD

    def discard(self) -> None:
        """Ignore all further input, and drop the buffer."""
        self._state = _State.DEAF
        self.buffer = bytearray()
        self._heads.memo.clear()

    def feed(self, data: bytes) -> Frames:
        """Return the frames that ``data`` completes. Never raises `ProtocolError`: see ``error``.

        Before the call of `negotiated` it returns at most one frame. Bytes after CONNECT or STOMP stay in the buffer.
        """
        frames: Frames = []
        start = 0
        if self._state:
            data, start = self._resume(data, frames)
        heads = self._heads
        memo = heads.memo
        known = memo.heads.get
        find = data.find
        size = len(data)
        missed = matched = 0
        cutting = memo.rest > 0 and heads.can_cut()
        recent = heads.recent
        asking = heads.asking
        while start < size:
            first = data[start]
            if first == LF:  # most clients send a line feed after each frame
                start += 1
                if start == size:
                    break
                first = data[start]
            if first <= CR:
                start = self._skip(data, start)
                if start == size:
                    break
                first = data[start]
            head: Head | None
            if recent and data[start : start + len(recent)] == recent:
                head = heads.last
                assert head is not None
                start += len(recent)
            elif first == _A and heads.acks and (ack := heads.read_ack(data, start)) is not None:
                frames.append((ack, b""))
                start = heads.body
                missed += 1
                continue
            elif (
                asking
                and data[start : start + len(asking)] == asking
                and (head := heads.read_receipt(data, start)) is not None
            ):
                start = heads.body
            elif cutting and (head := heads.cut(data, start)) is not None:
                start = heads.body
                matched += 1
            else:
                stop = find(heads.end, start)
                block = data[start:stop] if stop > 0 else b""
                head = known(block)
                if head is not None:
                    if head is heads.last:
                        # the block came twice in a row: when it comes a third time, its end need not be searched
                        recent = heads.recent = data[start : stop + len(heads.end)]
                    else:
                        heads.last = head
                        recent = heads.recent = b""
                    start = stop + len(heads.end)
                else:
                    missed += 1
                    head = heads.with_receipt(block) if heads.plain else None
                    asking = heads.asking
                    if head is None and heads.plain:
                        head = decode_plain(block, heads.limits)
                    if head is not None and head.content_length <= self._max_body:
                        start = stop + 2
                        if head.command == b"SEND" and head.base is None:
                            memo.keep(block, head)
                    else:
                        head = self._read_head(data, start, stop)
                        if head is None:
                            break
                        start = heads.body
            length = head.content_length
            if length >= 0:
                stop = start + length
                if stop >= size:
                    self._suspend_body(head, data, start)
                    break
                if data[stop]:
                    self._fail(_wrong_length(head, data[stop]))
                    break
            else:
                stop = find(b"\0", start)
                if stop < 0 or stop - start > self._max_body:
                    self._suspend_body(head, data, start)
                    break
            frames.append((head, data[start:stop]))
            start = stop + 1
            if heads.version is None:
                self._suspend_next(head, data, start)
                break
        memo.hits += len(frames) - missed - matched
        if matched:  # heads that `cut` has read count for the pause of the cache
            memo.rest = max(0, memo.rest - matched)
        return frames

    # -- before a body

    def _skip(self, data: bytes, start: int) -> int:
        """Return the offset of the next frame's first byte, or the end of ``data``.

        A CR at the end of a read counts as a first byte: it stays in the buffer until the next read.
        """
        try:
            return skip_line_ends(data, start)
        except ProtocolError as fault:
            self._fail(fault)
            return len(data)

    def _read_head(self, data: bytes, start: int, stop: int) -> Head | None:
        """Return the head at ``start``. None if its block is incomplete (the data is buffered) or has a fault."""
        try:
            head = self._heads.read(data, start, stop)
        except MalformedHead as malformed:
            self._fault = malformed
            self._state = _State.FAULT
            self._await_end(data, self._heads.body)
            return None
        except ProtocolError as fault:
            self._fail(fault)
            return None
        if head is None:
            self._suspend(_State.HEAD, data, start)
            self._scan = self._heads.scan()
            self._scan_on()
        return head

    # -- buffering

    def _suspend(self, held: _State, data: bytes, start: int) -> None:
        self._state = held
        self.buffer = bytearray(memoryview(data)[start:])

    def _scan_on(self) -> bool:
        """Return whether the header block in the buffer is complete."""
        assert self._scan is not None
        try:
            return self._scan.advance(self.buffer)
        except ProtocolError as fault:
            self._fail(fault)
            return False

    def _suspend_body(self, head: Head, data: bytes, start: int) -> None:
        self._head = head
        if head.content_length < 0 and len(data) - start > self._max_body:
            self._fail(_too_long(head, self._max_body, self.version is None))
        else:
            self._suspend(_State.BODY, data, start)

    def _suspend_next(self, head: Head, data: bytes, start: int) -> None:
        """Buffer the bytes after the frame of ``head``, which came before the version was agreed on."""
        self._suspend(_State.OPENED if head.command in CONNECT_COMMANDS else _State.UNREAD, data, start)

    def _fail(self, fault: ProtocolError) -> None:
        self.error = fault
        self.discard()

    # -- resuming

    def _resume(self, data: bytes, frames: Frames) -> tuple[bytes, int]:
        """Continue after the buffered bytes. Returns the bytes that `feed` parses, and the offset of the first."""
        held = self._state
        if held is _State.BODY:
            return self._resume_body(data, frames)
        if held is _State.UNREAD or (held is _State.HEAD and len(data) >= len(self.buffer)):
            # The caller searches the whole block again; this is cheap, since most of its bytes are new.
            return b"".join((self._take_buffer(), data)), 0
        if held is _State.HEAD:
            self.buffer += data
            return (self._take_buffer(), 0) if self._scan_on() else (b"", 0)
        if held is _State.OPENED:
            self.buffer += data
        elif held is _State.FAULT:
            self._await_end(data, 0)
        return b"", 0

    def _take_buffer(self) -> bytes:
        data = bytes(self.buffer)
        self.buffer = bytearray()
        self._state = _State.NOTHING
        return data

    def _resume_body(self, data: bytes, frames: Frames) -> tuple[bytes, int]:
        head = self._head
        assert head is not None
        counted = head.content_length >= 0
        room = (head.content_length if counted else self._max_body) - len(self.buffer)
        stop = room if counted else data.find(b"\0")
        if stop > room or (stop < 0 and len(data) > room):
            self._fail(_too_long(head, self._max_body, self.version is None))
            return b"", 0
        if stop < 0 or stop >= len(data):
            self.buffer += data
            return b"", 0
        if data[stop]:
            self._fail(_wrong_length(head, data[stop]))
            return b"", 0
        self.buffer += memoryview(data)[:stop]
        frames.append((head, self._take_buffer()))
        if self._heads.version is not None:
            return data, stop + 1
        self._suspend_next(head, data, stop + 1)
        return b"", 0

    def _await_end(self, data: bytes, start: int) -> None:
        """Report the fault in the headers of a frame, if the NUL of that frame is in ``data``."""
        if data.find(b"\0", start) >= 0:
            assert self._fault is not None
            self._fail(self._fault)


def _wrong_length(head: Head, byte: int) -> ProtocolError:
    length, command = head.content_length, shown(head.command)
    return ProtocolError(
        f"content-length {length} of {command} does not match the body: expected NUL after {length} bytes, found "
        f"{shown(bytes([byte]))}",
        head.headers.get(b"receipt"),
    )


def _too_long(head: Head, limit: int, first: bool) -> ProtocolError:
    if first and limit == FIRST_FRAME:
        return first_frame_too_long("body", limit, head.headers.get(b"receipt"))
    command = shown(head.command)
    return ProtocolError(
        f"body too long: the body of {command}, without content-length, exceeds the limit of {limit} bytes",
        head.headers.get(b"receipt"),
        "maxBodyLength",
    )
