"""``/api/v1/queues/{name}/messages`` and ``…/scheduled``: browse a queue, remove, cancel or deliver one message."""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Generator, Iterator
from enum import StrEnum
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from stompring.broker import queue_browser
from stompring.broker.message import Message
from stompring.broker.queue_browser import PageRead, iterate_timed
from stompring.broker.reference import PENDING, SCHEDULED, STATES, Reference
from stompring.broker.transfer import origin_of

from .access import browse_queue, edit_queue
from .api import (
    NAME,
    NO_CONTENT,
    PAGE,
    Answer,
    Call,
    Parameter,
    Problem,
    Response,
    Route,
    Steps,
    encode,
    json_answer,
    message_number,
    page_answer,
    paging,
)
from .context import AdminContext
from .json_schema import Component, boolean, integer, keyword, page_of, string, structure, timestamp
from .queues import queue_of
from .tasks import ITEMS_PER_STEP, page_read

#: Default and maximum number of bytes of a body in a list.
MAX_BODY_LENGTH = 64 * 1024

#: Maximum number of bytes of the body of one message.
MAX_WHOLE_BODY = 1024 * 1024

#: Bytes of a body that are checked for being JSON: some milliseconds.
MAX_JSON = 256 * 1024

#: Bytes of a body that is downloaded, per step.
BODY_PIECE = 64 * 1024


