"""Header blocks: their end, their limits, and their decoding by the rules of a version.

Most producers repeat their header blocks, so decoded heads are cached. If each SEND has another block, native code
splits the blocks into lines that the broker reads and lines that it passes on to receivers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from stompring.errors import ProtocolError

from .frames import (
    BACKSLASH,
    CONNECT_COMMANDS,
    CR,
    NUL,
    OPENING,
    OPENING_NEWER,
    RULES,
    AckHead,
    Head,
    ReceiptHead,
    shown,
    unescape,
)

#: Maximum bytes of command and headers, and of the body, of a frame before CONNECTED, when the client is unknown.
FIRST_FRAME = 16 * 1024

_LEAST_BLOCK = 64 * 1024
_LINES_PER_BLOCK = 16


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """Limits of a header block. ``max_headers``: header lines, repeated ones included. ``max_line``: bytes of a line
    without its line feed. ``first``: whether the limits are for a frame before CONNECTED.

    ``max_block``: bytes of command and headers together, so that many long lines cannot add up. It is 64 KiB, eight
    times the limit of common HTTP servers, or 16 of the longest lines if that is more; before CONNECTED `FIRST_FRAME`.
    """

    max_headers: int
    max_line: int
    first: bool = False

    @property
    def max_block(self) -> int:
        """Maximum bytes of command and headers together."""
        return FIRST_FRAME if self.first else max(_LEAST_BLOCK, _LINES_PER_BLOCK * self.max_line)

    def may_be_passed_by(self, block: bytes) -> bool:
        """Return whether a complete block may exceed a limit, and needs a `HeadScan`."""
        return (
            len(block) > min(self.max_line, self.max_block)
            or NUL in block
            or block.count(b"\n") > self.max_headers
        )


def first_frame_too_long(part: str, limit: int, receipt: bytes | None = None) -> ProtocolError:
    """Return the error for a frame before CONNECTED whose ``part`` is too long."""
    return ProtocolError(
        f"first frame too long: its {part} exceed the limit of {limit} bytes before CONNECTED",
        receipt,
        "first-frame",
    )


class HeadScan:
    """Searches one header block for its end, and checks the limits."""

    __slots__ = ("_crlf", "_limits", "_line", "_lines", "_seen")

    def __init__(self, limits: HeadLimits, crlf: bool) -> None:
        self._limits = limits
        self._crlf = crlf
        self._line = 0  # offset of the first incomplete line
        self._lines = 0  # number of complete lines, the line of the command included
        self._seen = 0  # offset of the first byte that was not searched

    def advance(self, block: bytes | bytearray) -> bool:
        """Search the bytes added to ``block``. Returns whether ``block`` has the empty line that ends the headers.
        Raises `ProtocolError` if a limit is exceeded, and for a NUL, which ends the frame before its headers end.
        """
        nul = block.find(NUL, self._seen)
        end = len(block) if nul < 0 else nul
        while True:
            start = self._line
            feed = block.find(b"\n", max(start, self._seen), end)
            stop = end if feed < 0 else feed
            self._check_line(block, start, stop)
            if feed < 0:
                break
            if stop == start or (self._crlf and stop == start + 1 and block[start] == CR):
                return True
            self._line = feed + 1
            self._lines += 1
            if self._lines - 1 > self._limits.max_headers:
                command = _command(block)
                raise ProtocolError(
                    f"too many headers: {command} has more than the limit of {self._limits.max_headers}",
                    limit="maxHeaders",
                )
        self._seen = end
        if nul >= 0:
            raise self._cut_short(block)
        return False

    def _check_line(self, block: bytes | bytearray, start: int, stop: int) -> None:
        longest, largest = self._limits.max_line, self._limits.max_block
        if stop - start > longest and start + longest <= largest:
            text = bytes(block[start : start + longest + 1])
            if start == 0:
                raise ProtocolError(
                    f"command line too long: {shown(text)} exceeds the limit of {longest} bytes",
                    limit="maxHeaderLength",
                )
            name = shown(text.partition(b":")[0])
            raise ProtocolError(
                f"header line too long: header {name} exceeds the limit of {longest} bytes",
                limit="maxHeaderLength",
            )
        if stop > largest:
            if self._limits.first:
                raise first_frame_too_long("command and headers", largest)
            command = _command(block)
            raise ProtocolError(
                f"headers too large: the headers of {command} exceed the limit of {largest} bytes in total",
                limit="maxHeaderLength",
            )

    def _cut_short(self, block: bytes | bytearray) -> ProtocolError:
        if self._lines == 0:
            begun = bytes(block[: self._seen])
            if not begun:
                return ProtocolError("NUL where a command is expected")
            return ProtocolError(
                f"{shown(begun)} ends with NUL; an empty line must follow the headers of a frame"
            )
        hint = ""
        if not self._crlf and block.find(b"\r\n", 0, self._seen) >= 0:
            hint = " (lines of this connection end in LF, not CR LF, as in its CONNECT frame)"
        return ProtocolError(
            f"{_command(block)} ends with NUL before the empty line that must follow its headers{hint}"
        )


def _command(block: bytes | bytearray) -> str:
    return shown(bytes(block[: max(0, block.find(b"\n"))]).rstrip(b"\r"))


_BLANKS = b" \t"
# maximum digits of a content-length: more than any limit has, and far fewer than int() accepts
_MOST_DIGITS = 18


def decode_plain(block: bytes, limits: HeadLimits) -> Head | None:
    """Decode an ordinary 1.1 or 1.2 block, as fast as possible. Return None for any other block, valid or not.

    ``block`` has LF between its lines, and not the empty line that ends them. An ordinary block has no escape, CR,
    repeated header or fault, and at most as many bytes as the longest allowed line.
    """
    # A search in bytes for an integer is ten times as fast as one for bytes of length one.
    if BACKSLASH in block or CR in block or NUL in block or len(block) > limits.max_line or not block:
        return None
    lines = block.split(b"\n")
    command = lines[0]
    del lines[0]
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            return None
        headers[name] = value
    if len(lines) > limits.max_headers or len(headers) != len(lines) or b"" in headers:
        return None
    if b"content-length" not in headers:
        return Head(command, headers, -1, block)
    length = headers[b"content-length"]
    if not length.isdigit() or len(length) > _MOST_DIGITS:
        return None
    return Head(command, headers, int(length), block)


def decode(block: bytes, version: bytes | None) -> Head:
    """Decode the lines in ``block``, without a check of the limits. ``version`` is None before it is agreed on.

    Raises `ProtocolError` with the rule and the header.
    """
    command, _, text = block.partition(b"\n")
    lines = text.split(b"\n") if text else []
    if version is None:
        offered = [line for line in lines if line.startswith(b"accept-version:")]
        newer = any(b"1.1" in line or b"1.2" in line for line in offered)
        rules = OPENING_NEWER if newer else OPENING
    else:
        rules = RULES[version]
    spoken = version or b"1.0"
    escaped = bool(rules.escapes) and command not in CONNECT_COMMANDS
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name:
            raise _bad_line(command, line)
        if escaped and BACKSLASH in line:
            name, value = unescape(name, spoken, name), unescape(value, spoken, name)
        if rules.trims:
            value = value.lstrip(_BLANKS)
        if not rules.first_wins or name not in headers:
            headers[name] = value
    length = headers.get(b"content-length")
    return Head(command, headers, -1 if length is None else _content_length(length))


def plain_line_ends(block: bytes, version: bytes | None) -> bytes:
    """Replace each CR LF in ``block`` by LF. A CR at the end of ``block`` belongs to the line feed after the block.

    In 1.2 any other CR in a header raises `ProtocolError`; before 1.2, it is a byte of the value.
    """
    block = block.removesuffix(b"\r").replace(b"\r\n", b"\n")
    if version == b"1.2" and CR in block:
        line = next(line for line in block.split(b"\n") if CR in line)
        raise ProtocolError(f"carriage return inside the line {shown(line)}: STOMP 1.2 writes it as \\r")
    return block


def _bad_line(command: bytes, line: bytes) -> ProtocolError:
    fault = "no name before its colon" if b":" in line else "no colon"
    # the line may contain a passcode
    line_shown = "(not shown)" if command in CONNECT_COMMANDS else shown(line)
    return ProtocolError(f"header line {line_shown} of {shown(command)} has {fault}")


def _content_length(text: bytes) -> int:
    """Return the bytes of the body. Ignores blanks around the number: they have no other meaning."""
    digits = text.strip(_BLANKS)
    if not digits.isdigit():
        raise ProtocolError(f"content-length {shown(text)} is not a decimal number of bytes, 0 or greater")
    if len(digits) > _MOST_DIGITS:
        digits = digits.lstrip(b"0")[: _MOST_DIGITS + 1] or b"0"
    return int(digits)


_MOST_HEADS = 256
_LONGEST_BLOCK = 1024  # bytes of a cached block: the cache of a connection has at most 256 KiB of blocks
_REST = 16_384  # number of heads that are not cached after the cache was useless: 64 times the cache


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


class CutHead(Head):
    """The head of a SEND that `Cut` has split: its plan is found by ``key``. Headers are decoded at the first access.

    ``key`` has the lines that the broker reads, without content-length, ``receipt`` and the duplicate id
    (``identifier``); one more line feed stands for a receipt, two for a duplicate id. ``rest`` has the lines that are
    passed on.
    """

    __slots__ = ("_data", "_start", "_stop", "identifier", "key", "receipt", "rest")

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
        self.receipt = receipt
        self.rest = rest
        self.identifier = identifier

    def requested_receipt(self) -> bytes | None:
        receipt = self.receipt
        return receipt if receipt is None or BACKSLASH not in receipt else unescape(receipt)

    def _decode(self) -> dict[bytes, bytes]:
        block = self._data[self._start : self._stop]
        plain = decode_plain(block, _ANY) or decode(block, b"1.2")  # blocks with escapes are decoded as 1.2
        headers = self._headers = plain.headers
        self._block = plain.block
        return headers


_ANY = HeadLimits(1 << 30, 1 << 30)


# The empty line that ends a header block is LF or CR LF. The line before it may end in LF or CR LF, too.
_LF_END = b"\n\n"
_CRLF_END = b"\n\r\n"


_SEND, _RECEIPT = b"SEND\n", b"\nreceipt:"
_ACK, _ID = b"ACK\nid:", len(b"id:")
_NO_MORE = b"\n\n\0"  # bytes after the only header of a frame without a body


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
        """Return the offset of the first end of a block, LF or CR LF: the kind that is not ``end`` may come first."""
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
