"""The replicated log: its entries, their format, and the interface `ReplicatedLog` of its engines.

The entries of a log change the files of a data directory, in one order, written by one broker at a time. The engine
(NATS JetStream, PostgreSQL) stores each entry on several machines before it confirms it, and accepts an entry only at
the sequence that its writer expects: that alone decides which broker is active. All entries, applied in order, produce
the data directory of the broker, byte for byte.

**Detection of lost entries.** Each entry that changes or ends a file has a *serial*: 1 for the first one of a log, then
one more for each, across all writers. A file consists of its changes since its creation, or since its last rewrite. Its
*digest* is the sum of `weight` over the serials of these changes. A beat carries the sum of the digests of all files
(`Summary`), the end of a file carries the digest of that file. A change adds its weight to the sum, an end subtracts
the digest of its file.

At a beat, a reader compares the digest of its own files with the digest in the beat. Without a loss, both are sums over
the same serials, and equal. After a loss, they differ by the weights of the serials that are in only one of the two
sums. Weights are 64-bit hashes, so that this difference is 0 with a probability of 2^-64, whichever entries are lost.

After the newest beat, a reader computes the digest that it expects: it adds the weights of the serials that it has not
read, and subtracts the digests in the ends of files. A lost end adds its own weight, which no file has. A reader
detects the loss of the last entries because the engine knows the sequence of the last one, and the loss of all beats
because a log with changes has a beat. Losses are faults, not attacks: an attacker who can delete entries can also write
them.

The lowest 32 bits of a digest count its entries. The difference of two counts is a lower limit of the number of missing
entries: losses may cancel each other.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from math import inf
from threading import RLock
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from stompring import __version__
from stompring.settings.model import frozen

#: A digest is a 64-bit hash in the high bits and a 32-bit count in the low bits.
_COUNT_BITS = 32
_COUNT, _DIGEST = (1 << _COUNT_BITS) - 1, (1 << (64 + _COUNT_BITS)) - 1


@lru_cache(1024)  # each weight is computed three times: when its change is buffered, appended and applied
def weight(serial: int) -> int:
    """Return the digest of a single change: a hash of its serial, and a count of 1."""
    hashed = blake2b(serial.to_bytes(8, "big"), digest_size=8).digest()
    return int.from_bytes(hashed, "big") << _COUNT_BITS | 1


def count(digest: int) -> int:
    """Return the number of entries in a digest."""
    return digest & _COUNT


def difference(digest: int, other: int) -> int:
    """Return the minimum number of entries in which two digests differ. 0 if and only if they are equal."""
    if digest == other:
        return 0
    entries = (digest - other) & _COUNT
    return min(entries, _COUNT + 1 - entries) or 1


def weights(serials: Iterable[int]) -> int:
    """Return the digest of the changes with these serials."""
    return sum(map(weight, serials)) & _DIGEST


@frozen
class Summary:
    """The contents of a log at a sequence.

    ``serial``: serial of the last entry that has one. ``control``: number of the last control entry. ``digest``: sum of
    the digests of all files.
    """

    serial: int = 0
    control: int = 0
    digest: int = 0

    def after(self, changes: Iterable[FileChange], skipped: Iterable[int] = ()) -> Summary:
        """Return the summary after ``changes``. ``skipped``: serials of earlier changes that were not read."""
        serial, control, digest = self.serial, self.control, self.digest + weights(skipped)
        for change in changes:
            serial = max(serial, change.serial)
            if change.operation in CONTROLS:
                control = max(control, change.at)
            if change.operation in CONTENT:
                digest += weight(change.serial)
            digest -= change.dropped or 0
        return Summary(serial, control, digest & _DIGEST)


@dataclass(slots=True)
class Contents:
    """The digests of the files that exist after the entries read so far.

    ``digests``: digest by path, over the changes since the file's creation or its last `Operation.REWRITTEN`.
    ``total``: sum of all digests. ``rewrites``: digest of each file whose rewrite has not ended, over the changes since
    `Operation.REWRITE`. ``serial``, ``control``: as in `Summary`.
    """

    digests: dict[str, int] = field(default_factory=dict)
    rewrites: dict[str, int] = field(default_factory=dict)
    serial: int = 0
    control: int = 0
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(self.digests.values()) & _DIGEST

    def copy(self) -> Contents:
        """Return an independent copy."""
        return Contents(dict(self.digests), dict(self.rewrites), self.serial, self.control)

    @property
    def summary(self) -> Summary:
        """The summary that a beat carries."""
        return Summary(self.serial, self.control, self.total)

    def add(self, change: FileChange) -> None:
        """Add the next entry of the log."""
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
                # if REWRITE was not read, the digest of the file is unknown (0), and the file counts as missing
                digest = self.rewrites.pop(path, 0)
            self.total = (self.total + digest - before) & _DIGEST
            self.digests[path] = digest
        self.serial = max(self.serial, change.serial)

    def before_rewrite(self, path: str) -> int:
        """Return the digest of a file without the changes of a rewrite that has not ended."""
        return (self.digests.get(path, 0) - self.rewrites.get(path, 0)) & _DIGEST


@frozen
class Beat:
    """A broker, as the data of its entry BEAT, CLAIM or RELEASE describes it.

    ``broker``: its name in the log. ``started``: start of its process (epoch ms). ``bytes``: data bytes of all entries
    before this one, of all writers, purged ones included. ``contents``: summary of the log at this entry, None if
    unknown. In a RELEASE, ``reason`` is why the broker released the log, ``successor`` the standby that shall take over
    (empty: any), and ``failures`` the number of brokers in a row, this one included, that became active and failed to
    start.
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
    """Return the beat of this process. ``broker``: its name in the log."""
    return Beat(broker, socket.gethostname(), os.getpid(), int(time.time() * 1000), __version__)


