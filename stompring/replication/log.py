"""The replicated log: its entries, what they carry, and its interface.

Which entries the files of a log consist of, in one number that the writer and every reader keep.

Each entry that changes or ends a file has a *serial*: the first one of a log has 1, the next one 2, across all writers.
A file consists of its changes since it was made, or since its last rewrite. The *digest* of files is the sum of
`weight` over the serials of these changes. A beat has the digest of all files that are there (`Summary`), the end of a
file has the digest of that file. A change adds its weight, an end subtracts the digest of its file.

**What is noticed.** Any entries may be lost, changes and ends of files mixed as they come. At a beat, the reader's
digest and that of the beat are sums over two sets of serials: the changes that the reader's files consist of, and those
that the writer's consist of. Where the sets are equal the files are equal: they are the same entries in the same order.
Where the sets differ, so do the digests: their difference has the weight of each change that is in one set alone, added
or subtracted once, and no two are the same. A hash that is as good as random gives 0 for that with a probability of
2^-64, whichever entries are lost.

Behind the newest beat, a reader adds the weights of serials that it has not read to the digest that it expects, and
takes away the digests that ends of files name. An end that is lost adds its own weight, which no file has. The engine
knows the sequence of the last entry, so that those at the very end are missed, too; and it keeps the newest beat, so
that a log with changes and without a beat has lost one. Losses are faults, no attacks: who can delete entries can write
some.

The lowest 32 bits of a digest count the entries, to say how many are missing. In this count losses may hide each other:
it is a lower limit.

What a broker says of itself in the entries CLAIM, BEAT and RELEASE: a JSON object.

The replicated log as the broker uses it: entries that change files, in one order, written by one broker at a time.

The engine (NATS JetStream, PostgreSQL) stores each entry on several machines before it is confirmed, and accepts an
entry only at the sequence that its writer expects: that alone decides which broker is active. The entries, applied in
order, are the data directory of the broker, byte for byte.

The log of a broker, shared by its threads: the disk thread appends, the node's thread beats and reads.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from math import inf
from threading import RLock
from typing import Any, NamedTuple, Protocol

from stompring import __version__

#: Of a digest: a hash of 64 bits above a count of 32.
_COUNT_BITS = 32
_COUNT, _DIGEST = (1 << _COUNT_BITS) - 1, (1 << (64 + _COUNT_BITS)) - 1


@lru_cache(1024)  # the writer needs each of them three times: buffered, appended, applied
def weight(serial: int) -> int:
    """The part of one change in a digest."""
    hashed = blake2b(serial.to_bytes(8, "big"), digest_size=8).digest()
    return int.from_bytes(hashed, "big") << _COUNT_BITS | 1


def count(digest: int) -> int:
    """How many entries are in a digest."""
    return digest & _COUNT


def difference(digest: int, other: int) -> int:
    """How many entries two digests differ by, at least; 0 only where they are equal."""
    if digest == other:
        return 0
    entries = (digest - other) & _COUNT
    return min(entries, _COUNT + 1 - entries) or 1


def weights(serials: Iterable[int]) -> int:
    """The digest of some changes."""
    return sum(map(weight, serials)) & _DIGEST


@dataclass(frozen=True, slots=True)
class Summary:
    """The contents of a log at a sequence: the last ``serial``, the number of the last ``control`` entry, and the
    ``digest`` of all files that are there.
    """

    serial: int = 0
    control: int = 0
    digest: int = 0

    def after(self, changes: Iterable[FileChange], skipped: Iterable[int] = ()) -> Summary:
        """The summary behind some entries; ``skipped`` are serials that are missing before them."""
        serial, control, digest = self.serial, self.control, self.digest + weights(skipped)
        for change in changes:
            serial = max(serial, change.serial)
            if change.operation in CONTROLS:
                control = max(control, change.at)
            if change.operation in CONTENT:
                digest += weight(change.serial)
            digest -= change.dropped or 0
        return Summary(serial, control, digest & _DIGEST)


class Contents:
    """The digests of the files that are there, each since it was made or its last `Operation.REWRITTEN`.

    ``digests`` has them by path, ``total`` is their sum. ``rewrites`` has, of files that are being written again, those
    since `Operation.REWRITE`. ``serial`` and ``control`` are those of `Summary`.
    """

    def __init__(
        self,
        digests: Mapping[str, int] | None = None,
        rewrites: Mapping[str, int] | None = None,
        serial: int = 0,
        control: int = 0,
    ) -> None:
        self.digests = dict(digests or {})
        self.rewrites = dict(rewrites or {})
        self.serial = serial
        self.control = control
        self.total = sum(self.digests.values()) & _DIGEST

    def copy(self) -> Contents:
        """Another one that says the same."""
        return Contents(self.digests, self.rewrites, self.serial, self.control)

    @property
    def summary(self) -> Summary:
        """The summary for a beat."""
        return Summary(self.serial, self.control, self.total)

    def add(self, change: FileChange) -> None:
        """Take the next entry in."""
        path, operation = change.path, change.operation
        if operation in CONTROLS:
            self.control = max(self.control, change.at)
            self.total = (self.total - self.digests.pop(path, 0)) & _DIGEST
            self.rewrites.pop(path, None)
        elif operation in CONTENT:
            added = weight(change.serial)
            before = self.digests.get(path, 0)
            digest = (before + added) & _DIGEST
            if operation is Operation.REWRITE:
                self.rewrites[path] = added
            elif path in self.rewrites:
                self.rewrites[path] = (self.rewrites[path] + added) & _DIGEST
            if operation is Operation.REWRITTEN:
                # 0 where the begin was not read: nobody knows what the file has, and it counts as missing
                digest = self.rewrites.pop(path, 0)
            self.total = (self.total + digest - before) & _DIGEST
            self.digests[path] = digest
        self.serial = max(self.serial, change.serial)

    def before_rewrite(self, path: str) -> int:
        """The digest of a file before its `Operation.REWRITE`, if it is being written again."""
        return (self.digests.get(path, 0) - self.rewrites.get(path, 0)) & _DIGEST


@dataclass(frozen=True, slots=True)
class Beat:
    """A broker as its last beat describes it.

    ``broker`` is its name among the brokers of the log, ``started`` when its process began (epoch ms), ``bytes`` the
    data of all entries up to this one, whoever wrote them. ``contents`` is what the log holds here; None: it is not
    known. In a RELEASE, ``reason`` is why, ``successor`` the standby that shall take over (empty: any), and
    ``failures`` how many brokers in a row, this one included, could not start.
    """

    broker: str
    host: str = ""
    pid: int = 0
    started: int = 0
    version: str = ""
    bytes: int = 0
    reason: str = ""
    successor: str = ""
    failures: int = 0
    contents: Summary | None = None


def this_process(broker: str) -> Beat:
    """The beat of this process, under its name among the brokers of the log."""
    return Beat(broker, socket.gethostname(), os.getpid(), int(time.time() * 1000), __version__)


def encode_beat(beat: Beat) -> bytes:
    """The data of an entry."""
    return json.dumps(
        {name: value for name, value in asdict(beat).items() if value not in ("", None)}
    ).encode()


def decode_beat(data: bytes | memoryview) -> Beat:
    """The beat in an entry's data; of a later version only what this one knows, nothing where it is damaged."""
    given = None
    with suppress(ValueError):
        given = json.loads(bytes(data))
    if not isinstance(given, dict):
        return Beat("")
    summary = given.get("contents")
    contents = _known(summary, Summary()) if isinstance(summary, dict) else {}
    return replace(
        Beat(""), **_known(given, Beat("")), contents=Summary(**contents) if len(contents) == 3 else None
    )


