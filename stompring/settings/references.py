"""``${env:NAME}`` and ``${file:PATH}`` in the values of a broker.xml: what must not stand in the file itself.

``$${`` is how the characters ``${`` are written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

MARK = "${"
_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\})?")
_KNOWN = re.compile(r"\$\{(env|file):")

LONGEST = 64 * 1024
"""Bytes of a file that is referred to: a secret is shorter, and a device has no end."""


class References:
    """Looks up what one broker.xml refers to. Paths are relative to ``folder``."""

    def __init__(self, folder: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._folder = folder
        self._environment = environment

    def resolve(self, text: str) -> str:
        """``text`` with the values in place of the references. Raises `ValueError` that says which has none."""
        return _REFERENCE.sub(self._value, text) if MARK in text else text

    def _value(self, found: re.Match[str]) -> str:
        if found[1] is None:
            return MARK
        if found[2] is None:
            raise ValueError("'${' without '}' after it; the characters themselves are written '$${'")
        kind, _, name = found[1].partition(":")
        if kind == "env" and name:
            return self._of_environment(name)
        if kind == "file" and name:
            return self._of_file(name)
        raise ValueError(
            f"'{found[0]}' stands for nothing: write ${{env:NAME}} or ${{file:PATH}}, and '$${{' for the "
            "characters themselves"
        )

    def _of_environment(self, name: str) -> str:
        value = self._environment.get(name)
        if value is None:
            raise ValueError(f"there is no environment variable {name}")
        return value

    def _of_file(self, name: str) -> str:
        path = self._folder / name
        try:
            with path.open("rb") as file:
                content = file.read(LONGEST + 1)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ValueError(f"the file {path} cannot be read: {reason}") from None
        if len(content) > LONGEST:
            raise ValueError(f"the file {path} is longer than {LONGEST} bytes")
        try:
            return content.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise ValueError(f"the file {path} must be UTF-8 text") from None


def refers(text: str) -> bool:
    """Whether something is looked up for ``text``, or would be if it were spelled right."""
    return MARK in text


def refers_by_name(text: str) -> bool:
    """Whether there is a reference of a known kind: where ``${`` may be part of a text, as in a filter."""
    return _KNOWN.search(text) is not None
