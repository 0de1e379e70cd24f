"""Messages over HTTP: browse, send, export and import; tasks that change many messages.

``/api/v1/queues/{name}/messages`` and ``…/scheduled``: browse a queue, remove, cancel or deliver one message.

``POST /api/v1/messages``: send messages as SEND does, with its headers, permissions, policies and limits.

``GET …/export`` and ``POST …/import``: messages of a queue as JSON lines, like those of ``data export``.

``POST …/move``, ``copy``, ``retry``, ``remove``, ``expire``, ``dead-letter``, ``priority``, ``purge`` change many
messages with a task that runs in time slices (``/api/v1/tasks``). A request waits for the end of its task, or gets the
id of the task immediately (``"wait": false``).
"""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, cast

from twisted.internet.task import deferLater

from stompring.broker import publish, queue_browser
from stompring.broker.address import as_address
from stompring.broker.directory import services_of
from stompring.broker.message import Matches, Message, origin_of
from stompring.broker.ports import Offer
from stompring.broker.publish import COMMITS, Mover, Rejection, Target
from stompring.broker.queue import Queue, as_queue
from stompring.broker.queue_browser import PageRead, iterate_timed
from stompring.broker.reference import (
    DELIVERING,
    GONE,
    PENDING,
    SCHEDULED,
    STATES,
    Reference,
    compiled_filter,
)
from stompring.errors import Refused, counted
from stompring.session.connect import Login
from stompring.session.destination import ALLOW_ALL, OWN, Destination, Destinations
from stompring.session.outbox import Blocked
from stompring.session.send import SendEvaluation, plan_anew
from stompring.session.session import SendPlan, Session
from stompring.settings.model import FullPolicy, PermissionType, RoutingType, StompAcceptor
from stompring.stomp.frames import Head
from stompring.store.export import InvalidExport, PortableMessage, QueueEntry

from .api import (
    CONFLICT,
    LINES,
    PAGE,
    Answer,
    Body,
    Call,
    Handler,
    Json,
    Parameter,
    PermissionRule,
    Problem,
    Query,
    RequiredPermissions,
    Response,
    Route,
    Steps,
    browse_queue,
    edit_queue,
    edit_task,
    encode,
    flag,
    invalid,
    json_answer,
    listing,
    manage_broker,
    manages,
    message_copy,
    message_move,
    message_number,
    message_retry,
    number,
    optional,
    page_answer,
    paging,
    permission_check,
    permission_rule,
    required,
    route,
    routing_type,
    text,
    view,
    view_broker,
    view_task,
)
from .context import AdminContext, ManagementTask, TaskState, background_done, in_slices, page_read
from .json_schema import (
    TEXT,
    Fields,
    JsonObject,
    Schema,
    array,
    boolean,
    integer,
    keyword,
    object_of,
    page_of,
    string,
    string_or_null,
    structure,
    timestamp,
)
from .queues import queue_of

#: Maximum number of bytes shown of each body in a list; also the default number.
MAX_BODY_LENGTH = 64 * 1024

#: Maximum number of bytes shown of the body in an answer with one message.
MAX_WHOLE_BODY = 1024 * 1024

#: Maximum length in bytes of a body that is checked for JSON, which takes some milliseconds.
MAX_JSON = 256 * 1024

#: Number of bytes per step of the download of a body.
BODY_PIECE = 64 * 1024


class BodyFormat(StrEnum):
    """Format of the bodies of messages in an answer."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"


def message_view(
    ref: Reference, body_limit: int, body_format: BodyFormat, body_offset: int = 0
) -> JsonObject:
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
        "age": max(0, as_queue(ref.queue).broker.clock.now - message.timestamp),
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


def recurrence_view(ref: Reference) -> JsonObject | None:
    """The recurrence of a scheduled message. ``repeat``: number of deliveries after the next one; -1: unlimited."""
    recurrence = ref.recurrence
    if recurrence is None:
        return None
    return {
        "period": recurrence.period,
        "repeat": recurrence.repeat,
        "cron": recurrence.cron,
        # without a cron expression the delay applies only to the first delivery: dueTime includes it
        "delay": recurrence.delay if recurrence.cron else 0,
    }


def body_view(message: Message, limit: int, body_format: BodyFormat, offset: int) -> JsonObject:
    """At most ``limit`` bytes of the body from byte ``offset``, and their encoding.

    AUTO and JSON return valid UTF-8 as text, other bytes as base64. With JSON, a body that is shown from beginning to
    end and is valid JSON has the encoding ``json``. TEXT replaces invalid bytes.
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
            # the incremental decoder omits an incomplete last character of a truncated body
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


#: States that the parameter ``state`` of a list accepts.
LISTED_STATES = ("pending", "scheduled", "delivering")

#: Number of messages that are encoded per step: few, because their bodies may be long.
ENCODED_PER_STEP = 10


def body_format(query: Query) -> BodyFormat:
    """The parameter ``bodyFormat``. Raises 400."""
    return BodyFormat(query.choice("bodyFormat", list(BodyFormat)) or BodyFormat.AUTO)


def find_message(call: Call) -> Generator[Any, None, Reference]:
    """The message that the path names, in any state. Raises `NotFound`."""
    queue = queue_of(call)
    return (
        yield from _read(
            queue_browser.find_message(
                queue, message_number(call.names["id"], queue.number), in_transactions(call.context)
            )
        )
    )


def _change_message(call: Call, change: Callable[[Queue, int], Iterator[PageRead]]) -> Steps:
    """Change the message that the path names. Raises `NotFound`."""
    queue = queue_of(call)
    for wait in change(queue, message_number(call.names["id"], queue.number)):
        yield page_read(wait)