def encode_beat(beat: Beat) -> bytes:
    """Encode a beat as the data of an entry: a JSON object without empty fields."""
    return json.dumps(
        {name: value for name, value in asdict(beat).items() if value not in ("", None)}
    ).encode()


def decode_beat(data: bytes | memoryview) -> Beat:
    """Decode the data of an entry. Fields of later versions are ignored. Damaged data gives a beat without values."""
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
    """Return the items of ``given`` whose values have the type of the field with the same name in ``empty``."""
    kinds = {each.name: type(getattr(empty, each.name)) for each in fields(empty)}
    return {
        name: value for name, value in given.items() if value is not None and type(value) is kinds.get(name)
    }


#: Maximum bytes of data in one entry. Engines limit the size of a message (NATS: ``max_payload``, 1 MiB by default),
#: and an engine may store entries one by one, which makes large entries faster.
MAX_ENTRY_DATA = 512 * 1024

#: Keys of the entries that do not belong to a file. A path never begins with a dot.
CONTROL, BEATS = ".control", ".beats"


class Operation(IntEnum):
    """The operation of an entry. The numbers are part of the format."""

    #: Write ``data`` at byte ``at`` of a file. Creates a missing file.
    WRITE = 1
    #: Replace the contents of a file by ``data``. Creates a missing file.
    WHOLE = 2
    #: Truncate a file to ``at`` bytes.
    TRUNCATE = 3
    #: Delete a file. ``at``: number of the control entry. ``data``: digest of the file (decimal, see `Contents`).
    REMOVE = 4
    #: Move a file to ``target`` in the retention directory, which each broker has for itself. ``at`` as in REMOVE.
    #: ``data``: size of the file in bytes, a blank, and its digest. A broker deletes an incomplete file instead.
    MOVE = 5
    #: The writer is active. ``data``: a JSON object that describes it (`Beat`).
    BEAT = 6
    #: A broker becomes active: the first entry of its writer. ``data`` as in BEAT.
    CLAIM = 7
    #: The writer gives up its active role. ``data`` as in BEAT.
    RELEASE = 8
    #: Begin of a rewrite: the following entries write a whole file again, in place, because the log has lost some of
    #: its entries.
    REWRITE = 9
    #: End of a rewrite: truncate the file to ``at`` bytes. ``data``: digest of the file before REWRITE (decimal).
    REWRITTEN = 10


