"""Page mode: a full address writes new messages to pages, until all of its pages are consumed (Artemis, "Paging").

While an address pages, every new message is written once for all of its queues. A queue that keeps up is served from
memory all the same: a non-durable message goes directly to a ready consumer, and a written one is delivered at once
where no message on disk comes before it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stompring.settings.model import FullPolicy

from .clock import Due
from .delivery import PERHAPS
from .lifetime import is_expired

if TYPE_CHECKING:
    from .address import Address
    from .message import Message
    from .ports import Pages
    from .queue import Queue

log = logging.getLogger(__name__)


def pages_for(address: Address) -> Pages | None:
    """Where the next message of an address is to be written, None while it goes to memory."""
    pages = address.pages
    if pages is None:
        limit, memory = address.memory_limit, address.memory
        if (limit.full or memory.full) and address.policy is FullPolicy.PAGE and memory.should_page(limit):
            return enter(address)
    elif pages.empty and address.full is None:
        leave(address)
        return None
    return pages


def enter(address: Address) -> Pages | None:
    """Enter page mode, where there is a store. Logged and counted."""
    broker = address.directory.broker
    if address.pages is not None or broker.paging is None:
        return address.pages
    text = f"{address.describe_full()}: new messages go to pages"
    log.warning("%s", text, extra={"address": address.name})
    broker.notifications.notify("ADDRESS_PAGING", text, address=address.name)
    address.times_paged += 1
    pages = broker.paging.open(address)
    _begin(address, pages)
    return pages


def resume_paging(address: Address, pages: Pages) -> None:
    """Enter page mode again with pages that were recovered at the start, and the cursors of their queues."""
    broker, opened = address.directory.broker, address.pages
    areas = broker.areas
    assert areas is not None and broker.paging is not None
    if opened is not None and opened is not pages:  # what came back to memory has filled the address already
        areas.closed(opened)
        broker.paging.close(opened)
    _begin(address, pages)
    for queue, cursor in pages.cursors.items():
        queue.messages_added += cursor.remaining
    areas.adopt(pages)
    for queue in list(pages.cursors):
        if queue.attributes.ring_counts_paged:
            sum(queue.trim())  # what was in delivery came back beside what came meanwhile


def _begin(address: Address, pages: Pages) -> None:
    address.pages = pages
    address.update_slow_path()
    address.watch_memory()


def leave_if_empty(address: Address) -> None:
    """Leave page mode if the pages are empty and the address is not full. Called when a message has left."""
    pages = address.pages
    if pages is not None and pages.empty and address.full is None:
        leave(address)


def leave(address: Address) -> None:
    """Leave page mode: new messages go to memory again."""
    pages, broker = address.pages, address.directory.broker
    assert pages is not None and broker.paging is not None and broker.areas is not None
    address.pages = None
    address.update_slow_path()
    broker.areas.closed(pages)
    broker.paging.close(pages)
    log.info("address %s: stopped paging", address.name, extra={"address": address.name})
    broker.notifications.notify(
        "ADDRESS_NOT_PAGING", f"address {address.name}: stopped paging", address=address.name
    )
    broker.consider_deleting_address(address)


def distribute(pages: Pages, message: Message, queues: Sequence[Queue], due: Due = 0) -> None:
    """Route a message of a paging address to its queues, directly or through a page; at ``due`` if that is given."""
    traits, broker = message.traits, message.address.directory.broker
    areas = broker.areas
    assert areas is not None
    message.account = areas.budget
    durable = traits.durable
    direct = not due and traits.group is None
    direct = direct and not (message.expires and is_expired(message, broker.clock.now))
    unwritten = direct and not durable
    members = []
    for queue in queues:
        dispatcher, ready = queue.dispatcher, queue.ready
        # without free memory a delivery that waits for its ACK comes from a page, as memory allows
        may_wait = bool(ready) and (ready[0].settles_on_delivery or areas.free_memory(0))
        if (
            unwritten and ready and may_wait and not dispatcher.blocks and not dispatcher.count
        ):  # of many who keep up
            queue.messages_added += 1
            consumer = ready[0] if len(ready) == 1 else dispatcher.next_consumer()
            consumer.deliver_message(message)
            continue
        if queue.in_memory_only:
            _keep(queue, message, due)
            continue
        queue.messages_added += 1
        if (
            direct
            and ready
            and may_wait
            and not dispatcher.blocks & ~PERHAPS
            and not (durable and queue.durable)
            and (queue.paged is None or not queue.paged.waiting)
            and queue.deliver_directly(message)
        ):
            continue
        members.append(queue)
    if not members:
        return
    if len(members) > 1 or due or durable or not pages.gather(message, members[0]):
        _page(pages, message, members, due)


def _keep(queue: Queue, message: Message, due: Due) -> None:
    if not message.holders:
        message.account = message.address
    if due:
        queue.schedule(message, due)
    else:
        queue.enqueue(message)


def _page(pages: Pages, message: Message, members: Sequence[Queue], due: Due) -> None:
    areas = message.address.directory.broker.areas
    assert areas is not None
    position = pages.append(message, members, due)
    if due or message.expires:
        areas.paged(pages, position, message.expires, due)
    if due:
        for queue in members:
            areas.cursor(queue, pages)
        return
    cursors = pages.cursors
    for queue in members:
        area = queue.paged
        cursor = cursors.get(queue)
        if area is None or cursor is None or cursor not in area.cursors:
            cursor = areas.cursor(queue, pages)
            area = queue.paged
            assert area is not None
        area.on_paged(cursor, message, position)
