"""What differs between STOMP 1.0, 1.1 and 1.2 on the wire: every "which version?" question ends in this table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

LF = ord("\n")
CR = ord("\r")
NUL = 0
BACKSLASH = ord("\\")
COLON = ord(":")

_ESCAPES_1_1 = {BACKSLASH: b"\\", ord("n"): b"\n", ord("c"): b":"}
_ESCAPES_1_2 = {**_ESCAPES_1_1, ord("r"): b"\r"}


@dataclass(frozen=True, slots=True)
class Rules:
    """How the frames of one version are read.

    ``escapes`` maps the byte after a backslash to what the pair stands for ("Value Encoding"); it is empty where
    a backslash is a byte like any other. ``first_wins`` says which of repeated headers counts ("Repeated Header
    Entries"; 1.0 says nothing and Artemis takes the last). ``trims`` drops the blanks before a value, as those
    1.0 clients expect that write ``name: value``. ``crlf`` accepts CR LF as a line end whatever CONNECT used.
    """

    name: str
    escapes: Mapping[int, bytes] = field(default_factory=lambda: MappingProxyType({}))
    first_wins: bool = True
    trims: bool = False
    crlf: bool = False


RULES: Mapping[bytes, Rules] = MappingProxyType(
    {
        b"1.0": Rules("STOMP 1.0", first_wins=False, trims=True),
        b"1.1": Rules("STOMP 1.1", escapes=MappingProxyType(_ESCAPES_1_1)),
        b"1.2": Rules("STOMP 1.2", escapes=MappingProxyType(_ESCAPES_1_2), crlf=True),
    }
)

# A frame that comes before the version is known is read as 1.0, with either line end. A CONNECT that offers 1.1
# or 1.2 is not escaped either (CONNECT never is), but its padding and its first entries count.
OPENING = Rules("STOMP before CONNECT", first_wins=False, trims=True, crlf=True)
OPENING_NEWER = Rules("STOMP before CONNECT", crlf=True)

CONNECT_COMMANDS = frozenset({b"CONNECT", b"STOMP"})
UNESCAPED_COMMANDS = CONNECT_COMMANDS | {b"CONNECTED"}
