"""The writer: collects the data appended to files of the store in one reactor turn, and writes it as one batch.

A batch writes and syncs the pages first, then the journal: an event about a page is never on disk before the page.
During the write of one batch the next one collects. A batch that fails is kept whole and retried at the same positions
until it succeeds: nothing is dropped or reordered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

from mypy_extensions import mypyc_attr

from stompring.broker.clock import Clock, cancel
from stompring.broker.limits import MemoryLimit

from .files import Disk, Files, OpenFiles

log = logging.getLogger(__name__)

#: An action on files, such as a rename, in the disk thread.
FileTask = Callable[["Files"], None]

#: Minimum bytes of a journal segment at which it is prefilled with zeros: a sync after a write into zeros on disk need
#: not wait for the file system to record a new size. A small journal is not prefilled, and stays small.
PREFILL_FROM: Final = 64 * 1024

#: Maximum bytes of zeros in one write. A smaller file gets as many zeros as it has bytes.
MAX_PREFILL: Final = 1024 * 1024

#: Maximum bytes of a write that is followed by prefilling: the sync of a larger write mostly waits for the data.
MAX_PREFILLED_WRITE: Final = 64 * 1024

#: Prefilled zeros end at a multiple of this number of bytes.
PREFILL_BLOCK: Final = 4096

#: Maximum bytes of a batch that the reactor's thread writes.
MAX_REACTOR_BATCH: Final = 64 * 1024

#: Mean seconds of a sync above which only the disk thread writes and syncs.
FAST_SYNC: Final = 0.000_25

#: Approximate number of syncs in the mean that is compared with `FAST_SYNC`.
SYNCS_OF_MEAN: Final = 8

#: Seconds of a sync above which the disk counts as slow, and milliseconds for which it then counts as slow.
SLOW_SYNC: Final = 0.010
SLOW_DISK_INTERVAL: Final = 1000

#: Maximum seconds that a batch waits for an idle reactor, and number of later batches that then do not wait.
MAX_WAIT: Final = 0.000_5
BUSY_BATCHES: Final = 32

#: Results of `ReactorSync.ask`: the disk thread writes the batch, the reactor's thread writes it, or the batch waits.
IN_THREAD, IN_REACTOR, LATER = 0, 1, 2

_ZEROS: Final = bytes(MAX_PREFILL + PREFILL_BLOCK)

#: Minimum bytes of one write to a page, if as many are due.
WRITTEN_AT_ONCE: Final = 1024 * 1024


class BatchResult(NamedTuple):
    """The result of one `WriteBatch.write`. ``failed_tasks``: the task that failed with ``task_fault``, and all later
    tasks, which did not run.
    """

    fault: Exception | None
    task_fault: Exception | None
    failed_tasks: list[FileTask]
    seconds: float


class WriteBatch:
    """Writes that go to the disk together, and callbacks for their completion. ``awaited``: whether
    `Writer.when_synced` must wait for this batch.
    """

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.callers: list[Callable[[], object]] = []
        self.bytes = 0
        self.awaited = False

    # ---- step 3, in the disk thread

    def write(self, tasks: list[FileTask], opened: OpenFiles) -> BatchResult:
        """Run the file tasks, then write and sync the pages, then the journal. If a file task fails, the writes
        continue; the result has this task and all later tasks, which did not run.
        """
        began = perf_counter()
        fault: Exception | None = None
        task_fault: Exception | None = None
        failed: list[FileTask] = []
        stream: AppendOnlyFile | None = None  # the file that is being written
        opened.files.begin_batch()
        for index, task in enumerate(tasks):
            try:
                task(opened.files)
            except Exception as error:
                task_fault, failed = error, tasks[index:]
                break
        try:
            pages: list[Write] = []
            journal: list[Write] = []
            for write in self.writes:
                if not write.stream.deleted:
                    (journal if write.stream.journal else pages).append(write)
            for write in pages:
                stream = write.stream
                at = write.at
                for data in joined(write.parts):
                    opened.files.write_all(opened.descriptor(stream.path), data, at)
                    at += len(data)
            for write in pages:  # all pages are synced before the journal refers to them
                stream = write.stream
                if write.sync:
                    opened.files.sync(opened.descriptor(stream.path))
                if write.last:
                    _finish(opened, write)
            for write in journal:
                stream = write.stream
                if not write.parts and not write.sync:
                    continue
                descriptor = opened.descriptor(stream.path)
                opened.files.write_all(descriptor, b"".join(write.parts), write.at)
                if _prefills(write):
                    _write_zeros(opened.files, write, descriptor)
                if write.sync:
                    opened.files.sync(descriptor)
            for write in journal:  # a segment is sealed after the file of the next segment exists
                stream = write.stream
                if write.last:  # not stream.closed: the reactor may have closed it meanwhile, with more data
                    _finish(opened, write)
        except Exception as error:
            if isinstance(error, OSError) and stream is not None:
                error.filename = str(stream.path)
            fault = error
        try:
            opened.files.flush()
        except Exception as error:
            fault = fault or error
        return BatchResult(fault, task_fault, failed, perf_counter() - began)

    # ---- step 4, in the reactor thread

    def confirm(self) -> None:
        """Call the callbacks of the batch."""
        for call in self.callers:
            try:
                call()
            except Exception:  # a bug in one callback must not stop the other callbacks
                log.exception("callback after a store write failed")


def joined(parts: list[bytes]) -> Iterator[bytes]:
    """Yield the parts in order, joined to pieces of at least `WRITTEN_AT_ONCE` bytes: a single piece would need as much
    memory as all parts together.
    """
    begin = size = 0
    for end, part in enumerate(parts, 1):
        size += len(part)
        if size >= WRITTEN_AT_ONCE or end == len(parts):
            yield b"".join(parts[begin:end])
            begin, size = end, 0


def _write_zeros(files: Files, write: Write, descriptor: int) -> None:
    """Fill the file with zeros behind a write. The zeros only make later writes faster: an error ends the prefilling
    of this file.
    """
    stream, end = write.stream, write.at + write.size
    stop = min(end + max(PREFILL_BLOCK, min(end, MAX_PREFILL)), stream.prefill_until)
    stop = -(-stop // PREFILL_BLOCK) * PREFILL_BLOCK
    stream.prefilled = stop  # even if the write fails, because it may have written some zeros
    try:
        files.write(descriptor, memoryview(_ZEROS)[: stop - end], end)
    except OSError:
        stream.prefill_until = 0


def _finish(opened: OpenFiles, write: Write) -> None:
    """Write the footer of a file after its last write, and close the file."""
    stream, size = write.stream, write.at + write.size
    if stream.prefilled > size:
        opened.files.truncate(stream.path, size)
    if stream.seal is not None:
        descriptor = opened.descriptor(stream.path)
        footer = stream.seal(partial(opened.files.read, stream.path), size)
        opened.files.write_all(descriptor, footer, size)
        opened.files.sync(descriptor)
    opened.close(stream.path)


def _prefills(write: Write) -> bool:
    """Return whether new zeros must follow a write, because the write ends after the zeros in the file."""
    stream, end = write.stream, write.at + write.size
    return (
        stream.prefilled < end < stream.prefill_until
        and end >= stream.prefill_from
        and write.size <= MAX_PREFILLED_WRITE
        and write.sync
        and not write.last
    )


@mypyc_attr(allow_interpreted_subclasses=True)  # crash tests have subclasses
class ReactorSync:
    """Decides whether the reactor's thread itself writes and syncs a small batch, instead of the disk thread.

    That saves two thread switches, which take as long as a sync of a fast disk. The reactor's thread writes if syncs
    are fast and ``is_idle`` finds no other work for the reactor. Until then the reactor serves other connections, whose
    messages join the batch. If the reactor is not idle within `MAX_WAIT`, the disk thread writes this batch and some
    more. After a slow sync the disk thread writes all batches for a while. ``seconds``: mean time of a sync.
    """

    def __init__(self, clock: Clock, is_idle: Callable[[], bool]) -> None:
        self._clock = clock
        self._is_idle = is_idle
        self._until = 0  # the disk counts as slow until this time (ms of the steady clock)
        self._waiting_since = 0.0  # when the batch that waits for an idle reactor was due; 0: none waits
        self.busy_batches = 0  # number of next batches that go to the disk thread without a wait
        self.seconds = SLOW_SYNC  # mean seconds per batch; at first an estimate
        self.count = 0  # number of batches written by the reactor's thread

    def observe(self, seconds: float) -> None:
        """Add the time of the write and sync of a batch to the mean."""
        self.seconds += (seconds - self.seconds) / SYNCS_OF_MEAN
        if seconds >= SLOW_SYNC:
            self._until = self._clock.steady.refresh() + SLOW_DISK_INTERVAL

    @property
    def is_fast(self) -> bool:
        """Whether syncs of the disk are fast."""
        if self.seconds > FAST_SYNC:
            return False
        if self._until:
            if self._clock.steady.refresh() < self._until:
                return False
            self._until = 0
        return True

    def ask(self) -> int:
        """Return who writes a due batch: `IN_REACTOR`, `IN_THREAD`, or `LATER`: ask again at the end of the
        next reactor turn.
        """
        waiting_since, self._waiting_since = self._waiting_since, 0.0
        if not self.is_fast:
            return IN_THREAD
        if self.busy_batches:
            self.busy_batches -= 1
            return IN_THREAD
        if self._is_idle():
            return IN_REACTOR
        now = perf_counter()
        if not waiting_since:
            waiting_since = now
        elif now - waiting_since > MAX_WAIT:
            self.busy_batches = BUSY_BATCHES
            return IN_THREAD
        self._waiting_since = waiting_since
        return LATER


#: Returns the footer of a file. Its parameters are a function that reads the file, and the file's size.
Seal = Callable[[Callable[[int, int], bytes], int], bytes]


class AppendOnlyFile:
    """A file that `Writer` appends to. The reactor's thread calls all methods, none of which blocks.

    ``size`` counts the bytes appended, ``written`` the bytes in the file. The writer moves ``parts`` to ``flight``, and
    counts them as written when they are on disk. It writes files with ``journal`` after the other files of a batch, in
    the order of their first append. Between ``prefill_from`` and ``prefill_until`` bytes, the disk thread writes zeros
    ahead of the records; ``prefilled`` is the end of these zeros. The disk thread truncates them when it closes the
    file.
    """

    def __init__(self, writer: Writer, path: Path, size: int, journal: bool) -> None:
        self._writer = writer
        self._write_limit = writer.write_limit
        self.path = path
        self.journal = journal
        self.size = size
        self.written = size
        self.closed = False
        self.deleted = False
        self.seal: Seal | None = None
        self.sync = False  # whether the next batch syncs the file
        self.unsynced = False  # whether the file has bytes that are written, but not synced
        self.prefill_from = self.prefill_until = self.prefilled = 0
        self.parts: list[bytes] = []
        self.chunks: list[bytes] = []  # earlier parts, joined by `read`
        self.flight: list[bytes] = []  # earlier parts that a batch is writing

    def append(self, data: bytes, sync: bool = True) -> int:
        """Append data, and return its offset. ``sync``: the next batch syncs the file."""
        at, size, parts = self.size, len(data), self.parts
        self.size = at + size
        limit = self._write_limit
        limit.bytes += size
        if limit.bytes >= limit.max_bytes:
            limit.review()
        if sync or not parts:  # a file with parts is already in the next batch
            if sync:
                self.sync = True
            self._writer.appended(self, sync)
        parts.append(data)
        return at

    def read(self, start: int, stop: int) -> bytes:
        """Return appended bytes that the file does not have yet: ``written`` <= ``start`` <= ``stop`` <= ``size``."""
        if self.parts:
            self.chunks.append(b"".join(self.parts))
            self.parts = []
        found: list[bytes] = []
        at = self.written
        for chunk in (*self.flight, *self.chunks):
            end = at + len(chunk)
            if start < end and at < stop:
                found.append(chunk[max(0, start - at) : stop - at])
            if end >= stop:
                break
            at = end
        return b"".join(found)

    def close(self, seal: Seal | None = None) -> None:
        """End the file: the next batch syncs and closes it. ``seal`` is called in the disk thread, reads the file and
        returns its footer.
        """
        self.closed = True
        self.seal = seal
        self.sync = True
        self._writer.appended(self, True)

    def delete(self) -> None:
        """Delete the file before any later write. The caller ensures that no record needs the file."""
        if self.deleted:
            return
        self.closed = self.deleted = True
        forgotten = self.size - self.written - sum(map(len, self.flight))
        self.size -= forgotten
        self.parts, self.chunks = [], []
        self._writer.delete(self, forgotten)


class Write(NamedTuple):
    """The bytes of a batch for one file. Defined after `AppendOnlyFile`, because mypyc evaluates annotations here."""

    stream: AppendOnlyFile
    at: int
    parts: list[bytes]
    size: int
    sync: bool
    last: bool  # whether this is the last write of the file


#: Bytes appended and not yet written above which producers of durable messages wait.
MAX_PENDING_BYTES: Final = 16 * 1024 * 1024

#: Number of attempts of a stopping broker to write everything.
SHUTDOWN_ATTEMPTS: Final = 3


class Writer:
    """The batches of one broker. ``failing``: why writes fail now, None while they succeed.

    ``write_limit`` counts the bytes that are not written; the limit is full above `MAX_PENDING_BYTES` and while the
    disk fails. Producers of durable messages wait for it as for any `MemoryLimit`.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        files: Files,
        delay: float = 0.0,
        page_delay: float | None = None,
    ) -> None:
        self.files = files
        self.write_limit = MemoryLimit(MAX_PENDING_BYTES)
        self.failing: str | None = None
        #: Called with the fault when writes begin to fail, and with None when they succeed again.
        self.on_failure: Callable[[str | None], object] = lambda fault: None
        #: Encodes pending events before each batch. Returns False if events are left: the batch then waits for them.
        self.gather: Callable[[], bool] = lambda: True
        #: Calls the function in its argument, which runs the callbacks of a batch.
        self.around: Callable[[Callable[[], None]], object] = lambda call: call()
        self.sync_transactional = True  # journal-sync-transactional
        self.sync_others = True  # journal-sync-non-transactional
        self.draining = False  # whether `gather` must encode all events in one call
        self.batches = 0
        self.bytes_written = 0
        self.failures = 0
        self.disk_seconds = 0.0  # seconds spent in writing and syncing
        self.reactor_sync: ReactorSync | None = None  # set if the reactor's thread may write
        self._disk = disk
        self.clock = clock
        self._delay = delay  # seconds from the first append to the write of a batch (journal-buffer-timeout)
        # seconds until the write of a batch that has only pages (page-sync-timeout)
        self._page_delay = delay if page_delay is None else page_delay
        self._for_journal = False  # whether the next batch has data for the journal
        #: Calls a function at the end of this reactor turn.
        self._round_end: Callable[[Callable[[], None]], object] = getattr(
            clock.reactor, "call_at_round_end", clock.soon
        )
        self._open = OpenFiles(self.files)  # used only by the disk thread
        self._dirty: dict[AppendOnlyFile, None] = {}
        self._unsynced: dict[AppendOnlyFile, None] = {}
        self._tasks: list[FileTask] = []
        self._next = WriteBatch()
        self._flight: WriteBatch | None = None
        self._flush_due = False
        self._batch_retry: Any = None  # timer of the retry of a failed batch
        self._task_retry: Any = None  # timer of the retry of failed file tasks
        self._task_fault: str | None = None
        self._failing_since = 0

    def open(self, path: Path, size: int = 0, *, journal: bool = False) -> AppendOnlyFile:
        """Return a file to which data is appended from offset ``size`` on. The first write creates the file."""
        return AppendOnlyFile(self, path, size, journal)

    @property
    def waiting_bytes(self) -> int:
        """Number of bytes appended and not yet written."""
        return self.write_limit.bytes

    @property
    def idle(self) -> bool:
        """Whether all appended data is on disk, and no file task is left."""
        return self._flight is None and not self._flush_due and not self._tasks

    # ---- appending

    def appended(self, stream: AppendOnlyFile, sync: bool) -> None:
        """Add a file with appended data to the next batch."""
        self._dirty[stream] = None
        if sync:
            self._next.awaited = True
        if not self._flush_due:
            self._schedule_flush(self._delay if stream.journal else self._page_delay)
        elif stream.journal and not self._for_journal and self._delay < self._page_delay:
            self._schedule_flush(self._delay)
        if stream.journal:
            self._for_journal = True

    def delete(self, stream: AppendOnlyFile, forgotten: int) -> None:
        """Delete the file of a stream. ``forgotten``: number of its bytes that were never written."""
        self._dirty.pop(stream, None)
        self._unsynced.pop(stream, None)
        self.write_limit.bytes -= forgotten
        self.write_limit.review()

        def remove(files: Files) -> None:
            self._open.close(stream.path)
            files.remove(stream.path)

        self.run_task(remove)

    def run_task(self, task: FileTask) -> None:
        """Run a task on files in the disk thread, before the next batch is written.

        Tasks keep their order. A failed task is retried before all later tasks.
        """
        self._tasks.append(task)
        if not self._flush_due:
            self._schedule_flush(self._delay)

    def after_next_batch(self, call: Callable[[], object]) -> None:
        """Call ``call`` when the next batch is written, including data appended later in this reactor turn."""
        self._next.callers.append(call)
        if not self._flush_due:
            self._schedule_flush(self._delay)

    def require_next_batch(self) -> None:
        """Make `when_synced` wait for the next batch."""
        self._next.awaited = True

    def require_end_of_turn(self) -> None:
        """Call `end_of_turn` at the end of this reactor turn. `when_synced` waits for the data that it encodes."""
        self._next.awaited = True
        self._round_end(self.end_of_turn)

    def when_synced(self, call: Callable[[], None], transactional: bool | None = False) -> None:
        """Call ``call`` when all data that needs a sync is synced; immediately if no such data is pending, or if the
        setting for changes of a transaction, or for other ones, is off. None: the settings do not matter.
        """
        if transactional is not None and not (self.sync_transactional if transactional else self.sync_others):
            call()
        elif self._next.awaited:
            self._next.callers.append(call)
        elif self._flight is not None and self._flight.awaited:
            self._flight.callers.append(call)
        else:
            call()

    # ---- batches

    def _schedule_flush(self, delay: float) -> None:
        self._flush_due = True
        if self._flight is None:
            if delay:
                self.clock.reactor.callLater(delay, self._flush, False)
            else:
                self._round_end(self._flush)

    def end_of_turn(self) -> None:
        """Encode the events of the reactor turn, and write them unless ``journal-buffer-timeout`` delays the batch."""
        if self._flight is not None or self._delay or self._page_delay:
            if not self.gather():
                return
            waits = self._delay if self._for_journal else self._page_delay
            if self._flight is not None:
                self._flush_due = True  # the next flush runs the callbacks, even if nothing is left to write
                return
            if waits and self._flush_due:
                return
        self._flush_due = True
        self._flush()

    def _flush(self, at_end: bool = True) -> None:
        """Write the next batch. ``at_end``: whether a reactor turn ends. If so, this thread may write the batch itself,
        or wait for more data (`ReactorSync`).
        """
        if self._flight is not None or not self._flush_due:
            return
        here, who = self.reactor_sync, IN_THREAD
        if here is not None and at_end:
            who = here.ask()
            if who == LATER:
                self._round_end(self._flush)
                return
        if not self.gather():
            self._flush_due = False  # `end_of_turn` is called again later
            return
        self._flush_due = self._for_journal = False
        batch, self._next = self._next, WriteBatch()
        dirty, self._dirty = self._dirty, {}
        if not dirty and not self._tasks:
            if batch.callers:
                self.around(batch.confirm)
            return
        for stream in dirty:
            at = stream.written
            parts = stream.flight = stream.chunks + stream.parts
            stream.chunks, stream.parts = [], []
            size = stream.size - at
            sync = stream.sync and (size > 0 or stream.unsynced)
            stream.sync = False
            if sync:
                stream.unsynced = False
                self._unsynced.pop(stream, None)
            elif size:
                stream.unsynced = True
                self._unsynced[stream] = None
            batch.writes.append(Write(stream, at, parts, size, sync, stream.closed))
            batch.bytes += size
        self._flight = batch
        if here is not None and who == IN_REACTOR and not self._tasks and self._is_small(batch):
            here.count += 1
            self._completed(batch.write([], self._open))
        else:
            self._submit(batch)

    def _is_small(self, batch: WriteBatch) -> bool:
        """Return whether a batch consists of one write to the open segment and its sync."""
        if len(batch.writes) != 1 or batch.bytes > MAX_REACTOR_BATCH:
            return False
        write = batch.writes[0]
        stream = write.stream
        # this thread may use the descriptors of the disk thread, because the disk thread is idle now
        return (
            stream.journal
            and not write.last
            and stream.path in self._open.descriptors
            and not _prefills(write)
        )

    def _submit(self, batch: WriteBatch) -> None:
        tasks, self._tasks = self._tasks, []
        self._disk.run(partial(batch.write, tasks, self._open), self._completed)

    def _completed(self, result: BatchResult) -> None:
        """Complete the batch in flight, or schedule its retry."""
        batch = self._flight
        assert batch is not None
        self.disk_seconds += result.seconds
        if self.reactor_sync is not None:
            self.reactor_sync.observe(result.seconds)
        if result.task_fault is not None or self._task_fault is not None:
            self._retry_later(result)
        if result.fault is not None:
            self._fail(result.fault)
            return
        if self.failing is not None:
            self._recover()
        self._flight = None
        self.batches += 1
        self.bytes_written += batch.bytes
        for write in batch.writes:
            write.stream.written += write.size
            write.stream.flight = []
        self.write_limit.bytes -= batch.bytes
        if self.write_limit.full:
            self.write_limit.review()
        if self._flush_due:
            if self.reactor_sync is not None and self.reactor_sync.is_fast and not self.draining:
                self._round_end(self._flush)
            else:
                self._flush(False)
        if batch.callers:
            self.around(batch.confirm)

    def _retry_later(self, result: BatchResult) -> None:
        """Schedule a retry of failed file tasks. Each fault is logged once."""
        self._tasks[:0] = result.failed_tasks
        text = None if result.task_fault is None else describe_fault(result.task_fault)
        if text is not None and text != self._task_fault:
            log.warning("%s; retrying every %g s", text, self.files.retry_interval)
        if text is not None and self._task_retry is None:
            self._task_retry = self.clock.reactor.callLater(self.files.retry_interval, self._retry_tasks)
        self._task_fault = text

    def _retry_tasks(self) -> None:
        self._task_retry = None
        if self._flight is None:
            self._flush_due = True
            self._flush(False)

    def _fail(self, fault: Exception) -> None:
        """Schedule the retry of the batch in flight, which failed. Nothing else is written until then."""
        self.failures += 1
        text = describe_fault(fault)
        if self.failing is None:
            self._failing_since = self.clock.steady.refresh()
            bug = None if isinstance(fault, OSError) else fault
            log.error(
                "%s; durable messages are blocked; retrying every %g s",
                text,
                self.files.retry_interval,
                exc_info=bug,
            )
            self.on_failure(text)
        self.failing = text
        self.write_limit.set_fault(text)
        if self._batch_retry is None:
            self._batch_retry = self.clock.reactor.callLater(self.files.retry_interval, self._retry)

    def _retry(self) -> None:
        self._batch_retry = None
        if self._flight is not None:
            self._submit(self._flight)
        else:
            self._retry_tasks()

    def _recover(self) -> None:
        seconds = (self.clock.steady.refresh() - self._failing_since) / 1000
        log.info("store is writable again after %.1f s", seconds)
        self.failing = None
        self.write_limit.set_fault(None)
        self.on_failure(None)

    def write_now(self) -> None:
        """Write all appended data. Blocks until it is on disk or the write has failed: only for start."""
        self._flush_due = self.draining = True
        try:
            self._flush(False)
            self._disk.finish()
        finally:
            self.draining = False

    # ---- the end

    def drain(self) -> bool:
        """Write all appended data, and block until it is on disk. Returns False and logs an error if the disk fails."""
        self.draining = True
        try:
            for _ in range(SHUTDOWN_ATTEMPTS):
                self._disk.finish()  # waits for the batch in flight and for data appended meanwhile
                self.gather()
                for stream in (*self._dirty, *self._unsynced):
                    stream.sync = True
                    self._dirty[stream] = None
                    self._flush_due = True
                if not self.idle:
                    self.stop()
                    self._retry()
                    self._disk.finish()
                    self.gather()  # callbacks may have appended more data
                if self.idle and not self._unsynced:
                    return True
        finally:
            self.draining = False
        fault = self.failing or self._task_fault
        log.error("store closed with %d bytes not written: %s", self.waiting_bytes, fault)
        return False

    def stop(self) -> None:
        """Cancel all timers."""
        cancel(self._batch_retry)
        cancel(self._task_retry)
        self._batch_retry = self._task_retry = None


def describe_fault(fault: BaseException) -> str:
    """Describe a failed write for operators: the error and the file."""
    if isinstance(fault, OSError):
        return f"cannot write {fault.filename or 'to the store'}: {fault.strerror or fault}"
    return f"cannot write to the store: {type(fault).__name__}: {fault}"
