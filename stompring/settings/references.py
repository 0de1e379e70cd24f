"""References to secrets in broker.xml, ``${env:NAME}`` and ``${file:PATH}``, and secrets themselves.

``$${`` is how the characters ``${`` are written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

REFERENCE_MARK = "${"
_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\})?")
_KNOWN = re.compile(r"\$\{(env|file):")

MAX_FILE_BYTES = 64 * 1024
"""Bytes of a referenced file: secrets are shorter, and reading a device would not end."""


class References:
    """Resolves the references of one broker.xml. Paths are relative to ``folder``."""

    def __init__(self, folder: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._folder = folder
        self._environment = environment

    def resolve(self, text: str) -> str:
        """``text`` with its references resolved. Raises `ValueError` for one without a value."""
        return _REFERENCE.sub(self._value, text) if REFERENCE_MARK in text else text

    def _value(self, found: re.Match[str]) -> str:
        if found[1] is None:
            return REFERENCE_MARK
        if found[2] is None:
            raise ValueError("'${' has no closing '}'; write '$${' for the characters themselves")
        kind, _, name = found[1].partition(":")
        if kind == "env" and name:
            return self._of_environment(name)
        if kind == "file" and name:
            return self._of_file(name)
        raise ValueError(
            f"'{found[0]}' is no reference: use ${{env:NAME}} or ${{file:PATH}}, and '$${{' for the characters "
            "themselves"
        )

    def _of_environment(self, name: str) -> str:
        value = self._environment.get(name)
        if value is None:
            raise ValueError(f"environment variable {name} is not set")
        return value

    def _of_file(self, name: str) -> str:
        path = self._folder / name
        try:
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ValueError(f"cannot read file {path}: {reason}") from None
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"file {path} is longer than {MAX_FILE_BYTES} bytes")
        try:
            return content.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise ValueError(f"file {path} is not UTF-8 text") from None


def has_reference(text: str) -> bool:
    """Whether ``text`` contains ``${``, the start of a reference."""
    return REFERENCE_MARK in text


def has_known_reference(text: str) -> bool:
    """Whether ``text`` contains a reference of a known kind. In a filter ``${`` alone may be part of the text."""
    return _KNOWN.search(text) is not None


HIDDEN = "***"


class Secret(str):
    """A text from outside of broker.xml, such as a password.

    It is that text for whoever uses it (``encode``, ``==``, as a key), and stars for whoever shows it: ``str``,
    ``repr``, ``format``, log lines.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return HIDDEN

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, form: str) -> str:
        return HIDDEN


def revealed(text: str) -> str:
    """The text itself, for those who use it."""
    return str.__str__(text)


def hidden(value: object) -> object:
    """``value`` with stars for each secret in it, for those who show it: texts, dicts, lists and tuples."""
    if isinstance(value, Secret):
        return HIDDEN
    if isinstance(value, dict):
        return {name: hidden(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [hidden(one) for one in value]
    return value
