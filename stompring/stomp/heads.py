"""Where a header block ends, whether it keeps the limits, and what it says: all that may differ by connection."""

from __future__ import annotations

from stompring.errors import ProtocolError
from stompring.stomp.decode import decode, decode_kin, decode_plain, plain_line_ends
from stompring.stomp.frame import Head
from stompring.stomp.memo import HeadMemo
from stompring.stomp.scan import HeadLimits, HeadScan
from stompring.stomp.show import shown
from stompring.stomp.spec import BACKSLASH, CR, NUL, RULES
from stompring.stomp.template import HeaderUse, Templates

# A header block ends in an empty line, which is one of two. The line end before it may be of the other kind.
_LF_END = b"\n\n"
_CRLF_END = b"\n\r\n"


_SEND, _RECEIPT = b"SEND\n", b"\nreceipt:"


class MalformedHead(ProtocolError):
    """A complete header block breaks a rule other than a limit."""


class HeadReader:
    """Reads the header blocks of one connection.

    ``end`` is how its blocks end, as far as seen; whoever looks for one looks for this first. ``plain`` tells that
    such a block is worth a try of `decode_plain`. ``memo`` holds what was read before. ``body`` is the offset after
    the block that `read` looked at last. ``templates`` are for SENDs of which no two are the same, where the one who
    reads them has said what for (``use``).
    """

    __slots__ = (
        "_crlf",
        "_opened_crlf",
        "body",
        "end",
        "limits",
        "max_body",
        "memo",
        "plain",
        "templates",
        "version",
    )

    def __init__(self, limits: HeadLimits, max_body_length: int, use: HeaderUse | None = None) -> None:
        self.version: bytes | None = None
        self.limits = limits
        self.memo = HeadMemo()
        self.templates = None if use is None else Templates(use, limits)
        self.end = _LF_END
        self.plain = False
        self.body = 0
        self.max_body = max_body_length
        self._crlf = True  # CR LF is a line end
        self._opened_crlf = False  # the opening frame had one

    def negotiated(self, version: bytes) -> None:
        """What follows is of ``version``. CR LF ends lines in 1.2, and where the opening frame used it."""
        self.version = version
        self._crlf = RULES[version].crlf or self._opened_crlf
        self._end_with(self.end if self._crlf else _LF_END)
        self.memo.clear()
        if self.templates is not None:
            self.templates.clear()

    def active_templates(self) -> Templates | None:
        """Those by which blocks are read while the memo rests."""
        templates = self.templates
        if templates is None or not templates.ready:
            return None
        templates.max_body = self.max_body
        return templates

    def keep(self, block: bytes, head: Head) -> None:
        """An ordinary SEND was read: the next one may be the same, or have the same names at least."""
        if head.kin is None:
            self.memo.keep(block, head)
        self._learn(block)

    def _learn(self, block: bytes) -> None:
        if self.memo.rest and self.templates is not None and self.version is not None:
            self.templates.learn(block, self.version)

    def scan(self) -> HeadScan:
        """For a block of which not all is there."""
        return HeadScan(self.limits, self._crlf)

    def read(self, data: bytes, start: int, stop: int) -> Head | None:
        """The head at ``start``; ``stop`` is where ``end`` was found, -1 where it was not. None when it is cut off.

        `MalformedHead` for a block that breaks a rule, and another `ProtocolError` for a limit that is passed.
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
            raise ProtocolError(
                f"body too long: content-length {head.content_length} of {shown(head.command)} passes the limit of "
                f"{self.max_body} bytes",
                head.headers.get(b"receipt"),
                "maxBodyLength",
            )
        if head.command == b"SEND" and self.version is not None:
            self.memo.keep(block, head)
            if CR not in block and not RULES[self.version].trims:
                self._learn(block)  # it has an escape
        return head

    def with_receipt(self, block: bytes) -> Head | None:
        """The head of an ordinary SEND that asks for a receipt, made from one without; None for any other block."""
        at = block.find(_RECEIPT)
        if at < 0 or not block.startswith(_SEND):
            return None
        after = block.find(b"\n", at + 1)
        receipt = block[at + len(_RECEIPT) :] if after < 0 else block[at + len(_RECEIPT) : after]
        rest = block[:at] if after < 0 else block[:at] + block[after:]
        base = self.memo.heads.get(rest)
        if base is None:
            base = decode_plain(rest, self.limits)
            if base is None or b"receipt" in base.headers or base.content_length > self.max_body:
                return None
            self.memo.keep(rest, base)
        else:
            self.memo.hits += 1
        ordinary = BACKSLASH not in receipt and CR not in receipt and NUL not in receipt
        # what is left over must be looked at with the limits in mind, and in full
        if not ordinary or len(base.headers) >= self.limits.max_headers or len(block) > self.limits.max_line:
            return None
        return decode_kin(base, receipt)

    def _first_end(self, data: bytes, start: int, stop: int) -> int:
        """Where the block ends when the other way to end it is thought of, too: it may come before ``stop``."""
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
    """The receipt that a malformed header block asks for, as it came: the client compares it with what it sent."""
    for line in block.split(b"\n"):
        name, colon, value = line.partition(b":")
        if name == b"receipt" and colon:
            return value.rstrip(b"\r")
    return None