#: Operations that change a file.
CONTENT = frozenset(
    (Operation.WRITE, Operation.WHOLE, Operation.TRUNCATE, Operation.REWRITE, Operation.REWRITTEN)
)

#: Operations that end a file. Their entries, the control entries, are numbered from 1 across all writers (``at``).
CONTROLS = frozenset((Operation.REMOVE, Operation.MOVE))

#: Operations whose data is a `Beat`.
BEAT_OPERATIONS = frozenset((Operation.BEAT, Operation.CLAIM, Operation.RELEASE))


class FileChange(NamedTuple):
    """The operation of one entry, with its operands.

    ``path`` and ``target`` are relative to the data directory, with ``/``. They begin with ``journal/``, ``paging/`` or
    ``retention/``, or name a file of the data directory itself (``identity``); empty if the operation has none.
    `Operation` explains ``at`` and ``data``. ``serial`` numbers the entries of a log that change or end a file, from 1;
    0 for other entries.
    """

    operation: Operation
    path: str = ""
    at: int = 0
    data: bytes | memoryview = b""
    target: str = ""
    serial: int = 0

    @property
    def key(self) -> str:
        """The key under which the engine stores and purges the entry: the path of the file that it changes, `CONTROL`
        for the end of a file, or `BEATS`.
        """
        if self.operation in CONTENT:
            return self.path
        return CONTROL if self.operation in CONTROLS else BEATS

    @property
    def dropped(self) -> int | None:
        """The digest that this entry subtracts: the digest of the file that it ends, or of a rewritten file before
        REWRITE. None if the data of the entry has no digest.
        """
        if self.operation in CONTROLS or self.operation is Operation.REWRITTEN:
            numbers = bytes(self.data).split()
            place = 1 if self.operation is Operation.MOVE else 0
            if len(numbers) > place and numbers[place].isdigit():
                return int(numbers[place])
        return None


class LogEntry(NamedTuple):
    """An entry that an engine returns.

    ``sequence``: its number in the log, from 1. ``time``: engine's clock when it was stored (epoch ms). ``writer``:
    random number of its writer. ``number``: its number within its writer, 0 for the claim.
    """

    sequence: int
    time: int
    writer: int
    number: int
    change: FileChange