Found = TypeVar("Found")


def _read(steps: Generator[PageRead | None, None, Found]) -> Generator[Any, None, Found]:
    """Run a search, and return its result. Waits while the pages that the search needs are read."""
    while True:
        try:
            wait = next(steps)
        except StopIteration as end:
            return cast(Found, end.value)
        yield None if wait is None else page_read(wait)


#: Content type of a downloaded body. Browsers do not render content of this type.
OCTETS = "application/octet-stream"


def in_transactions(context: AdminContext) -> Iterator[Reference]:
    """Yield the messages settled in open transactions: they count as in delivery, but have no consumer."""
    for session in context.connections:
        for transaction in session.transactions.values():
            yield from transaction.returns


#: References sorted per step.
SORTED_PER_STEP = 1000

by_due_time = attrgetter("due", "sequence")


class DueMessage(NamedTuple):
    """A scheduled message. ``reference`` is None if the message is only on disk: the list must read the message to show
    it.
    """

    due: int
    sequence: int
    reference: Reference | None


RECURRENCE = structure(
    {
        "period": integer("Milliseconds between two deliveries."),
        "repeat": integer("Deliveries after the next one; -1: no end.", minimum=-1),
        "cron": string_or_null("Cron expression."),
        "delay": integer("Milliseconds after each time of the cron expression."),
    },
    "How it repeats after its due time; null: once.",
)
MESSAGE = object_of(
    "Message",
    {
        "messageID": string("The message-id header that consumers of the queue receive."),
        "state": keyword(LISTED_STATES, "pending, scheduled or delivering."),
        "address": string("Address the message was sent to."),
        "priority": integer("0 to 9.", maximum=9),
        "durable": boolean("Whether the message was sent with persistent:true."),
        "timestamp": timestamp("Time it was sent."),
        "age": integer("Milliseconds since then."),
        "expires": timestamp("Time it expires; 0: never."),
        "user": string_or_null("User who sent it."),
        "group": string_or_null("Message group."),
        "deliveryCount": integer("Number of deliveries."),
        "failedAttempts": integer("Deliveries that count towards max-delivery-attempts."),
        "dueTime": timestamp("Due time of a scheduled message.", null=True),
        "recurrence": {**RECURRENCE, "type": ["object", "null"]},
        "originAddress": string_or_null("Original address of a dead letter or an expired message."),
        "originQueue": string_or_null("Original queue of a dead letter or an expired message."),
        "reason": string_or_null(
            "Why it left that queue: max-delivery-attempts, expired, no-route, evicted, management, policy, a "
            "reason that a policy gives, or unknown.",
        ),
        "size": integer("Memory of the message, in bytes."),
        "headers": {
            "type": "object",
            "additionalProperties": TEXT,
            "description": "Headers as consumers receive them; bytes that are not UTF-8 are replaced.",
        },
        "body": string("The body or its beginning, in the encoding given."),
        "encoding": keyword(
            ("text", "json", "hex", "base64"), "How body shows the bytes; json: as text, which is JSON."
        ),
        "bodySize": integer("Size of the whole body, in bytes."),
        "bodyTruncated": boolean("Whether body is only a part."),
    },
)
MESSAGES = page_of(MESSAGE)

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
FILTER = Parameter("filter", "Only messages that match this selector.")


def _browsing(call: Call) -> tuple[Queue, int, int, Callable[[Reference], bytes]]:
    """Read a request for one page of messages. Returns queue, page, size, and an encoder of messages. Raises 400."""
    queue, query = queue_of(call), call.query
    most = queue.address.settings.management_browse_page_size
    page, size = paging(query, size=most, most=most)
    limit = query.number("bodyLimit", MAX_BODY_LENGTH, 0, MAX_BODY_LENGTH)
    shown_as = body_format(query)
    return queue, page, size, lambda ref: encode(message_view(ref, limit, shown_as))


#: Maximum number of messages that one request sends.
MAX_COUNT = 10_000

#: Number of messages, and total bytes of their bodies, after which a step of sending ends.
SENT_PER_STEP, BYTES_PER_STEP = 10, 256 * 1024

#: Headers of a SEND frame that a request must not set.
NOT_HERE = frozenset((b"destination", b"destination-type", b"content-length", b"receipt", b"transaction"))

#: Maximum time in ms for which policies delay one message, and for which it waits while the write backlog is full.
LONGEST_DELAY = 10_000

#: Milliseconds between two attempts to send a message while the write backlog of the store is full.
STORE_INTERVAL = 20

#: An acceptor with default settings: its limits on headers apply to messages sent over HTTP.
ACCEPTOR = StompAcceptor("http", "", 0)


class HttpWire:
    """The `Wire` of an `HttpSession`. Discards all output."""

    host = ""
    certificate = None
    carrier = "HTTP"

    def __init__(self, peer: str) -> None:
        self.peer = peer

    def write(self, data: bytes) -> None:
        """Do nothing: the client gets the answer to its HTTP request."""

    def close(self) -> None:
        """Do nothing: the HTTP request owns the connection."""

    pause_reading = resume_reading = close


