"""Texts of others on a terminal: bodies, headers and error texts never reach it as control sequences."""

from __future__ import annotations

import re

# C0 but tab and line feed, DEL, C1, line separators, marks that turn the direction of text, tags, and what is not text
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def printable(text: str) -> str:
    """``text`` with escapes in place of control characters; tab and line feed remain."""
    return _UNSAFE.sub(_escaped, text)


def one_line(text: str) -> str:
    """As `printable`, with escapes in place of tab and line feed too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
