"""Frames to bytes, and the header escapes of each version in both directions ("Value Encoding")."""

from __future__ import annotations

from collections.abc import Iterable

from stompring.errors import ProtocolError
from stompring.stomp.show import shown
from stompring.stomp.spec import BACKSLASH, RULES, UNESCAPED_COMMANDS


def escape(text: bytes, version: bytes = b"1.2") -> bytes:
    """``text`` as a header value of ``version``.

    1.0 has no escapes and 1.1 none for CR: those bytes go out as they are. A line feed alone cannot, because it
    would begin another header: a 1.0 client is shown it as a backslash and ``n``.
    """
    if version == b"1.0":
        return text.replace(b"\n", b"\\n")
    if BACKSLASH in text:
        text = text.replace(b"\\", b"\\\\")
    text = text.replace(b":", b"\\c").replace(b"\n", b"\\n")
    return text.replace(b"\r", b"\\r") if version == b"1.2" else text


def unescape(text: bytes, version: bytes = b"1.2", header: bytes = b"") -> bytes:
    """The bytes that ``text`` stands for; `ProtocolError` for an escape that ``version`` does not define.

    ``header`` is the header's name as it came, for the message.
    """
    escapes = RULES[version].escapes
    if not escapes or BACKSLASH not in text:
        return text
    first, *parts = text.split(b"\\")
    plain = [first]
    rest = iter(parts)
    for part in rest:
        if part:
            meaning = escapes.get(part[0])
            if meaning is None:
                raise _undefined(part[:1], version, header)
            plain += (meaning, part[1:])
        else:  # two backslashes in a row: what follows the second one is plain
            following = next(rest, None)
            if following is None:
                raise _undefined(b"", version, header)
            plain += (b"\\", following)
    return b"".join(plain)


def _undefined(byte: bytes, version: bytes, header: bytes) -> ProtocolError:
    found = f"undefined escape \\{shown(byte)[1:-1]}" if byte else "a backslash that escapes nothing"
    place = f" in header {shown(header)}" if header else ""
    known = " ".join(f"\\{chr(code)}" for code in RULES[version].escapes)
    return ProtocolError(f"{found}{place}: {RULES[version].name} defines {known}")


def header_line(name: bytes, value: bytes, version: bytes = b"1.2") -> bytes:
    """``name:value`` and a line feed, escaped for ``version``."""
    return b"%b:%b\n" % (_escape_name(name, version), escape(value, version))


def _escape_name(name: bytes, version: bytes) -> bytes:
    # Where there are no escapes, a colon would make another header of the name ("redelivered:true" for one).
    escaped = escape(name, version)
    return escaped.replace(b":", b"\\c") if version == b"1.0" else escaped


def encode_frame(
    command: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"", version: bytes = b"1.2"
) -> bytes:
    """One whole frame. It says its content-length when it has a body, and ends in NUL and LF as Artemis's do.

    A content-length among ``headers`` is replaced by the true one. CONNECT and CONNECTED are not escaped in any
    version ("Value Encoding").
    """
    if command in UNESCAPED_COMMANDS:
        version = b"1.0"
    counted = bool(body)
    parts = [command, b"\n"]
    for name, value in headers:
        if name == b"content-length":
            counted = True
        else:
            parts.append(header_line(name, value, version))
    if counted:
        parts.append(b"content-length:%d\n" % len(body))
    parts += (b"\n", body, b"\0\n")
    return b"".join(parts)


def recode(block: bytes, version: bytes) -> bytes:
    """A header block escaped for 1.2 (lines ``name:value`` LF, joined) in the form of another version.

    The same object comes back when it holds no escape.
    """
    if version == b"1.2" or BACKSLASH not in block:
        return block
    lines = block.split(b"\n")
    return b"\n".join([_recode_line(line, version) if BACKSLASH in line else line for line in lines])


def _recode_line(line: bytes, version: bytes) -> bytes:
    name, colon, value = line.partition(b":")
    return _escape_name(unescape(name), version) + colon + escape(unescape(value), version)
