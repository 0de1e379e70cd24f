"""The limits of a header block, checked while it grows: a block that never ends is refused as soon as it is too big.

What is refused depends on the bytes alone and never on the reads they came in: lines are walked in order, each byte is
looked at once, and the first limit that is passed is the one that is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stompring.errors import ProtocolError
from stompring.stomp.show import shown
from stompring.stomp.spec import CR, NUL

_LEAST_BLOCK = 64 * 1024
_LINES_PER_BLOCK = 16


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """``max_headers`` counts header lines, repeated ones too; ``max_line`` is bytes of a line without its line feed.

    ``max_block`` bounds command and headers together, so that many long lines cannot add up: 64 KiB, which is eight
    times what common HTTP servers allow, or 16 of the longest lines if that is more.
    """

    max_headers: int
    max_line: int
    max_block: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_block", max(_LEAST_BLOCK, _LINES_PER_BLOCK * self.max_line))

    def may_be_passed_by(self, block: bytes) -> bool:
        """False when a complete block needs no `HeadScan`, as one look at it tells."""
        return len(block) > self.max_line or NUL in block or block.count(b"\n") > self.max_headers


class HeadScan:
    """Walks one header block from its first byte on."""

    __slots__ = ("_crlf", "_limits", "_line", "_lines", "_seen")

    def __init__(self, limits: HeadLimits, crlf: bool) -> None:
        self._limits = limits
        self._crlf = crlf
        self._line = 0  # where the line begins that is not complete yet
        self._lines = 0  # complete lines, the command's included
        self._seen = 0  # how far the block was searched

    def advance(self, block: bytes | bytearray) -> bool:
        """Look at what was added to ``block``. True when it holds the empty line that ends the headers.

        `ProtocolError` for a limit passed, and for a NUL: the frame is over and its headers are not.
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
                    f"command line too long: {shown(text)} passes the limit of {longest} bytes",
                    limit="maxHeaderLength",
                )
            name = shown(text.partition(b":")[0])
            raise ProtocolError(
                f"header line too long: header {name} passes the limit of {longest} bytes",
                limit="maxHeaderLength",
            )
        if stop > largest:
            command = _command(block)
            raise ProtocolError(
                f"headers too big: those of {command} pass the limit of {largest} bytes altogether",
                limit="maxHeaderLength",
            )

    def _cut_short(self, block: bytes | bytearray) -> ProtocolError:
        if self._lines == 0:
            begun = bytes(block[: self._seen])
            if not begun:
                return ProtocolError("a NUL stands where a command should begin")
            return ProtocolError(
                f"{shown(begun)} ends with NUL, and an empty line must follow the headers of a frame"
            )
        hint = ""
        if not self._crlf and block.find(b"\r\n", 0, self._seen) >= 0:
            hint = " (lines of this connection end in LF, not CR LF, as in its CONNECT frame)"
        return ProtocolError(
            f"{_command(block)} ends with NUL before the empty line that must follow its headers{hint}"
        )


def _command(block: bytes | bytearray) -> str:
    return shown(bytes(block[: max(0, block.find(b"\n"))]).rstrip(b"\r"))
