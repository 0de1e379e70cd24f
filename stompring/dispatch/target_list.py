"""A target list: what the consumers with one selector will be offered next.

Its direct references are in a `Pending` list of the queue; its cache references, and what it does not know yet, are
in one `Track` for each address that pages. Where both meet is the *watermark*: a message in memory may go out only
while nothing on disk comes before it.
"""

from __future__ import annotations

from stompring.broker.consumer import Matches
from stompring.broker.message import Message
from stompring.broker.paging import Cursor, Page, Position
from stompring.broker.pending import Pending
from stompring.broker.reference import Reference

from .header_test import HeaderTest
from .references import key_of
from .track import LEVELS, Track

NOTHING = -1  # in `TargetList.top`: nothing on disk comes before anything


def was_straight(ref: Reference) -> bool:
    """Whether a message was handed over while its address paged, without being written, and came back."""
    return ref.place is None and ref.message.account is not ref.message.address


class TargetList:
    """One selector's list, or that of all consumers without one (``matches`` is None)."""

    __slots__ = (
        "fetching",
        "firsts",
        "matches",
        "numbered",
        "pending",
        "test",
        "top",
        "tracks",
        "version",
    )

    def __init__(self, matches: Matches | None) -> None:
        self.matches = matches
        self.test = None if matches is None else HeaderTest(matches)
        self.tracks: dict[Cursor, Track] = {}
        self.pending: Pending | None = None  # direct references, while there are consumers
        self.fetching = False
        self.version = -1  # of the area, when the watermark was found
        self.top = NOTHING  # the highest priority that may be on disk
        self.firsts: dict[Cursor, int] = {}  # where its first may be, by cursor
        self.numbered: dict[
            Cursor, tuple[int, int]
        ] = {}  # such a position and its message's number, where known

    def track(self, cursor: Cursor) -> Track:
        """How far it has got in the pages of one address."""
        track = self.tracks.get(cursor)
        if track is None:
            track = self.tracks[cursor] = Track(cursor, self.test)
        return track

    def find_watermark(self, cursors: list[Cursor], version: int) -> None:
        """Look for the first message on disk that may be wanted, where something has changed since the last time."""
        if version == self.version:
            return
        self.version = version
        self.top, self.firsts = NOTHING, {}
        for cursor in cursors:
            track = self.track(cursor)
            for level in LEVELS:
                if level < self.top:
                    break
                found = track.next(level)
                if found is not None:
                    if level > self.top:
                        self.top, self.firsts = level, {}
                    self.firsts[cursor] = key_of(*found[0])
                    break

    def below_watermark(self, ref: Reference, cursor: Cursor | None) -> bool:
        """Whether a message in memory comes before all that is on disk. ``cursor`` is that of its own address."""
        message = ref.message
        level = message.traits.priority
        if level != self.top:
            return level > self.top
        first = None if cursor is None or ref.sequence <= 0 else self.firsts.get(cursor)
        if first is None:
            return True
        if ref.place is not None:
            return key_of(*ref.place) < first
        if not was_straight(ref):
            return True
        assert cursor is not None
        key, number = self.numbered.get(cursor, (-1, 0))
        return key == first and message.number < number

    def learn(self, cursor: Cursor, key: int, number: int) -> bool:
        """The message number of a position; whether that is new, and what is in memory must be compared with it."""
        head = None if self.pending is None else self.pending.head()
        if head is None or not was_straight(head) or self.numbered.get(cursor, (-1, 0))[0] == key:
            return False
        self.numbered[cursor] = key, number
        return True

    def next(self, cursors: list[Cursor], numbered: dict[Cursor, int]) -> tuple[Track, Position, bool] | None:
        """The first message on disk that may be wanted: where it is, and whether it is known to match.

        With several addresses at one priority the smallest message number decides; ``numbered`` has those known.
        """
        if not self.firsts:
            return None
        cursor = min(self.firsts, key=lambda one: numbered.get(one, -1))
        track = self.track(cursor)
        found = track.next(self.top)
        return None if found is None else (track, *found)

    def came_back(self, cursor: Cursor, page: Page, index: int, message: Message) -> None:
        """A message is on disk only again, perhaps where this list had been already."""
        track, level, key = self.track(cursor), message.traits.priority, key_of(page, index)
        if track.before_scan(level, key) and (self.matches is None or self.matches(message)):
            track.refer(level, key)

    @property
    def references(self) -> int:
        """Cache references."""
        return sum(map(len, self.tracks.values()))
