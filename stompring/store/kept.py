"""What the journal keeps: messages by their references, and everything else that must outlive its segment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stompring.broker.reference import Reference

if TYPE_CHECKING:
    from .retention import Retention
    from .stream import Stream
    from .tail import Change, Tail
    from .writer import Writer


#: What a damaged segment is renamed to, so that somebody can look what is in it.
DAMAGED = ".damaged"


class Kept:
    """Something besides messages: a binding, or what a queue has settled in a page.

    ``segment`` is the oldest one that holds something of it which no later record repeats. ``whole`` says that
    `tell` tells all there is, so that nothing older counts once it was called; ``gone`` that it tells its own end.
    """

    __slots__ = ("gone", "segment")

    whole = True

    def __init__(self) -> None:
        self.segment: Segment | None = None
        self.gone = False

    def tell(self, tail: Tail) -> None:
        """Add what is new since the last time; called once at the end of the turn for each `Journal.tell`."""
        raise AssertionError("what is kept can be told")

    def repeat(self, tail: Tail) -> None:
        """Add all of it, because the segment goes that has it."""
        self.tell(tail)


class Copies:
    """The references of a message that several queues hold. ``left`` counts those that are not settled.

    Until the message is written it stands also for one that a single queue holds, where something happened to that.
    """

    __slots__ = ("changes", "left", "refs", "told")

    def __init__(self, refs: list[Reference], told: dict[Reference, int] | None = None) -> None:
        self.refs = refs
        self.left = len(refs)
        self.changes: list[Change] = []  # before it was written
        #: Where a segment has the message without the latest of these: deliveries of the others that were told.
        self.told = told


#: What stands for a live message in its segment.
Held = Reference | Copies


class Segment:
    """One file of the journal, and what in it still counts.

    A message's ``segment`` is the one with its latest record. Before the message is written it is the `Reference`
    or `Copies` that will be.
    """

    __slots__ = ("damaged", "live", "number", "path", "size", "stream")

    def __init__(self, number: int, path: Path, stream: Stream | None = None, size: int = 0) -> None:
        self.number = number
        self.path = path
        self.stream = stream  # None for one of an earlier run
        self.size = size
        self.live: dict[int | Kept, Held | Kept] = {}  # messages by number
        self.damaged = False  # it is set aside, and not deleted, when its time comes

    def remove(self, writer: Writer, retention: Retention | None = None) -> None:
        """The file goes, or is set aside where it is damaged: everything that counts in it is safe elsewhere."""
        path = self.path
        if self.damaged:
            writer.chore(lambda files: files.rename(path, path.with_name(path.name + DAMAGED)))
        elif retention is not None:
            retention.keep_segment(path, self.size)
        elif self.stream is not None:
            self.stream.delete()
        else:
            writer.chore(lambda files: files.remove(path))


#: Bytes of a record beyond the tail of its message, more or less, for the share of what is live.
RECORD_OVERHEAD = 120


def held_bytes(size: int) -> int:
    """What a live message with a tail of ``size`` bytes takes in the journal."""
    return size + RECORD_OVERHEAD
