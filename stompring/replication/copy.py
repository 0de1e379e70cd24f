"""The local copy of a replicated log: the data directory that the applied entries produce, written without syncs.

The copy has all entries up to the sequence in its marker file, and maybe later ones: an entry that is applied a second
time changes nothing. A copy that cannot be trusted is discarded and rebuilt from the log.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

from stompring.settings.machine import DataDirectory
from stompring.store.datadir import IDENTITY, MARKER, VERSION
from stompring.store.files import Files, OpenFiles, free_name

from .log import (
    BEAT_OPERATIONS,
    CONTENT,
    CONTROL,
    CONTROLS,
    Contents,
    FileChange,
    LogEntry,
    LogStatus,
    LogUnavailable,
    Operation,
    ReplicatedLog,
    Summary,
    UnsafeLog,
    decode_beat,
    difference,
)

log = logging.getLogger(__name__)

#: Seconds, or bytes of applied entries, after which the marker file is written again. The marker file names all files:
#: the interval is one second longer for each `MARKER_FILES` files.
MARKER_INTERVAL, MARKER_BYTES, MARKER_FILES = 1.0, 64 * 1024 * 1024, 5000

#: Number of removed files that the marker file names, because their entries may not be purged yet. The marker file also
#: names every removed file that exists again, because `ReplicatedFiles.check` counts the entries of existing files.
REMEMBERED_REMOVALS = 256

#: Number of control entries between two checkpoints: `ReplicatedFiles.trim` purges control entries up to a checkpoint.
CHECKPOINT_INTERVAL = 10_000

#: Suffix of a file or directory that was set aside, because it belongs to another log.
DISCARDED = ".discarded"

#: Seconds for which the log may lack the last entry of the copy, while a new leader of the engine catches up.
MAX_SHORT_LOG = 10.0

#: Format 3 added the digest of each file.
_FORMAT = 3
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_JOURNAL, _PAGING, _RETENTION = "journal", "paging", "retention"


class Places:
    """The mapping between paths in entries (keys) and paths on this machine."""

    def __init__(self, directory: DataDirectory) -> None:
        self.directory = directory
        self._roots = [(directory.journal, _JOURNAL), (directory.paging, _PAGING)]
        if directory.retention is not None:
            self._roots.append((directory.retention, _RETENTION))
        # one directory may contain another: the longest path first
        self._roots.sort(key=lambda root: -len(root[0].parts))

    def key(self, path: Path) -> str | None:
        """Return the key of a file, None if the log does not have the file."""
        if path.parent == self.directory.root and path.name in (IDENTITY, VERSION):
            return path.name
        for root, name in self._roots:
            if path.is_relative_to(root):
                rest = path.relative_to(root).as_posix()
                return name if rest == "." else f"{name}/{rest}"
        return None

    def path(self, key: str) -> Path | None:
        """Return the path of a key, None if this machine has no directory for it. Raises `UnsafeLog` if invalid."""
        first, *rest = key.split("/")
        if not rest and first in (IDENTITY, VERSION):
            return self.directory.root / first
        known = first in (_JOURNAL, _PAGING, _RETENTION)
        if not known or not rest or not all(rest) or "." in rest or ".." in rest or "\0" in key:
            raise UnsafeLog(f"the replicated log has a file {key[:100]!r}, which no data directory has")
        root = next((root for root, name in self._roots if name == first), None)
        return None if root is None else root.joinpath(*rest)

    def is_retained(self, key: str) -> bool:
        """Return whether a file is in the retention directory. Each broker has a retention directory of its own."""
        return key.startswith(_RETENTION)

    def files(self) -> list[Path]:
        """Return all files of the local copy, without retained ones."""
        directory = self.directory
        found: list[Path] = []
        for root in (directory.journal, directory.paging):
            for folder, folders, names in os.walk(root):
                if directory.retention is not None:
                    folders[:] = [each for each in folders if Path(folder, each) != directory.retention]
                found += [Path(folder, name) for name in sorted(names)]
        found += [path for path in (directory.root / IDENTITY, directory.root / VERSION) if path.is_file()]
        return found

    def has_messages(self) -> bool:
        """Return whether the local copy has more than the files that every data directory has."""
        return any(path.name not in (IDENTITY, VERSION) for path in self.files())


def copied_sequence(root: Path, status: LogStatus) -> int | None:
    """Return the sequence of the last entry in the copy of a data directory, from its marker file; None if it is the
    copy of another log. A broker may use the directory. It writes the marker file once a second, less often if the copy
    has many files.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        marker = json.loads((root / MARKER).read_bytes())
        if (marker["engine"], marker["log"]) == (status.engine, status.identity):
            return int(marker["sequence"])
    return None


