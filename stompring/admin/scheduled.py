"""``/api/v1/queues/{name}/scheduled``: what waits for its time."""

from __future__ import annotations

from heapq import merge
from itertools import islice
from operator import attrgetter

from stompring.broker import queue_browser
from stompring.broker.queue_browser import Wait, walk_timed
from stompring.broker.reference import SCHEDULED

from .answer import NO_CONTENT, Steps, encode
from .inputs import message_number
from .listing import PAGING, page_answer, paging
from .message_view import BODY_SHOWN, message_view
from .messages import BATCH
from .needs import browse_queue, edit_queue
from .queues import queue_of
from .routes import Call, Route
from .slices import STEP, over

#: References that are sorted at a time.
RUN = 1000

by_due_time = attrgetter("due", "sequence")


def list_scheduled(call: Call) -> Steps:
    """The scheduled messages by due time. One that was NACKed and waits for its redelivery-delay is among them."""
    queue, query = queue_of(call), call.query
    most = queue.address.settings.management_browse_page_size
    page, size = paging(query, size=most, most=most)
    limit = query.number("bodyLimit", BODY_SHOWN, 0, BODY_SHOWN)
    refs = list(queue.scheduled.values())
    for place, ref in enumerate(walk_timed(queue)):
        if isinstance(ref, Wait):
            yield over(ref)
            continue
        refs.append(ref)
        if place % STEP == STEP - 1:
            yield
    runs = []
    for start in range(0, len(refs), RUN):  # a million sorted at once would hold everybody up
        runs.append(sorted(refs[start : start + RUN], key=by_due_time))
        yield
    items = []
    for place, ref in enumerate(islice(merge(*runs, key=by_due_time), page * size)):
        if place >= (page - 1) * size and ref.state == SCHEDULED:
            items.append(encode(message_view(ref, limit)))
        if place % BATCH == BATCH - 1:
            yield
    return page_answer(items, len(refs), page, size)


def deliver(call: Call) -> Steps:
    """Let a message fall due now. A recurring one sends a copy of itself and keeps its schedule."""
    queue = queue_of(call)
    for wait in queue_browser.deliver_now(queue, message_number(call.names["id"], queue.number)):
        yield over(wait)
    return NO_CONTENT


def cancel(call: Call) -> Steps:
    """Take a message back, with all its repetitions. It counts as acknowledged."""
    queue = queue_of(call)
    for wait in queue_browser.cancel_scheduled(queue, message_number(call.names["id"], queue.number)):
        yield over(wait)
    return NO_CONTENT


WHOLE = "/api/v1/queues/{name}/scheduled"
ROUTES = (
    Route("GET", WHOLE, list_scheduled, browse_queue, parameters=PAGING | {"bodyLimit"}),
    Route("DELETE", f"{WHOLE}/{{id}}", cancel, edit_queue),
    Route("POST", f"{WHOLE}/{{id}}/deliver", deliver, edit_queue),
)
