"""Real files, one operation on which does not go well."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stompring.store.files import Files


class FaultyFiles(Files):
    """Counts what it is asked to do; at number ``at`` it fails, and where ``lasting`` from then on until `heal`.

    ``short``: a write takes a part of its bytes before it fails. Nothing is really synced: the tests do not cut power.
    """

    def __init__(
        self, at: int = -1, number: int = errno.EIO, *, lasting: bool = False, short: bool = False
    ) -> None:
        self.at = at
        self.number = number
        self.lasting = lasting
        self.short = short
        self.operations: list[str] = []
        self.failed: list[str] = []

    def heal(self) -> None:
        """The disk is well again."""
        self.at = -1

    def _due(self, operation: str, path: object) -> bool:
        self.operations.append(operation)
        count = len(self.operations) - 1
        if self.at < 0 or not (count >= self.at if self.lasting else count == self.at):
            return False
        self.failed.append(f"{operation} {path}")
        return True

    def _fault(self, path: object) -> OSError:
        return OSError(self.number, os.strerror(self.number), str(path))

    def _guard(self, operation: str, path: object, call: Callable[[], Any]) -> Any:
        if self._due(operation, path):
            raise self._fault(path)
        return call()

    def open(self, path: Path) -> int:
        return int(self._guard("open", path, lambda: super(FaultyFiles, self).open(path)))

    def write(self, descriptor: int, data: bytes | memoryview, at: int) -> int:
        if self._due("write", descriptor):
            if self.short and len(data) > 1:
                os.pwrite(descriptor, data[: len(data) // 2], at)
            raise self._fault(descriptor)
        return super().write(descriptor, data, at)

    def sync(self, descriptor: int) -> None:
        self._guard("sync", descriptor, lambda: None)

    def truncate(self, path: Path, size: int) -> None:
        self._guard("truncate", path, lambda: os.truncate(path, size))

    def remove(self, path: Path) -> None:
        self._guard("remove", path, lambda: super(FaultyFiles, self).remove(path))

    def rename(self, path: Path, target: Path) -> None:
        self._guard("rename", path, lambda: super(FaultyFiles, self).rename(path, target))

    def make_directory(self, path: Path) -> None:
        self._guard("make_directory", path, lambda: super(FaultyFiles, self).make_directory(path))

    def remove_directory(self, path: Path) -> None:
        self._guard("remove_directory", path, lambda: super(FaultyFiles, self).remove_directory(path))

    def sync_directory(self, path: Path) -> None:
        self._guard("sync_directory", path, lambda: None)

    def replace(self, path: Path, data: bytes) -> None:
        self._guard("replace", path, lambda: super(FaultyFiles, self).replace(path, data))
