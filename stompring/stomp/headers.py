"""Header blocks: their end, their limits, and their decoding by the rules of a version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stompring.errors import ProtocolError

from .frames import (
    BACKSLASH,
    CONNECT_COMMANDS,
    CR,
    NUL,
    OPENING,
    OPENING_NEWER,
    RULES,
    Head,
    shown,
    unescape,
)

#: Maximum bytes of command and headers, and of the body, of a frame before CONNECTED, when the client is unknown.
FIRST_FRAME: Final = 16 * 1024

_LEAST_BLOCK: Final = 64 * 1024
_LINES_PER_BLOCK: Final = 16


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


_BLANKS: Final = b" \t"
# maximum digits of a content-length: more than any limit has, and far fewer than int() accepts
_MOST_DIGITS: Final = 18


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
