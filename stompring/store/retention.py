"""Retention: completed journal, page and sample files are moved to ``journal-retention-directory`` instead of deleted.

Files are renamed if the directory is on the same disk, else copied. The broker deletes them after the retention period,
and the oldest first when they exceed the storage limit.

Samples are the counters of queues, written every few seconds, so that traffic without journal records is visible. A
file of samples is a segment that can be read alone: it has names before their use, all queues in its first sample, and
then the queues that have changed since the previous sample.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from stompring.broker.broker import Broker
from stompring.broker.clock import Clock, cancel
from stompring.broker.queue import Queue
from stompring.errors import StoreError
from stompring.settings.model import Retention as Settings

from .datadir import (
    IDENTITY,
    INGESTED,
    Lake,
    Position,
    identity_text,
    parse_ingested,
    read_identity,
    read_ingested,
)
from .encoder import RecordEncoder
from .files import Files
from .record import SAMPLE, SAMPLE_ROW, Kind
from .segment import HEADER, NO_IDENTITY, TRAILER, footer_offset, pack_header
from .segment import SAMPLES as SAMPLES_SEGMENT
from .writer import AppendOnlyFile, Writer

#: Number of queues sampled in one time slice of the reactor: about a millisecond.
QUEUES_AT_ONCE = 500

#: Size in bytes, and age in milliseconds, at which a new file of samples begins. Readers read a whole file into memory.
MAX_FILE_BYTES, MAX_FILE_AGE = 10 * 1024 * 1024, 3_600_000


class Samples:
    """Writes a sample of a broker's queues every ``period`` ms."""

    def __init__(
        self, retention: Retention, broker: Broker, period: int, next_address: Iterator[int]
    ) -> None:
        """``next_address`` yields numbers for addresses that have none."""
        self._retention = retention
        self._next_address = next_address
        self._broker = broker
        self._period = period
        self._timer: Any = None
        self._stream: AppendOnlyFile | None = None
        self._encoder: RecordEncoder | None = None
        self._begun = 0  # epoch ms of the file's creation
        self._last: dict[int, bytes] = {}  # the last row of each queue in the file
        self._slices: Iterator[None] | None = None
        self._next_number = count(retention.last_samples + 1).__next__

    def stop(self) -> None:
        """Write a last sample, and complete the file."""
        cancel(self._timer)
        list(self._slices or ())
        list(self._sample(self._broker.clock.refresh()))
        self._close()

    def start(self) -> None:
        """Write a sample now and after each period."""
        clock = self._broker.clock
        now = clock.refresh()
        self._timer = clock.steady.call_at(clock.steady.now + self._period, self.start)
        if self._slices is None:  # not None: the previous sample is still being written, skip this one
            self._slices = self._sample(now)
            self._go_on()

    def _go_on(self) -> None:
        for _ in self._slices or ():
            self._broker.clock.soon(self._go_on)
            return
        self._slices = None

    def _sample(self, now: int) -> Iterator[None]:
        if self._stream is not None and (
            self._stream.size >= MAX_FILE_BYTES or now - self._begun >= MAX_FILE_AGE
        ):
            self._close()
        if self._stream is None:
            self._open(now)
        queues = list(self._broker.directory.queues.values())
        for at in range(0, len(queues), QUEUES_AT_ONCE):
            if at:
                yield
            self._write(now, queues[at : at + QUEUES_AT_ONCE])

    def _write(self, now: int, queues: list[Queue]) -> None:
        encoder, stream = self._encoder, self._stream
        if encoder is None or stream is None:
            return  # `stop` was called meanwhile
        rows = []
        for queue in queues:
            encoder.name_queue(queue, alone=True)
            row = SAMPLE_ROW.pack(
                queue.number,
                encoder.name_address(queue.address),
                max(0, queue.ring_size),
                queue.message_count,
                queue.delivering,
                queue.scheduled_count,
                queue.paged_count,
                len(queue.consumers),
                queue.messages_added,
                queue.messages_acknowledged,
                queue.messages_expired,
                queue.messages_killed,
                queue.messages_replaced,
                queue.persistent_size,
            )
            if self._last.get(queue.number) != row:
                self._last[queue.number] = row
                rows.append(row)
        if rows:
            encoder.footer.include(0, now)
            encoder.add(SAMPLE.pack(Kind.SAMPLE, 0, 0, len(rows), now) + b"".join(rows))
            stream.append(b"".join(encoder.parts), False)
            encoder.parts = []

    def _open(self, now: int) -> None:
        number = self._next_number()
        path = self._retention.directory / SAMPLES / f"{number:09d}.samples"
        self._stream = self._retention.writer.open(path)
        self._encoder = RecordEncoder(HEADER.size, self._next_address)
        self._begun, self._last = now, {}
        self._stream.append(pack_header(SAMPLES_SEGMENT, 0, now, number, self._retention.identity), False)

    def _close(self) -> None:
        stream, encoder = self._stream, self._encoder
        self._stream = self._encoder = None
        if stream is not None and encoder is not None:
            stream.close(encoder.ending)
            self._retention.add_file(stream.path, stream.size)


