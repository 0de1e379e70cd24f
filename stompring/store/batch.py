"""One trip to the disk: chores, pages, journal, in this order. All of it runs in the disk thread."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .files import Files
    from .stream import Stream

log = logging.getLogger(__name__)

#: Something to be done with files.
Chore = Callable[["Files"], None]

#: Files kept open for writing: more addresses than that seldom page at once.
OPEN_FILES = 64


class Write(NamedTuple):
    """What goes to the end of one file."""

    stream: Stream
    at: int
    parts: list[bytes]
    size: int
    sync: bool
    last: bool  # nothing more will come: the file ends with it


class Outcome:
    """What came of a trip: what was in the way of the writes, and of the chores."""

    __slots__ = ("chore_fault", "fault", "seconds", "undone")

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.chore_fault: Exception | None = None
        self.undone: list[Chore] = []
        self.seconds = 0.0


class Batch:
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

    def carry_out(self, chores: list[Chore], files: Files, opened: dict[Stream, int]) -> Outcome:
        """Do it. Chores that failed are left over; that alone keeps nothing from being written."""
        outcome = Outcome()
        began = perf_counter()
        for place, chore in enumerate(chores):
            try:
                chore(files)
            except Exception as fault:
                outcome.chore_fault, outcome.undone = fault, chores[place:]
                break
        try:
            _Trip(files, opened).write(self.writes)
        except Exception as fault:
            outcome.fault = fault
        outcome.seconds = perf_counter() - began
        return outcome


class _Trip:
    """Writes, and syncs what wants it. ``opened`` are the descriptors kept, least recently used first."""

    __slots__ = ("_files", "_opened")

    def __init__(self, files: Files, opened: dict[Stream, int]) -> None:
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

    def _end(self, stream: Stream, size: int) -> None:
        if stream.seal is not None:
            ending = stream.seal(self._files.read(stream.path, 0, size))
            self._append(Write(stream, size, [ending], len(ending), True, True))
            self._files.sync(self._descriptor(stream))
        descriptor = self._opened.pop(stream, None)
        if descriptor is not None:
            self._files.close(descriptor)

    def _descriptor(self, stream: Stream) -> int:
        descriptor = self._opened.pop(stream, None)
        if descriptor is None:
            while len(self._opened) >= OPEN_FILES:
                self._files.close(self._opened.pop(next(iter(self._opened))))
            descriptor = self._files.open(stream.path)
        self._opened[stream] = descriptor
        return descriptor


def _named(fault: OSError, stream: Stream) -> OSError:
    fault.filename = str(stream.path)
    return fault