@frozen
class LogStatus:
    """The state of a log.

    ``identity`` changes if the log is deleted and created again. ``last``: sequence of the last entry, purged or not, 0
    without entries. ``bytes``: bytes stored, of at most ``max_bytes`` (-1: unlimited). ``replicas``: number of copies.
    ``leader``: the engine's node that orders the entries. ``healthy``: whether enough nodes answer to confirm an
    append.
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
    """The engine does not answer, or has no majority. An append may be stored or not. The caller tries again."""


class LogFull(OSError):
    """The log has reached its limit of bytes. The caller tries again, see `ReplicatedLog.append`."""


class NoRoom(LogFull):
    """`SharedLog` refused an append before it passed any change to its log. The caller passes all changes again."""


class Fenced(Exception):
    """Another broker has written to the log: this broker has lost its active role. The caller never tries again."""


class UnsafeLog(Exception):
    """The log is missing, was deleted and created again, has lost entries, or may lose some with its configuration.

    The text says what to do.
    """


class LogMissing(UnsafeLog):
    """The engine has no log of that name: it was deleted, or not created yet."""


class ReplicatedLog(Protocol):
    """A log of one engine. A new engine implements these methods, and `engines.open_log` opens it.

    Entries get the sequences 1, 2, 3 … in the order in which they are stored; a sequence is never used again. The
    engine stores each entry under `FileChange.key`, with the payload of `encode_entry`. `append` and `claim` return
    when enough of the engine's nodes have synced the entry to disk that no failover of the engine loses it: then it
    counts as stored.

    Each method blocks its thread, for seconds at most. One thread at a time calls them (`SharedLog`). Each may raise
    `LogUnavailable` while the engine does not answer, and `UnsafeLog` if the log is deleted or has lost entries.
    """

    def connect(self) -> LogStatus:
        """Connect, and check that the engine keeps all entries that it confirms. May be called again.

        Raises `UnsafeLog` if the log is missing or its configuration may lose entries.
        """

    def status(self) -> LogStatus:
        """Return the current state, from the leader of the engine."""

    def read(self, after: int, wait: float) -> list[LogEntry]:
        """Return the next entries after a sequence, in order, without purged ones.

        Waits up to ``wait`` seconds for the first entry. The engine limits the number of entries in a result. An empty
        list means that the engine has answered and has no later entry; without an answer `LogUnavailable` is raised. A
        call that continues after the last entry of the previous result is fast.
        """

    def read_from_leader(self) -> None:
        """Make `read` return all present entries from the leader of the engine, which is slower.

        Other nodes may lack entries without noticing it.
        """

    def first(self, key: str) -> LogEntry | None:
        """Return the first entry under a key that is not purged, None if there is none."""

    def last(self, key: str) -> LogEntry | None:
        """Return the last entry under a key that is not purged, None if there is none."""

    def counts(self) -> dict[str, int] | None:
        """Return the number of stored entries by key, from the leader of the engine; None if they are too many."""

    def claim(self, writer: int, after: int, change: FileChange) -> int | None:
        """Append ``change`` (CLAIM) as the first entry of a new writer, number 0, if the log ends at ``after``.

        ``writer``: a random number from 1 to 2^62. Returns the sequence of the claim, after which `append` continues;
        None if another writer's entry has this sequence. After `LogUnavailable` the claim may be stored: a second call
        with the same arguments then returns its sequence.
        """

    def append(self, changes: Sequence[FileChange]) -> int:
        """Append changes in order, each at the sequence after the previous entry of this writer. The entries get the
        numbers 1, 2, 3 … within the writer.

        Returns the sequence of the last one when all are stored. Raises `Fenced` if another broker has written. After
        `LogUnavailable` or `LogFull` some changes may be stored. The log keeps the others, and the next call stores
        them first, so that none is lost or out of order: the caller does not pass them again. A call without changes
        only stores the kept ones, and returns the sequence of the last entry of this writer.
        """

    def purge(self, key: str, through: int) -> None:
        """Delete the entries under a key up to and including a sequence."""

    def request(self, command: str, broker: str) -> bool:
        """Send a request (``release``, ``leave``, ``ping`` …) to a broker, not through the log.

        An empty name addresses the active broker. Returns whether a broker received the request.
        """

    def requests(self, broker: str, *, active: bool) -> list[str]:
        """Return new requests to this broker, without waiting; if ``active``, also requests to the active broker."""

    def close(self) -> None:
        """Disconnect, without releasing the active role."""


# The payload of an entry, the same in every engine.

#: Format 2 added the serial. No release wrote format 1.
_FORMAT = 2
_HEAD = struct.Struct(
    ">BBQQQQHH"
)  # format, operation, writer, number, serial, at, bytes of ``path``, bytes of ``target``


def encode_entry(writer: int, number: int, change: FileChange) -> bytes:
    """Encode an entry as the payload that an engine stores."""
    path, target = change.path.encode(), change.target.encode()
    head = _HEAD.pack(
        _FORMAT, change.operation, writer, number, change.serial, change.at, len(path), len(target)
    )
    return b"".join((head, path, target, change.data))


def decode_entry(payload: bytes, sequence: int, time: int) -> LogEntry:
    """Decode a payload. ``sequence`` and ``time`` (epoch ms) come from the engine.

    Raises `UnsafeLog` if the payload is damaged, or has a format or operation that this version does not know.
    """
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


#: Bytes of a log that only beats, claims and removals may use. Without removals a full log would stay full.
RESERVE = 1024 * 1024

#: Estimated bytes that an engine stores for an entry in addition to its data.
ENTRY_OVERHEAD = 160

#: Minimum seconds between two requests for the size of a full log.
FULL_INTERVAL = 0.5


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _in_turn(
    method: Callable[Concatenate[ReplicatedLog, _P], _T],
) -> Callable[Concatenate[SharedLog, _P], _T]:
    """Return a method of `SharedLog` that holds the lock and calls the engine's method with the same name."""

    def call(shared: SharedLog, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        with shared._lock:
            result: _T = getattr(shared._log, method.__name__)(*arguments, **named)
        return result

    return call


class SharedLog:
    """A `ReplicatedLog` for several threads: the disk thread appends, the node's thread appends beats and reads.

    An append raises `Fenced` except between `claim` and `close_writing`. ``on_lost``: called with the reason when an
    append shows that another broker is active, or that the log is unsafe. ``stored_at``: time by ``clock`` at which the
    last stored append began; ``sequence``: sequence of the last entry in that append. ``contents``: `Beat.contents`
    after all changes that were passed to the log.
    """

    def __init__(
        self, log: ReplicatedLog, clock: Callable[[], float], on_lost: Callable[[str], None]
    ) -> None:
        self._log = log
        self._clock = clock
        self._on_lost = on_lost
        self._lock = RLock()
        self.busy = False  # whether an append is in progress
        self._closed = "this broker is not active"
        self.stored_at = -inf
        self.sequence = 0
        # whether the last append was not confirmed: the next append first stores the rest of the changes in it
        self.unsettled = False
        self.last_status: LogStatus | None = None
        self.status_at = -inf
        self._added = 0  # estimated bytes appended since `last_status`
        self.bytes = 0  # see `Beat.bytes`
        self.contents: Summary | None = None
        self.appends = 0
        self.append_seconds = 0.0
        self.append_bytes = 0
        self.fenced = 0

    def usage(self) -> tuple[int, int]:
        """Return the bytes in the log and its limit (-1: none), estimated from the last status and the appends since
        then.
        """
        status = self.last_status
        return (0, -1) if status is None else (status.bytes + self._added, status.max_bytes)

    def close_writing(self, reason: str) -> None:
        """Refuse later appends. An append in progress in another thread continues."""
        self._closed = reason

    # ---- appends

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
        """Append a BEAT with the contents of the log. If the engine did not confirm the last append, the rest of its
        changes is stored first, so that beats do not pile up during an outage.
        """
        with self._lock:
            if self.unsettled:
                self.append([])
            return self.append([self._beat(Operation.BEAT, beat)])

    def append_release(self, beat: Beat) -> int:
        """Append RELEASE. Later appends are refused, even if the RELEASE is not stored."""
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
            self._count(changes, size)  # the next append stores the rest of these changes
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
        """Raise `NoRoom` if file contents in ``changes`` would use up the reserve of a full log."""
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
            status = self.status()  # the engine may have purged entries since the last status
            if status.bytes + size <= limit:
                return
        raise NoRoom(f"the replicated log is full: {status.bytes} of {status.max_bytes} bytes")

    # ---- other methods of the log, under the lock

    def connect(self) -> LogStatus:
        with self._lock:
            return self._keep(self._log.connect())

    def status(self) -> LogStatus:
        with self._lock:
            return self._keep(self._log.status())

    def _keep(self, status: LogStatus) -> LogStatus:
        self.last_status, self.status_at, self._added = status, self._clock(), 0
        return status

    read = _in_turn(ReplicatedLog.read)
    read_from_leader = _in_turn(ReplicatedLog.read_from_leader)
    first = _in_turn(ReplicatedLog.first)
    last = _in_turn(ReplicatedLog.last)
    counts = _in_turn(ReplicatedLog.counts)
    purge = _in_turn(ReplicatedLog.purge)
    request = _in_turn(ReplicatedLog.request)
    requests = _in_turn(ReplicatedLog.requests)
    close = _in_turn(ReplicatedLog.close)