log = logging.getLogger(__name__)

#: Milliseconds between two log lines about files deleted before ingestion: a broker may delete thousands.
REPORT_INTERVAL = 60_000


class DeletedFile(NamedTuple):
    """A deleted file, the reason of the deletion, and the names of the lakes that had not ingested all of it."""

    path: Path
    reason: str
    lakes: tuple[str, ...] = ()


#: Result of one attempt to delete files: the deleted files that a lake had not ingested, and the fault of the file
#: `INGESTED` (None: no fault).
DeletionReport = tuple[list[DeletedFile], str | None]


class LostFiles:
    """Deletes retained files, and counts and logs those that were deleted before they were ingested."""

    def __init__(self, directory: Path) -> None:
        self.count = 0
        self._directory = directory
        self._reports: deque[DeletionReport] = deque()  # filled by the disk thread
        self._unreported: list[DeletedFile] = []
        self._fault: str | None = None
        self._timer: Any = None
        self._stopped = False

    # ---- in the disk thread

    def delete(self, deleted: deque[DeletedFile], files: Files) -> None:
        """Delete files. A retry after a failure continues with the same file, and reports no file twice."""
        lakes, fault = self.lakes(files)
        lost: list[DeletedFile] = []
        try:
            while deleted:
                file = deleted[0]
                path, folder = file.path, file.path.parent
                lacking = self._lacking(files, path, lakes)
                files.remove(path)
                if lacking:
                    lost.append(file._replace(lakes=lacking))
                deleted.popleft()
                # remove the directory of an address with its last page
                if folder.parent.parent == self._directory and not files.names(folder):
                    files.remove_directory(folder)
        finally:
            self._reports.append((lost, fault))

    def lakes(self, files: Files) -> tuple[list[Lake], str | None]:
        """Return the lakes, and why `INGESTED` cannot be read (None: no fault). A fault does not prevent deletions."""
        path = self._directory / INGESTED
        try:
            return list(parse_ingested(files.read(path)).values()), None
        except FileNotFoundError:
            return [], None
        except OSError as fault:
            return [], f"cannot read {path}: {fault.strerror or fault}"
        except ValueError as fault:
            return [], f"invalid {path}: {fault}"

    def _lacking(self, files: Files, path: Path, lakes: list[Lake]) -> tuple[str, ...]:
        """Return the names of the lakes that have not ingested all of a file."""
        folder, number = path.parent.relative_to(self._directory).as_posix(), int(path.stem)
        end = _end(files, path) if lakes else 0
        return tuple(lake.name for lake in lakes if lake.lacks(folder, number, end))

    # ---- in the reactor thread

    def collect(self, clock: Clock) -> None:
        """Count and log the results of the disk thread."""
        while self._reports:
            lost, fault = self._reports.popleft()
            if fault is not None and fault != self._fault:
                log.warning("%s; deleting retained files without checking whether they were ingested", fault)
            self._fault = fault
            self.count += len(lost)
            self._unreported += lost
        if self._unreported and (self._stopped or self._timer is None):
            self._report()
            if not self._stopped:
                due = clock.steady.now + REPORT_INTERVAL
                self._timer = clock.steady.call_at(due, lambda: self._on_timer(clock))

    def _on_timer(self, clock: Clock) -> None:
        self._timer = None
        clock.refresh()
        self.collect(clock)

    def _report(self) -> None:
        unreported, self._unreported = self._unreported, []
        lakes = ", ".join(sorted({name for lost in unreported for name in lost.lakes}))
        first, last = unreported[0], unreported[-1]
        if first is last:
            log.warning("deleted %s before it was ingested into %s: %s", first.path, lakes, first.reason)
            return
        log.warning(
            "deleted %d retained files before they were ingested into %s; first: %s: %s; last: %s: %s",
            len(unreported),
            lakes,
            first.path,
            first.reason,
            last.path,
            last.reason,
        )

    def stop(self, clock: Clock) -> None:
        """Log all deletions now. Later calls of `collect` log immediately. Cancels the timer."""
        self._stopped = True
        cancel(self._timer)
        self.collect(clock)


