"""Header values as text, where text is wanted: names, logs, management."""

from __future__ import annotations

from typing import overload


@overload
def text_of(value: bytes) -> str: ...
@overload
def text_of(value: None) -> None: ...
@overload
def text_of(value: bytes | None) -> str | None: ...
def text_of(value: bytes | None) -> str | None:
    """The text of a header value; what is not UTF-8 in it is replaced. None stays None."""
    return None if value is None else value.decode("utf-8", "replace")


def shortened(value: bytes) -> str:
    """A header value for an error message, cut at 100 bytes."""
    return value[:100].decode("utf-8", "replace")


def printable(text: str, most: int = 100) -> str:
    """Text from a client for one line of a log or an answer: no control characters, at most ``most`` characters."""
    return "".join(sign if sign.isprintable() else "?" for sign in text[:most])
