"""The files of a data directory, opened to be read while a broker may be at work in it.

What is open can be read to the end even when the broker deletes it meanwhile. The pages are opened first and the
journal after them: so no fact is missed that tells of a page, and a message that was moved is found in one of its
places at least.
"""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

from stompring.errors import StoreError
from stompring.settings.data_directory import DataDirectory

from .datadir import IDENTITY, LOCK, VERSION, is_locked, read_identity
from .files import Files
from .page_names import ADDRESS_FILE, DIRECTORY_NAME
from .replay import SEGMENT_NAME
from .segment import NO_IDENTITY

LIVE_PAGE_NAME = re.compile(r"(\d{9,})\.page")
SET_ASIDE = re.compile(r".*\.(damaged|invalidPage|orphaned)(\.\d+)?")
KNOWN = frozenset({LOCK, VERSION, IDENTITY, "journal", "paging", "retention"})

#: How often a listing is begun anew because files went while they were being opened.
TRIES = 50


class DataFile:
    """One file, open. Its ``size`` is what it was when it was opened: what is added later is not looked at."""

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """The bytes from ``start`` to before ``stop``; fewer where there are no more. Raises `StoreError`."""
        stop = self.size if stop is None else min(stop, self.size)
        parts: list[bytes] = []
        while start < stop:
            try:
                part = os.pread(self._descriptor, stop - start, start)
            except OSError as fault:
                raise StoreError(fault.strerror or str(fault), str(self.path), start) from None
            if not part:
                break
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """It will not be read any more."""
        os.close(self._descriptor)


class Folder:
    """The pages of one address."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pages: list[DataFile] = []
        self.address = ""  # as address.txt has it; empty where there is none

    @property
    def bytes(self) -> int:
        """Of all pages."""
        return sum(page.size for page in self.pages)


class Snapshot:
    """All files of a data directory as they were at one time. Use as a context manager.

    Raises `StoreError` for a directory that is none.
    """

    def __init__(self, directory: DataDirectory) -> None:
        self.directory = directory
        self.running = is_locked(directory.root)
        self.identity = _identity_of(directory.root)
        self.journal: list[DataFile] = []
        self.folders: list[Folder] = []
        self.set_aside: list[Path] = []
        self.drafts: list[Path] = []  # of small files that were being replaced when a broker was killed
        self.strangers: list[Path] = []
        if not (directory.root / VERSION).is_file() and not directory.journal.is_dir():
            raise StoreError("this is not the data directory of a broker", str(directory.root), 0)
        raise_file_limit()
        try:
            self._open()
        except OSError as fault:
            self.close()
            text = fault.strerror or str(fault)
            if fault.errno == errno.EMFILE:
                text = "more files than this process may open at once (ulimit -n)"
            raise StoreError(text, str(fault.filename or directory.root), 0) from None
        self._look_around()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing will be read any more."""
        for file in self.files():
            file.close()
        self.journal, self.folders = [], []

    def files(self) -> Iterator[DataFile]:
        """All segments and pages."""
        yield from self.journal
        for folder in self.folders:
            yield from folder.pages

    @property
    def bytes(self) -> int:
        """Of all segments and pages."""
        return sum(file.size for file in self.files())

    # ---- opening

    def _open(self) -> None:
        for _ in range(TRIES):
            self.close()
            try:
                self.folders = [self._folder(path) for path in _directories(self.directory.paging)]
                before = self._pages_there()
                self.journal = _opened(self.directory.journal, SEGMENT_NAME)
            except FileNotFoundError:
                continue  # deleted between listing and opening
            there = self._pages_there()
            if before <= there:
                self._drop_all_but(there)
                return
        self.close()
        raise StoreError("its files change too fast to be read", str(self.directory.root), 0)

    def _folder(self, path: Path) -> Folder:
        folder = Folder(path)
        folder.pages = _opened(path, LIVE_PAGE_NAME)
        try:
            folder.address = (path / ADDRESS_FILE).read_text("utf-8", "replace").removesuffix("\n")
        except FileNotFoundError:
            pass
        return folder

    def _pages_there(self) -> set[Path]:
        return {page.path for folder in self.folders for page in folder.pages if page.path.exists()}

    def _drop_all_but(self, there: set[Path]) -> None:
        """Pages that were deleted before the journal was opened: it has forgotten them."""
        for folder in self.folders:
            for page in [page for page in folder.pages if page.path not in there]:
                folder.pages.remove(page)
                page.close()

    def _look_around(self) -> None:
        directory = self.directory
        own = {directory.journal, directory.paging}
        self._sort(directory.root, lambda path: path.name in KNOWN or path in own)
        self._sort(directory.journal, lambda path: SEGMENT_NAME.fullmatch(path.name) is not None)
        self._sort(
            directory.paging, lambda path: path.is_dir() and DIRECTORY_NAME.fullmatch(path.name) is not None
        )
        for folder in self.folders:
            self._sort(
                folder.path,
                lambda path: path.name == ADDRESS_FILE or LIVE_PAGE_NAME.fullmatch(path.name) is not None,
            )

    def _sort(self, directory: Path, belongs: Callable[[Path], bool]) -> None:
        for path in _listing(directory):
            if belongs(path) or path == self.directory.root:
                continue
            if path.name.removesuffix(".new") in (VERSION, IDENTITY, ADDRESS_FILE):
                self.drafts.append(path)
                continue
            (self.set_aside if SET_ASIDE.fullmatch(path.name) else self.strangers).append(path)


def _listing(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _directories(directory: Path) -> list[Path]:
    return [path for path in _listing(directory) if path.is_dir() and DIRECTORY_NAME.fullmatch(path.name)]


def _opened(directory: Path, pattern: re.Pattern[str]) -> list[DataFile]:
    """The files of a directory whose names have this form, ascending by number."""
    found = [(int(match[1]), path) for path in _listing(directory) if (match := pattern.fullmatch(path.name))]
    opened: list[DataFile] = []
    try:
        for number, path in sorted(found):
            opened.append(DataFile(path, number))
    except OSError:
        for file in opened:
            file.close()
        raise
    return opened


def _identity_of(root: Path) -> bytes:
    """The identity of a data directory, `NO_IDENTITY` where its file does not tell."""
    try:
        return read_identity(Files(), root / IDENTITY) or NO_IDENTITY
    except (OSError, StoreError):
        return NO_IDENTITY


def raise_file_limit() -> None:
    """As many open files as the system lets us have: all files of a directory are open at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class SnapshotFiles(Files):
    """The files of a snapshot for those who would read a directory: nothing else is there, and nothing changes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._files = {file.path: file for file in snapshot.files()}

    def names(self, path: Path) -> list[str]:
        """The names of the files in a directory."""
        return sorted(file.name for file in self._files if file.parent == path)

    def size(self, path: Path) -> int:
        """Bytes in a file."""
        return self._files[path].size

    def read(self, path: Path, start: int = 0, stop: int = -1) -> bytes:
        """Bytes of a file."""
        return self._files[path].read(start, None if stop < 0 else stop)
