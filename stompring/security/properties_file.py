"""Properties files, ``name = value`` on each line: parsed with the line of each error, replaced atomically, watched.

They look like Artemis's ``.properties`` files. Lines that begin with ``#`` are comments and survive every change.
A file whose name begins with ``artemis-`` is one of Artemis's and has the syntax of Java (`Syntax`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from stompring.errors import ConfigurationError

Version = tuple[int, ...] | None
"""Inode, time of change and size of a file; None without a file."""


LOCK_TIME, LOCK_PAUSE = 10.0, 0.02
"""Seconds to wait for the lock of another edit, and between two attempts."""


def version_of(path: Path) -> Version:
    """The version of the file at ``path``. Raises OSError if it cannot be read."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def read_lines(path: Path, what: str) -> list[str]:
    """The lines of a file without line ends. Raises ConfigurationError if it is not readable or not UTF-8."""
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
    """Edit the lines of a file, or create it: the list of lines is written when the block ends without an exception.

    ``check`` raises ConfigurationError for invalid lines of the present file. The file is replaced atomically, so
    that a broker reads the old or the new one; a lock on the directory serialises edits.
    Raises ConfigurationError if the file has an invalid line, cannot be read or written, or was changed meanwhile.
    """
    real = Path(os.path.realpath(path))  # a symbolic link is preserved
    try:
        directory = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unwritable(path, error, what) from error
    try:
        _lock(directory, path, what)
        try:
            version = version_of(real)
        except OSError as error:
            raise unreadable(real, error, what) from error
        before = [] if version is None else read_lines(real, what)
        check(before)
        lines = list(before)
        yield lines
        if lines != before:
            try:
                _replace(real, version, what, "".join(f"{line}\n" for line in lines))
                os.fsync(directory)
            except OSError as error:
                raise _unwritable(path, error, what) from error
    finally:
        os.close(directory)


def _lock(directory: int, path: Path, what: str) -> None:
    """Lock a directory. Raises ConfigurationError if another program has the lock for `LOCK_TIME`."""
    end = time.monotonic() + LOCK_TIME
    while True:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                text = (
                    f"another program has locked the {what} for {LOCK_TIME:g} seconds: end it, or try again"
                )
                raise ConfigurationError(text, str(path)) from None
        time.sleep(LOCK_PAUSE)


def name_of(line: str) -> str | None:
    """The name in a line; None for a comment or an empty line."""
    text = line.strip()
    return None if not text or text.startswith("#") else text.partition("=")[0].strip()


class Entry(NamedTuple):
    """One line of a properties file. ``value`` is None for a line without a separator."""

    name: str
    value: str | None


class Syntax(NamedTuple):
    """How the lines of a properties file are written.

    ``read`` returns the entry in a line, None for a comment or an empty line; ``write`` is the line of an entry.
    """

    read: Callable[[str], Entry | None]
    write: Callable[[str, str], str]


def _read_plain(line: str) -> Entry | None:
    name = name_of(line)
    if name is None:
        return None
    _, separator, value = line.partition("=")
    return Entry(name, value.strip() if separator else None)


_JAVA_SEPARATOR = re.compile(r"(?<!\\)(?:\\\\)*[=:]")
_JAVA_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.?)", re.DOTALL)
_JAVA_RESERVED = re.compile(r"[\\\s=:#!]")
_JAVA_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _read_java(line: str) -> Entry | None:
    text = line.strip()
    if not text or text[0] in "#!":
        return None
    separator = _JAVA_SEPARATOR.search(text)
    if separator is None:
        return Entry(_unescaped(text), None)
    return Entry(_unescaped(text[: separator.end() - 1].strip()), _unescaped(text[separator.end() :].strip()))


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        if found[1] is not None:
            return chr(int(found[1], 16))
        return _JAVA_CONTROL.get(found[2], found[2])

    # the halves of a character beyond U+FFFF are two escapes
    found = _JAVA_ESCAPE.sub(character, text)
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _write_java(name: str, value: str) -> str:
    escaped = _JAVA_RESERVED.sub(lambda found: "\\" + found[0], name)
    return f"{escaped} = {value.replace(chr(92), chr(92) * 2)}"