class BodyFormat(StrEnum):
    """How bodies are shown."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"


def message_view(
    ref: Reference,
    body_limit: int = MAX_BODY_LENGTH,
    body_format: BodyFormat = BodyFormat.AUTO,
    body_offset: int = 0,
) -> dict[str, Any]:
    """The fields of a message; ``dueTime`` and ``recurrence`` are null unless it is scheduled."""
    message = ref.message
    scheduled = ref.state == SCHEDULED
    origin = origin_of(message)
    return {
        "messageID": message_id(ref),
        "state": STATES[ref.state],
        "address": message.address.name,
        "priority": message.traits.priority,
        "durable": message.traits.durable,
        "timestamp": message.timestamp,
        "age": max(0, message.address.directory.broker.clock.now - message.timestamp),
        "expires": message.expires,
        "user": message.traits.user,
        "group": None if message.traits.group is None else message.traits.group.decode("utf-8", "replace"),
        "deliveryCount": ref.deliveries,
        "failedAttempts": ref.attempts,
        "dueTime": ref.due if scheduled else None,
        "recurrence": recurrence_view(ref) if scheduled else None,
        "originAddress": None if origin is None else origin.address,
        "originQueue": None if origin is None else origin.queue,
        "reason": None if origin is None else origin.reason,
        "size": message.size,
        "headers": message.headers(),
        **body_view(message, body_limit, body_format, body_offset),
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


def body_view(
    message: Message, limit: int, body_format: BodyFormat = BodyFormat.AUTO, offset: int = 0
) -> dict[str, Any]:
    """``limit`` bytes of the body from ``offset``, and how they are encoded.

    AUTO gives text if they are UTF-8, else base64; JSON the same, but says ``json`` of a whole body that is JSON. TEXT
    replaces what is not UTF-8.
    """
    end = len(message.tail) - 2
    length = end - message.body_at
    first = min(end, message.body_at + offset)
    shown = message.tail[first : min(end, first + limit)]
    ends = first + len(shown) == end
    text, encoding = _encoded(shown, body_format, ends)
    if body_format is BodyFormat.JSON and encoding == "text" and len(shown) == length and _is_json(shown):
        encoding = "json"
    return {
        "body": text,
        "encoding": encoding,
        "bodySize": length,
        "bodyTruncated": len(shown) != length,
    }


def _encoded(shown: bytes, body_format: BodyFormat, ends: bool) -> tuple[str, str]:
    if body_format is BodyFormat.HEX:
        return shown.hex(), "hex"
    if body_format is not BodyFormat.BASE64:
        errors = "replace" if body_format is BodyFormat.TEXT else "strict"
        try:
            # an incomplete last character of a truncated body is left out
            return codecs.getincrementaldecoder("utf-8")(errors).decode(shown, final=ends), "text"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(shown).decode(), "base64"


def _is_json(body: bytes) -> bool:
    if not body or len(body) > MAX_JSON:
        return False
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


#: The states by which messages may be listed.
LISTED_STATES = ("pending", "scheduled", "delivering")

#: Messages encoded per step: their bodies may be long.
ENCODED_PER_STEP = 10


def list_messages(call: Call) -> Steps:
    """Pending, then scheduled, then delivering messages; ``count`` is the number that match.

    ``state`` selects one of the three.
    """
    queue, query = queue_of(call), call.query
    most = queue.address.settings.management_browse_page_size
    page, size = paging(query, size=most, most=most)
    limit = query.number("bodyLimit", MAX_BODY_LENGTH, 0, MAX_BODY_LENGTH)
    shown_as = body_format(call)
    matches = queue_browser.matching(query.text("filter"))
    state = message_state(call)
    only_pending = state == STATES[PENDING]
    total: int | None = None  # if it is known
    if matches is None and (state is None or only_pending):
        total = queue.count + queue.paged_count if only_pending else queue.message_count
    first, count = (page - 1) * size, 0
    items: list[bytes] = []  # encoded at once: a page of large messages from disk would fill the memory
    for index, ref in enumerate(queue_browser.browse(queue, None, in_transactions(call.context))):
        if isinstance(ref, PageRead):
            yield page_read(ref)
            continue
        shown = STATES[ref.state]
        if only_pending and shown != state:
            break  # they come first
        if (state is None or shown == state) and (matches is None or matches(ref.message)):
            if first <= count < first + size:
                items.append(encode(message_view(ref, limit, shown_as)))
                if len(items) % ENCODED_PER_STEP == 0:
                    yield
            count += 1
        if total is not None and count == first + size:
            break
        if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
            yield
    return page_answer(items, count if total is None else total, page, size)


def message_state(call: Call) -> str | None:
    """The parameter ``state``; None if it is not given. Raises 400."""
    text = call.query.text("state") or None
    if text is not None and text not in LISTED_STATES:
        raise Problem(
            400, f"state must be one of {', '.join(LISTED_STATES)}, not {text!r}", parameter="state"
        )
    return text


def body_format(call: Call) -> BodyFormat:
    """The parameter ``bodyFormat``. Raises 400."""
    text = call.query.text("bodyFormat") or BodyFormat.AUTO.value
    if text not in list(BodyFormat):
        raise Problem(
            400, f"bodyFormat must be one of {', '.join(BodyFormat)}, not {text!r}", parameter="bodyFormat"
        )
    return BodyFormat(text)


def find_message(call: Call) -> Generator[Any, None, Reference]:
    """The message that the path names, in whatever state. Raises `NotFound`."""
    queue = queue_of(call)
    number = message_number(call.names["id"], queue.number)
    return (yield from _read(queue_browser.find_message(queue, number, in_transactions(call.context))))


Found = TypeVar("Found")


def _read(steps: Generator[PageRead | None, None, Found]) -> Generator[Any, None, Found]:
    """The result of a search that may have to wait for pages."""
    while True:
        try:
            wait = next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found
        yield None if wait is None else page_read(wait)


def show_message(call: Call) -> Steps:
    limit = call.query.number("bodyLimit", MAX_BODY_LENGTH, 0, MAX_WHOLE_BODY)
    offset = call.query.number("bodyOffset", 0, 0)
    shown_as = body_format(call)
    ref = yield from find_message(call)
    return json_answer(message_view(ref, limit, shown_as, offset))


def download_body(call: Call) -> Steps:
    ref = yield from find_message(call)
    message = ref.message
    first, end = message.body_at, len(message.tail) - 2
    headers = {
        "Content-Disposition": f'attachment; filename="message-{message_id(ref)}.bin"',
        "Content-Length": str(end - first),
    }
    pieces = (message.tail[at : min(end, at + BODY_PIECE)] for at in range(first, end, BODY_PIECE))
    return Answer(pieces, content_type=OCTETS, headers=headers)


#: The content type of a body that is downloaded: no browser renders it.
OCTETS = "application/octet-stream"


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


class DueMessage(NamedTuple):
    """A scheduled message; ``reference`` is None of one on disk, which is read again if it is shown."""

    due: int
    sequence: int
    reference: Reference | None


def list_scheduled(call: Call) -> Steps:
    """Scheduled messages by due time, including NACKed messages during their redelivery-delay."""
    queue, query = queue_of(call), call.query
    most = queue.address.settings.management_browse_page_size
    page, size = paging(query, size=most, most=most)
    limit = query.number("bodyLimit", MAX_BODY_LENGTH, 0, MAX_BODY_LENGTH)
    shown_as = body_format(call)
    refs = [DueMessage(ref.due, ref.sequence, ref) for ref in queue.scheduled.values()]
    for index, ref in enumerate(iterate_timed(queue)):
        if isinstance(ref, PageRead):
            yield page_read(ref)
            continue
        refs.append(DueMessage(ref.due, ref.message.number, None))
        if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
            yield
    runs = []
    for start in range(0, len(refs), SORTED_PER_STEP):  # sorting a million at once would block the reactor
        runs.append(sorted(refs[start : start + SORTED_PER_STEP], key=by_due_time))
        yield
    items = []
    for index, due in enumerate(islice(merge(*runs, key=by_due_time), page * size)):
        if index >= (page - 1) * size:
            found = due.reference
            if found is None:
                found = yield from _read(queue_browser.seek(queue, due.sequence))
            if found is not None and found.state == SCHEDULED:
                items.append(encode(message_view(found, limit, shown_as)))
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
            "state": keyword(LISTED_STATES, "pending, scheduled or delivering."),
            "address": string("Address the message was sent to."),
            "priority": integer("0 to 9.", maximum=9),
            "durable": boolean("Whether the message was sent with persistent:true."),
            "timestamp": timestamp("Time it was sent."),
            "age": integer("Milliseconds since then."),
            "expires": timestamp("Time it expires; 0: never."),
            "user": string("User who sent it.", null=True),
            "group": string("Message group.", null=True),
            "deliveryCount": integer("Number of deliveries."),
            "failedAttempts": integer("Deliveries that count towards max-delivery-attempts."),
            "dueTime": timestamp("Due time of a scheduled message.", null=True),
            "recurrence": {**RECURRENCE, "type": ["object", "null"]},
            "originAddress": string("Original address of a dead letter or an expired message.", null=True),
            "originQueue": string("Original queue of a dead letter or an expired message.", null=True),
            "reason": string(
                "Why it left that queue: max-delivery-attempts, expired, no-route, evicted, management, policy, a "
                "reason that a policy gives, or unknown.",
                null=True,
            ),
            "size": integer("Memory of the message, in bytes."),
            "headers": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Headers as consumers receive them; bytes that are not UTF-8 are replaced.",
            },
            "body": string("The body or its beginning, in the encoding given."),
            "encoding": keyword(
                ("text", "json", "hex", "base64"), "How body shows the bytes; json: as text, which is JSON."
            ),
            "bodySize": integer("Size of the whole body, in bytes."),
            "bodyTruncated": boolean("Whether body is only a part."),
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
BODY_FORMAT = Parameter(
    "bodyFormat",
    "auto: text if the body is UTF-8, else base64. json: the same, and says whether it is JSON. text: with U+FFFD for "
    "what is not UTF-8.",
    {"type": "string", "enum": [str(each) for each in BodyFormat], "default": "auto"},
)
WHOLE_BODY_LENGTH = Parameter(
    "bodyLimit",
    "Maximum number of bytes of the body.",
    {"type": "integer", "minimum": 0, "maximum": MAX_WHOLE_BODY, "default": MAX_BODY_LENGTH},
    component="wholeBodyLimit",
)
BODY_OFFSET = Parameter(
    "bodyOffset", "First byte of the body to show.", {"type": "integer", "minimum": 0, "default": 0}
)
STATE = Parameter(
    "state",
    "Only messages in this state.",
    {"type": "string", "enum": list(LISTED_STATES)},
    component="state",
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
        parameters=(NAME, PAGE, BROWSE_SIZE, FILTER, STATE, BODY_LENGTH, BODY_FORMAT),
    ),
    Route(
        "GET",
        f"{MESSAGES_PATH}/{{id}}",
        show_message,
        browse_queue,
        "message",
        "Show one message.",
        {200: Response("The message.", MESSAGE)},
        parameters=(NAME, MESSAGE_ID, WHOLE_BODY_LENGTH, BODY_OFFSET, BODY_FORMAT),
    ),
    Route(
        "GET",
        f"{MESSAGES_PATH}/{{id}}/body",
        download_body,
        browse_queue,
        "messageBody",
        "Download the body of a message as it is.",
        {
            200: Response(
                "The bytes of the body.", {"type": "string"}, (OCTETS,), headers=("Content-Disposition",)
            )
        },
        parameters=(NAME, MESSAGE_ID),
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
        parameters=(NAME, PAGE, BROWSE_SIZE, BODY_LENGTH, BODY_FORMAT),
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