def _end(files: Files, path: Path) -> int:
    """Return the offset at which the records of a file end: the offset of its footer, else the size of the file."""
    try:
        size = files.size(path)
        place = footer_offset(files.read(path, max(0, size - TRAILER.size)))
    except OSError:
        return 0  # the file is unreadable: a lake cannot ingest it either
    return size if place < 0 else place


class LakeBacklog(NamedTuple):
    """The retained files that a lake has not ingested."""

    lake: Lake
    files: int
    bytes: int
    since: int | None  # when the oldest of these files was retained (epoch ms), None without a file


def lake_backlogs(directory: Path, retained: Iterable[RetainedFile]) -> list[LakeBacklog]:
    """Return the backlog of each lake. Reads files: do not call this in the reactor. Raises `OSError`, and `ValueError`
    if `INGESTED` is malformed.
    """
    files, known = Files(), list(retained)
    backlogs: list[LakeBacklog] = []
    for lake in read_ingested(directory).values():
        missing: list[tuple[int, int]] = []  # time of retention (epoch ms) and bytes of each file
        for one in known:
            folder, number = one.path.parent.relative_to(directory).as_posix(), int(one.path.stem)
            position = lake.positions.get(folder, Position(0, 0))
            begun = position.number == number
            end = _end(files, one.path) if begun else one.size
            if lake.lacks(folder, number, end):
                missing.append((one.since, end - position.offset if begun else one.size))
        oldest = min((since for since, _ in missing), default=None)
        backlogs.append(LakeBacklog(lake, len(missing), sum(size for _, size in missing), oldest))
    return backlogs


#: Directories in the retention directory. ``paging`` has a directory for each address.
JOURNAL, PAGING, SAMPLES = "journal", "paging", "samples"

#: Names of retained files: a number and a kind.
RETAINED_NAME = re.compile(r"(\d{9,})\.(journal|page|samples)")

#: Maximum milliseconds between two checks of the retention period, because a timer cannot run for years.
MAX_TIMER_DELAY = 3_600_000


class RetainedFile(NamedTuple):
    """A retained file. ``since``: when it was retained (epoch ms)."""

    since: int
    path: Path
    size: int