class HttpSession(Session):
    """A session that only sends the messages of one HTTP request. No list of connections includes it."""

    def __init__(self, call: Call, target: Destination) -> None:
        context = call.context
        super().__init__(
            context.broker,
            ACCEPTOR,
            Destinations(ACCEPTOR),
            HttpWire(call.peer),
            context.outgoing,
            "http",
        )
        self.login = Login(
            call.user,
            (ALLOW_ALL if manages(call.authorizer) else call.authorizer),
            verified=not call.authorizer.allows_all,
        )
        self._target = target

    def end(self) -> None:
        """Break the reference cycles of the session, so that Python frees it without a run of the garbage collector."""
        self._untie()

    def parse_destination(self, destination: bytes, requested: str | None) -> Destination:
        """Return the destination of the request. Prefixes of acceptors do not apply."""
        self.broker.directory.check_words(self._target.address)
        return self._target


def send_one(
    session: Session, head: Head, body: bytes, reactor: Any
) -> Generator[Any, None, tuple[str | None, bool]]:
    """Send one message; yields a Deferred while a policy delays it, or the write backlog of the store is full.

    Returns two values: the reason why the message was dropped, None if it was not; and whether a queue accepted it.
    Raises `Refused` if a policy delays the message longer than `LONGEST_DELAY`, and if a SEND would get an ERROR.
    """
    plan: SendPlan | None = head.plan
    if plan is None or plan.stamp != plan.address.stamp:
        plan = plan_anew(session, head)
    if plan.carry_out is not None:
        plan.carry_out(session, head, body, plan)
    evaluation = SendEvaluation(session, head, body, plan)
    waited = stored = 0
    while True:
        try:
            if not evaluation.decide():
                return "A policy has dropped the message", False
        except Blocked as blocked:
            delay = blocked.milliseconds
            waited += delay
            if waited > LONGEST_DELAY:
                reason = f"A policy of address {blocked.address.name} delays the message"
                evaluation.refused(reason)
                raise Refused(reason) from None
        except Exception as fault:
            evaluation.refused(str(fault))
            raise
        else:
            address = evaluation.plan.address
            unrouted = address.unrouted_messages
            rejection = publish.publish(session.broker, evaluation.plan, body)
            if rejection is None:
                evaluation.entered()
                return None, address.unrouted_messages == unrouted
            delay = STORE_INTERVAL
            stored += delay
            if not rejection.of_backlog or stored > LONGEST_DELAY:
                reason = rejection.describe()
                evaluation.refused(reason)
                if rejection.policy is not FullPolicy.DROP:
                    raise Refused(reason)
                return reason, False
        yield deferLater(reactor, delay / 1000)


def _target(call: Call) -> Destination:
    address, queue = _names(call.body)
    kind = routing_type(call.body)
    if queue is not None and not address:
        address = call.context.broker.auto_create.address_of("", queue)
    return Destination(address, queue, kind)


def _names(body: JsonObject) -> tuple[str, str | None]:
    queue = optional(body, "queue")
    if queue == "":
        raise invalid("queue", "must not be empty")
    address = "" if "address" not in body and queue is not None else required(body, "address")
    if not address and queue is None:
        raise invalid("address", "must not be empty")
    for name, value in (("address", address), ("queue", queue or "")):
        if "::" in value:
            raise invalid(name, "must not contain ::; give address and queue in fields of their own")
    return address, queue


def _head(body: JsonObject) -> Head:
    given = body.get("headers", {})
    if not isinstance(given, dict):
        raise invalid("headers", "must be an object of names and values")
    limits = ACCEPTOR.limits
    if len(given) > limits.max_headers:
        raise invalid("headers", f"has {len(given)} headers, and the limit is {limits.max_headers}")
    headers: dict[bytes, bytes] = {b"destination": b""}
    for name, value in given.items():
        encoded = text("headers", name).encode()
        if isinstance(value, int):  # also true and false: bool is a subclass of int
            value = str(value).lower()
        line = encoded, text("headers", value).encode()
        if not encoded or b"\0" in line[0] or b"\0" in line[1]:
            raise invalid(
                "headers", f"has the name or value {name[:60]!r}, which no header of STOMP can have"
            )
        if max(map(len, line)) > limits.max_header_length:
            raise invalid(
                "headers",
                f"has the header {name[:60]!r}, which is longer than {limits.max_header_length} bytes",
            )
        if encoded in NOT_HERE:
            raise invalid("headers", f"must not contain {name}: it belongs to the frame, not to the message")
        if encoded == b"reply-to" and line[1].startswith(OWN):
            raise invalid(
                "headers",
                "has a temporary queue or topic in reply-to: a request has no connection to read it",
            )
        headers[encoded] = line[1]
    address, queue = _names(body)
    headers[b"destination"] = (address if queue is None else f"{address}::{queue}").encode()
    return Head(b"SEND", headers)


def _body(body: JsonObject) -> bytes:
    content = text("body", body.get("body", ""))
    encoding = body.get("encoding", "text")
    try:
        if encoding == "text":
            return content.encode()
        if encoding == "base64":
            return base64.b64decode(content, validate=True)
        if encoding == "hex":
            return bytes.fromhex(content)
    except ValueError:
        raise invalid("body", f"is not {encoding}") from None
    raise invalid("encoding", "must be text, base64 or hex")


def _count(body: JsonObject) -> int:
    count = body.get("count", 1)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_COUNT:
        raise invalid("count", f"must be a whole number from 1 to {MAX_COUNT}")
    return count


@permission_rule("as for a SEND: send on the address, and the permissions to create it")
def message_send(call: Call) -> RequiredPermissions:
    target = _target(call)
    yield PermissionType.SEND, target.address, target.queue