def _known(given: dict[str, Any], empty: Beat | Summary) -> dict[str, Any]:
    """The fields of a dataclass whose values are texts and numbers as in an empty one."""
    kinds = {each.name: type(getattr(empty, each.name)) for each in fields(empty)}
    return {
        name: value for name, value in given.items() if value is not None and type(value) is kinds.get(name)
    }


#: Bytes of data in one entry at most. Engines limit a message (NATS: ``max_payload``, 1 MiB by default). Entries are
#: stored one after the other, so that large ones are faster.
MAX_ENTRY_DATA = 512 * 1024

#: Keys under which entries are stored that belong to no file. A path never begins with a dot.
CONTROL, BEATS = ".control", ".beats"


class Operation(IntEnum):
    """What an entry does. The numbers are part of the format."""

    #: Write ``data`` at position ``at`` of a file, which is made where it is missing.
    WRITE = 1
    #: Replace the whole file by ``data``.
    WHOLE = 2
    #: Cut a file off at ``at`` bytes.
    TRUNCATE = 3
    #: Delete a file; ``at`` is the number of the control entry, ``data`` the digest of the file's entries (decimal, see
    #: `contents`).
    REMOVE = 4
    #: Move a file to ``target``, which every broker has for itself (retention); ``at`` as in REMOVE. ``data`` is the
    #: size of the file, a blank, and the digest of its entries: a copy that is not complete is deleted instead.
    MOVE = 5
    #: The writer is active; ``data`` is a JSON object that describes it (`Beat`).
    BEAT = 6
    #: A broker becomes active: the first entry of its writer. ``data`` as in BEAT.
    CLAIM = 7
    #: The writer is not active any more, by its own decision. ``data`` as in BEAT.
    RELEASE = 8
    #: The entries that follow write a whole file again, in place, because the log has lost some of it.
    REWRITE = 9
    #: The end of that: cut the file off at ``at`` bytes. ``data`` is the digest of its entries before REWRITE.
    REWRITTEN = 10


