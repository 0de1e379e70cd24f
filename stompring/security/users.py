"""Users and their password hashes: a users file, one user per line, ``name = $argon2id$…``.

The hashes of Artemis are read as well, ``ENC(iterations:salt:hash)``: PBKDF2 with HMAC-SHA1 of the UTF-8 password, 64
bytes, salt and hash in hexadecimal digits. Plain passwords are read from Artemis's own file only. New hashes are of
argon2.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from argon2 import PasswordHasher as PasswordHasher  # others take it from here
from argon2 import extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from stompring.errors import ConfigurationError
from stompring.security.properties_file import (
    PLAIN,
    Syntax,
    WatchedFile,
    check_name,
    edit_lines,
    is_artemis_file,
    syntax_of,
)
from stompring.settings.model import BrokerConfiguration

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


ARGON2 = "$argon2"
"""Hashes of argon2 begin with it."""

_PBKDF2 = re.compile(r"ENC\((\d{1,8}):((?:[0-9A-Fa-f]{2})+):((?:[0-9A-Fa-f]{2})+)\)")
PBKDF2_ITERATIONS, PBKDF2_SALT, PBKDF2_LENGTH = 1024, 32, 64
"""The parameters of Artemis 2.44: iterations, and bytes of salt and hash."""


def is_pbkdf2(text: str) -> bool:
    """Whether ``text`` is a hash of Artemis, ``ENC(1024:salt:hash)``."""
    found = _PBKDF2.fullmatch(text)
    return found is not None and int(found[1]) > 0


def verify_pbkdf2(hashed: str, password: str) -> bool:
    """Whether ``password`` is that of a hash of Artemis. Raises UnicodeEncodeError for a lone surrogate."""
    found = _PBKDF2.fullmatch(hashed)
    assert found is not None
    expected = bytes.fromhex(found[3])
    computed = hashlib.pbkdf2_hmac(
        "sha1", password.encode(), bytes.fromhex(found[2]), int(found[1]), len(expected)
    )
    return hmac.compare_digest(computed, expected)


def dummy_pbkdf2() -> str:
    """A hash of Artemis that no password matches."""
    salt, digest = secrets.token_hex(PBKDF2_SALT), secrets.token_hex(PBKDF2_LENGTH)
    return f"ENC({PBKDF2_ITERATIONS}:{salt}:{digest})"


USERS_FILE = "users file"


class UsersEdit:
    """An edit of a users file: its lines, with comments. Created by `edit_users`."""

    def __init__(self, lines: list[str], hasher: PasswordHasher, syntax: Syntax = PLAIN) -> None:
        self.lines = lines
        self._hasher = hasher
        self._syntax = syntax

    def __contains__(self, name: object) -> bool:
        return any(self._is_of(line, name) for line in self.lines)

    def _is_of(self, line: str, name: object) -> bool:
        entry = self._syntax.read(line)
        return entry is not None and entry.name == name

    def put(self, name: str, password: str) -> None:
        """Add the user ``name``, or replace the password.

        Raises ValueError for an invalid name or password.
        """
        check_name(name)
        check_password(password)
        new = self._syntax.write(name, self._hasher.hash(password))
        if name in self:
            self.lines[:] = [new if self._is_of(line, name) else line for line in self.lines]
        else:
            self.lines.append(new)

    def remove(self, name: str) -> None:
        """Remove the user ``name``. Raises KeyError for an unknown user."""
        if name not in self:
            raise KeyError(name)
        self.lines[:] = [line for line in self.lines if not self._is_of(line, name)]


@contextmanager
def edit_users(path: Path, hasher: PasswordHasher = HASHER) -> Iterator[UsersEdit]:
    """Edit a users file, or create it (`edit_lines`)."""
    with edit_lines(path, USERS_FILE, lambda lines: parse_users(lines, str(path))) as lines:
        yield UsersEdit(lines, hasher, syntax_of(path))


def parse_users(lines: list[str], file: str) -> dict[str, str]:
    """User name to hash. Raises ConfigurationError with the invalid line."""
    hashes: dict[str, str] = {}
    line_numbers: dict[str, int] = {}
    syntax, plain = syntax_of(file), is_artemis_file(file)
    for number, line in enumerate(lines, 1):
        entry = syntax.read(line)
        if entry is None:
            continue
        name = entry.name
        try:
            hashes[name] = _checked_hash(name, entry.value, plain)
        except ValueError as error:
            raise ConfigurationError(str(error), file, number) from None
        if name in line_numbers:
            raise ConfigurationError(f"user {name!r} is already in line {line_numbers[name]}", file, number)
        line_numbers[name] = number
    return hashes


def _checked_hash(name: str, hashed: str | None, plain: bool) -> str:
    """The hash of a user, or the password where ``plain`` allows it. Errors never contain it."""
    if hashed is None:
        raise ValueError("a line must be 'name = hash', or begin with '#'")
    check_name(name)
    if is_argon2(hashed) or is_pbkdf2(hashed):
        return hashed
    if hashed.startswith("ENC("):
        raise ValueError(
            f"user {name!r}: value is not a password hash of Artemis, ENC(iterations:salt:hash), as 'artemis mask "
            f"--hash' prints it; remove the line and set the password with: stompring user add {name}"
        )
    if plain and hashed and not hashed.startswith(ARGON2):
        return hashed
    raise ValueError(
        f"user {name!r}: value is not an argon2 hash; "
        f"remove the line and set a password with: stompring user add {name}"
    )


def check_users_file(configuration: BrokerConfiguration) -> None:
    """Raise ConfigurationError, with what to do, where security is enabled and there is no users file."""
    if not configuration.security_enabled or configuration.users_file is None:
        return
    if not os.path.lexists(configuration.users_file):
        raise ConfigurationError(
            f"no users are known: there is no users file {configuration.users_file}; create it with: stompring user "
            f"add NAME --role ROLE --config {configuration.file}; or copy Artemis's artemis-users.properties and "
            "artemis-roles.properties beside broker.xml; or set <security-enabled> to false, with acceptors on "
            "127.0.0.1 only",
            configuration.file,
        )


def _is_hash(text: str) -> bool:
    return text.startswith(ARGON2) or is_pbkdf2(text)


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

        Takes as long for an unknown user as for the first of the file. A changed file that cannot be used is logged,
        and the previous users stay in effect.
        Raises ConfigurationError if the hash cannot be computed, for example for lack of memory.
        """
        self._file.refresh_or_log()
        content = self._file.content
        hashed = content.get(name)
        try:
            if hashed is None:
                self._matches(self._dummy(next(iter(content.values()), ARGON2)), password)
                return False
            return self._matches(hashed, password)
        except VerifyMismatchError:
            return False
        except UnicodeEncodeError:
            return False  # a lone surrogate: in no password that was ever set
        except VerificationError as error:
            text = f"password of user {name!r} cannot be verified: {error}"
            raise ConfigurationError(text, str(self.path)) from error

    def _matches(self, hashed: str, password: str) -> bool:
        if hashed.startswith(ARGON2):
            return self._hasher.verify(hashed, password)
        if is_pbkdf2(hashed):
            return verify_pbkdf2(hashed, password)
        return hmac.compare_digest(hashed.encode(), password.encode())

    def _dummy(self, like: str) -> str:
        """A hash that no password matches, of the same kind as ``like``."""
        if like.startswith(ARGON2):
            return dummy_hash(self._hasher)
        return dummy_pbkdf2() if is_pbkdf2(like) else secrets.token_hex(PBKDF2_LENGTH)

    def plain_passwords(self) -> list[str]:
        """The users whose password the file has as it is, without a hash."""
        content = self._file.content
        return [name for name, hashed in content.items() if not _is_hash(hashed)]

    def needs_rehash(self, name: str) -> bool:
        """Whether the hash is no argon2 or has other parameters than new hashes: the password should be set again.

        Raises KeyError for an unknown user.
        """
        hashed = self._file.content[name]
        return not hashed.startswith(ARGON2) or self._hasher.check_needs_rehash(hashed)

    def refresh(self) -> bool:
        """Read the file again if it has changed (`WatchedFile.refresh`)."""
        return self._file.refresh()

    def refresh_or_log(self) -> None:
        """As `refresh`, but log errors (`WatchedFile.refresh_or_log`)."""
        self._file.refresh_or_log()