SENT = object_of(
    "Sent",
    {
        "sent": integer("Messages that have entered."),
        "unrouted": integer("How many of these no queue accepted: they are lost, or dead letters."),
        "rejected": integer("Messages that have not entered."),
        "reason": string_or_null("Why the first of these has not; null without one."),
    },
)
HEADERS = {
    "type": "object",
    "additionalProperties": {"type": ["string", "integer", "boolean"]},
    "description": "Headers of SEND: persistent, priority, expires, AMQ_SCHEDULED_DELAY and so on, and any others.",
}


#: Bytes (base64) or characters (text) per piece of an exported body. Joined pieces of base64 are valid, because the
#: size is a multiple of three.
PIECE = 48 * 1024

#: Number of lines of an import that are parsed per step, and of messages that are checked per step.
LINES_PER_STEP = 10


def line_of(ref: Reference) -> Iterator[bytes]:
    """Yield the line of a message in an export. It comes in pieces, because the body may be long."""
    message = ref.message
    due = ref.due if ref.state == SCHEDULED else 0
    fields = PortableMessage(
        message.number,
        message.address.name,
        (QueueEntry(ref.queue.name, ref.deliveries, ref.attempts, int(due), ref.recurrence),),
        message.traits,
        b"",
        message.timestamp,
        message.expires,
    ).fields()
    del fields["body"]
    yield b'{"message":%b,"body":' % encode(fields)[:-1]
    body = message.body
    try:
        text = body.decode()
    except UnicodeDecodeError:
        yield b'{"base64":"'
        for at in range(0, len(body), PIECE):
            yield base64.b64encode(body[at : at + PIECE])
        yield b'"}}}\n'
        return
    yield b'"'
    for at in range(0, len(text), PIECE):
        yield json.dumps(text[at : at + PIECE], ensure_ascii=False)[1:-1].encode()
    yield b'"}}\n'


def _read_line(line: bytes, at: int) -> PortableMessage:
    try:
        found = json.loads(line)
        if not isinstance(found, dict) or found.keys() != {"message"}:
            raise InvalidExport("not an object with the one member message")
        return PortableMessage.of(found["message"])
    except (InvalidExport, ValueError, RecursionError) as fault:
        raise Problem(400, f"Line {at}: {fault}; nothing was imported", line=at) from None


def _message(queue: Queue, portable: PortableMessage) -> Message:
    broker = queue.broker
    return replace(portable, timestamp=broker.clock.now).message(broker.next_message_number(), queue.address)


def _enqueue(queue: Queue, read: list[PortableMessage]) -> Iterator[None]:
    """Add messages to a queue in one transaction of the store. Yields after each message."""
    storage = queue.broker.storage
    storage.begin()
    try:
        for portable in read:
            if queue.deleted:
                return
            entry = portable.places[0]
            due = entry.due if not entry.deliveries else 0
            publish.enqueue(
                as_address(queue.address),
                _message(queue, portable),
                (queue,),
                due,
                (entry.recurrence if due else None),
            )
            yield
    finally:
        storage.commit()


IMPORTED = object_of("Imported", {"imported": integer("Messages imported.")})


@route(
    "GET /api/v1/queues/{name}/messages",
    browse_queue,
    Response("One page of messages.", MESSAGES),
    parameters=(PAGE, BROWSE_SIZE, FILTER, STATE, BODY_LENGTH, BODY_FORMAT),
)
def list_messages(call: Call) -> Steps:
    """List the messages of a queue: pending in order of delivery, then scheduled, then delivering."""
    queue, page, size, shown = _browsing(call)
    matches = compiled_filter(call.query.text("filter"))
    state = call.query.choice("state", LISTED_STATES)
    only_pending = state == STATES[PENDING]
    total: int | None = None  # number of selected messages, None if unknown
    if matches is None and (state is None or only_pending):
        total = queue.count + queue.paged_count if only_pending else queue.message_count
    first, count = (page - 1) * size, 0
    # encoded messages: references would keep whole bodies, and a page of large messages would fill the memory
    items: list[bytes] = []
    for ref in in_slices(queue_browser.browse(queue, None, in_transactions(call.context))):
        if not isinstance(ref, Reference):
            yield ref
            continue
        ref_state = STATES[ref.state]
        if only_pending and ref_state != state:
            break  # all pending messages come before those in other states
        if (state is None or ref_state == state) and (matches is None or matches(ref.message)):
            if first <= count < first + size:
                items.append(shown(ref))
                if len(items) % ENCODED_PER_STEP == 0:
                    yield
            count += 1
        if total is not None and count == first + size:
            break
    return page_answer(items, count if total is None else total, page, size)


@route(
    "GET /api/v1/queues/{name}/messages/{id}",
    browse_queue,
    Response("The message.", MESSAGE),
    parameters=(WHOLE_BODY_LENGTH, BODY_OFFSET, BODY_FORMAT),
)
def show_message(call: Call) -> Steps:
    """Show one message."""
    limit = call.query.number("bodyLimit", MAX_BODY_LENGTH, 0, MAX_WHOLE_BODY)
    offset = call.query.number("bodyOffset", 0, 0)
    shown_as = body_format(call.query)
    return message_view((yield from find_message(call)), limit, shown_as, offset)


@route(
    "GET /api/v1/queues/{name}/messages/{id}/body",
    browse_queue,
    Response("The bytes of the body.", TEXT, (OCTETS,), headers=("Content-Disposition",)),
)
def show_message_body(call: Call) -> Steps:
    """Download the body of a message as it is."""
    ref = yield from find_message(call)
    message = ref.message
    first, end = message.body_at, len(message.tail) - 2
    headers = {
        "Content-Disposition": f'attachment; filename="message-{message_id(ref)}.bin"',
        "Content-Length": str(end - first),
    }
    return Answer(
        (message.tail[at : min(end, at + BODY_PIECE)] for at in range(first, end, BODY_PIECE)),
        content_type=OCTETS,
        headers=headers,
    )


