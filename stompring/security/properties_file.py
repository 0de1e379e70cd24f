"""Properties files, ``name = value`` on each line: parsed with the line of each error, replaced atomically, watched.

They look like Artemis's ``.properties`` files. Lines that begin with ``#`` are comments and survive every change.
"""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

from stompring.errors import ConfigurationError

Version = tuple[int, ...] | None
"""What tells a changed file from the one that was read; None where there is none."""


def version_of(path: Path) -> Version:
    """The version of the file at ``path``. Raises OSError where it cannot be looked at."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def read_lines(path: Path, what: str) -> list[str]:
    """The file's lines without their ends. Raises ConfigurationError for what is not readable UTF-8 text."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error, what) from error
    try:
        return content.decode().replace("\r\n", "\n").removesuffix("\n").split("\n") if content else []
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"the {what} must be UTF-8 text", str(path), line) from None


@contextmanager
def edit_lines(path: Path, what: str, check: Callable[[list[str]], object]) -> Iterator[list[str]]:
    """Change a file's lines, or begin one: what the block leaves is written when it ends without an exception.

    ``check`` raises ConfigurationError for lines that are wrong from the beginning. The file is replaced at one
    stroke, so that a broker that reads it sees the old one or the new one; a lock on its directory keeps two edits
    from losing each other's work.
    Raises ConfigurationError when the file has a broken line or cannot be read or written.
    """
    real = Path(os.path.realpath(path))  # a symbolic link stays one
    try:
        directory = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unwritable(path, error, what) from error
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        before = read_lines(real, what) if real.exists() else []
        check(before)
        lines = list(before)
        yield lines
        if lines != before:
            try:
                _replace(real, "".join(f"{line}\n" for line in lines))
                os.fsync(directory)
            except OSError as error:
                raise _unwritable(path, error, what) from error
    finally:
        os.close(directory)


def name_of(line: str) -> str | None:
    """The name that a line is about; None for a comment or an empty line."""
    text = line.strip()
    return None if not text or text.startswith("#") else text.partition("=")[0].strip()


def check_name(name: str, kind: str = "user") -> None:
    """Raise ValueError, with the reason, for a name that a line cannot hold."""
    if not name:
        raise ValueError(f"a {kind} name cannot be empty")
    if name != name.strip():
        raise ValueError(f"{kind} name {name!r} begins or ends with a blank")
    for character in name:
        if character in "=#":
            raise ValueError(
                f"{kind} name {name!r} contains {character!r}, which has a meaning in {kind}s files"
            )
        if not character.isprintable():
            raise ValueError(f"{kind} name {name!r} contains the control character {character!r}")


def unreadable(path: Path, error: OSError, what: str) -> ConfigurationError:
    """What to tell an operator whose file cannot be read."""
    hint = "; make one with: stompring user add NAME" if isinstance(error, FileNotFoundError) else ""
    return ConfigurationError(f"the {what} cannot be read: {error.strerror}{hint}", str(path))


def _unwritable(path: Path, error: OSError, what: str) -> ConfigurationError:
    return ConfigurationError(f"the {what} cannot be written: {error.strerror}", str(path))


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


log = logging.getLogger(__name__)

Content = TypeVar("Content")


class WatchedFile(Generic[Content]):
    """What is in one file, as ``parse`` reads its lines.

    No Twisted here: `refresh` and `follow` are plain calls for a thread pool, safe to make from several threads at
    once, because what was read is replaced as a whole and never changed in place. ``generation`` goes up with it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        what: str,
        parse: Callable[[list[str], str], Content],
        *,
        optional: bool = False,
    ) -> None:
        """Read the file at ``path``, which ``what`` is the kind of; ``optional``: no file is an empty one.

        Raises ConfigurationError, with file and line, for a file that is missing or says what cannot be.
        """
        self.path = Path(path)
        self.generation = 0
        self._what, self._parse, self._may_lack = what, parse, optional
        self._version: Version | str = ""  # of no file
        self._told = ""
        self.content = parse([], str(self.path))
        self.refresh()

    def refresh(self) -> bool:
        """Read the file again if it has changed since it was last taken; True if it had.

        Raises ConfigurationError when the changed file cannot be used; what was read before stays in force.
        """
        try:
            version = version_of(self.path)
        except OSError as error:
            raise unreadable(self.path, error, self._what) from error
        changed = version != self._version
        if changed:
            absent = version is None and self._may_lack
            lines = [] if absent else read_lines(self.path, self._what)
            self.content = self._parse(lines, str(self.path))
            self._version = version
            self.generation += 1
        self._told = ""
        return changed

    def follow(self) -> None:
        """`refresh` for those who cannot help it: what is wrong with the file is for the log, once."""
        try:
            self.refresh()
        except ConfigurationError as fault:
            if str(fault) != self._told:
                log.error("%s (the %s read before stay in force)", fault, self._what.removesuffix(" file"))
            self._told = str(fault)
