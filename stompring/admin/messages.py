"""``/api/v1/queues/{name}/messages`` and ``…/scheduled``: browse a queue, remove, cancel or deliver one message."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Iterator
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any

from stompring.broker import queue_browser
from stompring.broker.message import Message
from stompring.broker.queue_browser import PageRead, iterate_timed
from stompring.broker.reference import GONE, SCHEDULED, STATES, Reference

from .access import browse_queue, edit_queue
from .api import (
    NAME,
    NO_CONTENT,
    PAGE,
    Call,
    Parameter,
    Response,
    Route,
    Steps,
    encode,
    message_number,
    page_answer,
    paging,
)
from .context import AdminContext
from .json_schema import Component, boolean, integer, keyword, page_of, string, structure, timestamp
from .queues import queue_of
from .tasks import ITEMS_PER_STEP, page_read

#: Default and maximum number of bytes of a body in an answer.
MAX_BODY_LENGTH = 64 * 1024


def message_view(ref: Reference, body_limit: int = MAX_BODY_LENGTH) -> dict[str, Any]:
    """The fields of a message; ``dueTime`` and ``recurrence`` are null unless it is scheduled."""
    message = ref.message
    scheduled = ref.state == SCHEDULED
    return {
        "messageID": message_id(ref),
        "state": STATES[ref.state],
        "address": message.address.name,
        "priority": message.traits.priority,
        "durable": message.traits.durable,
        "timestamp": message.timestamp,
        "expires": message.expires,
        "user": message.traits.user,
        "group": None if message.traits.group is None else message.traits.group.decode("utf-8", "replace"),
        "deliveryCount": ref.deliveries,
        "failedAttempts": ref.attempts,
        "dueTime": ref.due if scheduled else None,
        "recurrence": recurrence_view(ref) if scheduled else None,
        "size": message.size,
        "headers": message.headers(),
        **body_view(message, body_limit),
    }


def message_id(ref: Reference) -> str:
    """The message-id that consumers of the queue receive."""
    return f"{ref.queue.number}-{ref.message.number}"


def recurrence_view(ref: Reference) -> dict[str, Any] | None:
    """How a scheduled message repeats after its due time; ``repeat`` counts the remaining times, -1: no end."""
    recurrence = ref.recurrence
    if recurrence is None:
        return None
    return {
        "period": recurrence.period,
        "repeat": recurrence.repeat,
        "cron": recurrence.cron,
        "delay": recurrence.delay if recurrence.cron else 0,  # that of the first delivery is in dueTime
    }


def body_view(message: Message, limit: int) -> dict[str, Any]:
    """The body or its first ``limit`` bytes, as text if that is UTF-8, else in base64 (``encoding``)."""
    end = len(message.tail) - 2
    length = end - message.body_at
    shown = message.tail[message.body_at : min(end, message.body_at + limit)]
    whole = len(shown) == length
    try:
        # an incomplete last character of a truncated body is left out
        text, encoding = codecs.getincrementaldecoder("utf-8")().decode(shown, final=whole), "text"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(shown).decode(), "base64"
    return {"body": text, "encoding": encoding, "bodySize": length, "bodyTruncated": not whole}


#: Messages encoded per step: their bodies may be long.
ENCODED_PER_STEP = 10


def list_messages(call: Call) -> Steps:
    """Pending, then scheduled, then delivering messages; ``count`` is the number that match."""
    queue, query = queue_of(call), call.query
    most = queue.address.settings.management_browse_page_size
    page, size = paging(query, size=most, most=most)
    limit = query.number("bodyLimit", MAX_BODY_LENGTH, 0, MAX_BODY_LENGTH)
    matches = queue_browser.matching(query.text("filter"))
    first, count = (page - 1) * size, 0
    selected: list[Reference] = []
    for index, ref in enumerate(queue_browser.browse(queue, None, in_transactions(call.context))):
        if isinstance(ref, PageRead):
            yield page_read(ref)
            continue
        if matches is None or matches(ref.message):
            if first <= count < first + size:
                selected.append(ref)
            count += 1
        if matches is None and count == first + size:
            break  # the count is message_count
        if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
            yield
    items = []
    for index, ref in enumerate(selected):
        if ref.state != GONE:
            items.append(encode(message_view(ref, limit)))
        if index % ENCODED_PER_STEP == ENCODED_PER_STEP - 1:
            yield
    return page_answer(items, queue.message_count if matches is None else count, page, size)


def in_transactions(context: AdminContext) -> Iterator[Reference]:
    """Messages acknowledged or rejected in open transactions: delivering, but of no consumer."""
    for session in context.connections:
        for transaction in session.transactions.values():
            yield from transaction.returns


def remove(call: Call) -> Steps:
    queue = queue_of(call)
    for wait in queue_browser.remove_message(queue, message_number(call.names["id"], queue.number)):
        yield page_read(wait)
    return NO_CONTENT


#: References sorted per step.
SORTED_PER_STEP = 1000

by_due_time = attrgetter("due", "sequence")


def list_scheduled(call: Call) -> Steps:
    """Scheduled messages by due time, including NACKed messages during their redelivery-delay."""
    queue, query = queue_of(call), call.query
    most = queue.address.settings.management_browse_page_size
    page, size = paging(query, size=most, most=most)
    limit = query.number("bodyLimit", MAX_BODY_LENGTH, 0, MAX_BODY_LENGTH)
    refs = list(queue.scheduled.values())
    for index, ref in enumerate(iterate_timed(queue)):
        if isinstance(ref, PageRead):
            yield page_read(ref)
            continue
        refs.append(ref)
        if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
            yield
    runs = []
    for start in range(0, len(refs), SORTED_PER_STEP):  # sorting a million at once would block the reactor
        runs.append(sorted(refs[start : start + SORTED_PER_STEP], key=by_due_time))
        yield
    items = []
    for index, ref in enumerate(islice(merge(*runs, key=by_due_time), page * size)):
        if index >= (page - 1) * size and ref.state == SCHEDULED:
            items.append(encode(message_view(ref, limit)))
        if index % ENCODED_PER_STEP == ENCODED_PER_STEP - 1:
            yield
    return page_answer(items, len(refs), page, size)


def deliver(call: Call) -> Steps:
    queue = queue_of(call)
    for wait in queue_browser.deliver_now(queue, message_number(call.names["id"], queue.number)):
        yield page_read(wait)
    return NO_CONTENT


def cancel(call: Call) -> Steps:
    queue = queue_of(call)
    for wait in queue_browser.cancel_scheduled(queue, message_number(call.names["id"], queue.number)):
        yield page_read(wait)
    return NO_CONTENT


RECURRENCE = structure(
    {
        "period": integer("Milliseconds between two deliveries."),
        "repeat": integer("Deliveries after the next one; -1: no end.", -1),
        "cron": string("Cron expression.", null=True),
        "delay": integer("Milliseconds after each time of the cron expression."),
    },
    "How it repeats after its due time; null: once.",
)
MESSAGE = Component(
    "Message",
    structure(
        {
            "messageID": string("The message-id header that consumers of the queue receive."),
            "state": keyword(("pending", "scheduled", "delivering"), "pending, scheduled or delivering."),
            "address": string("Address the message was sent to."),
            "priority": integer("0 to 9.", maximum=9),
            "durable": boolean("Whether the message was sent with persistent:true."),
            "timestamp": timestamp("Time it was sent."),
            "expires": timestamp("Time it expires; 0: never."),
            "user": string("User who sent it.", null=True),
            "group": string("Message group.", null=True),
            "deliveryCount": integer("Number of deliveries."),
            "failedAttempts": integer("Deliveries that count towards max-delivery-attempts."),
            "dueTime": timestamp("Due time of a scheduled message.", null=True),
            "recurrence": {**RECURRENCE, "type": ["object", "null"]},
            "size": integer("Memory of the message, in bytes."),
            "headers": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Headers as consumers receive them; bytes that are not UTF-8 are replaced.",
            },
            "body": string("The body or its beginning, in the encoding given."),
            "encoding": keyword(("text", "base64"), "text: the body is UTF-8; base64: it is not."),
            "bodySize": integer("Size of the whole body, in bytes."),
            "bodyTruncated": boolean("Whether body is only the beginning."),
        }
    ),
)
MESSAGES = page_of(MESSAGE)

MESSAGE_ID = Parameter(
    "id",
    "The messageID, or its part after the dash.",
    {"type": "string"},
    "path",
    component="messageID",
    required=True,
)
BROWSE_SIZE = Parameter(
    "size",
    "Maximum number of messages per page. Default and maximum: management-browse-page-size of the address.",
    {"type": "integer", "minimum": 1},
    component="browseSize",
)
BODY_LENGTH = Parameter(
    "bodyLimit",
    "Maximum number of bytes of each body.",
    {"type": "integer", "minimum": 0, "maximum": MAX_BODY_LENGTH, "default": MAX_BODY_LENGTH},
)
FILTER = Parameter("filter", "Only messages that match this selector.", {"type": "string"})

MESSAGES_PATH, SCHEDULED_PATH = "/api/v1/queues/{name}/messages", "/api/v1/queues/{name}/scheduled"
ROUTES = (
    Route(
        "GET",
        MESSAGES_PATH,
        list_messages,
        browse_queue,
        "listMessages",
        "List the messages of a queue: pending in order of delivery, then scheduled, then delivering.",
        {200: Response("One page of messages.", MESSAGES)},
        parameters=(NAME, PAGE, BROWSE_SIZE, FILTER, BODY_LENGTH),
    ),
    Route(
        "DELETE",
        f"{MESSAGES_PATH}/{{id}}",
        remove,
        edit_queue,
        "removeMessage",
        "Remove a pending or scheduled message; it counts as acknowledged.",
        {204: Response("The message is removed.")},
        parameters=(NAME, MESSAGE_ID),
        errors=(409,),
    ),
    Route(
        "GET",
        SCHEDULED_PATH,
        list_scheduled,
        browse_queue,
        "listScheduled",
        "List the scheduled messages of a queue by due time.",
        {200: Response("One page of messages.", MESSAGES)},
        parameters=(NAME, PAGE, BROWSE_SIZE, BODY_LENGTH),
    ),
    Route(
        "DELETE",
        f"{SCHEDULED_PATH}/{{id}}",
        cancel,
        edit_queue,
        "cancelScheduled",
        "Cancel a scheduled message with all repetitions; it counts as acknowledged.",
        {204: Response("The message is cancelled.")},
        parameters=(NAME, MESSAGE_ID),
    ),
    Route(
        "POST",
        f"{SCHEDULED_PATH}/{{id}}/deliver",
        deliver,
        edit_queue,
        "deliverScheduled",
        "Deliver a scheduled message now; of a recurring one a copy, and its schedule continues.",
        {204: Response("The message is due.")},
        parameters=(NAME, MESSAGE_ID),
    ),
)