@route(
    "DELETE /api/v1/queues/{name}/messages/{id}",
    edit_queue,
    Response("The message is removed."),
    errors=CONFLICT,
)
def remove_message(call: Call) -> Steps:
    """Remove a pending or scheduled message; it counts as acknowledged."""
    return _change_message(call, queue_browser.remove_message)


@route(
    "GET /api/v1/queues/{name}/scheduled",
    browse_queue,
    Response("One page of messages.", MESSAGES),
    parameters=(PAGE, BROWSE_SIZE, BODY_LENGTH, BODY_FORMAT),
)
def list_scheduled(call: Call) -> Steps:
    """List the scheduled messages of a queue by due time."""
    # the list includes rejected messages that wait for the end of their redelivery-delay
    queue, page, size, shown = _browsing(call)
    refs = [DueMessage(ref.due, ref.sequence, ref) for ref in queue.scheduled.values()]
    for ref in in_slices(iterate_timed(queue)):
        if isinstance(ref, Reference):
            refs.append(DueMessage(ref.due, ref.message.number, None))
        else:
            yield ref
    runs = []
    # in steps: to sort a million messages in one step would block the reactor
    for start in range(0, len(refs), SORTED_PER_STEP):
        runs.append(sorted(refs[start : start + SORTED_PER_STEP], key=by_due_time))
        yield
    items = []
    for index, due in enumerate(islice(merge(*runs, key=by_due_time), page * size)):
        if index >= (page - 1) * size:
            found = due.reference
            if found is None:
                found = yield from _read(queue_browser.seek(queue, due.sequence))
            if found is not None and found.state == SCHEDULED:
                items.append(shown(found))
        if index % ENCODED_PER_STEP == ENCODED_PER_STEP - 1:
            yield
    return page_answer(items, len(refs), page, size)


@route(
    "DELETE /api/v1/queues/{name}/scheduled/{id}",
    edit_queue,
    Response("The message is cancelled."),
)
def cancel_scheduled(call: Call) -> Steps:
    """Cancel a scheduled message with all repetitions; it counts as acknowledged."""
    return _change_message(call, queue_browser.cancel_scheduled)


@route(
    "POST /api/v1/queues/{name}/scheduled/{id}/deliver",
    edit_queue,
    Response("The message is due."),
)
def deliver_scheduled(call: Call) -> Steps:
    """Deliver a scheduled message now. If it recurs, a copy is delivered, and the schedule continues."""
    return _change_message(call, queue_browser.deliver_now)


@route(
    "POST /api/v1/messages",
    message_send,
    Response("How many have entered.", SENT),
    body=Body(
        {
            "address": string("Address to send to. Required unless queue is given."),
            "queue": string_or_null("The one queue of the address to send to."),
            "routingType": keyword(RoutingType, "Routing type of the messages."),
            "headers": HEADERS,
            "body": string("The body, in the encoding given."),
            "encoding": keyword(("text", "base64", "hex"), "Encoding of body. Default: text."),
            "count": integer(f"How often to send it, at most {MAX_COUNT}. Default: 1.", minimum=1),
        },
        name="NewMessage",
    ),
    errors=(404, 409),
)
def send_messages(call: Call) -> Steps:
    """Send messages to an address or to a queue.

    Headers, creation of the address, policies, limits and duplicate ids work as for a SEND frame. The status is 409
    if no message has entered because the address is full or a policy refuses the messages. While the disk is too
    slow, the request waits, at most ten seconds for each message.
    """
    target, head = _target(call), _head(call.body)
    body, count = _body(call.body), _count(call.body)
    session = HttpSession(call, target)
    sent = rejected = unrouted = size = 0
    reason: str | None = None
    try:
        for index in range(count):
            try:
                fault, routed = yield from send_one(session, head, body, call.context.reactor)
            except Refused as refused:
                if not sent:
                    raise
                rejected, reason = count - sent, str(refused)
                break
            if fault is None:
                sent += 1
                unrouted += not routed
            else:
                rejected, reason = rejected + 1, reason or fault
            size += len(body)
            if index % SENT_PER_STEP == SENT_PER_STEP - 1 or size >= BYTES_PER_STEP:
                size = 0
                yield None
        return {"sent": sent, "unrouted": unrouted, "rejected": rejected, "reason": reason}
    finally:
        session.end()


@route(
    "GET /api/v1/queues/{name}/export",
    browse_queue,
    Response("One line for each message.", TEXT, (LINES,)),
    parameters=(FILTER,),
)
def export_messages(call: Call) -> Answer:
    """Download the messages of a queue as JSON lines."""
    queue = queue_of(call)
    matches = compiled_filter(call.query.text("filter"))
    found = queue_browser.messages_of(queue, in_transactions(call.context))

    def pieces() -> Iterator[Any]:
        for ref in in_slices(found):
            if not isinstance(ref, Reference):
                yield ref
            elif ref.state != GONE and (matches is None or matches(ref.message)):
                yield from line_of(ref)

    return Answer(pieces(), content_type=LINES)


