"""The text of a users file: one user per line, ``name = $argon2id$…``, as `lines_file` has such files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from argon2 import PasswordHasher

from stompring.errors import ConfigurationError
from stompring.security.lines_file import check_name, edit_lines, name_of
from stompring.security.passwords import HASHER, check_password, is_argon2

USERS = "users file"


class UsersEdit:
    """A users file being changed: its lines, comments and all. Made by `edit_users`."""

    def __init__(self, lines: list[str], hasher: PasswordHasher) -> None:
        self.lines = lines
        self._hasher = hasher

    def __contains__(self, name: object) -> bool:
        return name is not None and any(name_of(line) == name for line in self.lines)

    def put(self, name: str, password: str) -> None:
        """Give the user ``name`` this password, whether they exist yet or not.

        Raises ValueError for a name or a password that cannot be.
        """
        check_name(name)
        check_password(password)
        new = f"{name} = {self._hasher.hash(password)}"
        if name in self:
            self.lines[:] = [new if name_of(line) == name else line for line in self.lines]
        else:
            self.lines.append(new)

    def remove(self, name: str) -> None:
        """Take the user ``name`` out. Raises KeyError when there is none."""
        if name not in self:
            raise KeyError(name)
        self.lines[:] = [line for line in self.lines if name_of(line) != name]


@contextmanager
def edit_users(path: Path, hasher: PasswordHasher = HASHER) -> Iterator[UsersEdit]:
    """Change a users file, or begin one, as `edit_lines` does."""
    with edit_lines(path, USERS, lambda lines: parse_users(lines, str(path))) as lines:
        yield UsersEdit(lines, hasher)


def parse_users(lines: list[str], file: str) -> dict[str, str]:
    """User name to hash. Raises ConfigurationError with the line that is wrong."""
    hashes: dict[str, str] = {}
    places: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        name = name_of(line)
        if name is None:
            continue
        try:
            hashes[name] = _hash_of(line, name)
        except ValueError as error:
            raise ConfigurationError(str(error), file, number) from None
        if name in places:
            raise ConfigurationError(f"user {name!r} is already in line {places[name]}", file, number)
        places[name] = number
    return hashes


def _hash_of(line: str, name: str) -> str:
    """The hash in a line. What stands in its place is never repeated in a message: it may be a password."""
    if "=" not in line:
        raise ValueError("a line must be 'name = hash', or begin with '#'")
    check_name(name)
    hashed = line.partition("=")[2].strip()
    if hashed.startswith("ENC("):
        raise ValueError(
            f"the password of user {name!r} is hashed by Artemis and cannot be taken over; "
            f"take the line out and set it with: stompring user add {name}"
        )
    if not is_argon2(hashed):
        raise ValueError(
            f"what is given for user {name!r} is not an argon2 hash; "
            f"take the line out and set a password with: stompring user add {name}"
        )
    return hashed