PLAIN = Syntax(_read_plain, "{} = {}".format)
#: Comments begin with ``#`` or ``!``, the first ``=`` or ``:`` separates, ``\\`` escapes. Names may contain blanks.
JAVA = Syntax(_read_java, _write_java)

#: The names of Artemis's own files begin with this.
ARTEMIS_PREFIX = "artemis-"


def is_artemis_file(path: str | os.PathLike[str]) -> bool:
    """Whether a users or roles file is one that Artemis's ``create`` wrote, by its name."""
    return os.path.basename(path).startswith(ARTEMIS_PREFIX)


def syntax_of(path: str | os.PathLike[str]) -> Syntax:
    """The syntax of a properties file, by its name."""
    return JAVA if is_artemis_file(path) else PLAIN


def check_name(name: str, kind: str = "user") -> None:
    """Raise ValueError for a name that cannot be written in a properties file."""
    if not name:
        raise ValueError(f"a {kind} name cannot be empty")
    if name != name.strip():
        raise ValueError(f"{kind} name {name!r} begins or ends with white space")
    for character in name:
        if character in "=#":
            raise ValueError(
                f"{kind} name {name!r} contains {character!r}, which is reserved in {kind}s files"
            )
        if not character.isprintable():
            raise ValueError(f"{kind} name {name!r} contains the control character {character!r}")


def unreadable(path: Path, error: OSError, what: str) -> ConfigurationError:
    """The error for a file that cannot be read."""
    hint = "; create it with: stompring user add NAME" if isinstance(error, FileNotFoundError) else ""
    return ConfigurationError(f"the {what} cannot be read: {error.strerror}{hint}", str(path))


def _unwritable(path: Path, error: OSError, what: str) -> ConfigurationError:
    return ConfigurationError(f"the {what} cannot be written: {error.strerror}", str(path))


def _replace(path: Path, version: Version, what: str, text: str) -> None:
    """Replace a file of this version atomically: mode 0600, same owner.

    Raises ConfigurationError if a program without the lock, as an editor, has changed it meanwhile.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp: mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            with suppress(
                FileNotFoundError, PermissionError
            ):  # a new file, or no permission to change the owner
                owner = path.stat()
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            os.fsync(file.fileno())
        if version_of(path) != version:
            raise ConfigurationError(f"another program has just changed the {what}: try again", str(path))
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


log = logging.getLogger(__name__)

Content = TypeVar("Content")


class WatchedFile(Generic[Content]):
    """A file that is parsed again when it has changed; the previous content stays in effect if it cannot be parsed.

    `refresh` and `refresh_or_log` are safe to call from several threads at once: the content is replaced as a whole
    and never changed in place. ``generation`` is incremented with it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        what: str,
        parse: Callable[[list[str], str], Content],
        *,
        optional: bool = False,
    ) -> None:
        """Read the file at ``path``. ``what`` is its kind, for errors; ``optional``: a missing file counts as empty.

        Raises ConfigurationError, with file and line, for a missing file or an invalid line.
        """
        self.path = Path(path)
        self.generation = 0
        self._what, self._parse, self._may_lack = what, parse, optional
        self._version: Version | str = ""  # differs from every version
        self._logged = ""
        self.content = parse([], str(self.path))
        self.refresh()

    def refresh(self) -> bool:
        """Read the file again if it has changed. Returns whether it has.

        Raises ConfigurationError if the changed file cannot be used; the previous content stays in effect.
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
        self._logged = ""
        return changed

    def refresh_or_log(self) -> None:
        """As `refresh`, but log an error, once for the same text."""
        try:
            self.refresh()
        except ConfigurationError as fault:
            if str(fault) != self._logged:
                log.error(
                    "%s not reloaded, the previous %s stay in effect: %s",
                    self._what,
                    self._what.removesuffix(" file"),
                    fault,
                )
            self._logged = str(fault)
