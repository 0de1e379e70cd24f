"""``/api/v1/queues/{name}/messages``: look into a queue, remove one message."""

from __future__ import annotations

from collections.abc import Iterator

from stompring.broker import queue_browser
from stompring.broker.queue_browser import Wait
from stompring.broker.reference import GONE, Reference

from .answer import NO_CONTENT, Steps, encode
from .inputs import message_number
from .listing import PAGING, page_answer, paging
from .message_view import BODY_SHOWN, message_view
from .needs import browse_queue, edit_queue
from .queues import queue_of
from .routes import Call, Route
from .served import Served
from .slices import STEP, over

#: Messages that are encoded at a time: their bodies may be long.
BATCH = 10


def list_messages(call: Call) -> Steps:
    """What is pending, then what is scheduled, then what is in delivery; ``count`` is how many match."""
    queue, query = queue_of(call), call.query
    most = queue.address.settings.management_browse_page_size
    page, size = paging(query, size=most, most=most)
    limit = query.number("bodyLimit", BODY_SHOWN, 0, BODY_SHOWN)
    matches = queue_browser.matching(query.text("filter"))
    first, count = (page - 1) * size, 0
    chosen: list[Reference] = []
    for place, ref in enumerate(queue_browser.browse(queue, None, in_transactions(call.served))):
        if isinstance(ref, Wait):
            yield over(ref)
            continue
        if matches is None or matches(ref.message):
            if first <= count < first + size:
                chosen.append(ref)
            count += 1
        if matches is None and count == first + size:
            break  # how many there are is known
        if place % STEP == STEP - 1:
            yield
    items = []
    for place, ref in enumerate(chosen):
        if ref.state != GONE:
            items.append(encode(message_view(ref, limit)))
        if place % BATCH == BATCH - 1:
            yield
    return page_answer(items, queue.message_count if matches is None else count, page, size)


def in_transactions(served: Served) -> Iterator[Reference]:
    """What was acknowledged or refused in transactions that are still open: in delivery, but no consumer's."""
    for session in served.connections:
        for transaction in session.transactions.values():
            yield from transaction.returns


def remove(call: Call) -> Steps:
    """Remove a message that is pending or scheduled. It counts as acknowledged, as in Artemis."""
    queue = queue_of(call)
    for wait in queue_browser.remove_message(queue, message_number(call.names["id"], queue.number)):
        yield over(wait)
    return NO_CONTENT


WHOLE = "/api/v1/queues/{name}/messages"
ROUTES = (
    Route("GET", WHOLE, list_messages, browse_queue, parameters=PAGING | {"filter", "bodyLimit"}),
    Route("DELETE", f"{WHOLE}/{{id}}", remove, edit_queue),
)