#: Operations whose entries have the contents of a file.
CONTENT = frozenset(
    (Operation.WRITE, Operation.WHOLE, Operation.TRUNCATE, Operation.REWRITE, Operation.REWRITTEN)
)

#: Operations that end a file. Their entries are numbered.
CONTROLS = frozenset((Operation.REMOVE, Operation.MOVE))

#: Operations by which a broker says what it is, and what the log holds.
BEAT_OPERATIONS = frozenset((Operation.BEAT, Operation.CLAIM, Operation.RELEASE))


class FileChange(NamedTuple):
    """What one entry says. ``path`` and ``target`` are relative to the data directory, with ``/``.

    They begin with ``journal/``, ``paging/`` or ``retention/``, or name a file of the data directory itself
    (``identity``); empty if the operation has none. ``serial`` counts the entries of a log that change or end a
    file, from 1; 0 for others.
    """

    operation: Operation
    path: str = ""
    at: int = 0
    data: bytes | memoryview = b""
    target: str = ""
    serial: int = 0

    @property
    def key(self) -> str:
        """What the entry is stored under, and purged by: the path of the file whose contents it has, `CONTROL` or
        `BEATS`.
        """
        if self.operation in CONTENT:
            return self.path
        return CONTROL if self.operation in CONTROLS else BEATS

    @property
    def dropped(self) -> int | None:
        """The digest of the entries that this one replaces; None if it does not name one."""
        if self.operation in CONTROLS or self.operation is Operation.REWRITTEN:
            numbers = bytes(self.data).split()
            place = 1 if self.operation is Operation.MOVE else 0
            if len(numbers) > place and numbers[place].isdigit():
                return int(numbers[place])
        return None


class LogEntry(NamedTuple):
    """An entry as it is read. ``time`` is the engine's (epoch ms), ``number`` counts the entries of one ``writer``."""

    sequence: int
    time: int
    writer: int
    number: int
    change: FileChange


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The state of a log.

    ``identity`` changes when the log is made anew. ``last`` is the sequence of the last entry, purged or not, 0 without
    one. ``bytes`` are stored, of at most ``max_bytes`` (-1: unlimited). ``replicas`` are the copies, ``leader`` the
    engine's node that orders the entries, ``healthy`` whether enough nodes answer.
    """

    engine: str
    identity: str
    last: int
    entries: int
    bytes: int
    max_bytes: int
    replicas: int
    leader: str
    healthy: bool


class LogUnavailable(OSError):
    """The engine does not answer, or has no majority: an append may be stored or not. To be tried again."""


class LogFull(OSError):
    """The log has reached its limit of bytes. To be tried again, see `ReplicatedLog.append`."""


class NoRoom(LogFull):
    """Refused before anything of it was given to the log, which keeps nothing: the caller gives it again."""


class Fenced(Exception):
    """Another broker has written to the log: this one is not active any more. Never to be tried again."""


class UnsafeLog(Exception):
    """The log is missing, was made anew, or is configured so that it may lose entries. The text says what to do."""


class LogMissing(UnsafeLog):
    """There is no log of that name, or none any more: `ReplicatedLog.connect` found none."""


class ReplicatedLog(Protocol):
    """One log of one engine. Every method blocks its thread, seconds at most; one thread at a time calls it.

    All raise `LogUnavailable` while the engine does not answer, and `UnsafeLog` where the log is gone.
    """

    def connect(self) -> LogStatus:
        """Connect, and check that the log is safe. Raises `UnsafeLog`."""

    def status(self) -> LogStatus:
        """How the log is now, as the engine's leader knows it."""

    def read(self, after: int, wait: float) -> list[LogEntry]:
        """The next entries behind a sequence, in order, purged ones left out; it waits up to ``wait`` seconds for one.

        An empty list: there is none, and the engine has said so. Calls that go on where the last one ended are fast.
        """

    def read_from_leader(self) -> None:
        """Have `read` give the entries that there are now as the engine's leader has them, slower.

        Other nodes may lack entries without knowing it.
        """

    def first(self, key: str) -> LogEntry | None:
        """The first entry under a key that is not purged."""

    def last(self, key: str) -> LogEntry | None:
        """The last entry under a key."""

    def counts(self) -> dict[str, int] | None:
        """How many entries are stored under each key, as the engine's leader has them; None: too many to be counted."""

    def claim(self, writer: int, after: int, change: FileChange) -> int | None:
        """Append ``change`` (CLAIM) as the first entry of a new writer if the log ends at ``after``.

        Returns its sequence, from which on `append` writes; None where another entry came first.
        """

    def append(self, changes: Sequence[FileChange]) -> int:
        """Append, all in order; returns the sequence of the last one when all are stored by a majority.

        Raises `Fenced`. After `LogUnavailable` or `LogFull` some of them may be stored; the log keeps the others, and
        the next call stores those first, so that none is lost or out of order: the caller does not give them again.
        A call without changes does only that; its result is then the sequence of the last entry of this writer.
        """

    def purge(self, key: str, through: int) -> None:
        """Delete the entries under a key up to a sequence, that included. Sequences are never used again."""

    def request(self, command: str, broker: str) -> bool:
        """Ask a broker for something (``release``, ``leave``); an empty name: the active one. False: nobody got it."""

    def requests(self, broker: str, *, active: bool) -> list[str]:
        """What was asked of this broker since the last call. It does not wait."""

    def close(self) -> None:
        """Disconnect. Nothing is released by that."""