class _Files(Files):
    """The files of the copy. They need no syncs: entries later than the marker file are applied again after a crash."""

    def sync_directory(self, path: Path) -> None:
        """Do nothing: `LocalCopy.close` syncs the directories with all files."""


_FILES = _Files()


class LocalCopy:
    """The local copy of a log, for one thread at a time.

    ``sequence``: sequence of the last applied entry. ``removals``: removed or rewritten files, each with the last
    sequence of its obsolete entries. ``checkpoints``: number and sequence of some control entries. ``contents``:
    digests of the present files.
    """

    def __init__(
        self,
        directory: DataDirectory,
        *,
        clock: Callable[[], float] = monotonic,
        boot_id: str | None = None,
    ) -> None:
        self.directory = directory
        self.places = Places(directory)
        self.sequence = 0
        self.removals: deque[tuple[str, int]] = deque()
        self.checkpoints: deque[tuple[int, int]] = deque()
        self.contents = Contents()
        self._removals_limit = 2 * REMEMBERED_REMOVALS
        self._expected: Summary | None = None  # summary that the files have if nothing is lost; None: unknown
        self._rewrites: dict[str, int] = {}  # by path of an unfinished rewrite: sequence before REWRITE
        self._paging = {directory.paging}
        if directory.retention is not None:
            self._paging.add(directory.retention / _PAGING)
        self._clock = clock
        self._boot_id = _read_boot_id() if boot_id is None else boot_id
        self._log: ReplicatedLog  # set by `open`
        self._short_since: float | None = None  # when the log was first found to end before the copy
        self._engine = self._identity = ""
        self._last_key = ""  # key and path of the file that was changed last
        self._last_path: Path | None = None
        self._open = OpenFiles(_FILES)
        self._saved_at = 0.0
        self._unsaved_bytes = 0
        self._saved_sequence = -1

    # ---- the beginning

    def open(self, replicated_log: ReplicatedLog) -> int:
        """Check the copy against the log, and return the sequence after which the caller reads the log.

        A copy that cannot be trusted is discarded, one of another log is set aside. Raises `UnsafeLog` if the directory
        has messages but is not a copy, or if the log has lost entries; `LogUnavailable`, `OSError`.
        """
        self._log = replicated_log
        status = replicated_log.status()
        self._engine, self._identity = status.engine, status.identity
        try:
            text = (self.directory.root / MARKER).read_bytes()
        except FileNotFoundError:
            if self.places.has_messages():
                raise UnsafeLog(
                    f"{self.directory.root} has messages that are not in the replicated log: upload them with "
                    "'stompring ha init --from-data', or move the directory away"
                ) from None
            self._begin_anew(replicated_log)
            return self.sequence
        reason, foreign = self._check(text, status)
        if reason is None:
            self.save(durable=True)  # save the copy as not clean: the broker will change its files
        elif foreign:
            self._set_aside(reason)
            self._begin_anew(replicated_log)
        else:
            self.restart(replicated_log, reason)
        return self.sequence

    def adopt(self, replicated_log: ReplicatedLog, sequence: int, contents: Contents) -> None:
        """Sync a directory that has all entries of the log up to ``sequence``, and write its marker file."""
        status = replicated_log.status()
        self._engine, self._identity = status.engine, status.identity
        self.sequence = sequence
        self.contents, self._expected = contents, contents.summary
        self.removals.clear()
        self.checkpoints.clear()
        self.close()

    def restart(self, replicated_log: ReplicatedLog, reason: str) -> None:
        """Discard the copy and start before the first entry of the log. Raises `OSError` and the errors of the log."""
        log.info("%s: discarding the local copy of the replicated log: %s", self.directory.root, reason)
        self._begin_anew(replicated_log)

    def _begin_anew(self, replicated_log: ReplicatedLog) -> None:
        self.close_files()
        self.sequence = 0
        self.contents, self._expected = Contents(), None
        self._rewrites.clear()
        self.removals.clear()
        self.checkpoints.clear()
        self.directory.root.mkdir(mode=0o750, parents=True, exist_ok=True)
        self.save(durable=True)  # sequence 0 marks the files as incomplete
        for path in self.places.files():
            path.unlink(missing_ok=True)
        for folder, _, _ in os.walk(self.directory.paging, topdown=False):
            if Path(folder) != self.directory.paging:
                _remove_empty(Path(folder))
        first = replicated_log.first(CONTROL)
        if first is not None:
            self.contents.control = first.change.at - 1

    def _check(self, text: bytes, status: LogStatus) -> tuple[str | None, bool]:
        """Return why the copy cannot be used (None: it can be used), and whether it is a copy of another log."""
        path = self.directory.root / MARKER
        try:
            marker: dict[str, Any] = json.loads(text)
            version, sequence, control = marker["format"], marker["sequence"], marker["control"]
            if version != _FORMAT and isinstance(version, int):
                advice = (
                    "upgrade stompring"
                    if version > _FORMAT
                    else "an earlier version of stompring wrote it. Move the directory away to rebuild the copy "
                    "from the log; or write 'stompring data export' with that version"
                )
                raise UnsafeLog(f"{path} has format {version}, this broker reads {_FORMAT}: {advice}")
            engine, identity = marker["engine"], marker["log"]
            boot_id, clean = marker["boot"], marker["clean"]
            removals = [(str(key), int(through)) for key, through in marker["removals"]]
            checkpoints = [(int(number), int(at)) for number, at in marker["checkpoints"]]
            rewrites = {
                str(key): (int(since), int(before)) for key, (since, before) in marker["rewrites"].items()
            }
            contents = Contents(
                marker["files"],
                {key: since for key, (since, _) in rewrites.items()},
                marker["serial"],
                control,
            )
            expected = None if marker["expected"] is None else Summary(*marker["expected"])
            numbers = [version, sequence, control, contents.serial, contents.total]
            numbers += marker["expected"] or ()
            if not all(isinstance(each, int) and each >= 0 for each in numbers):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError):
            return f"{path.name} is damaged", False
        if (engine, identity) != (status.engine, status.identity):
            if not status.last and self.places.has_messages():
                raise UnsafeLog(
                    f"the log is empty, and {self.directory.root} is a copy of another log ({engine} {identity}): "
                    f"if that is lost, delete the file {MARKER} and upload the directory with "
                    "'stompring ha init --from-data'; else use its log, or move the directory away"
                )
            return f"it is of another log ({engine} {identity}, not {status.engine} {status.identity})", True
        if sequence > status.last:
            self._refuse_short_log(sequence, status.last)
        if sequence == 0:
            return "it is incomplete", False
        if not clean and (boot_id != self._boot_id or not boot_id):
            return "the machine restarted: files written before the restart may be incomplete", False
        self.sequence = sequence
        self.removals, self.checkpoints = deque(removals), deque(checkpoints)
        self.contents, self._expected = contents, expected
        self._rewrites = {key: before for key, (_, before) in rewrites.items()}
        return None, False

    def _refuse_short_log(self, sequence: int, last: int) -> NoReturn:
        """Raise the error for a log that ends before the copy: `LogUnavailable` while a new leader of the engine may
        catch up, `UnsafeLog` after `MAX_SHORT_LOG`.
        """
        now = self._clock()
        if self._short_since is None:
            self._short_since = now
        text = f"the log ends at entry {last}, the local copy in {self.directory.root} has entry {sequence}"
        if now - self._short_since <= MAX_SHORT_LOG:
            raise LogUnavailable(text)
        raise UnsafeLog(
            f"{text}: the engine has lost entries. Use the copy: delete the log and its marker file {MARKER}, then "
            "run 'stompring ha init --from-data'; or use the log: move the data directory away. "
            "See docs/high-availability.md"
        )

    def _set_aside(self, reason: str) -> None:
        """Rename a copy of another log, whose messages may exist only here."""
        self.close_files()
        kept: list[str] = []
        root = self.directory.root
        for path in (self.directory.journal, self.directory.paging, root / IDENTITY, root / VERSION):
            if path.exists() and (path.is_file() or any(path.iterdir())):
                target = free_name(Files(), path, DISCARDED)
                try:
                    path.rename(target)
                except OSError as fault:
                    raise UnsafeLog(
                        f"{path} cannot be set aside ({fault.strerror}), and cannot be used: {reason}; move it away"
                    ) from None
                kept.append(target.name)
        log.warning(
            "%s: the local copy of the replicated log cannot be used: %s; set aside as %s",
            root,
            reason,
            ", ".join(kept) or "nothing",
        )

    # ---- entries

    def apply(self, entries: Sequence[LogEntry]) -> None:
        """Apply entries of the log in order. Raises `OSError`, `UnsafeLog`, and the errors of the log.

        The caller then reads the entries after ``sequence``, also after `OSError`. ``sequence`` is 0 if control entries
        were purged before this broker read them: the copy starts again empty.
        """
        for entry in entries:
            if entry.sequence <= self.sequence:
                continue
            change = entry.change
            beat = decode_beat(change.data).contents if change.operation in BEAT_OPERATIONS else None
            control = change.at - 1 if change.operation in CONTROLS else 0 if beat is None else beat.control
            if control > self.control and self._begins_behind():
                reason = f"control entries {self.control + 1} to {control} were purged meanwhile"
                self.restart(self._log, reason)
                return
            self._carry_out(change)
            self._expect(change, beat)
            self._count(change, entry.sequence)
            self.sequence = entry.sequence
        if len(self.removals) > self._removals_limit:
            self.removals = deque(self._remembered_removals())
            self._removals_limit = 2 * max(len(self.removals), REMEMBERED_REMOVALS)
        self._save_if_due()

    def _begins_behind(self) -> bool:
        """Return whether the control entries after the last applied one were purged. If not, they are lost.

        Brokers purge only the first control entries of a log. A copy that restarts begins before the first remaining
        control entry. So it restarts once for each purge, even if many entries are lost.
        """
        first = self._log.first(CONTROL)
        return first is not None and first.change.at > self.control + 1

    def applied(self, changes: Sequence[FileChange], sequence: int) -> None:
        """Apply changes of this broker that the log has stored. ``sequence``: sequence of the last change. Raises
        `OSError`.
        """
        for change in changes:
            self._carry_out(change)
            self._count(change, sequence)
        self._expected = self.contents.summary
        self.sequence = max(self.sequence, sequence)
        self._save_if_due()

    def _expect(self, change: FileChange, beat: Summary | None) -> None:
        """Compute the digest that the files must have without losses. Call it before `_count`. ``beat``: the summary in
        the entry, if that is a beat. A serial that is missing after the newest beat counts as a change of a file.
        """
        if beat is not None:
            self._expected = beat
            self.contents.serial = max(self.contents.serial, beat.serial)
            self.contents.control = max(self.contents.control, beat.control)
        elif self._expected is not None:
            skipped = range(self.contents.serial + 1, change.serial)
            self._expected = self._expected.after((change,), skipped)

    def _count(self, change: FileChange, sequence: int) -> None:
        """Count a change in the contents. Call this before ``self.sequence`` becomes ``sequence``."""
        self.contents.add(change)
        operation = change.operation
        if operation in CONTROLS:
            self._rewrites.pop(change.path, None)
            if not self.places.is_retained(change.path):
                self.removals.append((change.path, sequence))
            if change.at % CHECKPOINT_INTERVAL == 0:
                self.checkpoints.append((change.at, sequence))
        elif operation is Operation.REWRITE:
            self._rewrites[change.path] = self.sequence
        elif operation is Operation.REWRITTEN:
            before = self._rewrites.pop(change.path, 0)
            if before:
                self.removals.append((change.path, before))

    def _remembered_removals(self) -> list[tuple[str, int]]:
        """Return the removals for the marker file: the latest, and earlier ones of files that exist again."""
        removals = list(self.removals)
        old, latest = removals[:-REMEMBERED_REMOVALS], removals[-REMEMBERED_REMOVALS:]
        return [each for each in old if each[0] in self.contents.digests] + latest

    @property
    def control(self) -> int:
        """The number of the last control entry (`log.CONTROLS`)."""
        return self.contents.control

    @property
    def summary(self) -> Summary:
        """The summary of the log up to ``sequence``."""
        return self.contents.summary

    @property
    def missing(self) -> int:
        """Minimum number of entries that the log has lost and the copy lacks. Valid when the copy has reached the end
        of the log.

        Losses may cancel each other in the count, but 0 means that no entry is missing. A log that has changes and no
        beat has lost the beat.
        """
        if self._expected is None:
            return min(self.contents.serial, 1)
        return difference(self._expected.digest, self.contents.total)

    def _carry_out(self, change: FileChange) -> None:
        operation = change.operation
        if operation not in CONTENT and operation not in CONTROLS:
            return
        if change.path == self._last_key:
            path = self._last_path
        else:
            path = self._last_path = self.places.path(change.path)
            self._last_key = change.path
        if path is None:
            return
        self._unsaved_bytes += len(change.data)
        if operation == Operation.WRITE:
            _FILES.write_all(self._open.descriptor(path), change.data, change.at)
        elif operation == Operation.WHOLE:
            descriptor = self._open.descriptor(path)
            os.ftruncate(descriptor, 0)
            _FILES.write_all(descriptor, change.data, 0)
        elif operation in (Operation.TRUNCATE, Operation.REWRITTEN):
            # a later entry removes the file, and the present entry is applied a second time
            with suppress(FileNotFoundError):
                os.truncate(path, change.at)
        elif operation == Operation.REMOVE:
            self._remove(path)
        elif operation == Operation.MOVE:
            self._move(path, self.places.path(change.target), int(bytes(change.data).split()[0]))

    def _remove(self, path: Path) -> None:
        self._open.close(path)
        path.unlink(missing_ok=True)
        folder = path.parent
        if folder.parent in self._paging:
            _remove_empty(folder)  # remove an address's directory with its last file

    def _move(self, path: Path, target: Path | None, size: int) -> None:
        self._open.close(path)
        try:
            complete = path.stat().st_size == size
        except FileNotFoundError:
            return  # the entry was applied before
        if target is None or not complete or (target.exists() and target.stat().st_size == size):
            self._remove(path)
            return
        _FILES.move(path, target)
        self._remove(path)

    # ---- the marker file

    def _save_if_due(self) -> None:
        interval = MARKER_INTERVAL + len(self.contents.digests) // MARKER_FILES
        if self._unsaved_bytes >= MARKER_BYTES or self._clock() - self._saved_at >= interval:
            self.save()

    def save(self, *, clean: bool = False, durable: bool = False) -> None:
        """Write the marker file. ``clean``: all files are synced. ``durable``: the file survives a power failure."""
        self._saved_at = self._clock()
        self._unsaved_bytes = 0
        if self.sequence == self._saved_sequence and not clean and not durable:
            return
        expected = self._expected
        marker = {
            "format": _FORMAT,
            "engine": self._engine,
            "log": self._identity,
            "sequence": self.sequence,
            "serial": self.contents.serial,
            "control": self.control,
            "boot": self._boot_id,
            "clean": clean,
            "files": self.contents.digests,
            "rewrites": {
                key: (since, self._rewrites.get(key, 0)) for key, since in self.contents.rewrites.items()
            },
            "expected": None if expected is None else astuple(expected),
            "removals": self._remembered_removals(),
            "checkpoints": list(self.checkpoints),
        }
        path = self.directory.root / MARKER
        data = json.dumps(marker).encode() + b"\n"
        if durable or clean:
            Files().replace(path, data)
        else:
            draft = path.with_name(path.name + ".new")
            draft.write_bytes(data)
            draft.rename(path)
        self._saved_sequence = self.sequence

    def close(self, *, clean: bool = True) -> None:
        """Close the files. ``clean``: sync them all, so that the copy can be used even after a crash of the machine."""
        self.close_files()
        if clean:
            self._sync_all()
        self.save(clean=clean)

    def _sync_all(self) -> None:
        folders = {self.directory.root}
        for path in self.places.files():
            folders |= {path.parent, path.parent.parent}
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        for folder in folders:
            Files().sync_directory(folder)

    def close_files(self) -> None:
        """Close the files that are open for writing. The next entry opens its file again."""
        for path in list(self._open.descriptors):
            self._open.close(path)


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as fault:
        if fault.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise


def _read_boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""  # without a boot id only a clean copy is used again
