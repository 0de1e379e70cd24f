"""Bytes to frames: an incremental parser without I/O.

The loop of `Parser.feed` reads whole frames in the bytes object that came from the socket. The parser buffers the rest
of a read in one of these states, and `_resume` continues with the next read:

- inside a header block: a `HeadScan` knows how far the block was searched;
- inside a body: the head is decoded, and only new bytes are counted or searched;
- unparsed: an opening frame was returned, and the parser must know the version before it reads on.

So no byte is searched repeatedly. Of a body that comes in many reads, long parts stay as they are and are joined once;
short ones are copied into the buffer first, so that single bytes do not become objects. The result for a stream of
bytes (frames, then at most one error) does not depend on the division into reads.

An exceeded limit is an error immediately. A header block that breaks another rule is an error when its frame ends in
NUL: the parser reports no such error about an incomplete frame.

Most producers repeat their header blocks, so `HeadReader` caches decoded heads. If each SEND has another block, native
code splits the blocks into lines that the broker reads and lines that it passes on to receivers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module
from typing import Any, Final

from stompring.errors import ProtocolError

from .frames import BACKSLASH, CONNECT_COMMANDS, CR, LF, NUL, RULES, Head, shown, unescape
from .headers import (
    FIRST_FRAME,
    HeadLimits,
    HeadScan,
    decode,
    decode_plain,
    first_frame_too_long,
    plain_line_ends,
)

_MOST_HEADS: Final = 256
_LONGEST_BLOCK: Final = (
    1024  # bytes of a cached block: the cache of a connection has at most 256 KiB of blocks
)
_REST: Final = 16_384  # number of heads that are not cached after the cache was useless: 64 times its size


class HeadCache:
    """Heads by their header block, as received.

    Most producers send the same block repeatedly: a head then costs one dict lookup. If each block has unique content,
    the cache is useless: when it is full and had fewer hits than entries, it is emptied, and the next `_REST` heads are
    not cached.
    """

    __slots__ = ("heads", "hits", "rest")

    def __init__(self) -> None:
        self.heads: dict[bytes, Head] = {}
        self.hits = 0  # hits since the cache was emptied; the parser updates them once per read
        self.rest = 0  # number of further heads that are not cached

    def keep(self, block: bytes, head: Head) -> None:
        """Cache ``head``, unless its block is long, or unique because of its receipt."""
        if self.rest:
            self.rest -= 1
        elif len(block) <= _LONGEST_BLOCK and b"receipt" not in head.headers:
            if len(self.heads) >= _MOST_HEADS:
                rest = 0 if self.hits >= len(self.heads) else _REST
                self.clear()
                self.rest = rest
            self.heads[block] = head
            head.kept = True

    def clear(self) -> None:
        self.heads.clear()
        self.hits = 0
        self.rest = 0


_LENGTH, _DUPLICATE_ID = b"content-length", b"_AMQ_DUPL_ID"


@dataclass(frozen=True, slots=True)
class HeaderUse:
    """How the broker uses the headers of SENDs, by name. ``read``: it reads their values. ``hidden``: it does not pass
    them on to receivers. ``special``: `Cut` does not split blocks with such a header; `decode` reads them.
    """

    read: frozenset[bytes]
    hidden: frozenset[bytes]
    special: frozenset[bytes]

    def for_cutter(self) -> tuple[tuple[bytes, int], ...]:
        """Return the names of the headers, each with the flags (such as `_CUT_STOP`) by which `Cut` treats it."""
        found: list[tuple[bytes, int]] = []
        for name in sorted(self.read | self.hidden | self.special):
            use = _HIDDEN if name in self.hidden else 0
            if name in self.special:
                use |= _CUT_STOP
            elif name in _CUT_APART:
                use |= _CUT_APART[name]
            elif name in self.read:
                use |= _CUT_KEY
            found.append((name, use))
        return tuple(found)


# These flags have the same values in _cut.c.
_CUT_KEY, _HIDDEN, _CUT_STOP = 1, 2, 4
_CUT_APART = {_LENGTH: 8, b"receipt": 16, _DUPLICATE_ID: 32}


#: Splits ("cuts") the header block of a SEND at an offset. Returns the offset after the block, its content-length or
#: -1, and the fields of `CutHead`: ``key``, receipt as received, ``rest``, duplicate id. Returns None for a block that
#: is incomplete or exceeds a limit, or has a fault, a CR, a repeated or ``special`` header, an escape in the key or the
#: duplicate id, or a colon that must be escaped in the lines that are passed on.
Cut = Callable[[bytes, int], tuple[int, int, bytes, bytes | None, bytes, bytes | None] | None]

#: Constructor of the native cutter, which has a method `Cut`; None in a build without native code. Parameters: names
#: with their uses, maximum number of headers, maximum bytes of block and body, and whether 1.2 defines the escapes.
NATIVE_CUTTER: Callable[[tuple[tuple[bytes, int], ...], int, int, int, bool], Any] | None
try:
    NATIVE_CUTTER = import_module("stompring.stomp._cut").Cutter
except ImportError:
    NATIVE_CUTTER = None


class AckHead(Head):
    """The head of an ACK with ``id`` as its only header: without transaction and receipt."""

    __slots__ = ("identifier",)

    def __init__(self, identifier: bytes) -> None:
        # a copy of the code of `Head.__init__`, whose call would take 10 ns even if compiled
        self.command = b"ACK"
        self._headers = None
        self.content_length = -1
        self._block = b""
        self.base = None
        self.kept = False
        self.plan = None
        self.receipt = None
        self.identifier = identifier

    def _decode(self) -> dict[bytes, bytes]:
        headers = self._headers = {b"id": self.identifier}
        self._block = b"ACK\nid:" + self.identifier
        return headers


class ReceiptHead(Head):
    """The head of a SEND whose block is that of ``base`` with a ``receipt`` in addition."""

    __slots__ = ()

    def __init__(self, base: Head, receipt: bytes) -> None:
        self.command = b"SEND"
        self._headers = None
        self.content_length = base.content_length
        self._block = b""
        self.base = base
        self.kept = False
        self.plan = None
        self.receipt = receipt

    def _decode(self) -> dict[bytes, bytes]:
        # this dictionary has the receipt last, even if other headers follow it in the block
        assert self.base is not None and self.receipt is not None
        headers = self._headers = {**self.base.headers, b"receipt": self.receipt}
        return headers


class CutHead(Head):
    """The head of a SEND that `Cut` has split: its plan is found by ``key``. Headers are decoded at the first access.

    ``key`` has the lines that the broker reads, without content-length, ``receipt`` and the duplicate id
    (``identifier``); one more line feed stands for a receipt, two for a duplicate id. ``rest`` has the lines that are
    passed on.
    """

    __slots__ = ("_data", "_start", "_stop", "identifier", "key", "rest")

    def __init__(
        self,
        data: bytes,
        start: int,
        stop: int,
        length: int,
        key: bytes,
        receipt: bytes | None,
        rest: bytes,
        identifier: bytes | None,
    ) -> None:
        self.command = b"SEND"
        self._headers = None
        self.content_length = length
        self._block = b""
        self.base = None
        self.kept = False
        self.plan = None
        self._data = data
        self._start = start
        self._stop = stop
        self.key = key
        self.receipt = receipt if receipt is None or BACKSLASH not in receipt else unescape(receipt)
        self.rest = rest
        self.identifier = identifier

    def _decode(self) -> dict[bytes, bytes]:
        block = self._data[self._start : self._stop]
        plain = decode_plain(block, _ANY) or decode(block, b"1.2")  # blocks with escapes are decoded as 1.2
        headers = self._headers = plain.headers
        self._block = plain.block
        return headers


_ANY = HeadLimits(1 << 30, 1 << 30)


# The empty line that ends a header block is LF or CR LF. The line before it may end in LF or CR LF, too.
_LF_END: Final = b"\n\n"
_CRLF_END: Final = b"\n\r\n"


_SEND, _RECEIPT = b"SEND\n", b"\nreceipt:"
_ACK, _ID = b"ACK\nid:", len(b"id:")
_NO_MORE: Final = b"\n\n\0"  # bytes after the only header of a frame without a body


class MalformedHead(ProtocolError):
    """A complete header block breaks a rule other than a limit."""


class HeadReader:
    """Reads the header blocks of one connection.

    ``end``: the bytes that ended the latest block; the parser searches for them first. ``plain``: a block with this end
    may be ordinary (`decode_plain`). ``acks``: `read_ack` may be used. ``memo``: cache of heads. ``body``: offset after
    the block that was read last. ``last``: latest head from ``memo``; ``recent``: block and end of this head, if the
    block came twice in a row. ``asking``: common prefix of two consecutive blocks that differ only in the value of
    ``receipt``.
    """

    __slots__ = (
        "_crlf",
        "_asking_end",
        "_asking_head",
        "_cutter",
        "_later_limits",
        "_opened_crlf",
        "_use",
        "acks",
        "asking",
        "body",
        "end",
        "last",
        "limits",
        "max_body",
        "memo",
        "plain",
        "recent",
        "version",
    )

    def __init__(self, limits: HeadLimits, max_body_length: int, use: HeaderUse | None = None) -> None:
        self.version: bytes | None = None
        self.limits = HeadLimits(limits.max_headers, limits.max_line, first=True)
        self._later_limits = limits
        self.memo = HeadCache()
        self._use = use
        self._cutter: Cut | None = None
        self.end = _LF_END
        self.plain = False
        self.acks = False
        self.last: Head | None = None
        self.recent = b""
        self.asking = b""
        # head of a block that begins with ``asking``, without the receipt header
        self._asking_head: Head | None = None
        self._asking_end = b""  # the bytes after the receipt's value in a block that begins with ``asking``
        self.body = 0
        self.max_body = max_body_length
        self._crlf = True  # whether CR LF is a line end
        self._opened_crlf = False  # whether the opening frame had CR LF

    def negotiated(self, version: bytes) -> None:
        """Read further blocks by the rules of ``version``. CR LF ends lines in 1.2, or if the opening frame used it."""
        self.version = version
        self.limits = self._later_limits
        self._crlf = RULES[version].crlf or self._opened_crlf
        self._end_with(self.end if self._crlf else _LF_END)
        self.acks = version == b"1.2" and self.limits.max_headers > 0
        self.last = None
        self.recent = b""
        self.asking = b""
        self._asking_head = None
        self._cutter = None
        self.memo.clear()

    def can_cut(self) -> bool:
        """Return whether `cut` can be used. The parser uses it while heads are not cached."""
        if self._cutter is not None:
            return True
        use = self._use
        if NATIVE_CUTTER is None or use is None or self.version is None or RULES[self.version].trims:
            return False
        limits = self.limits
        names, escapes = use.for_cutter(), self.version == b"1.2"
        self._cutter = NATIVE_CUTTER(names, limits.max_headers, limits.max_line, self.max_body, escapes).cut
        return True

    def cut(self, data: bytes, start: int) -> CutHead | None:
        """Return the head of the block at ``start``, None if `Cut` cannot split the block. Sets ``body`` to its end."""
        cutter = self._cutter
        assert cutter is not None
        found = cutter(data, start)
        if found is None:
            return None
        end, length, key, receipt, rest, identifier = found
        self.body = end
        return CutHead(data, start, end - len(_LF_END), length, key, receipt, rest, identifier)

    def scan(self) -> HeadScan:
        """Return a scan that searches an incomplete block for its end."""
        return HeadScan(self.limits, self._crlf)

    def read(self, data: bytes, start: int, stop: int) -> Head | None:
        """Return the head at ``start``, None if it is incomplete. ``stop`` is the offset of ``end``, -1 if not found.

        Sets ``body``. Raises `MalformedHead` for a block that breaks a rule, another `ProtocolError` for a limit.
        """
        if self._crlf:
            stop = self._first_end(data, start, stop)
        if stop < 0:
            return None
        self.body = stop + len(self.end)
        block = data[start:stop]
        if self.limits.may_be_passed_by(block):
            self.scan().advance(data[start : self.body])
        try:
            head = self._decode(block)
        except ProtocolError as fault:
            raise MalformedHead(str(fault), _receipt_in(block)) from None
        if head.content_length > self.max_body:
            if self.max_body == FIRST_FRAME and self.version is None:
                raise first_frame_too_long("body", self.max_body, head.headers.get(b"receipt"))
            raise ProtocolError(
                f"body too long: content-length {head.content_length} of {shown(head.command)} exceeds the limit of "
                f"{self.max_body} bytes",
                head.headers.get(b"receipt"),
                "maxBodyLength",
            )
        if head.command == b"SEND" and self.version is not None:
            self.memo.keep(block, head)
        return head

    def read_ack(self, data: bytes, start: int) -> AckHead | None:
        """Return the ACK at ``start`` if ``id`` is its only header; None for any other or an incomplete frame.

        ``body`` becomes the offset after its NUL.
        """
        begin = start + len(_ACK)
        if data[start:begin] != _ACK:
            return None
        stop = data.find(b"\n", begin)
        if (
            stop < 0
            or data[stop : stop + len(_NO_MORE)] != _NO_MORE
            or stop - begin > self.limits.max_line - _ID
        ):
            return None
        identifier = data[begin:stop]
        if BACKSLASH in identifier or CR in identifier or NUL in identifier:
            return None
        self.body = stop + len(_NO_MORE)
        return AckHead(identifier)

    def with_receipt(self, block: bytes) -> Head | None:
        """Return the head of an ordinary SEND with a receipt, based on the head without it; None for other blocks."""
        before, found, after = block.partition(_RECEIPT)
        if not found or not block.startswith(_SEND):
            return None
        receipt, feed, following = after.partition(b"\n")
        following = feed + following
        rest = before + following
        base = self.memo.heads.get(rest)
        if base is None:
            base = decode_plain(rest, self.limits)
            if base is None or b"receipt" in base.headers or base.content_length > self.max_body:
                return None
            self.memo.keep(rest, base)
        else:
            self.memo.hits += 1
        ordinary = BACKSLASH not in receipt and CR not in receipt and NUL not in receipt
        # `read` handles other blocks, and checks all limits
        if not ordinary or len(base.headers) >= self.limits.max_headers or len(block) > self.limits.max_line:
            return None
        if base is self._asking_head:
            base.kept = True
            self.asking = before + _RECEIPT
            self._asking_end = following + _LF_END
        else:
            self.asking = b""
            self._asking_head = base
        return ReceiptHead(base, receipt)

    def read_receipt(self, data: bytes, start: int) -> ReceiptHead | None:
        """Return the head at ``start``, whose block begins with ``asking``. Sets ``body``. Return None if the bytes
        after the receipt are not those of the previous block, or the block is incomplete.
        """
        begin = start + len(self.asking)
        stop = data.find(b"\n", begin)
        end = stop + len(self._asking_end)
        if (
            stop < 0
            or data[stop:end] != self._asking_end
            or end - start - len(_LF_END) > self.limits.max_line
        ):
            return None
        receipt = data[begin:stop]
        if BACKSLASH in receipt or CR in receipt or NUL in receipt:
            return None
        base = self._asking_head
        assert base is not None
        self.body = end
        return ReceiptHead(base, receipt)

    def _first_end(self, data: bytes, start: int, stop: int) -> int:
        """Return the offset of the first end of a block. ``stop``: offset of ``end`` (-1: not found); the other kind
        of end (LF or CR LF) may come before it.
        """
        other = _LF_END if self.end is _CRLF_END else _CRLF_END
        found = data.find(other, start) if stop < 0 else data.find(other, start, stop + 1)
        if found < 0:
            return stop
        self._end_with(other)
        return found

    def _end_with(self, end: bytes) -> None:
        self.end = end
        self.plain = end is _LF_END and self.version is not None and not RULES[self.version].trims

    def _decode(self, block: bytes) -> Head:
        lines = plain_line_ends(block, self.version) if self._crlf and CR in block else block
        if self.version is None:
            self._opened_crlf = lines is not block or self.end is _CRLF_END
        elif not RULES[self.version].trims:
            head = decode_plain(lines, self.limits)
            if head is not None:
                return head
        return decode(lines, self.version)


def _receipt_in(block: bytes) -> bytes | None:
    """Return the receipt in a malformed header block, as received: the client compares it with its own value."""
    for line in block.split(b"\n"):
        name, colon, value = line.partition(b":")
        if name == b"receipt" and colon:
            return value.rstrip(b"\r")
    return None


_A = ord("A")
#: Minimum bytes of a part of a body that is not copied into the buffer.
LONG_PART: Final = 16 * 1024

_CHUNK: Final = 4096  # bytes examined in one step, so that a megabyte of heart-beats is not copied repeatedly


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

    ``held`` is the number of bytes that are not parsed yet. ``error`` is set once, when the peer breaks a rule: `feed`
    still returns the frames before the fault, and discards all further input.
    """

    __slots__ = (
        "_body",
        "_buffer",
        "_fault",
        "_head",
        "_heads",
        "_state",
        "_later_body",
        "_max_body",
        "_scan",
        "error",
        "held",
    )

    def __init__(
        self, max_body_length: int, max_headers: int, max_header_length: int, use: HeaderUse | None = None
    ) -> None:
        self.error: ProtocolError | None = None
        self._later_body = max_body_length
        self._max_body = min(max_body_length, FIRST_FRAME)
        self._heads = HeadReader(HeadLimits(max_headers, max_header_length), self._max_body, use)
        self._state = _State.NOTHING
        self.held = 0
        self._body: list[bytes | bytearray] = []  # the start of a body, before the buffer
        self._buffer = bytearray()
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
        self._drop()
        self._state = _State.DEAF
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
        if matched:  # heads that `cut` has read also shorten the pause of the cache
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
        self._buffer = bytearray(memoryview(data)[start:])
        self.held = len(self._buffer)

    def _scan_on(self) -> bool:
        """Return whether the header block in the buffer is complete."""
        assert self._scan is not None
        try:
            return self._scan.advance(self._buffer)
        except ProtocolError as fault:
            self._fail(fault)
            return False

    def _suspend_body(self, head: Head, data: bytes, start: int) -> None:
        self._head = head
        if head.content_length < 0 and len(data) - start > self._max_body:
            self._fail(_too_long(head, self._max_body, self.version is None))
        else:
            self._state = _State.BODY
            self._hold_body(data[start:])

    def _hold_body(self, data: bytes) -> None:
        """Keep a part of a body."""
        self.held += len(data)
        if len(data) < LONG_PART:
            self._buffer += data
            return
        if self._buffer:
            self._body.append(self._buffer)
            self._buffer = bytearray()
        self._body.append(data)

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
        if held is _State.UNREAD or (held is _State.HEAD and len(data) >= self.held):
            # The caller searches the whole block again; this is cheap, since most of its bytes are new.
            return b"".join((self._take_buffer(), data)), 0
        if held is _State.HEAD or held is _State.OPENED:
            self._buffer += data
            self.held += len(data)
            if held is _State.HEAD and self._scan_on():
                return self._take_buffer(), 0
        elif held is _State.FAULT:
            self._await_end(data, 0)
        return b"", 0

    def _take_buffer(self, end: bytes | memoryview = b"") -> bytes:
        """Return all bytes that are held, and ``end``."""
        data = b"".join((*self._body, self._buffer, end))
        self._drop()
        self._state = _State.NOTHING
        return data

    def _drop(self) -> None:
        self._body = []
        self._buffer = bytearray()
        self.held = 0

    def _resume_body(self, data: bytes, frames: Frames) -> tuple[bytes, int]:
        head = self._head
        assert head is not None
        counted = head.content_length >= 0
        room = (head.content_length if counted else self._max_body) - self.held
        stop = room if counted else data.find(b"\0")
        if stop > room or (stop < 0 and len(data) > room):
            self._fail(_too_long(head, self._max_body, self.version is None))
            return b"", 0
        if stop < 0 or stop >= len(data):
            self._hold_body(data)
            return b"", 0
        if data[stop]:
            self._fail(_wrong_length(head, data[stop]))
            return b"", 0
        frames.append((head, self._take_buffer(memoryview(data)[:stop])))
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
