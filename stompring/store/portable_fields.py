"""The fields of JSON objects that somebody else may have written: each is looked at before it is believed."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Unusable(Exception):
    """A line of the file is not what it should be; the text names the field."""


def text(data: bytes) -> str | dict[str, str]:
    """Bytes as a text, or as ``{"base64": …}`` where they are none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


class Fields:
    """The fields of one object, taken out one by one; `done` complains of those that are left."""

    def __init__(self, given: Any, what: str) -> None:
        if not isinstance(given, Mapping):
            raise Unusable(f"{what} is not an object")
        self._left = dict(given)
        self._what = what

    def value(self, name: str) -> Any:
        """Any value that is there."""
        try:
            return self._left.pop(name)
        except KeyError:
            raise Unusable(f"{self._what} has no field {name}") from None

    def done(self) -> None:
        """All fields must have been taken."""
        if self._left:
            raise Unusable(f"{self._what} has an unknown field {sorted(self._left)[0]}")

    def nothing(self, name: str) -> int:
        """Null, which stands for 0."""
        self.value(name)
        return 0

    def text(self, name: str) -> str:
        """A text."""
        value = self.value(name)
        if not isinstance(value, str):
            raise Unusable(f"{self._what}: {name} is not a text")
        return value

    def text_or_none(self, name: str) -> str | None:
        """A text or null."""
        if self._left.get(name, "") is None:
            self.value(name)
            return None
        return self.text(name)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self.value(name)
        if not isinstance(value, bool):
            raise Unusable(f"{self._what}: {name} is neither true nor false")
        return value

    def number(self, name: str, most: int = 2**63 - 1, least: int = 0) -> int:
        """A whole number."""
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise Unusable(f"{self._what}: {name} is not a whole number from {least} to {most}")
        return value

    def choice(self, name: str, kind: type[StrEnum]) -> Any:
        """One of the values of an enumeration, or null."""
        value = self.text_or_none(name)
        if value is not None and value not in kind.__members__:
            raise Unusable(f"{self._what}: {name} is one of {', '.join(kind)}, not {value}")
        return None if value is None else kind(value)

    def items(self, name: str) -> list[Any]:
        """A list."""
        value = self.value(name)
        if not isinstance(value, list):
            raise Unusable(f"{self._what}: {name} is not a list")
        return value

    def objects(self, name: str) -> list[Any]:
        """A list that has something in it."""
        found = self.items(name)
        if not found:
            raise Unusable(f"{self._what}: {name} is empty")
        return found

    def raw(self, name: str) -> bytes:
        """A text as bytes, or what ``{"base64": …}`` stands for."""
        return self.as_bytes(name, self.value(name))

    def raw_or_none(self, name: str) -> bytes | None:
        """The same, or null."""
        value = self.value(name)
        return None if value is None else self.as_bytes(name, value)

    def as_bytes(self, name: str, value: Any) -> bytes:
        """A value that was taken out of a list."""
        try:
            if isinstance(value, str):
                return value.encode()
            if isinstance(value, Mapping) and value.keys() == {"base64"}:
                return base64.b64decode(value["base64"], validate=True)
        except (ValueError, TypeError):
            pass
        raise Unusable(f'{self._what}: {name} is neither a text nor {{"base64": …}}')
