"""What a stranger wrote, fit for one line of a log or an answer."""

from __future__ import annotations


def printable(text: str, most: int = 100) -> str:
    """Without control characters, and not at any length."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:most])