@route(
    "POST /api/v1/queues/{name}/import",
    manage_broker,
    Response("The number of imported messages.", IMPORTED),
    body_type=LINES,
    errors=CONFLICT,
)
def import_messages(call: Call) -> Steps:
    """Upload messages as JSON lines. A request imports all of its messages or none.

    The content type of the body is application/x-ndjson; its lines are those of an export.
    """
    queue = queue_of(call)
    read: list[PortableMessage] = []
    for at, line in enumerate(call.raw.split(b"\n"), 1):
        if line.strip():
            read.append(_read_line(line, at))
        if at % LINES_PER_STEP == 0:
            yield None
    for at, portable in enumerate(read, 1):
        message = _message(queue, portable)
        if queue.accepts is not None and not queue.accepts(message):
            raise Problem(400, f"Message {at} does not match the filter of queue {queue.name}")
        if at % LINES_PER_STEP == 0:
            yield None
    if queue.deleted or not queue.open:
        raise Refused(f"Queue {queue.name} accepts no messages now")
    address = as_address(queue.address)
    durable = any(portable.traits.durable for portable in read)
    headers: dict[bytes, bytes] = {}
    offer = Offer(address.name, read[0].traits, headers) if read and address.hooks.full is not None else None
    rejection = publish.check_admission(address, durable, offer)
    if rejection is not None:
        raise Refused(f"{rejection.describe()}; nothing was imported")
    background = queue.broker.background
    background.run(_enqueue(queue, read), COMMITS)
    yield background_done(background, COMMITS)
    return {"imported": len(read)}


#: Maximum number of messages that one request names by their ids.
MAX_IDS = 10_000

#: Maximum time in seconds for which a task waits until a full target accepts a message, or until the disk catches up.
FULL_TIMEOUT = 10.0

#: Seconds between two attempts to change a message while the target or the write backlog of the store is full.
FULL_INTERVAL = 0.02

#: Cost at which a step of a task ends. An examined message costs 1, a changed one `CHANGED_COST` more.
STEP_COST, CHANGED_COST = 50, 5

#: Total size in bytes of the changed messages at which a step of a task ends.
STEP_BYTES = 256 * 1024


class Selection(NamedTuple):
    """The messages that a request selects: by their numbers, by a filter, or all pending and scheduled messages."""

    numbers: Sequence[int] | None
    matches: Matches | None
    limit: int  # -1: no limit
    total: int | None  # number of selected messages, None if unknown

    @classmethod
    def of(cls, queue: Queue, body: JsonObject) -> Selection:
        """Read the selection in a request body. Raises 400, or 404 if an id belongs to a message of another queue."""
        ids, text_filter = body.get("messages"), optional(body, "filter")
        limit = number(1, "limit", body.get("limit", -1))
        if ids is not None and text_filter is not None:
            raise invalid("messages", "and filter are given: select by one of them")
        matches = compiled_filter(text_filter)
        if ids is None:
            total = queue.message_count if matches is None else None
            return cls(None, matches, limit, total if total is None or limit < 0 else min(limit, total))
        if not isinstance(ids, list) or len(ids) > MAX_IDS:
            raise invalid("messages", f"must be a list of at most {MAX_IDS} message ids")
        numbers = [message_number(text("messages", each), queue.number) for each in ids]
        return cls(numbers, None, limit, len(set(numbers)))


#: Changes one message. Returns True after the change, False if the message is skipped (it has left the queue, for
#: example), None if it needs no change and is not counted, a rejection if the target does not accept it now. Raises
#: `Refused` if the message cannot be changed.
Change = Callable[[Reference], Rejection | bool | None]


class QueueTask(NamedTuple):
    """The work of one task on the messages of one queue. The task fails if its ``target`` is deleted."""

    context: AdminContext
    queue: Queue
    task: ManagementTask
    target: Target | None

    def run(self, selection: Selection, change: Change) -> Iterator[object]:
        """Change the selected messages, and skip messages in delivery."""
        queue, task, matches = self.queue, self.task, selection.matches
        task.total = selection.total
        remaining = None if selection.numbers is None else set(selection.numbers)
        found: Iterator[Reference | PageRead | None] = (
            queue_browser.messages_of(queue, in_transactions(self.context))
            if remaining is None
            else publish.numbered(queue, remaining)
        )
        cost = size = 0
        for ref in found:
            if isinstance(ref, PageRead):
                yield page_read(ref)
                continue
            if queue.deleted:
                raise Refused(f"Queue {queue.name} was deleted")
            cost += 1
            if ref is not None and (matches is None or matches(ref.message)):
                if ref.state in (PENDING, SCHEDULED):
                    yield from self._store_ready()
                    yield from self._change(change, ref)
                    cost += CHANGED_COST
                    size += ref.message.size
                    if task.done == selection.limit:
                        remaining = None
                        break
                elif remaining is not None or ref.state == DELIVERING:
                    task.skipped += 1
                    if remaining is not None and ref.state == DELIVERING:
                        task.error = (
                            task.error or f"Message {ref.message.number} is in delivery to a consumer"
                        )
            if cost >= STEP_COST or size >= STEP_BYTES:
                cost = size = 0
                yield None
        if remaining:
            task.skipped += len(remaining)
            task.error = task.error or f"Message {min(remaining)} is not in the queue"
        if not queue.consumers and not queue.deleted:
            queue.broker.consider_deleting(queue)

    def _store_ready(self) -> Iterator[object]:
        """Wait while the write backlog of the store is full. Raises `Refused` after `FULL_TIMEOUT`."""
        limit = self.queue.broker.storage.write_limit
        waited = 0.0
        while limit.full:
            if waited >= FULL_TIMEOUT:
                raise Refused(f"Durable messages are rejected: {limit.fault or 'the disk is too slow'}")
            yield self._pause()
            waited += FULL_INTERVAL

    def _pause(self) -> object:
        return deferLater(self.context.reactor, FULL_INTERVAL)

    def _change(self, change: Change, ref: Reference) -> Iterator[object]:
        """Change one message and count it. Raises `Refused` if the task cannot continue."""
        task, target = self.task, self.target
        waited = 0.0
        while True:
            if target is not None and (
                target.address.deleted or (target.queue is not None and target.queue.deleted)
            ):
                raise Refused(f"{target.describe()} was deleted".capitalize())
            try:
                outcome = change(ref)
            except Refused as refused:  # the task continues with the next message
                task.fail(str(refused))
                return
            if outcome is None or isinstance(outcome, bool):
                task.done += outcome is True
                task.skipped += outcome is False
                return
            if outcome.policy is not FullPolicy.BLOCK or waited >= FULL_TIMEOUT:
                raise Refused(
                    f"{outcome.describe()}; {counted(task.done, 'message')} done, the others stay in queue "
                    f"{self.queue.name}"
                )
            yield self._pause()
            waited += FULL_INTERVAL


