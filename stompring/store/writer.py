"""The writer: collects what one reactor turn appends to any file of the store and writes it as one batch.

Within a batch the pages are written and synced first, then the journal: an event about a page is never on disk before
the page. While a batch is in flight the next one collects. A batch that fails is kept whole and retried at the same
positions until it succeeds: nothing is dropped or reordered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from stompring.broker.clock import Clock
from stompring.broker.memory import MemoryLimit

from .files import Disk, Files

log = logging.getLogger(__name__)

#: Something to be done with files.
FileTask = Callable[["Files"], None]

#: Files kept open for writing: more addresses than that seldom page at once.
OPEN_FILES = 64


class Write(NamedTuple):
    """What goes to the end of one file."""

    stream: AppendOnlyFile
    at: int
    parts: list[bytes]
    size: int
    sync: bool
    last: bool  # nothing more will come: the file ends with it


class BatchResult:
    """What came of a trip: what was in the way of the writes, and of the chores."""

    __slots__ = ("chore_fault", "fault", "seconds", "undone")

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.chore_fault: Exception | None = None
        self.undone: list[FileTask] = []
        self.seconds = 0.0


class WriteBatch:
    """What goes to the disk together, and who wants to hear of it."""

    __slots__ = ("awaited", "bytes", "callers", "sync", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.callers: list[Callable[[], None]] = []
        self.bytes = 0
        self.sync = False
        self.awaited = False  # whoever asks whether all is safe waits for it

    def answer(self) -> None:
        """It is done: tell those who wait for it."""
        for call in self.callers:
            try:
                call()
            except Exception:  # the others must hear of it all the same
                log.exception("after a write")

    def carry_out(
        self, chores: list[FileTask], files: Files, opened: dict[AppendOnlyFile, int]
    ) -> BatchResult:
        """Do it. Chores that failed are left over; that alone keeps nothing from being written."""
        outcome = BatchResult()
        began = perf_counter()
        for place, chore in enumerate(chores):
            try:
                chore(files)
            except Exception as fault:
                outcome.chore_fault, outcome.undone = fault, chores[place:]
                break
        try:
            _BatchWrite(files, opened).write(self.writes)
        except Exception as fault:
            outcome.fault = fault
        outcome.seconds = perf_counter() - began
        return outcome


class _BatchWrite:
    """Writes, and syncs what wants it. ``opened`` are the descriptors kept, least recently used first."""

    __slots__ = ("_files", "_opened")

    def __init__(self, files: Files, opened: dict[AppendOnlyFile, int]) -> None:
        self._files = files
        self._opened = opened

    def write(self, writes: list[Write]) -> None:
        """Pages first, all of them safe before the journal says anything about them."""
        living = [write for write in writes if not write.stream.deleted]
        pages = [write for write in living if not write.stream.journal]
        for write in pages:
            self._append(write)
        for write in pages:
            self._sync(write)
            self._close(write)
        journal = [write for write in living if write.stream.journal]
        for write in journal:
            self._append(write)
            self._sync(write)
        for write in journal:  # a segment is sealed when the file of the next one is there
            self._close(write)

    def _append(self, write: Write) -> None:
        if not write.parts:
            return
        try:
            descriptor, at = self._descriptor(write.stream), write.at
            left = memoryview(write.parts[0] if len(write.parts) == 1 else b"".join(write.parts))
            while left:
                taken = self._files.write(descriptor, left, at)
                at += taken
                left = left[taken:]
        except OSError as fault:
            raise _named(fault, write.stream) from None

    def _sync(self, write: Write) -> None:
        try:
            if write.sync:
                self._files.sync(self._descriptor(write.stream))
        except OSError as fault:
            raise _named(fault, write.stream) from None

    def _close(self, write: Write) -> None:
        try:
            if write.last:  # not stream.closed: it may be closed while this is under way, with more to come
                self._end(write.stream, write.at + write.size)
        except OSError as fault:
            raise _named(fault, write.stream) from None

    def _end(self, stream: AppendOnlyFile, size: int) -> None:
        if stream.seal is not None:
            ending = stream.seal(self._files.read(stream.path, 0, size))
            self._append(Write(stream, size, [ending], len(ending), True, True))
            self._files.sync(self._descriptor(stream))
        descriptor = self._opened.pop(stream, None)
        if descriptor is not None:
            self._files.close(descriptor)

    def _descriptor(self, stream: AppendOnlyFile) -> int:
        descriptor = self._opened.pop(stream, None)
        if descriptor is None:
            while len(self._opened) >= OPEN_FILES:
                self._files.close(self._opened.pop(next(iter(self._opened))))
            descriptor = self._files.open(stream.path)
        self._opened[stream] = descriptor
        return descriptor


def _named(fault: OSError, stream: AppendOnlyFile) -> OSError:
    fault.filename = str(stream.path)
    return fault


#: Makes the end of a file from all that is in it.
Seal = Callable[[bytes], bytes]


class AppendOnlyFile:
    """A file that `Writer` appends to. All methods are the reactor's; none waits.

    ``size`` counts all that was told, ``written`` what is in the file. ``journal`` streams are written after all
    others of their batch, in the order in which they were told.
    """

    __slots__ = (
        "_chunks",
        "_flight",
        "_parts",
        "_room",
        "_writer",
        "closed",
        "deleted",
        "journal",
        "path",
        "seal",
        "size",
        "sync",
        "unsynced",
        "written",
    )

    def __init__(self, writer: Writer, path: Path, size: int = 0, *, journal: bool = False) -> None:
        self._writer = writer
        self._room = writer.room
        self.path = path
        self.journal = journal
        self.size = size
        self.written = size
        self.closed = False
        self.deleted = False
        self.seal: Seal | None = None
        self.sync = False  # something told wants to be safe with the next batch
        self.unsynced = False  # something written is not known to be safe
        self._parts: list[bytes] = []
        self._chunks: list[bytes] = []  # parts that were joined to be read, before those above
        self._flight: list[bytes] = []  # what the disk is writing, before those above

    def append(self, data: bytes, sync: bool = True) -> int:
        """Add to the end, and return where that is; ``sync`` asks for the batch to be safe before it is done."""
        at, size, parts = self.size, len(data), self._parts
        self.size = at + size
        if sync or not parts:
            if sync:
                self.sync = True
            self._writer.told(self, size, sync)
        else:  # the writer knows of it already
            room = self._room
            room.bytes += size
            if room.bytes >= room.max_bytes:
                room.review()
        parts.append(data)
        return at

    def read(self, start: int, stop: int) -> bytes:
        """Bytes that are told and not yet in the file: ``written`` <= ``start`` <= ``stop`` <= ``size``."""
        if self._parts:
            self._chunks.append(b"".join(self._parts))
            self._parts = []
        found: list[bytes] = []
        at = self.written
        for chunk in (*self._flight, *self._chunks):
            end = at + len(chunk)
            if start < end and at < stop:
                found.append(chunk[max(0, start - at) : stop - at])
            if end >= stop:
                break
            at = end
        return b"".join(found)

    def close(self, seal: Seal | None = None) -> None:
        """Nothing more will be told; with the next batch the file is safe, and closed.

        ``seal`` is given all of the file in the disk thread, and makes what shall stand at its end.
        """
        self.closed = True
        self.seal = seal
        self.sync = True
        self._writer.told(self, 0, True)

    def delete(self) -> None:
        """The file goes before anything else is written. Whoever says so has made sure that nobody needs it."""
        if self.deleted:
            return
        self.closed = self.deleted = True
        forgotten = self.size - self.written - sum(map(len, self._flight))
        self.size -= forgotten
        self._parts, self._chunks = [], []
        self._writer.delete(self, forgotten)

    # ---- for the writer

    def take(self) -> list[bytes]:
        """What is to be written next, which is in flight from now on."""
        self._flight = self._chunks + self._parts
        self._chunks, self._parts = [], []
        return self._flight

    def landed(self, size: int) -> None:
        """What was in flight is in the file."""
        self.written += size
        self._flight = []


#: Bytes told and not yet written from which on producers have to wait.
MAX_PENDING_BYTES = 32 * 1024 * 1024

#: Seconds until what failed is tried again.
RETRY_INTERVAL = 1.0

#: Times that a broker which stops tries to get rid of what it has.
SHUTDOWN_ATTEMPTS = 3


class Writer:
    """The batches of one broker. ``failing`` says why the disk takes nothing at the moment, None while all is well.

    ``room`` counts the bytes that wait; it is full from `MAX_PENDING_BYTES` on and while the disk fails. Producers of
    what must be written wait for it as for any other `Room`.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        files: Files | None = None,
        delay: float = 0.0,
        page_delay: float | None = None,
    ) -> None:
        self.files = files or Files()
        self.room = MemoryLimit(MAX_PENDING_BYTES)
        self.failing: str | None = None
        # called before each batch: the last to tell something. False where more is to come: the batch waits for it
        self.gather: Callable[[], bool] = _nothing
        self.around: Callable[[Callable[[], None]], None] = _call  # what calls those who wait for a batch
        self.draining = False  # who gathers must not leave anything for later
        self.batches = 0
        self.bytes_written = 0
        self.failures = 0
        self.disk_seconds = 0.0  # spent in writing and syncing
        self._disk = disk
        self.clock = clock
        self._delay = delay  # seconds that the first of a batch waits for company (journal-buffer-timeout)
        self._page_delay = (
            delay if page_delay is None else page_delay
        )  # while it is all for pages (page-sync-timeout)
        self._for_journal = False  # something of what was told since the last batch is
        self._open: dict[AppendOnlyFile, int] = {}  # descriptors, the disk thread's alone
        self._dirty: dict[AppendOnlyFile, None] = {}
        self._unsynced: dict[AppendOnlyFile, None] = {}
        self._chores: list[FileTask] = []
        self._next = WriteBatch()
        self._flight: WriteBatch | None = None
        self._woken = False
        self._retrying: Any = None  # a delayed call, while a batch waits to be tried again
        self._tidying: Any = None  # the same, for a chore that failed
        self._chore_fault: str | None = None
        self._failing_since = 0

    def open(self, path: Path, size: int = 0, *, journal: bool = False) -> AppendOnlyFile:
        """A stream that goes on at ``size`` of a file, which is made with the first write."""
        return AppendOnlyFile(self, path, size, journal=journal)

    @property
    def waiting_bytes(self) -> int:
        """Told and not yet written."""
        return self.room.bytes

    @property
    def idle(self) -> bool:
        """Everything told is on disk, and every chore is done."""
        return self._flight is None and not self._woken and not self._chores

    # ---- what is told

    def told(self, stream: AppendOnlyFile, size: int, sync: bool) -> None:
        """A stream has ``size`` bytes more to write."""
        self._dirty[stream] = None
        room = self.room
        room.bytes += size
        if room.bytes >= room.max_bytes:
            room.review()
        if sync:
            self._next.sync = self._next.awaited = True
        if not self._woken:
            self._wake(self._delay if stream.journal else self._page_delay)
        elif stream.journal and not self._for_journal and self._delay < self._page_delay:
            self._wake(self._delay)
        if stream.journal:
            self._for_journal = True

    def delete(self, stream: AppendOnlyFile, forgotten: int) -> None:
        """The file of a stream goes, and ``forgotten`` bytes are not written any more."""
        self._dirty.pop(stream, None)
        self._unsynced.pop(stream, None)
        self.room.bytes -= forgotten
        self.room.review()

        def remove(files: Files) -> None:
            descriptor = self._open.pop(stream, None)
            if descriptor is not None:
                files.close(descriptor)
            files.remove(stream.path)

        self.chore(remove)

    def chore(self, chore: FileTask) -> None:
        """Do something with files in the disk thread, before all that is not yet being written.

        Chores keep their order. One that raises `OSError` is tried again, before all later ones.
        """
        self._chores.append(chore)
        if not self._woken:
            self._wake(self._delay)

    def with_next(self, call: Callable[[], None]) -> None:
        """Call after the next batch: of something that will be told before it begins."""
        self._next.callers.append(call)
        if not self._woken:
            self._wake(self._delay)

    def await_next(self) -> None:
        """What was told without ``sync`` shall be written all the same before anybody hears that all is safe."""
        self._next.awaited = True

    def when_synced(self, call: Callable[[], None]) -> None:
        """Call once everything told so far with ``sync`` is safe, and written what is awaited; at once where it is."""
        if self._next.awaited:
            self._next.callers.append(call)
        elif self._flight is not None and self._flight.awaited:
            self._flight.callers.append(call)
        else:
            call()

    # ---- batches

    def _wake(self, delay: float) -> None:
        self._woken = True
        if self._flight is None:
            if delay:
                self.clock.reactor.callLater(delay, self._flush)
            else:
                self.clock.soon(self._flush)

    def attend(self) -> None:
        """A turn is over in which something happened: gather it, and send it unless it shall wait for company."""
        if self._flight is not None or self._delay or self._page_delay:
            if not self.gather():
                return
            waits = self._delay if self._for_journal else self._page_delay
            if self._flight is not None or (waits and self._woken):
                return
        self._woken = True
        self._flush()

    def _flush(self) -> None:
        if self._flight is not None or not self._woken:
            return
        if not self.gather():
            self._woken = False  # whoever has more to tell comes back to `attend`
            return
        self._woken = self._for_journal = False
        batch, self._next = self._next, WriteBatch()
        dirty, self._dirty = self._dirty, {}
        if not dirty and not self._chores:
            self._answer(batch)
            return
        for stream in dirty:
            at, parts = stream.written, stream.take()
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
        self._send(batch)

    def _send(self, batch: WriteBatch) -> None:
        chores, self._chores = self._chores, []
        self._disk.run(lambda: batch.carry_out(chores, self.files, self._open), self._returned)

    def _returned(self, outcome: BatchResult) -> None:
        """The disk thread is done with the batch in flight, or has failed."""
        batch = self._flight
        assert batch is not None
        self.disk_seconds += outcome.seconds
        self._note_chores(outcome)
        if outcome.fault is not None:
            self._fail(outcome.fault)
            return
        self._recover()
        self._landed(batch)
        if self._woken:
            self._flush()
        self._answer(batch)

    def _answer(self, batch: WriteBatch) -> None:
        if batch.callers:
            self.around(batch.answer)

    def _note_chores(self, outcome: BatchResult) -> None:
        """What could not be deleted or renamed is in nobody's way; it is tried again, and said once."""
        self._chores[:0] = outcome.undone
        text = None if outcome.chore_fault is None else describe_fault(outcome.chore_fault)
        if text is not None and text != self._chore_fault:
            log.warning("%s; it is tried again", text)
        if text is not None and self._tidying is None:
            self._tidying = self.clock.reactor.callLater(RETRY_INTERVAL, self._tidy)
        self._chore_fault = text

    def _tidy(self) -> None:
        self._tidying = None
        if self._flight is None:
            self._woken = True
            self._flush()

    def _landed(self, batch: WriteBatch) -> None:
        self._flight = None
        self.batches += 1
        self.bytes_written += batch.bytes
        for write in batch.writes:
            write.stream.landed(write.size)
        self.room.bytes -= batch.bytes
        if self.room.full:
            self.room.review()

    def _fail(self, fault: Exception) -> None:
        """Nothing more goes out until the next try."""
        self.failures += 1
        text = describe_fault(fault)
        if self.failing is None:
            self._failing_since = self.clock.steady.refresh()
            bug = None if isinstance(fault, OSError) else fault
            log.error("%s; what must be written waits until that is mended", text, exc_info=bug)
        self.failing = text
        self.room.shut(text)
        if self._retrying is None:
            self._retrying = self.clock.reactor.callLater(RETRY_INTERVAL, self._retry)

    def _retry(self) -> None:
        self._retrying = None
        if self._flight is not None:
            self._send(self._flight)
        else:
            self._woken = True
            self._flush()

    def _recover(self) -> None:
        if self.failing is None:
            return
        seconds = (self.clock.steady.refresh() - self._failing_since) / 1000
        log.info("the store can be written again, after %.1f s", seconds)
        self.failing = None
        self.room.shut(None)

    def write_now(self) -> None:
        """Write what was told, and wait until the disk has it or has failed. For the start: nobody else waits."""
        self._woken = self.draining = True
        try:
            self._flush()
            self._disk.finish()
        finally:
            self.draining = False

    # ---- the end

    def drain(self) -> bool:
        """Write all that was told, and wait for it. False, and a log line, where the disk does not take it."""
        self.draining = True
        try:
            return self._drain()
        finally:
            self.draining = False

    def _drain(self) -> bool:
        for _ in range(SHUTDOWN_ATTEMPTS):
            self._disk.finish()  # what was told meanwhile goes out by itself, and is waited for
            self.gather()
            for stream in (*self._dirty, *self._unsynced):
                stream.sync = True
                self._dirty[stream] = None
                self._woken = True
            if not self.idle:
                self.stop()
                self._retry()
                self._disk.finish()
                self.gather()  # who was waiting for it may have more to tell
            if self.idle and not self._unsynced:
                return True
        fault = self.failing or self._chore_fault
        log.error("the store is left as it is, with %d bytes not written: %s", self.waiting_bytes, fault)
        return False

    def stop(self) -> None:
        """No timer is left behind."""
        for timer in (self._retrying, self._tidying):
            if timer is not None:
                timer.cancel()
        self._retrying = self._tidying = None


def describe_fault(fault: BaseException) -> str:
    """What went wrong with which file, for people."""
    if isinstance(fault, OSError):
        return f"cannot write {fault.filename or 'to the store'}: {fault.strerror or fault}"
    return f"cannot write to the store: {type(fault).__name__}: {fault}"


def _nothing() -> bool:
    """Nobody has anything to tell."""
    return True


def _call(call: Callable[[], None]) -> None:
    call()