# The data of an entry, the same in every engine.

#: 2: with the serial. Nothing that was released has written format 1.
_FORMAT = 2
_HEAD = struct.Struct(
    ">BBQQQQHH"
)  # format, operation, writer, number, serial, at, bytes of path, bytes of target


def encode_entry(writer: int, number: int, change: FileChange) -> bytes:
    """An entry's payload."""
    path, target = change.path.encode(), change.target.encode()
    head = _HEAD.pack(
        _FORMAT, change.operation, writer, number, change.serial, change.at, len(path), len(target)
    )
    return b"".join((head, path, target, change.data))


def decode_entry(payload: bytes, sequence: int, time: int) -> LogEntry:
    """The entry of a payload. Raises `UnsafeLog` for one that this version does not know, or that is damaged."""
    try:
        if payload and payload[0] != _FORMAT:
            advice = (
                "upgrade stompring" if payload[0] > _FORMAT else "make a new log with 'stompring ha init'"
            )
            raise UnsafeLog(
                f"entry {sequence} has format {payload[0]}, this broker reads {_FORMAT}: {advice}"
            )
        _, operation, writer, number, serial, at, path_size, target_size = _HEAD.unpack_from(payload)
        start = _HEAD.size
        path = payload[start : start + path_size].decode()
        target = payload[start + path_size : start + path_size + target_size].decode()
        data = payload[start + path_size + target_size :]
        return LogEntry(
            sequence, time, writer, number, FileChange(Operation(operation), path, at, data, target, serial)
        )
    except (struct.error, ValueError) as fault:
        raise UnsafeLog(f"entry {sequence} of the replicated log is not stompring's: {fault}") from None


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
        self.busy = False  # an append is under way
        self._closed = "this broker is not active"
        self.stored_at = -inf
        self.sequence = 0
        self.unsettled = (
            False  # the engine did not confirm the last append; the next one stores the rest of it first
        )
        self.last_status: LogStatus | None = None
        self.status_at = -inf
        self._added = 0  # bytes since `last_status`
        self.bytes = 0  # data of all entries, as in `Beat.bytes`
        self.contents: Summary | None = None
        self.appends = 0
        self.append_seconds = 0.0
        self.append_bytes = 0
        self.fenced = 0

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
                if self._closed:
                    raise Fenced(self._closed)
                self._check_room(changes)
                return self._append(changes)
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
            return self._append([self._beat(Operation.RELEASE, beat)])

    def _beat(self, operation: Operation, beat: Beat) -> FileChange:
        return FileChange(
            operation, data=encode_beat(replace(beat, bytes=self.bytes, contents=self.contents))
        )

    def _append(self, changes: Sequence[FileChange]) -> int:
        began = self._clock()
        size = sum(len(change.data) for change in changes)
        self.busy = True
        try:
            sequence = self._log.append(changes)
        except (LogUnavailable, LogFull):
            self._count(changes, size)  # the next append stores what is not stored yet
            self.unsettled = True
            raise
        finally:
            self.busy = False
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
        status = self.last_status
        if status is None or status.max_bytes <= 0:
            return
        size = sum(
            len(change.data) + ENTRY_OVERHEAD
            for change in changes
            if change.operation in (Operation.WRITE, Operation.WHOLE)
        )
        if not size:
            return
        limit = status.max_bytes - min(RESERVE, status.max_bytes // 64)
        if status.bytes + self._added + size <= limit:
            return
        if self._clock() - self.status_at >= FULL_INTERVAL:
            status = self.status()  # much may have been purged
            if status.bytes + size <= limit:
                return
        raise NoRoom(f"the replicated log is full: {status.bytes} of {status.max_bytes} bytes")

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