def _start(call: Call, operation: str, change: Change, target: Target | None = None) -> Answer | Steps:
    queue = queue_of(call)
    wait = flag("wait", call.body.get("wait", True))
    selection = Selection.of(queue, call.body)
    tasks = call.context.tasks
    task = tasks.new(operation, queue.name, call.user)
    tasks.start(task, QueueTask(call.context, queue, task, target).run(selection, change))
    return _answer_when_ended(task) if wait else _accepted(task)


def _accepted(task: ManagementTask) -> Answer:
    return json_answer(view(task, TASK_FIELDS), 202, {"Location": f"/api/v1/tasks/{task.number}"})


def _answer_when_ended(task: ManagementTask) -> Steps:
    yield task.finished
    if task.state is TaskState.FAILED:
        raise Problem(
            409,
            task.error or "The task failed",
            **{name: TASK_FIELDS[name].read(task) for name in ("taskID", "done", "skipped", "failed")},
        )
    return view(task, TASK_FIELDS)


def _start_sending(call: Call, operation: str, *, remove: bool) -> Answer | Steps:
    """Start a task that sends the messages to the address or the queue in the body."""
    body, queue, kind = call.body, queue_of(call), routing_type(call.body)
    target = publish.move_target(
        queue,
        optional(body, "address"),
        optional(body, "queue"),
        kind,
        permission_check(call),
        call.user,
    )
    mover = Mover(queue, remove=remove)
    return _start(call, operation, lambda ref: mover.send(ref, target), target)


def _removed_when_ended(task: ManagementTask) -> Steps:
    yield task.finished
    if task.state is TaskState.FAILED:
        raise Refused(task.error or "The purge failed")
    return {"removed": task.done}


def _purge(queue: Queue, task: ManagementTask, purged: Iterator[int | PageRead]) -> Iterator[object]:
    for killed in in_slices(purged):
        if isinstance(killed, int):
            task.done += killed
        else:
            yield killed
    if task.done and not queue.consumers:
        queue.broker.consider_deleting(queue)


TASK_FIELDS: Fields[ManagementTask] = {
    "taskID": string("Id of the task.", lambda t: str(t.number)),
    "operation": keyword(
        ("move", "copy", "retry", "remove", "expire", "dead-letter", "priority", "purge"),
        "What the task does.",
        "operation",
    ),
    "queue": string("Queue of the messages.", "queue"),
    "user": string_or_null("User who started it; null without security.", "user"),
    "state": keyword(TaskState, "running, completed, failed or cancelled.", "state"),
    "started": timestamp("Time of the start.", "started"),
    "ended": timestamp("Time of the end; null while it runs.", "ended", null=True),
    "done": integer("Messages changed: moved, copied, retried, removed and so on.", "done"),
    "skipped": integer(
        "Messages in delivery, messages that had left the queue, and scheduled ones that keep their priority.",
        "skipped",
    ),
    "failed": integer("Messages that could not be changed; they stay in the queue.", "failed"),
    "total": integer("Messages selected at the start; null if a filter selects them.", "total", null=True),
    "error": string_or_null(
        "Why the task failed, or why the first message failed or was skipped by its id; null without an error.",
        "error",
    ),
}

TASK = object_of("Task", TASK_FIELDS)

SELECTION: dict[str, Schema] = {
    "messages": array(string("A messageID."), f"Message ids, at most {MAX_IDS}.", maxItems=MAX_IDS),
    "filter": string_or_null("Selector."),
    "limit": integer("Maximum number of messages to change. -1: no limit.", minimum=-1),
    "wait": boolean("False: answer at once with 202 and the task. Default: true."),
}
TARGET = {
    "address": string("Address that the messages go to. Required unless queue is given."),
    "queue": string_or_null("Only queue that receives the messages."),
    "routingType": keyword(RoutingType, "Routing type of an address or queue that does not exist yet."),
    **SELECTION,
}

SELECTED = (
    "messages or filter select the messages; without both, all pending and scheduled messages. Messages in delivery "
    "are skipped. The work is done in slices; each message is one transaction of the journal."
)
DONE = (
    Response("The task, which has ended.", TASK),
    Response("The task, which runs; with wait: false.", TASK, headers=("Location",), status=202),
)


def _task_route(where: str, permissions: PermissionRule, body: Body) -> Callable[[Handler], Route]:
    """The route of a task that changes the selected messages."""
    return route(where, permissions, *DONE, description=SELECTED, body=body, errors=CONFLICT)


