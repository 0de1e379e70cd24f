"""One header block to a `Head`, by the rules of a version."""

from __future__ import annotations

from stompring.errors import ProtocolError
from stompring.stomp.encode import unescape
from stompring.stomp.frame import Head
from stompring.stomp.scan import HeadLimits
from stompring.stomp.show import shown
from stompring.stomp.spec import (
    BACKSLASH,
    CONNECT_COMMANDS,
    CR,
    NUL,
    OPENING,
    OPENING_NEWER,
    RULES,
    Rules,
)

_new_head = object.__new__
_BLANKS = b" \t"
_MOST_DIGITS = 18  # of a content-length: beyond any limit, and far below where int() refuses


def decode_plain(block: bytes, limits: HeadLimits) -> Head | None:
    """The head of an ordinary 1.1 or 1.2 block, as fast as can be; None for any other, be it right or wrong.

    ``block`` is the lines with LF between them, without the empty line that ends them. It is ordinary when it has
    no escape and no CR, not more bytes than the longest line may have, and no fault.
    """
    # Looking for a number in bytes is ten times as fast as looking for bytes of length one.
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
    head = _new_head(Head)  # without a call of __init__, which is as dear as all the rest
    head.block = block
    head.command = command
    head.headers = headers
    head.kin = None
    head.plan = None
    if b"content-length" not in headers:
        head.content_length = -1
        return head
    length = headers[b"content-length"]
    if not length.isdigit() or len(length) > _MOST_DIGITS:
        return None
    head.content_length = int(length)
    return head


def decode_kin(base: Head, receipt: bytes) -> Head:
    """The head of a block that is that of ``base`` with a receipt added."""
    head = _new_head(Head)
    head.block = b""
    head.command = base.command
    head.headers = {**base.headers, b"receipt": receipt}
    head.content_length = base.content_length
    head.kin = base
    head.plan = None
    return head


def decode(block: bytes, version: bytes | None) -> Head:
    """The head whose lines are ``block``; ``version`` is None before it is agreed on.

    `ProtocolError` names the rule and the header. The limits are not looked at here.
    """
    command, _, text = block.partition(b"\n")
    lines = text.split(b"\n") if text else []
    rules = _opening_rules(lines) if version is None else RULES[version]
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
    """``block`` with LF for each CR LF; a CR at its very end belongs to the line feed after it.

    In 1.2 no other CR may stand in a header; before, it is a byte of the value.
    """
    block = block.removesuffix(b"\r").replace(b"\r\n", b"\n")
    if version == b"1.2" and CR in block:
        line = next(line for line in block.split(b"\n") if CR in line)
        raise ProtocolError(f"carriage return inside the line {shown(line)}: STOMP 1.2 writes it as \\r")
    return block


def _opening_rules(lines: list[bytes]) -> Rules:
    offered = [line for line in lines if line.startswith(b"accept-version:")]
    return OPENING_NEWER if any(b"1.1" in line or b"1.2" in line for line in offered) else OPENING


def _bad_line(command: bytes, line: bytes) -> ProtocolError:
    fault = "no name before its colon" if b":" in line else "no colon"
    line_shown = "(not shown)" if command in CONNECT_COMMANDS else shown(line)  # it may be half of a passcode
    return ProtocolError(f"header line {line_shown} of {shown(command)} has {fault}")


def _content_length(text: bytes) -> int:
    """Bytes of the body. Blanks around the number are forgiven: they cannot mean anything else."""
    digits = text.strip(_BLANKS)
    if not digits.isdigit():
        raise ProtocolError(f"content-length {shown(text)} is not a decimal number of bytes, 0 or greater")
    if len(digits) > _MOST_DIGITS:
        digits = digits.lstrip(b"0")[: _MOST_DIGITS + 1] or b"0"
    return int(digits)
