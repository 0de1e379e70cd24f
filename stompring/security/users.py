"""Users and their password hashes: a users file, one user per line, ``name = $argon2id$…``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError, VerifyMismatchError

from stompring.errors import ConfigurationError
from stompring.security.passwords import HASHER, check_password, dummy_hash, is_argon2
from stompring.security.properties_file import WatchedFile, check_name, edit_lines, name_of

USERS_FILE = "users file"


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
    with edit_lines(path, USERS_FILE, lambda lines: parse_users(lines, str(path))) as lines:
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


class Users:
    """The users of one file. Every login follows its changes; `refresh` does so without one.

    `verify`, `refresh` and `follow` are plain calls for a thread pool, as those of `FollowedFile`.
    """

    def __init__(self, path: str | os.PathLike[str], hasher: PasswordHasher = HASHER) -> None:
        """Read the file at ``path``.

        Raises ConfigurationError, with file and line, for a file that is missing or says what cannot be.
        """
        self._file = WatchedFile(path, USERS_FILE, parse_users)
        self.path = self._file.path
        self._hasher = hasher

    @property
    def generation(self) -> int:
        """Goes up when the file was read again."""
        return self._file.generation

    def names(self) -> list[str]:
        """All user names, in the order of the file."""
        return list(self._file.content)

    def verify(self, name: str, password: str) -> bool:
        """Whether ``password`` is that of the user ``name``, by the file as it is now.

        Takes as long for a user who does not exist. A changed file that cannot be used is logged, and the users
        read before stay in force.
        Raises ConfigurationError when the hash cannot be computed here (for example for lack of memory).
        """
        self._file.follow()
        hashed = self._file.content.get(name)
        try:
            return self._hasher.verify(hashed or dummy_hash(self._hasher), password) and hashed is not None
        except VerifyMismatchError:
            return False
        except UnicodeEncodeError:
            return False  # a lone surrogate: in no password that was ever set
        except VerificationError as error:
            text = f"the password of user {name!r} cannot be checked: {error}"
            raise ConfigurationError(text, str(self.path)) from error

    def needs_rehash(self, name: str) -> bool:
        """Whether the hash has other parameters than new ones get, so that the password is better set anew.

        Raises KeyError for a user who does not exist.
        """
        return self._hasher.check_needs_rehash(self._file.content[name])

    def refresh(self) -> bool:
        """See `FollowedFile.refresh`."""
        return self._file.refresh()

    def follow(self) -> None:
        """See `FollowedFile.follow`."""
        self._file.follow()
