"""Frames: the differences between STOMP 1.0, 1.1 and 1.2, decoded heads, and encoding ("Value Encoding")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stompring.errors import ProtocolError

LF = ord("\n")
CR = ord("\r")
NUL: Final = 0
BACKSLASH = ord("\\")
COLON = ord(":")

_ESCAPES_1_1 = {BACKSLASH: b"\\", ord("n"): b"\n", ord("c"): b":"}
_ESCAPES_1_2 = {**_ESCAPES_1_1, ord("r"): b"\r"}


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which frames of one version are read.

    ``escapes`` maps the byte after a backslash to the meaning of the pair ("Value Encoding"); if it is empty, a
    backslash is an ordinary byte. ``first_wins``: the first of repeated headers counts, else the last ("Repeated Header
    Entries"; 1.0 does not specify it and Artemis takes the last). ``trims``: blanks before a value are removed, for 1.0
    clients that write ``name: value``. ``crlf``: CR LF ends a line, whatever line ends CONNECT used.
    """

    name: str
    escapes: Mapping[int, bytes] = field(default_factory=dict)
    first_wins: bool = True
    trims: bool = False
    crlf: bool = False


RULES: Mapping[bytes, Rules] = {
    b"1.0": Rules("STOMP 1.0", first_wins=False, trims=True),
    b"1.1": Rules("STOMP 1.1", escapes=_ESCAPES_1_1),
    b"1.2": Rules("STOMP 1.2", escapes=_ESCAPES_1_2, crlf=True),
}

# A frame before the version is agreed on is read as 1.0, with either line end. A CONNECT that offers 1.1 or 1.2 is not
# escaped either (CONNECT never is), but blanks belong to its values, and the first of repeated headers counts.
OPENING = Rules("STOMP before CONNECT", first_wins=False, trims=True, crlf=True)
OPENING_NEWER = Rules("STOMP before CONNECT", crlf=True)

CONNECT_COMMANDS: Final = frozenset({b"CONNECT", b"STOMP"})
UNESCAPED_COMMANDS: Final = CONNECT_COMMANDS | {b"CONNECTED"}


class Head:
    """Command and headers of one frame. Frames with the same header block share one `Head`: never change it.

    ``headers`` maps decoded names to decoded values in order of first appearance; of a repeated header 1.1 and 1.2 keep
    the first value and 1.0 the last. ``content_length`` is in bytes, -1 if absent. ``plan`` is for the caller of the
    parser, which may store any object there; the next frame with the same header block has the object, too. ``base`` is
    the head of the same block without its receipt, or None: so the frames of a producer that requests a receipt for
    each of them share a plan. ``receipt``: the value of this header, or None. ``kept``: the head is cached. ``block``
    is the header block as received, with LF line ends; empty if a header in it is escaped or repeated.
    """

    __slots__ = ("_block", "_headers", "base", "command", "content_length", "kept", "plan", "receipt")

    def __init__(
        self,
        command: bytes,
        headers: dict[bytes, bytes] | None,
        content_length: int = -1,
        block: bytes = b"",
    ) -> None:
        self.command = command
        self._headers = headers
        self.content_length = content_length
        self._block = block
        self.base: Head | None = None
        self.kept = False
        self.plan: Any = None
        self.receipt = None if headers is None else headers.get(b"receipt")

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The headers, decoded at the first access."""
        headers = self._headers
        return self._decode() if headers is None else headers

    @property
    def block(self) -> bytes:
        """The header block, empty if a header in it is escaped or repeated."""
        if self._headers is None:
            self._decode()
        return self._block

    def _decode(self) -> dict[bytes, bytes]:
        """Decode the headers of a head that was created without them: set ``_headers`` and ``_block``."""
        raise AssertionError("a head without headers decodes them")

    def __repr__(self) -> str:
        headers = self.headers | {b"passcode": b"***"} if b"passcode" in self.headers else self.headers
        return f"Head({self.command!r}, {headers!r}, content_length={self.content_length})"


_LONGEST: Final = 40  # bytes of a text in an error: enough to recognise the text, too few to fill a log


def shown(text: bytes) -> str:
    """Return ``text`` in quotes, as ASCII with escapes, cut after 40 bytes."""
    if len(text) > _LONGEST:
        return f"{ascii(bytes(text[:_LONGEST]))[1:]}..."
    return ascii(bytes(text))[1:]


def escape(text: bytes, version: bytes = b"1.2") -> bytes:
    """Encode ``text`` as a header value of ``version``.

    1.0 has no escapes, and 1.1 has none for CR: the bytes without an escape are not changed. The exception is a line
    feed for a 1.0 client: it would begin another header, and becomes a backslash and ``n``.
    """
    if version == b"1.0":
        return text.replace(b"\n", b"\\n")
    if BACKSLASH in text:
        text = text.replace(b"\\", b"\\\\")
    text = text.replace(b":", b"\\c").replace(b"\n", b"\\n")
    return text.replace(b"\r", b"\\r") if version == b"1.2" else text


def unescape(text: bytes, version: bytes = b"1.2", header: bytes = b"") -> bytes:
    """Decode the escapes in ``text``. Raises `ProtocolError` for an escape that ``version`` does not define.

    ``header`` is the header's name as received, for the message.
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
        else:  # an escaped backslash: the part after it is ordinary text
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
    """Encode ``name:value`` and a line feed, escaped for ``version``."""
    return b"%b:%b\n" % (_escape_name(name, version), escape(value, version))


def _escape_name(name: bytes, version: bytes) -> bytes:
    # Without escapes, a colon in the name would make another header ("redelivered:true", for example).
    escaped = escape(name, version)
    return escaped.replace(b":", b"\\c") if version == b"1.0" else escaped


def encode_frame(
    command: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"", version: bytes = b"1.2"
) -> bytes:
    """Encode one frame. It has a content-length if it has a body, and ends in NUL and LF as in Artemis.

    The true content-length replaces one among ``headers``. CONNECT and CONNECTED are not escaped in any version
    ("Value Encoding").
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
    """Convert a header block escaped for 1.2 (joined lines ``name:value`` LF) to another version.

    Returns the same object if it has no escape.
    """
    if version == b"1.2" or BACKSLASH not in block:
        return block
    lines = block.split(b"\n")
    for place, line in enumerate(lines):
        if BACKSLASH in line:
            name, colon, value = line.partition(b":")
            lines[place] = _escape_name(unescape(name), version) + colon + escape(unescape(value), version)
    return b"\n".join(lines)
