"""Brokers by name, in the file contexts.json: their URLs, users and certificates; and the password of a user."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import click

from .output import NOT_FOUND, CommandFailed, human_text


def context_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Completes names of contexts."""

    try:
        return [name for name in Contexts.read().names() if name.startswith(incomplete)]
    except click.ClickException:
        return []


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_name(name: str) -> None:
    """Raise ValueError unless ``name`` can be the name of a context or a broker."""
    if not NAME.fullmatch(name):
        raise ValueError("a name has 1 to 64 letters, digits, '.', '_' and '-'")


@dataclass(frozen=True, slots=True)
class Context:
    """One broker. None: not set, the default holds."""

    server: str | None = None
    broker: str | None = None
    user: str | None = None
    password_file: str | None = None
    ca: str | None = None

    def given(self) -> dict[str, str]:
        """What is set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def directory() -> Path:
    """``$XDG_CONFIG_HOME/stompring``."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "stompring"


@dataclass(slots=True)
class Contexts:
    """The file contexts.json."""

    current: str | None = None
    contexts: dict[str, Context] = field(default_factory=dict)

    @staticmethod
    def file() -> Path:
        """Its path."""
        return directory() / "contexts.json"

    @classmethod
    def read(cls) -> Contexts:
        """The file; empty if there is none. Raises `CommandFailed`."""
        file = cls.file()
        try:
            text = file.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return cls()
        except (OSError, UnicodeDecodeError) as fault:
            raise CommandFailed(f"cannot read the contexts in {file}: {fault}") from None
        try:
            found = json.loads(text)
            contexts = {name: _context(name, each) for name, each in found.get("contexts", {}).items()}
            current = found.get("current")
        except (ValueError, AttributeError, RecursionError) as fault:
            raise CommandFailed(f"{file} is not a valid contexts file: {fault}") from None
        if current is not None and current not in contexts:
            current = None
        return cls(current, contexts)

    def names(self) -> list[str]:
        """Names in alphabetical order."""
        return sorted(self.contexts)

    def get(self, name: str) -> Context:
        """A context by name. Raises `CommandFailed`."""
        if name not in self.contexts:
            known = ", ".join(self.names()) or "none; add one with: stompring context add NAME --server URL"
            raise CommandFailed(f"there is no context {name!r}; contexts: {known}", NOT_FOUND)
        return self.contexts[name]

    def write(self) -> None:
        """Replace the file atomically, readable by its owner only."""
        contents = {
            "current": self.current,
            "contexts": {name: self.contexts[name].given() for name in self.names()},
        }
        write_private(self.file(), json.dumps(contents, indent=2, ensure_ascii=False) + "\n")


def _context(name: str, found: Any) -> Context:
    if not isinstance(found, dict):
        raise ValueError(f"context {name!r} is not an object")
    known = {each.name for each in fields(Context)}
    for key, value in found.items():
        if key not in known:
            raise ValueError(f"context {name!r} has the unknown member {key!r}")
        if not isinstance(value, str):
            raise ValueError(f"{key} of context {name!r} is not a string")
    return Context(**found)


def write_private(file: Path, text: str) -> None:
    """Write a file with mode 0600, atomically. Raises `CommandFailed`."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as fault:
        raise CommandFailed(f"cannot write {file}: {fault.strerror}") from None


def selected(name: str | None, address: str, given: str | None) -> Context:
    """The context in use: named, or the current one, or an empty one.

    ``address`` is ``server`` or ``broker``, ``given`` its value from an option or the environment. The current context
    is not used for another address than its own: its password must not be sent elsewhere.
    """
    if name is not None:
        return Contexts.read().get(name)
    contexts = Contexts.read()
    if contexts.current is None:
        return Context()
    found = contexts.get(contexts.current)
    if given is not None and given != getattr(found, address):
        return Context()
    return found


PASSWORD_VARIABLE = "STOMPRING_PASSWORD"  # nosec B105 - the name of a variable


def password_for(
    user: str, found: Context, prompt: bool = True, purpose: str = "", variable: str = PASSWORD_VARIABLE
) -> str | None:
    """The password of a user: the environment variable, the context's file if it is that of this user, or a prompt.

    None where there is none and no terminal, or ``prompt`` is false. Raises `CommandFailed` for an unreadable file.
    """
    password = os.environ.get(variable)
    if password is not None:
        return password
    if found.password_file is not None and found.user == user:
        return read_password(Path(found.password_file).expanduser())
    if prompt and sys.stdin.isatty():
        text = f"Password of {human_text(user)}{purpose}"
        return str(click.prompt(text, hide_input=True, err=True, default="", show_default=False))
    return None


def read_password(file: Path) -> str:
    """A password file: its text without the final line end. Raises `CommandFailed`."""
    try:
        return file.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as fault:
        raise CommandFailed(f"cannot read the password file {file}: {fault}") from None
