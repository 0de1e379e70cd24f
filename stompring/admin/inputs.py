"""Fields of a request's body, checked one by one; what is wrong is said with the field's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from .answer import Problem, invalid

#: Turns the value of the named field into ours, or raises 400.
Reader = Callable[[str, Any], Any]


def text(name: str, value: Any) -> str:
    """Text that UTF-8 can hold."""
    if not isinstance(value, str):
        raise invalid(name, f"must be text, not {_shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid(name, "holds half a surrogate pair, which is no character") from None
    return value


def text_or_none(name: str, value: Any) -> str | None:
    """Text, or null for none."""
    return None if value is None else text(name, value)


def flag(name: str, value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise invalid(name, f"must be true or false, not {_shown(value)}")
    return value


def number(least: int) -> Reader:
    """A whole number of at least ``least``, or -1 for none."""

    def read(name: str, value: Any) -> int:
        right = isinstance(value, int) and not isinstance(value, bool)
        if not right or value >= 1 << 63 or (value < least and value != -1):
            raise invalid(name, f"must be -1 or a whole number from {least} on, not {_shown(value)}")
        return int(value)

    return read


def choice(kind: type[StrEnum]) -> Reader:
    """One of a few words, in capitals."""

    def read(name: str, value: Any) -> StrEnum:
        if value not in list(kind):
            raise invalid(name, f"must be {' or '.join(kind)}, not {_shown(value)}")
        return kind(value)

    return read


def choices(kind: type[StrEnum]) -> Reader:
    """A list of one or more of a few words."""
    one = choice(kind)

    def read(name: str, value: Any) -> frozenset[StrEnum]:
        if not isinstance(value, list) or not value:
            raise invalid(name, f"must be a list of {' or '.join(kind)}, not {_shown(value)}")
        return frozenset(one(name, item) for item in value)

    return read


def read_fields(body: Mapping[str, Any], readers: Mapping[str, tuple[str, Reader]]) -> dict[str, Any]:
    """The fields of ``body`` that ``readers`` knows, checked, under our names. Raises 400."""
    return {ours: read(name, body[name]) for name, (ours, read) in readers.items() if name in body}


def required(body: Mapping[str, Any], name: str) -> str:
    """A field of text that must be there. Raises 400."""
    if name not in body:
        raise invalid(name, "is missing")
    return text(name, body[name])


def selector(body: Mapping[str, Any], name: str) -> str | None:
    """A field that may hold a selector. Whether it is one is for others to say."""
    return text_or_none(name, body.get(name))


def message_number(identifier: str, queue_number: int) -> int:
    """The number in a message's id: ``QUEUE-NUMBER`` as its consumers see it, or the number alone. Raises 404."""
    queue, dash, number_text = identifier.rpartition("-")
    if (dash and queue != str(queue_number)) or not (number_text.isascii() and number_text.isdigit()):
        raise Problem(404, f"This queue holds no message {identifier!r}")
    return int(number_text[:20])


def _shown(value: Any) -> str:
    shown = "null" if value is None else repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