@_task_route("POST /api/v1/queues/{name}/move", message_move, Body(TARGET))
def move_messages(call: Call) -> Answer | Steps:
    """Move messages to an address or to a queue.

    If the target is full, no message is lost: the messages that are not moved stay in their queue.
    """
    return _start_sending(call, "move", remove=True)


@_task_route("POST /api/v1/queues/{name}/copy", message_copy, Body(TARGET))
def copy_messages(call: Call) -> Answer | Steps:
    """Copy messages to an address or to a queue."""
    return _start_sending(call, "copy", remove=False)


@_task_route(
    "POST /api/v1/queues/{name}/retry",
    message_retry,
    Body(
        {
            **SELECTION,
            "keepOrigin": boolean("Whether messages keep the _AMQ_ORIG_… headers. Default: false."),
        },
        optional=True,
    ),
)
def retry_messages(call: Call) -> Answer | Steps:
    """Send dead letters and expired messages back to where they came from.

    A message goes to its original queue if that queue still exists, else to its original address. It counts as never
    delivered. The headers of its origin are removed unless keepOrigin is true.
    """
    queue, named, check = queue_of(call), call.body.get("messages") is not None, permission_check(call)
    mover = Mover(queue, remove=True, keep_origin=flag("keepOrigin", call.body.get("keepOrigin", False)))

    def retry(ref: Reference) -> Rejection | bool | None:
        origin = origin_of(ref.message)
        # not a dead letter, or already returned to its original queue
        if origin is None or origin.queue == queue.name:
            if named:
                raise Refused(f"Message {ref.message.number} is not a dead letter of another queue")
            return None
        return mover.send(ref, publish.retry_target(services_of(queue), origin, check, call.user), origin)

    return _start(call, "retry", retry)


@_task_route("POST /api/v1/queues/{name}/remove", edit_queue, Body(SELECTION, optional=True))
def remove_messages(call: Call) -> Answer | Steps:
    """Remove messages; each counts as acknowledged."""
    return _start(call, "remove", publish.take)


@_task_route("POST /api/v1/queues/{name}/expire", edit_queue, Body(SELECTION, optional=True))
def expire_messages(call: Call) -> Answer | Steps:
    """Expire messages now: each goes to the expiry-address of its address, if there is one."""
    return _start(call, "expire", publish.expire)


@_task_route("POST /api/v1/queues/{name}/dead-letter", edit_queue, Body(SELECTION, optional=True))
def send_messages_to_dead_letter_address(call: Call) -> Answer | Steps:
    """Send messages to the dead-letter-address of their address now; each counts as killed."""
    address = queue_of(call).address
    target = address.settings.dead_letter_address
    if target is None:
        raise Refused(f"Address {address.name} has no dead-letter-address: set one, or move the messages")
    if target == address.name:
        raise Refused(
            f"Address {address.name} is its own dead-letter-address: the messages are there already"
        )
    return _start(call, "dead-letter", publish.dead_letter)


@_task_route(
    "POST /api/v1/queues/{name}/priority",
    edit_queue,
    Body({"priority": integer("The new priority, 0 to 9.", maximum=9), **SELECTION}, ("priority",)),
)
def change_messages_priority(call: Call) -> Answer | Steps:
    """Change the priority of pending messages.

    A message goes behind the other messages of its new priority. It gets a new id, and counts as never delivered.
    Scheduled messages are skipped.
    """
    priority = number(0, "priority", call.body.get("priority", -1))
    if not 0 <= priority <= 9:
        raise invalid("priority", "must be a whole number from 0 to 9")
    return _start(
        call, "priority", lambda ref: ref.state == PENDING and publish.change_priority(ref, priority)
    )


@route(
    "POST /api/v1/queues/{name}/purge",
    edit_queue,
    Response(
        "The number of removed messages.",
        structure({"removed": integer("Number of removed messages; each counts as killed.")}),
    ),
    DONE[1],
    body=Body({name: SELECTION[name] for name in ("filter", "wait")}, optional=True),
    errors=CONFLICT,
)
def purge_queue(call: Call) -> Answer | Steps:
    """Remove all pending and scheduled messages, or those that match a selector."""
    queue, tasks = queue_of(call), call.context.tasks
    wait = flag("wait", call.body.get("wait", True))
    text_filter = optional(call.body, "filter")
    purged = queue_browser.purge(queue, text_filter)
    task = tasks.new("purge", queue.name, call.user)
    if text_filter is None:
        task.total = queue.message_count
    tasks.start(task, _purge(queue, task, purged))
    return _removed_when_ended(task) if wait else _accepted(task)


@listing("/api/v1/tasks", view_broker, "tasks", "Task", TASK_FIELDS, searched="queue")
def list_tasks(call: Call) -> list[ManagementTask]:
    """List the tasks that run, and the last 100 that have ended."""
    return list(call.context.tasks)


@route("GET /api/v1/tasks/{id}", view_task, Response("The task.", TASK))
def show_task(call: Call) -> Json:
    """Show one task."""
    return view(call.context.tasks.find(call.names["id"]), TASK_FIELDS)


@route(
    "DELETE /api/v1/tasks/{id}",
    edit_task,
    Response("The task ends after its present slice."),
    errors=CONFLICT,
)
def cancel_task(call: Call) -> None:
    """Cancel a task; its changes so far remain."""
    task = call.context.tasks.find(call.names["id"])
    if task.state is not TaskState.RUNNING:
        raise Refused(f"Task {task.number} has ended: it is {task.state.value}")
    task.cancelled = True
