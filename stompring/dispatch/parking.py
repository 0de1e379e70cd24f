"""Messages of groups whose owner cannot take them: sent back to disk, so that they do not fill the memory of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompring.broker.paging import Cursor, Page, Position
from stompring.broker.reference import Reference

from .references import key_of
from .track import LEVELS, Track

if TYPE_CHECKING:
    from stompring.broker.consumer import Consumer

#: Messages of groups that are kept in memory for one owner; more are parked.
HELD = 100


class Parking:
    """Positions that belong to one consumer, the owner of their groups, by cursor. They are waiting on disk."""

    def __init__(self) -> None:
        self._of: dict[Consumer, dict[Cursor, Track]] = {}

    def __contains__(self, consumer: Consumer) -> bool:
        return consumer in self._of

    def wants(self, owner: Consumer) -> bool:
        """Whether a message is to be parked: there are others already, or too many in memory."""
        return owner in self._of or (owner.held is not None and owner.held.size >= HELD)

    def add(self, owner: Consumer, cursor: Cursor, ref: Reference) -> None:
        """Park a message."""
        assert ref.place is not None
        tracks = self._of.setdefault(owner, {})
        track = tracks.get(cursor)
        if track is None:
            track = tracks[cursor] = Track(cursor, None)
        track.refer(ref.message.traits.priority, key_of(*ref.place))

    def next(self, owner: Consumer) -> tuple[Cursor, int, Position] | None:
        """The first message that is parked for a consumer: its cursor, priority and position."""
        for level in LEVELS:
            for cursor, track in self._of.get(owner, {}).items():
                position = track.next_reference(level)
                if position is not None:
                    return cursor, level, position
        self._of.pop(owner, None)
        return None

    def before(self, owner: Consumer, ref: Reference, cursor: Cursor | None) -> bool:
        """Whether something that is parked for a consumer comes before a message in memory."""
        first = self.next(owner)
        if first is None:
            return False
        parked_in, level, position = first
        priority = ref.message.traits.priority
        if level != priority or ref.place is None or cursor is not parked_in:
            return level > priority
        return key_of(*position) < key_of(*ref.place)

    def free(self, owner: Consumer) -> list[tuple[Cursor, int, Page, int]]:
        """Nothing is parked for a consumer any more: cursor, priority and position of what was."""
        freed = []
        for cursor, track in self._of.pop(owner, {}).items():
            for level in LEVELS:
                for key in track.references[level] or ():
                    page = cursor.pages.page(key >> 32)
                    if page is not None and cursor.is_waiting(page, key & 0xFFFFFFFF):
                        freed.append((cursor, level, page, key & 0xFFFFFFFF))
        return freed

    def forget(self, cursor: Cursor) -> None:
        """An address pages no more."""
        for owner, tracks in list(self._of.items()):
            tracks.pop(cursor, None)
            if not tracks:
                del self._of[owner]
