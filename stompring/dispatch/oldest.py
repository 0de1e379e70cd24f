"""When the first message that a queue has on disk was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompring.broker.paging import Block, Position

from .references import key_of

if TYPE_CHECKING:
    from .target_area import TargetArea


class Oldest:
    """Looks into the head block of a queue; where that must be read the answer comes with a later ask."""

    def __init__(self, area: TargetArea) -> None:
        self._area = area
        self._known: tuple[int, int] | None = None  # key and timestamp of what was on disk first
        self._peeking = False

    def timestamp(self) -> int | None:
        """Epoch ms; None where nothing waits on disk, or it is not known yet."""
        position = self._area.leads(None)
        if position is None:
            return None
        key = key_of(*position)
        if self._known is None or self._known[0] != key:
            self._peek(key, position)
        return None if self._known is None or self._known[0] != key else self._known[1]

    def _peek(self, key: int, position: Position) -> None:
        area, (page, index) = self._area, position

        def came(block: Block | None) -> None:
            self._peeking = False
            if block is not None:
                self._known = (key, block.message(index).timestamp)

        block = area.block(page, index)
        if block is not None:
            came(block)
        elif not self._peeking:
            self._peeking = True
            cursor = next(one for one in area.cursors if one.pages.page(page.number) is page)
            area.fetch(cursor, page, index, came)
