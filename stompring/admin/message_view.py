"""A message in a queue as JSON."""

from __future__ import annotations

import base64
import codecs
from typing import Any

from stompring.broker.message import Message
from stompring.broker.reference import SCHEDULED, STATES, Reference

#: Bytes of a body that are shown, unless less is asked for. The whole body is for consumers.
BODY_SHOWN = 64 * 1024


def message_view(ref: Reference, body_limit: int = BODY_SHOWN) -> dict[str, Any]:
    """Everything about a message; ``dueTime`` and ``recurrence`` while it is scheduled, else null."""
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
    """The message-id that consumers of the queue see."""
    return f"{ref.queue.number}-{ref.message.number}"


def recurrence_view(ref: Reference) -> dict[str, Any] | None:
    """How a scheduled message goes on after its due time; ``repeat`` is what is left, -1 for no end."""
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
    """The body, or its first ``limit`` bytes: as text where that is UTF-8, else in base64; ``encoding`` tells which."""
    end = len(message.tail) - 2
    length = end - message.body_at
    shown = message.tail[message.body_at : min(end, message.body_at + limit)]
    whole = len(shown) == length
    try:
        # of a body that was cut the last character may be torn: it is left out
        text, encoding = codecs.getincrementaldecoder("utf-8")().decode(shown, final=whole), "text"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(shown).decode(), "base64"
    return {"body": text, "encoding": encoding, "bodySize": length, "bodyTruncated": not whole}
