"""The replicated log as the broker uses it: entries that change files, in one order, written by one broker at a time.

The engine (NATS JetStream, PostgreSQL) stores each entry on several machines before it is confirmed, and accepts an
entry only at the sequence that its writer expects: that alone decides which broker is active. The entries, applied in
order, are the data directory of the broker, byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

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


@dataclass(frozen=True, slots=True)
class FileChange:
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


@dataclass(frozen=True, slots=True)
class LogEntry:
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
