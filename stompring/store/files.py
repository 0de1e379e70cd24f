"""The file system and the disk thread as the store uses them: the one place that calls the operating system.

Everything raises `OSError` as the operating system does; tests inject faults here. Nothing in `Files` is called on the
reactor thread once the broker is up, except reads and listings during start.
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
    """Plain files, read and written at positions."""

    #: Whether each change goes to other machines first: then zeros are not written ahead, and only the disk thread
    #: writes.
    replicated = False

    #: Seconds until a batch that failed is tried again.
    retry_interval = 1.0

    def begin_batch(self) -> None:
        """What this thread changes from now on may wait for `flush`, and may be lost with it as one."""

    def flush(self) -> None:
        """End a batch: what was changed before is where it belongs, as far as it needs no `sync`."""

    def open(self, path: Path) -> int:
        """A file to write to, made where it is missing, as are its directories. Returns a descriptor."""
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
            os.unlink(path)  # else the next try would take it for one whose name is safe
            raise
        return descriptor

    def write(self, descriptor: int, data: bytes | memoryview, at: int) -> int:
        """Write at a position; returns how many bytes it took, which may be fewer than given."""
        return os.pwrite(descriptor, data, at)

    def write_all(self, descriptor: int, data: bytes | memoryview, at: int) -> None:
        """Write at a position, in as many steps as it takes."""
        left = memoryview(data)
        while left:
            taken = self.write(descriptor, left, at)
            at += taken
            left = left[taken:]

    def sync(self, descriptor: int) -> None:
        """What was written survives a crash when this returns."""
        os.fdatasync(descriptor)

    def close(self, descriptor: int) -> None:
        """The descriptor is not used any more."""
        os.close(descriptor)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file off, and make sure of it."""
        os.truncate(path, size)
        _sync(path, os.O_RDWR)

    def remove(self, path: Path) -> None:
        """Delete a file for good; one that is not there is no fault."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        self.sync_directory(path.parent)

    def rename(self, path: Path, target: Path) -> None:
        """Give a file another name in the same directory, for good. An older ``target`` is replaced."""
        os.replace(path, target)
        self.sync_directory(path.parent)

    def move(self, path: Path, target: Path) -> None:
        """Move a file to another directory for good, of another disk too; one that is not there has been moved."""
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
        """Make a directory and those above it that are missing."""
        missing = list(takewhile(lambda each: not each.is_dir(), (path, *path.parents)))
        path.mkdir(mode=0o750, parents=True, exist_ok=True)
        for each in missing:
            self.sync_directory(each.parent)

    def remove_directory(self, path: Path) -> None:
        """Delete a directory with the files in it for good; one that is not there is no fault."""
        for name in self.names(path):
            os.unlink(path / name)
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        self.sync_directory(path.parent)

    def sync_directory(self, path: Path) -> None:
        """Files that were made, renamed or deleted in a directory stay so after a crash."""
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted; none when it does not exist."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def status(self, path: Path) -> tuple[int, int]:
        """Bytes in a file, and when it was written to last (epoch ms)."""
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns // 1_000_000

    def size(self, path: Path) -> int:
        """Bytes in a file."""
        return self.status(path)[0]

    def read(self, path: Path, start: int = 0, stop: int = -1) -> bytes:
        """Bytes ``start`` to before ``stop`` (-1: the end) of a file; fewer where the file is shorter."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_range(descriptor, start, os.fstat(descriptor).st_size if stop < 0 else stop)
        finally:
            os.close(descriptor)

    def replace(self, path: Path, data: bytes) -> None:
        """Write a small file as a whole: after a crash it has the old contents or the new."""
        self.make_directory(path.parent)
        draft = path.with_name(path.name + ".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        self.rename(draft, path)


#: Files that `OpenFiles` keeps open; more addresses than that seldom page at once.
OPEN_FILES = 64


class OpenFiles:
    """Descriptors of files that are written to, the least recently used first."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.descriptors: dict[Path, int] = {}

    def descriptor(self, path: Path) -> int:
        """The open descriptor of a file; the least recently used one beyond `OPEN_FILES` is closed for it."""
        descriptors = self.descriptors
        descriptor = descriptors.pop(path, None)
        if descriptor is None:
            while len(descriptors) >= OPEN_FILES:
                self.files.close(descriptors.pop(next(iter(descriptors))))
            descriptor = self.files.open(path)
        descriptors[path] = descriptor
        return descriptor

    def close(self, path: Path) -> None:
        """Close the descriptor of a file, if there is one."""
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
    """Bytes ``start`` to before ``stop`` of an open file; fewer where the file is shorter."""
    parts: list[bytes] = []
    while start < stop and (part := os.pread(descriptor, stop - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)  # of one part that part


def free_name(files: Files, path: Path, ending: str) -> Path:
    """An unused path next to a file: its name and ``ending``, with a number if that exists already."""
    name, names = path.name + ending, set(files.names(path.parent))
    candidate = name
    for place in count(2):
        if candidate not in names:
            break
        candidate = f"{name}.{place}"
    return path.with_name(candidate)


class Disk(Protocol):
    """One thread that carries out jobs in the order they were given (`server.disk` has the real one)."""

    def run(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Do ``job`` in the thread, then call ``done`` on the reactor with its result or the exception it raised.

        ``done`` is never called before `run` has returned.
        """

    def finish(self) -> None:
        """Wait until nothing is left to do, every ``done`` called. Only when the broker stops: all else waits."""
