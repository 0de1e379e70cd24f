"""The log of a broker, shared by its threads: the disk thread appends, the node's thread beats and reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import RLock

from .beat import Beat, encode_beat
from .contents import Summary
from .log import (
    Fenced,
    FileChange,
    LogEntry,
    LogFull,
    LogStatus,
    LogUnavailable,
    NoRoom,
    Operation,
    ReplicatedLog,
    UnsafeLog,
)

#: Bytes of a full log that stay free for beats, claims and removals, without which nothing would become free.
RESERVE = 1024 * 1024

#: What an entry costs in an engine beside its data, estimated.
ENTRY_OVERHEAD = 160

#: Seconds for which the size of a full log is not asked for again.
FULL_INTERVAL = 0.5


class SharedLog:
    """A `ReplicatedLog` that may be called by several threads; it knows when the last append was stored.

    Between `claim` and `close_writing` it appends; outside of that every append raises `Fenced`. ``on_lost`` is called
    with the reason when an append shows that this broker is not active any more, or that the log is gone.
    ``stored_at`` is when the last append that was stored began, by ``clock``; ``sequence`` is its last entry.
    ``contents`` is `Beat.contents` behind all that the log was given.
    """

    def __init__(
        self, log: ReplicatedLog, clock: Callable[[], float], on_lost: Callable[[str], None]
    ) -> None:
        self._log = log
        self._clock = clock
        self._on_lost = on_lost
        self._lock = RLock()
        self._appending = False
        self._closed = "this broker is not active"
        self.stored_at = float("-inf")
        self.sequence = 0
        self.unsettled = (
            False  # the engine did not confirm the last append; the next one stores the rest of it first
        )
        self.last_status: LogStatus | None = None
        self.status_at = float("-inf")
        self._added = 0  # bytes since `last_status`
        self.bytes = 0  # data of all entries, as in `Beat.bytes`
        self.contents: Summary | None = None
        self.appends = 0
        self.append_seconds = 0.0
        self.append_bytes = 0
        self.fenced = 0

    @property
    def busy(self) -> bool:
        """An append is under way."""
        return self._appending

    def usage(self) -> tuple[int, int]:
        """Bytes in the log, with what was appended since the engine was asked, and its limit (-1: none)."""
        status = self.last_status
        return (0, -1) if status is None else (status.bytes + self._added, status.max_bytes)

    def close_writing(self, reason: str) -> None:
        """Nothing is appended any more. An append that is under way in another thread is not waited for."""
        self._closed = reason

    # ---- what the broker appends

    def claim(self, writer: int, after: int, change: FileChange) -> int | None:
        with self._lock:
            began = self._clock()
            sequence = self._log.claim(writer, after, change)
            if sequence is not None:
                self.sequence = sequence
                self.stored_at = began
                self._closed = ""
            return sequence

    def append(self, changes: Sequence[FileChange]) -> int:
        try:
            with self._lock:
                self._check_open()
                self._check_room(changes)
                self._appending = True
                try:
                    return self._append(changes)
                finally:
                    self._appending = False
        except Fenced as fault:
            if not self._closed:
                self.fenced += 1
                self._on_lost(str(fault))
            raise
        except UnsafeLog as fault:
            self._on_lost(str(fault))
            raise

    def append_beat(self, beat: Beat) -> int:
        """Append a BEAT that says what is in the log at its place. Beats do not pile up during an outage."""
        with self._lock:
            if self.unsettled:
                self.append([])
            return self.append([self._beat(Operation.BEAT, beat)])

    def append_release(self, beat: Beat) -> int:
        """Append RELEASE, after which this broker appends nothing, whether or not it is stored."""
        with self._lock:
            self._closed = self._closed or "this broker has released the log"
            self._appending = True
            try:
                return self._append([self._beat(Operation.RELEASE, beat)])
            finally:
                self._appending = False

    def _beat(self, operation: Operation, beat: Beat) -> FileChange:
        return FileChange(
            operation, data=encode_beat(replace(beat, bytes=self.bytes, contents=self.contents))
        )

    def _check_open(self) -> None:
        if self._closed:
            raise Fenced(self._closed)

    def _append(self, changes: Sequence[FileChange]) -> int:
        began = self._clock()
        size = sum(len(change.data) for change in changes)
        try:
            sequence = self._log.append(changes)
        except (LogUnavailable, LogFull):
            self._count(changes, size)  # the next append stores what is not stored yet
            self.unsettled = True
            raise
        self.unsettled = False
        self._count(changes, size)
        if not changes:
            return sequence
        self.stored_at = began
        self.sequence = max(sequence, self.sequence)
        self.appends += 1
        self.append_seconds += self._clock() - began
        self.append_bytes += size
        return sequence

    def _count(self, changes: Sequence[FileChange], size: int) -> None:
        self._added += size + ENTRY_OVERHEAD * len(changes)
        self.bytes += size
        if self.contents is not None:
            self.contents = self.contents.after(changes)

    def _check_room(self, changes: Sequence[FileChange]) -> None:
        """Raise `NoRoom` for data that would use up the reserve."""
        if self.last_status is None or self.last_status.max_bytes <= 0:
            return
        size = sum(
            len(change.data) + ENTRY_OVERHEAD
            for change in changes
            if change.operation in (Operation.WRITE, Operation.WHOLE)
        )
        if not size:
            return
        limit = self.last_status.max_bytes - min(RESERVE, self.last_status.max_bytes // 64)
        if self.last_status.bytes + self._added + size <= limit:
            return
        if self._clock() - self.status_at >= FULL_INTERVAL:
            self.status()  # much may have been purged
            if self.last_status.bytes + size <= limit:
                return
        raise NoRoom(
            f"the replicated log is full: {self.last_status.bytes} of {self.last_status.max_bytes} bytes"
        )

    # ---- the rest, one thread at a time

    def connect(self) -> LogStatus:
        with self._lock:
            return self._keep(self._log.connect())

    def status(self) -> LogStatus:
        with self._lock:
            return self._keep(self._log.status())

    def _keep(self, status: LogStatus) -> LogStatus:
        self.last_status, self.status_at, self._added = status, self._clock(), 0
        return status

    def read(self, after: int, wait: float) -> list[LogEntry]:
        with self._lock:
            return self._log.read(after, wait)

    def read_from_leader(self) -> None:
        with self._lock:
            self._log.read_from_leader()

    def first(self, key: str) -> LogEntry | None:
        with self._lock:
            return self._log.first(key)

    def last(self, key: str) -> LogEntry | None:
        with self._lock:
            return self._log.last(key)

    def counts(self) -> dict[str, int] | None:
        with self._lock:
            return self._log.counts()

    def purge(self, key: str, through: int) -> None:
        with self._lock:
            self._log.purge(key, through)

    def request(self, command: str, broker: str) -> bool:
        with self._lock:
            return self._log.request(command, broker)

    def requests(self, broker: str, *, active: bool) -> list[str]:
        with self._lock:
            return self._log.requests(broker, active=active)

    def close(self) -> None:
        with self._lock:
            self._log.close()
