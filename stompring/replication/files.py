"""Files whose changes are stored in a replicated log first, then in the local copy.

The changes of a batch go to the log as one ordered append. The store gets no confirmation before the log has them.
Changes that the log did not confirm stay pending. The log must store them before new changes: until then, every new
change fails.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import EIO, ENOENT, ENOSPC, EXDEV
from pathlib import Path
from threading import Lock, RLock, get_ident
from time import monotonic, sleep
from typing import NoReturn

from stompring.store.files import Files

from .copy import LocalCopy
from .log import (
    BEATS,
    CONTROL,
    MAX_ENTRY_DATA,
    Fenced,
    FileChange,
    LogFull,
    LogUnavailable,
    NoRoom,
    Operation,
    ReplicatedLog,
    UnsafeLog,
    count,
)

log = logging.getLogger(__name__)

#: Bytes of buffered changes above which a batch appends them before its end.
MAX_APPEND = 4 * 1024 * 1024

#: Number of removed files with unpurged entries above which the end of a batch purges the entries of some files.
MAX_WAITING_PURGES = 64

#: Number of files whose entries one call of `ReplicatedFiles.trim` purges: when the broker is idle, and after a batch.
PURGES, PURGES_OF_BATCH = 16, 4

#: Bytes that one step of a rewrite writes, and maximum seconds of one `ReplicatedFiles.check`.
REWRITE_BYTES, CHECK_STEP = 1024 * 1024, 0.2

#: Number of control entries that stay in the log. A standby that is further behind rebuilds its copy.
KEPT_CONTROLS = 100_000

#: Seconds for which a change outside a batch, during start, retries an append.
START_PATIENCE = 30.0


class NotActive(OSError):
    """This broker must not write: another one is active, the log is unsafe, or the local copy failed."""


class ReplicatedFiles(Files):
    """The files of the active broker. ``copy`` has all entries of the log, including the claim of this broker.

    Any thread may call the methods; one thread at a time has a batch. ``on_lost``: called once, with the reason, when
    this broker must stop writing. ``appends``: number of batches that the log has stored. ``rewritten``: number of
    files that were written to the log again.
    """

    replicated = True
    retry_interval = 0.2

    def __init__(
        self,
        log: ReplicatedLog,
        copy: LocalCopy,
        on_lost: Callable[[str], object],
        *,
        patience: float = START_PATIENCE,
    ) -> None:
        self.copy = copy
        self.lost: str | None = None
        self.appends = 0
        self.rewritten = 0
        self._log = log
        self._on_lost = on_lost
        self._patience = patience
        self._places = copy.places
        self._contents = copy.contents.copy()  # contents of the log after the buffered changes
        self._damaged: deque[str] | None = None  # files to rewrite; None: no comparison is under way
        self._everything = False  # whether `_damaged` has all files, because a standby requested all
        self._rewritten_before = 0  # value of `rewritten` at the beginning of the comparison
        self._rewritten_to = 0  # number of bytes of the first damaged file that were rewritten
        self._lock = RLock()
        self._trimming = Lock()
        self._batch = 0  # identifier of the thread that has a batch
        self._owner = 0  # identifier of the thread of the last change
        self._fault: OSError | None = None  # error of the current batch: its later changes raise it, too
        self._descriptors: dict[int, tuple[Path, str]] = {}
        self._next = -2
        self._buffer: list[FileChange] = []
        self._buffered_bytes = 0
        self._exists: dict[str, bool] = {}  # by key: whether a file exists after its unconfirmed changes
        self._pending: list[FileChange] = []  # changes that the log has not confirmed
        self._given = False  # whether `_pending` was passed to the log, which stores it first
        self._last = copy.sequence  # sequence of the last confirmed entry
        # the last write, which a following write extends if it begins where the last one ends
        self._key = ""
        self._at = 0
        self._parts: list[bytes | memoryview] = []
        self._size = 0

    # ---- batches

    def begin_batch(self) -> None:
        with self._lock:
            self._batch = get_ident()
            self._fault = None
            if self._pending and self.lost is None:
                with suppress(OSError):  # each change of the batch raises the error
                    self._settle()

    def flush(self) -> None:
        with self._lock:
            self._batch = 0
            fault, self._fault = self._fault, None
            if fault is not None:
                raise _again(fault)
            self._flush()
        if len(self.copy.removals) > MAX_WAITING_PURGES:
            self.trim(PURGES_OF_BATCH)

    def _in_batch(self) -> bool:
        return self._batch == get_ident()

    @contextmanager
    def _changing(self, key: str = "") -> Iterator[None]:
        """Context manager whose body changes a file. Outside a batch, its exit waits until the log has the change."""
        with self._lock:
            self._begin_change(key)
            yield
            if not self._in_batch():
                self._flush_patiently()
            elif self._buffered_bytes >= MAX_APPEND:
                # the change is buffered and must not be repeated; the next change or `flush` raises the error
                with suppress(LogUnavailable, LogFull):
                    self._flush()

    def _begin_change(self, key: str = "") -> None:
        """Store earlier changes before a change of the file ``key``, if an append failed, or if one of the earlier
        changes removes this file.
        """
        if self.lost is not None:
            raise NotActive(EIO, self.lost)
        in_batch = self._in_batch()
        if in_batch and self._fault is not None:
            raise _again(self._fault)
        # a removed file is created again: store the removal first. A purge of the file's entries up to the removal
        # then keeps the new entries.
        if self._pending or self._exists.get(key) is False:
            self._flush_patiently()
        self._owner = get_ident()

    def _flush_patiently(self) -> None:
        """Store the pending changes. Outside a batch (during start) retry for some seconds: no caller retries there."""
        until = 0.0 if self._in_batch() else monotonic() + self._patience
        while True:
            try:
                self._flush()
                return
            except LogUnavailable:
                if monotonic() >= until:
                    raise
            sleep(0.05)

    def _flush(self) -> None:
        if self.lost is not None:
            raise NotActive(EIO, self.lost)
        if self._pending:
            self._settle()
        self._end_write()
        if self._buffer:
            self._pending, self._buffer = self._buffer, []
            self._buffered_bytes = 0
            self._settle()

    def _settle(self) -> None:
        """Store the pending changes in the log, then apply them to the local copy."""
        changes = () if self._given else self._pending
        self._given = True
        try:
            sequence = self._log.append(changes)
        except LogUnavailable as fault:
            self._fail(LogUnavailable(EIO, f"no answer from the replicated log: {_text(fault)}"))
        except LogFull as fault:
            self._given = not isinstance(fault, NoRoom)
            self._fail(LogFull(ENOSPC, f"the replicated log is full: {_text(fault)}"))
        except (Fenced, UnsafeLog) as fault:
            self._lose(str(fault))
        except Exception as fault:  # it is unknown which changes are stored
            self._lose(f"append to the replicated log failed: {type(fault).__name__}: {fault}")
        pending, self._pending, self._given = self._pending, [], False
        if sequence < self._last + len(pending):
            self._lose(f"the replicated log has not stored {len(pending)} entries behind entry {self._last}")
        self._last = sequence
        self.appends += 1
        if not self._buffer and not self._parts:
            self._exists.clear()
        try:
            self.copy.applied(pending, sequence)
        except OSError as fault:
            self._lose(f"cannot write the local copy: {fault.filename or ''} {fault.strerror or fault}")

    def _fail(self, fault: OSError) -> NoReturn:
        if self._in_batch():
            self._fault = fault
        raise fault from None

    def _lose(self, reason: str) -> NoReturn:
        if self.lost is None:
            self.lost = reason
            self._on_lost(reason)
        raise NotActive(EIO, reason)

    # ---- purging

    def trim(self, purges: int = PURGES) -> bool:
        """Purge entries of removed files. Returns whether some are left. Any thread may call this, best an idle one."""
        if not self._trimming.acquire(blocking=False):
            return True
        try:
            return self._trim(purges)
        except (OSError, Fenced, UnsafeLog):
            return False  # the next append raises the error, if the fault lasts
        finally:
            self._trimming.release()

    def _trim(self, purges: int) -> bool:
        copy = self.copy
        for _ in range(min(purges, len(copy.removals))):
            key, through = copy.removals[0]
            self._log.purge(key, through)
            copy.removals.popleft()
        checkpoints = copy.checkpoints
        if checkpoints and checkpoints[0][0] <= copy.control - KEPT_CONTROLS:
            sequence = checkpoints[0][1]
            # purge the control entry that ends a file only after the file's other entries: without the control entry a
            # new copy would have the file again
            if not copy.removals or copy.removals[0][1] > sequence:
                self._log.purge(CONTROL, sequence)
                checkpoints.popleft()
        return bool(copy.removals)

    # ---- lost entries

    def check(self, everything: bool = False) -> bool:
        """Do one step of a comparison of the log with the files, and rewrite files whose entries the log has lost.

        ``everything``: rewrite all files. Returns True when the comparison is complete. A step takes some tenths of a
        second. Any thread may call this, but only one at a time.
        """
        if self.lost is not None:
            return True
        try:
            until = monotonic() + CHECK_STEP
            if self._damaged is None or everything > self._everything:
                while self._has_replaced():
                    if monotonic() >= until:
                        return False
                    with self._trimming:
                        self._trim(PURGES)
                with self._lock:
                    self._flush()
                    if self._has_replaced():
                        return False
                    self._damaged = self._find_damage(everything)
            while self._damaged and monotonic() < until:
                with self._lock:
                    self._flush()
                    self._rewrite(self._damaged)
        except (OSError, Fenced, UnsafeLog):
            return False  # the next append raises the error, if the fault lasts
        if self._damaged:
            return False
        if self.rewritten > self._rewritten_before:
            log.info(
                "the replicated log has all files again: %d were written",
                self.rewritten - self._rewritten_before,
            )
        self._damaged, self._everything = None, False
        return True

    def _has_replaced(self) -> bool:
        """Return whether the log may have obsolete entries of existing files: from before a rewrite or an earlier
        removal. Obsolete entries would hide lost ones in the counts that `_find_damage` compares.
        """
        return any(key in self._contents.digests for key, _ in tuple(self.copy.removals))

    def _find_damage(self, everything: bool) -> deque[str]:
        """Return the files to rewrite. Call it when the log has stored all changes, and obsolete entries are purged."""
        contents, counts = self._contents, self._log.counts()
        missing: dict[str, int] = {}
        if counts is not None:
            for key in counts:
                if key not in contents.digests and key not in (CONTROL, BEATS):
                    self._log.purge(key, self._last)  # entries of a removed file
            missing = {
                key: abs(count(digest) - counts.get(key, 0))
                for key, digest in contents.digests.items()
                if counts.get(key, 0) != count(digest)
            }
            self._check_controls(counts.get(CONTROL, 0))
        self._everything, self._rewritten_before, self._rewritten_to = everything, self.rewritten, 0
        if missing:
            log.error(
                "the replicated log has lost %d entries of %d files; they are written again from the local copy",
                sum(missing.values()),
                len(missing),
            )
        if everything and contents.digests:
            log.warning(
                "a standby lacks entries: all %d files are written to the log again", len(contents.digests)
            )
        found = contents.digests if everything else {**missing, **contents.rewrites}
        return deque(sorted(found))

    def _check_controls(self, stored: int) -> None:
        """If control entries are lost, purge all before the newest one: new copies then start with the newest one."""
        first, last = self._log.first(CONTROL), self._log.last(CONTROL)
        if first is None or last is None:
            return
        is_newest = last.change.at == self._contents.control
        if stored <= last.change.at - first.change.at or not is_newest:
            log.error("the replicated log has lost entries that remove files; those before them are purged")
            self._log.purge(CONTROL, last.sequence - is_newest)

    def _rewrite(self, damaged: deque[str]) -> None:
        """Rewrite the next part of the first damaged file. Nothing may be pending: the local copy must be complete."""
        key = damaged[0]
        contents, path = self._contents, self._places.path(key)
        if key not in contents.digests or path is None:  # the file was removed meanwhile
            damaged.popleft()
            self._rewritten_to = 0
            return
        if key not in contents.rewrites or not self._rewritten_to:
            self._add(Operation.REWRITE, key)
            self._rewritten_to = 0
        at = self._rewritten_to
        data = super().read(path, at, at + REWRITE_BYTES)
        self._add_write(key, data, at)
        self._end_write()
        end = at + len(data)
        if end >= os.stat(path).st_size:
            dropped = b"%d" % contents.before_rewrite(key)
            self._add(Operation.REWRITTEN, key, end, dropped)
            damaged.popleft()
            end = 0
            self.rewritten += 1
        self._rewritten_to = end
        self._flush()

    # ---- changes

    def _add(
        self, operation: Operation, key: str, at: int = 0, data: bytes | memoryview = b"", target: str = ""
    ) -> None:
        self._end_write()
        change = FileChange(operation, key, at, data, target, self._contents.serial + 1)
        self._contents.add(change)
        self._buffer.append(change)
        self._buffered_bytes += len(data)

    def _add_write(self, key: str, data: bytes | memoryview, at: int) -> None:
        left = memoryview(data)
        if not left.readonly:
            left = memoryview(bytes(left))
        self._exists[key] = True
        if self._key != key or at != self._at + self._size:
            self._begin_write(key, at)
        while left:
            if self._size == MAX_ENTRY_DATA:
                self._begin_write(key, at)
            part = left[: MAX_ENTRY_DATA - self._size]
            self._parts.append(part)
            self._size += len(part)
            self._buffered_bytes += len(part)
            at += len(part)
            left = left[len(part) :]

    def _begin_write(self, key: str, at: int) -> None:
        self._end_write()
        self._key, self._at, self._parts, self._size = key, at, [b""], 0

    def _end_write(self) -> None:
        if self._parts:
            parts = self._parts[1:]
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            change = FileChange(Operation.WRITE, self._key, self._at, data, serial=self._contents.serial + 1)
            self._contents.add(change)
            self._buffer.append(change)
            self._key, self._at, self._parts, self._size = "", 0, [], 0

    def _add_remove(self, key: str) -> None:
        self._end_write()
        digest = self._contents.digests.get(key, 0)
        self._add(Operation.REMOVE, key, self._contents.control + 1, b"%d" % digest)
        self._exists[key] = False

    def _add_whole(self, key: str, path: Path, data: bytes) -> None:
        if len(data) <= MAX_ENTRY_DATA:
            self._add(Operation.WHOLE, key, data=data)
            self._exists[key] = True
            return
        if self._is_there(key, path):
            self._add(Operation.TRUNCATE, key, 0)
        self._add_write(key, data, 0)

    def _is_there(self, key: str, path: Path) -> bool:
        there = self._exists.get(key)
        return path.exists() if there is None else there

    def _key_of(self, path: Path) -> str | None:
        """Return the key of a file whose contents are in the log, None for other files."""
        key = self._places.key(path)
        return None if key is None or self._places.is_retained(key) else key

    # ---- methods of Files

    def open(self, path: Path) -> int:
        key = self._key_of(path)
        if key is None:
            return super().open(path)
        with self._lock:
            with self._changing(key):
                if not self._is_there(key, path):
                    self._add_write(key, b"", 0)
            descriptor, self._next = self._next, self._next - 1
            self._descriptors[descriptor] = (path, key)
            return descriptor

    def write(self, descriptor: int, data: bytes | memoryview, at: int) -> int:
        if descriptor >= 0:
            return super().write(descriptor, data, at)
        _, key = self._descriptors[descriptor]
        with self._changing(key):
            self._add_write(key, data, at)
        return len(data)

    def sync(self, descriptor: int) -> None:
        if descriptor >= 0:
            super().sync(descriptor)
            return
        with self._changing():
            pass

    def close(self, descriptor: int) -> None:
        if descriptor >= 0:
            super().close(descriptor)
        else:
            del self._descriptors[descriptor]

    def truncate(self, path: Path, size: int) -> None:
        key = self._key_of(path)
        if key is None:
            super().truncate(path, size)
            return
        with self._changing(key):
            if not self._is_there(key, path):
                raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(path))
            self._add(Operation.TRUNCATE, key, size)
            self._exists[key] = True

    def remove(self, path: Path) -> None:
        key = self._places.key(path)
        if key is None:
            super().remove(path)
            return
        with self._changing():
            if self._is_there(key, path):
                self._add_remove(key)

    def rename(self, path: Path, target: Path) -> None:
        key, target_key = self._key_of(path), self._key_of(target)
        if key is None and target_key is None:
            super().rename(path, target)
            return
        if key is None or target_key is None:
            raise OSError(EXDEV, os.strerror(EXDEV), str(path))
        with self._changing(key):
            self._begin_change(target_key)
            if key in self._exists:
                self._flush_patiently()
            data = super().read(path)
            if key != target_key:
                self._add_whole(target_key, target, data)
                self._add_remove(key)

    def move(self, path: Path, target: Path) -> None:
        key, target_key = self._key_of(path), self._places.key(target)
        if key is None:
            super().move(path, target)
            return
        if target_key is None or not self._places.is_retained(target_key):
            self.rename(path, target)
            return
        with self._changing(key):
            if key in self._exists:
                self._flush_patiently()
            try:
                size = os.stat(path).st_size
            except FileNotFoundError:
                return
            self._end_write()
            data = b"%d %d" % (size, self._contents.digests.get(key, 0))
            self._add(Operation.MOVE, key, self._contents.control + 1, data, target_key)
            self._exists[key] = False
            self._exists[target_key] = True

    def remove_directory(self, path: Path) -> None:
        if self._key_of(path) is None:
            super().remove_directory(path)
            return
        for name in self.names(path):
            self.remove(path / name)
        with self._lock:
            if not super().names(path):
                with suppress(FileNotFoundError):  # the directory was removed with its last file
                    path.rmdir()

    def sync_directory(self, path: Path) -> None:
        if self._key_of(path) is None:
            super().sync_directory(path)

    def names(self, path: Path) -> list[str]:
        self._before_read(path)
        return super().names(path)

    def status(self, path: Path) -> tuple[int, int]:
        self._before_read(path)
        return super().status(path)

    def read(self, path: Path, start: int = 0, stop: int = -1) -> bytes:
        self._before_read(path)
        return super().read(path, start, stop)

    def _before_read(self, path: Path) -> None:
        if self._owner != get_ident():
            return  # the reading thread needs no wait: it reads only confirmed data
        key = self._places.key(path)
        if key is not None:
            with self._lock:
                if key in self._exists or any(each.startswith(f"{key}/") for each in self._exists):
                    self._begin_change()
                    self._flush_patiently()

    def replace(self, path: Path, data: bytes) -> None:
        key = self._key_of(path)
        if key is None:
            super().replace(path, data)
            return
        with self._changing(key):
            self._add_whole(key, path, bytes(data))


def _again(fault: OSError) -> OSError:
    """Return a new exception like ``fault``, because each caller that catches one changes it."""
    return type(fault)(*fault.args)


def _text(fault: OSError) -> str:
    return fault.strerror or str(fault) or type(fault).__name__