class Retention:
    """The retained files. ``files``, ``bytes``: number and total size of the retained files. ``deleted``: number of
    files deleted since the broker started.
    """

    def __init__(
        self,
        settings: Settings,
        directory: Path,
        writer: Writer,
        clock: Clock,
        identity: bytes = NO_IDENTITY,
    ) -> None:
        self.directory = directory
        self.identity = identity  # identity of the data directory whose files are retained
        self.bytes = 0
        self.deleted = 0
        self.last_page = 0  # the highest number of a page when the broker started
        self.last_samples = 0
        self.clock = clock
        self.settings = settings
        self.writer = writer
        self._retained: deque[RetainedFile] = deque()  # the oldest first
        self._timer: Any = None
        self._lost_files = LostFiles(directory)

    @property
    def files(self) -> int:
        """Number of retained files."""
        return len(self._retained)

    @property
    def retained(self) -> tuple[RetainedFile, ...]:
        """The retained files, the oldest first."""
        return tuple(self._retained)

    def begin(self) -> None:
        """List the files retained by earlier runs. Reads directories: only for start. Raises `StoreError`."""
        files, found = self.writer.files, []
        self._identify(files)
        paging = self.directory / PAGING
        pages = [paging / name for name in files.names(paging)]
        for folder in (self.directory / JOURNAL, self.directory / SAMPLES, *pages):
            for name in files.names(folder):
                match = RETAINED_NAME.fullmatch(name)
                if match is None:
                    continue
                size, modified = files.status(folder / name)
                found.append(RetainedFile(modified, folder / name, size))
                if match[2] == "page":
                    self.last_page = max(self.last_page, int(match[1]))
                elif match[2] == "samples":
                    self.last_samples = max(self.last_samples, int(match[1]))
        self._go_on_behind(files)
        self._retained = deque(sorted(found))
        self.bytes = sum(one.size for one in found)
        self.enforce()

    def _identify(self, files: Files) -> None:
        """Copy the identity of the data directory into the retention directory, for readers that have only the
        retention directory.
        """
        path = self.directory / IDENTITY
        try:
            known = read_identity(files, path)
            if known is None and self.identity != NO_IDENTITY:
                files.replace(path, identity_text(self.identity))
        except OSError as fault:
            raise StoreError.of(fault, path) from None
        if known is not None and known != self.identity != NO_IDENTITY:
            raise StoreError(
                f"retains files of data directory {known.hex()}, but this one is {self.identity.hex()}: "
                "use a separate journal-retention-directory for each data directory",
                path,
            )

    def _go_on_behind(self, files: Files) -> None:
        """Reserve all ingested numbers, even those of deleted files: lakes would skip new files with such numbers."""
        # ignore a fault of the file `INGESTED`: `LostFiles.delete` reports it
        for lake in self._lost_files.lakes(files)[0]:
            for folder, (number, offset) in lake.positions.items():
                last = number if offset else number - 1
                if folder.startswith(f"{PAGING}/"):
                    self.last_page = max(self.last_page, last)
                elif folder == SAMPLES:
                    self.last_samples = max(self.last_samples, last)

    # ---- new files

    def retain(self, path: Path, size: int, folder: str = JOURNAL) -> None:
        """Move a segment or page that the broker no longer needs into a folder of the retention directory."""
        target = self.directory / folder / path.name
        self.writer.run_task(lambda files: files.move(path, target))
        self.add_file(target, size)

    def add_file(self, path: Path, size: int) -> None:
        """Add a complete file in the retention directory to the retained files."""
        self._retained.append(RetainedFile(self.clock.now, path, size))
        self.bytes += size
        self.enforce()

    # ---- deleted files

    def enforce(self) -> None:
        """Delete files older than the period, and the oldest files above the storage limit."""
        period, limit = self.settings.period, self.settings.storage_limit
        retained, now = self._retained, self.clock.now
        deleted: deque[DeletedFile] = deque()
        while retained:
            if 0 <= period <= now - retained[0].since:
                reason, level = f"older than the retention period of {period} ms", logging.DEBUG
            elif 0 <= limit < self.bytes:
                reason, level = f"storage-limit {limit} exceeded", logging.INFO
            else:
                break
            _, path, size = retained.popleft()
            self.bytes -= size
            self.deleted += 1
            log.log(level, "deleted %s: %s", path, reason)
            deleted.append(DeletedFile(path, reason))
        if deleted:
            self.writer.run_task(partial(self._lost_files.delete, deleted))
            self.writer.after_next_batch(partial(self._lost_files.collect, self.clock))
        if retained and period >= 0 and self._timer is None:
            due = min(retained[0].since + period, now + MAX_TIMER_DELAY)
            self._timer = self.clock.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.clock.refresh()
        self.enforce()

    @property
    def deleted_not_ingested(self) -> int:
        """Number of files that were deleted before all lakes had ingested them, as far as it is known."""
        self._lost_files.collect(self.clock)  # also count files whose deletion failed at first
        return self._lost_files.count

    def stop(self) -> None:
        """Log deletions that are not logged yet. Cancels the timer."""
        cancel(self._timer)
        self._lost_files.stop(self.clock)
