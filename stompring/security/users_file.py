"""The text of a users file: read with the place of each fault, changed at one stroke.

One user per line, ``name = $argon2id$…``, in the look of Artemis's ``artemis-users.properties``. Lines that
begin with ``#`` are comments and survive every change made here.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from argon2 import PasswordHasher

from stompring.errors import ConfigurationError
from stompring.security.passwords import HASHER, check_password, is_argon2


class UsersEdit:
    """A users file being changed: its lines, comments and all. Made by `edit_users`."""

    def __init__(self, lines: list[str], hasher: PasswordHasher) -> None:
        self.lines = lines
        self._hasher = hasher

    def __contains__(self, name: object) -> bool:
        return name is not None and any(_name_of(line) == name for line in self.lines)

    def put(self, name: str, password: str) -> None:
        """Give the user ``name`` this password, whether they exist yet or not.

        Raises ValueError for a name or a password that cannot be.
        """
        check_name(name)
        check_password(password)
        new = f"{name} = {self._hasher.hash(password)}"
        if name in self:
            self.lines[:] = [new if _name_of(line) == name else line for line in self.lines]
        else:
            self.lines.append(new)

    def remove(self, name: str) -> None:
        """Take the user ``name`` out. Raises KeyError when there is none."""
        if name not in self:
            raise KeyError(name)
        self.lines[:] = [line for line in self.lines if _name_of(line) != name]


@contextmanager
def edit_users(path: Path, hasher: PasswordHasher = HASHER) -> Iterator[UsersEdit]:
    """Change a users file, or begin one: what the block leaves is written when it ends without an exception.

    The file is replaced at one stroke, so that a broker that reads it sees the old one or the new one; a
    lock on its directory keeps two edits from losing each other's work.
    Raises ConfigurationError when the file has a broken line or cannot be read or written.
    """
    real = Path(os.path.realpath(path))  # a symbolic link stays one
    try:
        directory = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        lines = read_lines(real) if real.exists() else []
        parse_users(lines, str(path))
        edit = UsersEdit(list(lines), hasher)
        yield edit
        if edit.lines != lines:
            try:
                _replace(real, "".join(f"{line}\n" for line in edit.lines))
                os.fsync(directory)
            except OSError as error:
                raise _unwritable(path, error) from error
    finally:
        os.close(directory)


def read_lines(path: Path) -> list[str]:
    """The file's lines without their ends. Raises ConfigurationError for what is not readable UTF-8 text."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        return content.decode().replace("\r\n", "\n").removesuffix("\n").split("\n") if content else []
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError("the users file must be UTF-8 text", str(path), line) from None


def parse_users(lines: list[str], file: str) -> dict[str, str]:
    """User name to hash. Raises ConfigurationError with the line that is wrong."""
    hashes: dict[str, str] = {}
    places: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        name = _name_of(line)
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


def check_name(name: str) -> None:
    """Raise ValueError, with the reason, for a user name that a line of the users file cannot hold."""
    if not name:
        raise ValueError("a user name cannot be empty")
    if name != name.strip():
        raise ValueError(f"user name {name!r} begins or ends with a blank")
    for character in name:
        if character in "=#":
            raise ValueError(f"user name {name!r} contains {character!r}, which has a meaning in users files")
        if not character.isprintable():
            raise ValueError(f"user name {name!r} contains the control character {character!r}")


def unreadable(path: Path, error: OSError) -> ConfigurationError:
    """What to tell an operator whose users file cannot be read."""
    hint = "; make one with: stompring user add NAME" if isinstance(error, FileNotFoundError) else ""
    return ConfigurationError(f"the users file cannot be read: {error.strerror}{hint}", str(path))


def _unwritable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"the users file cannot be written: {error.strerror}", str(path))


def _name_of(line: str) -> str | None:
    """The user that a line is about; None for a comment or an empty line."""
    text = line.strip()
    return None if not text or text.startswith("#") else text.partition("=")[0].strip()


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


def _replace(path: Path, text: str) -> None:
    """Put ``text`` in the place of a file: readable by its owner alone, and the owner stays the same."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp: mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            with suppress(FileNotFoundError, PermissionError):  # a new file, or not ours to give away
                owner = path.stat()
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
