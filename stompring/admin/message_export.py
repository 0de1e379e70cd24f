"""``GET …/export`` and ``POST …/import``: messages of a queue as JSON lines, like those of ``data export``."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from stompring.broker import admission, move, publish
from stompring.broker.message import Message
from stompring.broker.policy_hooks import Offer
from stompring.broker.queue import Queue
from stompring.broker.queue_browser import PageRead, matching
from stompring.broker.reference import GONE, SCHEDULED, Reference
from stompring.broker.transaction import COMMITS
from stompring.errors import Refused
from stompring.store.export import InvalidExport, PortableMessage, QueueEntry

from .access import browse_queue, import_messages
from .api import LINES, NAME, Answer, Call, Problem, Response, Route, Steps, json_answer
from .json_schema import Component, integer, structure
from .messages import FILTER, in_transactions
from .queues import queue_of
from .tasks import background_done, page_read

#: Messages looked at per step.
EXAMINED_PER_STEP = 50

#: Bytes or characters of a body per piece; a multiple of three, so that base64 can be joined.
PIECE = 48 * 1024

#: Lines read, and messages made, per step.
LINES_PER_STEP = 10


def export_messages(call: Call) -> Answer:
    queue = queue_of(call)
    matches = matching(call.query.text("filter"))
    found = move.messages_of(queue, in_transactions(call.context))

    def pieces() -> Iterator[Any]:
        for index, ref in enumerate(found):
            if isinstance(ref, PageRead):
                yield page_read(ref)
            elif ref.state != GONE and (matches is None or matches(ref.message)):
                yield from line_of(ref)
            elif index % EXAMINED_PER_STEP == 0:
                yield b""

    return Answer(pieces(), content_type=LINES)


def line_of(ref: Reference) -> Iterator[bytes]:
    """One message as a line, in pieces: its body may be long."""
    message = ref.message
    due = ref.due if ref.state == SCHEDULED else 0
    entry = QueueEntry(ref.queue.name, ref.deliveries, ref.attempts, int(due), ref.recurrence)
    fields = PortableMessage(
        message.number,
        message.address.name,
        (entry,),
        message.traits,
        b"",
        message.timestamp,
        message.expires,
    ).fields()
    del fields["body"]
    head = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    yield b'{"message":%b,"body":' % head[:-1]
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


def import_all(call: Call) -> Steps:
    queue = queue_of(call)
    read: list[PortableMessage] = []
    for number, line in enumerate(call.raw.split(b"\n"), 1):
        if line.strip():
            read.append(_read_line(line, number))
        if number % LINES_PER_STEP == 0:
            yield None
    for number, portable in enumerate(read, 1):
        message = _message(queue, portable)
        if queue.accepts is not None and not queue.accepts(message):
            raise Problem(400, f"Message {number} does not match the filter of queue {queue.name}")
        if number % LINES_PER_STEP == 0:
            yield None
    if queue.deleted or not queue.open:
        raise Refused(f"Queue {queue.name} accepts no messages now")
    address = queue.address
    durable = any(portable.traits.durable for portable in read)
    headers: dict[bytes, bytes] = {}
    offer = Offer(address.name, read[0].traits, headers) if read and address.hooks.full is not None else None
    rejection = admission.check(address, durable, offer)
    if rejection is not None:
        raise Refused(f"{rejection.describe()}; nothing was imported")
    background = queue.broker.background
    background.run(_enqueue(queue, read), COMMITS)
    yield background_done(background, COMMITS)
    return json_answer({"imported": len(read)})


def _read_line(line: bytes, number: int) -> PortableMessage:
    try:
        found = json.loads(line)
        if not isinstance(found, dict) or found.keys() != {"message"}:
            raise InvalidExport("not an object with the one member message")
        return PortableMessage.of(found["message"])
    except (InvalidExport, ValueError, RecursionError) as fault:
        raise Problem(400, f"Line {number}: {fault}; nothing was imported", line=number) from None


def _message(queue: Queue, portable: PortableMessage) -> Message:
    broker = queue.broker
    now = broker.clock.now
    return replace(portable, timestamp=now).message(broker.next_message_number(), queue.address)


def _enqueue(queue: Queue, read: list[PortableMessage]) -> Iterator[None]:
    """All of them in one transaction of the store, in slices."""
    storage = queue.broker.storage
    storage.begin()
    try:
        for portable in read:
            if queue.deleted:
                return
            entry = portable.places[0]
            due = entry.due if not entry.deliveries else 0
            recurrence = entry.recurrence if due else None
            publish.enqueue(_message(queue, portable), (queue,), due, recurrence)
            yield
    finally:
        storage.commit()


IMPORTED = Component("Imported", structure({"imported": integer("Messages imported.")}))

QUEUE_PATH = "/api/v1/queues/{name}"
ROUTES = (
    Route(
        "GET",
        f"{QUEUE_PATH}/export",
        export_messages,
        browse_queue,
        "exportMessages",
        "Download the messages of a queue as JSON lines.",
        {200: Response("One line for each message.", {"type": "string"}, (LINES,))},
        parameters=(NAME, FILTER),
    ),
    Route(
        "POST",
        f"{QUEUE_PATH}/import",
        import_all,
        import_messages,
        "importMessages",
        "Upload messages as JSON lines, all of one request or none.",
        {200: Response("The number of imported messages.", IMPORTED)},
        "The body is application/x-ndjson: lines of an export.",
        parameters=(NAME,),
        body_type=LINES,
        errors=(409,),
    ),
)
