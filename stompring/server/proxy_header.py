"""The header of the PROXY protocol, versions 1 and 2, as HAProxy's proxy-protocol.txt has it. Bytes only, no I/O.

Twisted has a reader too (``twisted.protocols.haproxy``), which is not for strangers: a header that comes in two pieces
ends the connection, addresses are taken as they are written, and some headers end in a traceback.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

#: A header of version 1 is never longer, with its line end.
LONGEST_V1 = 107
#: Bytes after the first 16 of version 2: addresses, and what a proxy has to add (TLVs). The format allows 65535.
LONGEST_V2 = 4096

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED = 16

_PORT = re.compile(rb"0|[1-9][0-9]{0,4}")

_LOCAL, _PROXY = 0x20, 0x21
_UNSPECIFIED, _TCP4, _TCP6, _UNIX = 0x00, 0x11, 0x21, 0x31


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """What a header says. ``source`` is None where it is not about a client: the proxy speaks for itself."""

    length: int  # bytes of the header; what follows is the client's
    source: tuple[str, int] | None = None


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """The header at the beginning of ``data``, None where more is needed. Raises `ValueError` with what is wrong."""
    if data.startswith(SIGNATURE[: len(data)]):
        return _version_2(data) if len(data) >= _FIXED else None
    if data.startswith(b"PROXY "[: len(data)]):
        return _version_1(data)
    raise ValueError("it begins without a PROXY header")


def _version_1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, LONGEST_V1)
    if end < 0:
        if len(data) >= LONGEST_V1:
            raise ValueError(f"its PROXY header is longer than {LONGEST_V1} bytes")
        return None
    length = end + 2
    words = data[:end].split(b" ")
    if words[1] == b"UNKNOWN":
        return ProxyHeader(length)
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise ValueError("its PROXY header is not 'PROXY TCP4|TCP6 SOURCE DESTINATION PORT PORT'")
    kind = IPv4Address if words[1] == b"TCP4" else IPv6Address
    try:
        source, _ = (str(kind(word.decode("ascii"))) for word in words[2:4])
    except ValueError:
        raise ValueError("its PROXY header has what is no address") from None
    if not all(_PORT.fullmatch(word) and int(word) < 65_536 for word in words[4:]):
        raise ValueError("its PROXY header has what is no port")
    return ProxyHeader(length, (source, int(words[4])))


def _version_2(data: bytes) -> ProxyHeader | None:
    command, family, size = struct.unpack_from("!BBH", data, len(SIGNATURE))
    if command not in (_LOCAL, _PROXY):
        raise ValueError(f"its PROXY header has version and command 0x{command:02x}")
    if size > LONGEST_V2:
        raise ValueError(f"its PROXY header is longer than {LONGEST_V2} bytes")
    length = _FIXED + size
    if len(data) < length:
        return None
    if command == _LOCAL or family in (_UNSPECIFIED, _UNIX):
        return ProxyHeader(length)
    if family not in (_TCP4, _TCP6):
        raise ValueError(f"its PROXY header is about no TCP connection (0x{family:02x})")
    width = 4 if family == _TCP4 else 16
    if size < 2 * width + 4:
        raise ValueError("its PROXY header is too short for its addresses")
    raw = data[_FIXED : _FIXED + width]
    source = str(IPv4Address(raw) if family == _TCP4 else IPv6Address(raw))
    (port,) = struct.unpack_from("!H", data, _FIXED + 2 * width)
    return ProxyHeader(length, (source, port))
