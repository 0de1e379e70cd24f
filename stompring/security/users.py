"""Users and their password hashes: a users file, one user per line, ``name = $argon2id$…``."""

from __future__ import annotations

import base64
import binascii
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from stompring.errors import ConfigurationError
from stompring.security.properties_file import WatchedFile, check_name, edit_lines, name_of

HASHER = PasswordHasher()


def check_password(password: str) -> None:
    """Raise ValueError for a password that cannot be sent in every CONNECT frame.

    A ``passcode`` header cannot contain NUL, and in STOMP 1.0 no line end.
    """
    if not password:
        raise ValueError("a password cannot be empty")
    if any(character in password for character in "\0\r\n"):
        raise ValueError("a password cannot contain a line end or a NUL character")
    try:
        password.encode()
    except UnicodeEncodeError:
        raise ValueError("a password must be valid UTF-8 text") from None


def is_argon2(text: str) -> bool:
    """Whether ``text`` is an argon2 hash in the format ``$argon2id$…``, with any parameters."""
    try:
        extract_parameters(text)
        for part in text.split("$")[-2:]:
            base64.b64decode(part + "=" * (-len(part) % 4), validate=True)
    except (InvalidHashError, binascii.Error, ValueError):
        return False
    return True


def dummy_hash(hasher: PasswordHasher) -> str:
    """A hash that no password matches and that takes as long to verify: random bytes in place of a digest."""
    salt, digest = (
        base64.b64encode(secrets.token_bytes(length)).rstrip(b"=").decode()
        for length in (hasher.salt_len, hasher.hash_len)
    )
    costs = f"m={hasher.memory_cost},t={hasher.time_cost},p={hasher.parallelism}"
    return f"$argon2id$v=19${costs}${salt}${digest}"


USERS_FILE = "users file"


class UsersEdit:
    """An edit of a users file: its lines, with comments. Created by `edit_users`."""

    def __init__(self, lines: list[str], hasher: PasswordHasher) -> None:
        self.lines = lines
        self._hasher = hasher

    def __contains__(self, name: object) -> bool:
        return name is not None and any(name_of(line) == name for line in self.lines)

    def put(self, name: str, password: str) -> None:
        """Add the user ``name``, or replace the password.

        Raises ValueError for an invalid name or password.
        """
        check_name(name)
        check_password(password)
        new = f"{name} = {self._hasher.hash(password)}"
        if name in self:
            self.lines[:] = [new if name_of(line) == name else line for line in self.lines]
        else:
            self.lines.append(new)

    def remove(self, name: str) -> None:
        """Remove the user ``name``. Raises KeyError for an unknown user."""
        if name not in self:
            raise KeyError(name)
        self.lines[:] = [line for line in self.lines if name_of(line) != name]


@contextmanager
def edit_users(path: Path, hasher: PasswordHasher = HASHER) -> Iterator[UsersEdit]:
    """Edit a users file, or create it (`edit_lines`)."""
    with edit_lines(path, USERS_FILE, lambda lines: parse_users(lines, str(path))) as lines:
        yield UsersEdit(lines, hasher)


def parse_users(lines: list[str], file: str) -> dict[str, str]:
    """User name to hash. Raises ConfigurationError with the invalid line."""
    hashes: dict[str, str] = {}
    line_numbers: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        name = name_of(line)
        if name is None:
            continue
        try:
            hashes[name] = _hash_of(line, name)
        except ValueError as error:
            raise ConfigurationError(str(error), file, number) from None
        if name in line_numbers:
            raise ConfigurationError(f"user {name!r} is already in line {line_numbers[name]}", file, number)
        line_numbers[name] = number
    return hashes


def _hash_of(line: str, name: str) -> str:
    """The hash in a line. Errors never contain the value: it may be a password."""
    if "=" not in line:
        raise ValueError("a line must be 'name = hash', or begin with '#'")
    check_name(name)
    hashed = line.partition("=")[2].strip()
    if hashed.startswith("ENC("):
        raise ValueError(
            f"user {name!r}: password hashes of Artemis, ENC(…), are not supported; "
            f"remove the line and set the password with: stompring user add {name}"
        )
    if not is_argon2(hashed):
        raise ValueError(
            f"user {name!r}: value is not an argon2 hash; "
            f"remove the line and set a password with: stompring user add {name}"
        )
    return hashed


class Users:
    """The users of one file, which is read again when it has changed, before each login.

    `verify`, `refresh` and `refresh_or_log` are calls for a thread pool, as those of `WatchedFile`.
    """

    def __init__(self, path: str | os.PathLike[str], hasher: PasswordHasher = HASHER) -> None:
        """Read the file at ``path``.

        Raises ConfigurationError, with file and line, for a missing file or an invalid line.
        """
        self._file = WatchedFile(path, USERS_FILE, parse_users)
        self.path = self._file.path
        self._hasher = hasher

    @property
    def generation(self) -> int:
        """Incremented when the file was read again."""
        return self._file.generation

    def __contains__(self, name: object) -> bool:
        return name in self._file.content

    def names(self) -> list[str]:
        """All user names, in the order of the file."""
        return list(self._file.content)

    def verify(self, name: str, password: str) -> bool:
        """Whether ``password`` is that of the user ``name``, by the present file.

        Takes as long for an unknown user. A changed file that cannot be used is logged, and the previous users stay
        in effect.
        Raises ConfigurationError if the hash cannot be computed, for example for lack of memory.
        """
        self._file.refresh_or_log()
        hashed = self._file.content.get(name)
        try:
            return self._hasher.verify(hashed or dummy_hash(self._hasher), password) and hashed is not None
        except VerifyMismatchError:
            return False
        except UnicodeEncodeError:
            return False  # a lone surrogate: in no password that was ever set
        except VerificationError as error:
            text = f"password of user {name!r} cannot be verified: {error}"
            raise ConfigurationError(text, str(self.path)) from error

    def needs_rehash(self, name: str) -> bool:
        """Whether the hash has other parameters than new hashes: the password should be set again.

        Raises KeyError for an unknown user.
        """
        return self._hasher.check_needs_rehash(self._file.content[name])

    def refresh(self) -> bool:
        """Read the file again if it has changed (`WatchedFile.refresh`)."""
        return self._file.refresh()

    def refresh_or_log(self) -> None:
        """As `refresh`, but log errors (`WatchedFile.refresh_or_log`)."""
        self._file.refresh_or_log()
