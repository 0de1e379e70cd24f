"""A ring that counts paged messages gives up one that is on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompring.broker.message import Message, Traits
from stompring.broker.paging import Block, Position
from stompring.broker.storage import Reason

if TYPE_CHECKING:
    from .target_area import TargetArea


def evict(area: TargetArea, position: Position) -> None:
    """Give up the message at a position: unread, unless some policy wants to know what it was."""
    page, index = position
    queue = area.queue
    cursor = next(one for one in area.cursors if one.pages.page(page.number) is page)
    if queue.evicted is None:
        queue.messages_replaced += 1
        area.version += 1
        cursor.settle_waiting(page, index, Reason.REPLACED)
        return
    counts = cursor.take(page, index)  # it counts no more, whatever the disk still needs to tell of it
    area.version += 1

    def came(block: Block | None) -> None:
        if area.closed:
            return
        unreadable = Message(0, cursor.pages.address, Traits(b""), b"", 0)
        message = unreadable if block is None else block.message(index)
        ref = queue.load(message, position, counts)
        area.messages += 1
        area.size += message.size
        if block is None:
            queue.drop(ref, Reason.KILLED)
        else:
            queue.replace(ref)

    block = area.block(page, index)
    if block is None:
        area.fetch(cursor, page, index, came)
    else:
        came(block)
