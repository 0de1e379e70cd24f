"""A file that only grows, and what was told to it but is not in it yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .writer import Writer

#: Makes the end of a file from all that is in it.
Seal = Callable[[bytes], bytes]


class Stream:
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
