"""The data directory: whose it is, and which version of the store wrote it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from stompring.errors import StoreError

from .files import Files

#: What the files in a data directory look like. It goes up when an older version cannot read them any more.
SCHEMA_VERSION = 1

LOCK, VERSION = "broker.lock", "schema-version"


class DataLock:
    """A data directory that this process has to itself, from construction to `release` or its death."""

    def __init__(self, root: Path, files: Files | None = None) -> None:
        """Make the directory where it is missing, and take it. Raises `StoreError`."""
        self.root = root
        self._files = files or Files()
        self._descriptor = -1
        try:
            self._files.make_directory(root)
            self._descriptor = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            self._take()
            self._check_version()
        except OSError as fault:
            self.release()
            raise StoreError(
                f"cannot be used: {fault.strerror or fault}", str(fault.filename or root), 0
            ) from fault
        except StoreError:
            self.release()
            raise

    def _take(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 100, 0).decode(errors="replace").strip()
            who = f"process {holder}" if holder.isdecimal() else "another process"
            raise StoreError(f"the data directory is in use by {who}", str(self.root / LOCK), 0) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _check_version(self) -> None:
        path = self.root / VERSION
        try:
            text = self._files.read(path).decode(errors="replace").strip()
        except FileNotFoundError:
            self._files.replace(path, f"{SCHEMA_VERSION}\n".encode())
            return
        if not text.isdecimal() or int(text) < 1:
            raise StoreError(f"{text[:40]!r} is no version of a store", str(path), 0)
        if int(text) > SCHEMA_VERSION:
            raise StoreError(
                f"the store has version {text}, and this broker knows {SCHEMA_VERSION} at most: "
                "a newer version of stompring has written it",
                str(path),
                0,
            )

    def release(self) -> None:
        """Let others have it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
