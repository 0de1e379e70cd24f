"""Header values as text, and the limit on the length of identifiers that clients choose."""

from __future__ import annotations

from typing import overload

from stompring.broker.directory import MAX_NAME
from stompring.errors import Refused


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


def check_identifier_length(header: str, name: bytes) -> bytes:
    """The name, which is in that header. Raises `Refused` for one that is longer than names of queues may be.

    A header line may be 64 KiB: ten thousand subscriptions, or the ids that one address remembers, would be a gigabyte.
    """
    if len(name) > MAX_NAME:
        raise Refused(f"The header {header} is longer than {MAX_NAME} bytes", status=400)
    return name
