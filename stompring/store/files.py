"""The store's interfaces to the file system (`Files`) and to the threads that use it (`Disk`).

After the start of the broker, only threads of a `Disk` call the methods of `Files`, because these methods block. One
exception: while syncs are fast, the reactor thread writes and syncs small batches (`writer.ReactorSync`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from errno import EXDEV
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Protocol


class Files:
    """The file system. Positions in files are in bytes.

    Every method may raise `OSError`. Several threads use one object at the same time, but only one of them at a time
    changes files. A thread reads its own changes even before `flush`.

    Changes take effect in the order of the calls. A change survives a crash of the machine when its call has returned.
    Exceptions: the data of `write` needs a `sync`, and changes in a batch need `flush`.
    """

    #: Whether changes are stored on other machines first, which is slow. The store then leaves all writes to the disk
    #: thread, and writes no zeros ahead of records.
    replicated = False

    #: Seconds until the store retries a batch or a file task that failed.
    retry_interval = 1.0

    def begin_batch(self) -> None:
        """Begin a batch of changes by this thread. Until `flush`, an implementation may buffer them, even after `sync`.

        A crash may lose buffered changes. Only one thread at a time may have a batch.
        """

    def flush(self) -> None:
        """End the batch and store its buffered changes.

        If `flush` raises, the caller writes the same bytes again in another batch. The caller does not repeat other
        changes whose calls have returned: the implementation stores these other changes before the next batch.
        """

    def open(self, path: Path) -> int:
        """Open a file for writing, and return its descriptor. Creates the file and its directories if missing."""
        try:
            return self._open(path)
        except FileNotFoundError:
            self.make_directory(path.parent)
            return self._open(path)

    def _open(self, path: Path) -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            self.sync_directory(path.parent)
        except OSError:
            os.close(descriptor)
            os.unlink(path)  # so that a retry creates the file, and syncs its directory
            raise
        return descriptor

    def write(self, descriptor: int, data: bytes | memoryview, at: int) -> int:
        """Write bytes at position ``at``. Return the number of bytes written, which may be smaller than the number of
        bytes in ``data``. If the file ends before ``at``, zeros fill the gap.
        """
        return os.pwrite(descriptor, data, at)

    def write_all(self, descriptor: int, data: bytes | memoryview, at: int) -> None:
        """Write all bytes at position ``at``, with as many calls of `write` as necessary."""
        left = memoryview(data)
        while left:
            taken = self.write(descriptor, left, at)
            at += taken
            left = left[taken:]

    def sync(self, descriptor: int) -> None:
        """Make the contents of an open file survive a crash of the machine (fdatasync(2))."""
        os.fdatasync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def truncate(self, path: Path, size: int) -> None:
        """Shorten a file to ``size`` bytes, and sync it. Raises `FileNotFoundError`."""
        os.truncate(path, size)
        _sync(path, os.O_RDWR)

    def remove(self, path: Path) -> None:
        """Delete a file. Does nothing if the file does not exist."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        self.sync_directory(path.parent)

    def rename(self, path: Path, target: Path) -> None:
        """Rename a file within its directory, replacing an existing ``target``. Raises `FileNotFoundError`."""
        os.replace(path, target)
        self.sync_directory(path.parent)

    def move(self, path: Path, target: Path) -> None:
        """Move a file to another directory or disk; creates the directory. Does nothing if the file does not exist."""
        self.make_directory(target.parent)
        try:
            os.rename(path, target)
        except FileNotFoundError:
            return
        except OSError as fault:
            if fault.errno != EXDEV:
                raise
            draft = target.with_name(target.name + ".new")
            shutil.copyfile(path, draft)
            _sync(draft, os.O_RDWR)
            os.replace(draft, target)
            os.unlink(path)
        self.sync_directory(target.parent)
        self.sync_directory(path.parent)

    def make_directory(self, path: Path) -> None:
        """Create a directory and its missing parents. Does nothing if it exists."""
        missing = list(takewhile(lambda each: not each.is_dir(), (path, *path.parents)))
        path.mkdir(mode=0o750, parents=True, exist_ok=True)
        for each in missing:
            self.sync_directory(each.parent)

    def remove_directory(self, path: Path) -> None:
        """Delete a directory and the files in it. Does nothing if the directory is missing."""
        for name in self.names(path):
            os.unlink(path / name)
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        self.sync_directory(path.parent)

    def sync_directory(self, path: Path) -> None:
        """Make all creations, renames and deletions of names in a directory survive a crash of the machine."""
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def names(self, path: Path) -> list[str]:
        """Return the sorted names in a directory, an empty list if it does not exist."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def status(self, path: Path) -> tuple[int, int]:
        """Return the size of a file (bytes) and its modification time (epoch ms). Raises `FileNotFoundError`."""
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns // 1_000_000

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes. Raises `FileNotFoundError`."""
        return self.status(path)[0]

    def read(self, path: Path, start: int = 0, stop: int = -1) -> bytes:
        """Return the bytes from ``start`` to before ``stop`` (-1: to the end). Raises `FileNotFoundError`. Returns
        fewer bytes if the file is shorter.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_range(descriptor, start, os.fstat(descriptor).st_size if stop < 0 else stop)
        finally:
            os.close(descriptor)

    def replace(self, path: Path, data: bytes) -> None:
        """Create or replace a small file; creates its directory. After a crash the file has old or new contents."""
        self.make_directory(path.parent)
        draft = path.with_name(path.name + ".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        self.rename(draft, path)


#: Maximum number of open files in `OpenFiles`. More addresses seldom page at the same time.
OPEN_FILES = 64


class OpenFiles:
    """A cache of descriptors of files that the store writes to, the least recently used first."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.descriptors: dict[Path, int] = {}

    def descriptor(self, path: Path) -> int:
        """Return the descriptor of a file, opened if necessary. Closes the least recently used beyond `OPEN_FILES`."""
        descriptors = self.descriptors
        descriptor = descriptors.pop(path, None)
        if descriptor is None:
            while len(descriptors) >= OPEN_FILES:
                self.files.close(descriptors.pop(next(iter(descriptors))))
            descriptor = self.files.open(path)
        descriptors[path] = descriptor
        return descriptor

    def close(self, path: Path) -> None:
        """Close the descriptor of a file if the cache has one."""
        descriptor = self.descriptors.pop(path, None)
        if descriptor is not None:
            self.files.close(descriptor)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_range(descriptor: int, start: int, stop: int) -> bytes:
    """Return the bytes of an open file from ``start`` to before ``stop``, fewer if the file is shorter."""
    parts: list[bytes] = []
    while start < stop and (part := os.pread(descriptor, stop - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)  # join returns a single part without a copy


def free_name(files: Files, path: Path, ending: str) -> Path:
    """Return an unused path beside ``path``: its name with ``ending``, and ``.2`` or higher if that exists."""
    name, names = path.name + ending, set(files.names(path.parent))
    candidate = name
    for place in count(2):
        if candidate not in names:
            break
        candidate = f"{name}.{place}"
    return path.with_name(candidate)


class Disk(Protocol):
    """A thread that runs jobs in the order of their `run` calls (`server.disk.DiskThread`)."""

    def run(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run ``job`` in the thread, then call ``done`` in the reactor thread, always after `run` has returned.

        ``done`` gets the result of ``job``, or the exception that it raised.
        """

    def finish(self) -> None:
        """Block the reactor thread until every job has run and every ``done`` was called. For start and stop only."""
