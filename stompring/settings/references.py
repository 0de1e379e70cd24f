"""References in broker.xml, ``${env:NAME}``, ``${file:PATH}`` and ``${property:default}``, and secrets.

A property is one of `predefined_properties`, or an environment variable: that of its name, or that of its name in
capitals with ``_`` for every other character than letters and digits, as a shell can set it (``data.dir``:
``DATA_DIR``). ``$${`` is how the characters ``${`` are written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

REFERENCE_MARK = "${"
_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\})?")
_KNOWN = re.compile(r"\$\{[\w.-]+:")
_NOT_IN_VARIABLE = re.compile(r"[^A-Za-z0-9]")

MAX_FILE_BYTES = 64 * 1024
"""Bytes of a referenced file: secrets are shorter, and reading a device would not end."""


def predefined_properties(folder: Path, instance: Path) -> dict[str, str]:
    """The properties that Artemis's start script defines, for a broker.xml in ``folder``."""
    return {
        "artemis.instance": str(instance),
        "artemis.instance.etc": str(folder),
        "data.dir": str(instance / "data"),
    }


class References:
    """Resolves the references of one broker.xml. Paths are relative to ``folder``.

    ``properties`` are those that no environment variable sets.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str] = os.environ,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._folder = folder
        self._environment = environment
        self._properties = properties

    def resolve(self, text: str) -> str:
        """``text`` with its references resolved. Raises `ValueError` for one without a value."""
        return _REFERENCE.sub(self._value, text) if REFERENCE_MARK in text else text

    def _value(self, found: re.Match[str]) -> str:
        if found[1] is None:
            return REFERENCE_MARK
        if found[2] is None:
            raise ValueError("'${' has no closing '}'; write '$${' for the characters themselves")
        kind, colon, name = found[1].partition(":")
        if kind == "env" and name:
            return self._of_environment(name)
        if kind == "file" and name:
            return self._of_file(name)
        if kind and kind not in ("env", "file"):
            return self._of_property(kind, name if colon else None)
        raise ValueError(
            f"'{found[0]}' is no reference: use ${{env:NAME}}, ${{file:PATH}} or ${{property:default}}, and '$${{' for "
            "the characters themselves"
        )

    def _of_environment(self, text: str) -> str:
        name, colon, default = text.partition(":")
        value = self._environment.get(name, default if colon else None)
        if value is None:
            raise ValueError(f"environment variable {name} is not set")
        return value

    def _of_property(self, name: str, default: str | None) -> str:
        variable = _NOT_IN_VARIABLE.sub("_", name).upper()
        for value in (
            self._environment.get(name),
            self._environment.get(variable),
            self._properties.get(name),
            default,
        ):
            if value is not None:
                return value
        raise ValueError(
            f"property {name} is not set: set the environment variable {variable}, or write a default, "
            f"${{{name}:default}}"
        )

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
    """Whether ``text`` contains a reference of a known kind or with a default. In a filter ``${`` may be text."""
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
