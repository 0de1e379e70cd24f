"""What a file's tables should hold: read record by record with the tables of docs/dev/store-format.md."""

import re
from datetime import UTC, datetime, timedelta
from zlib import crc32

from ..store.format_tables import Format, Malformed

FORMAT = Format.of_document()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REASONS = ("acknowledged", "expired", "killed", "replaced")
PLAIN = {"\\n": "\n", "\\r": "\r", "\\c": ":", "\\\\": "\\"}


def time(milliseconds):
    """As Arrow gives it, None for 0."""
    return EPOCH + timedelta(milliseconds=milliseconds) if milliseconds else None


def payloads(data):
    """All payloads of a file that is not damaged, those within transactions too, but those for restarts alone.

    The queues of a MESSAGE are those that have it retained.
    """
    passing = set()
    for title, fields in _payloads(data):
        if title == "SCOPED":
            if fields["scope"] == 2:
                continue
            title, fields = FORMAT.payload(fields["payload"])
        if title == "NAME" and fields["what"] == 2 and fields["passing"]:
            passing.add(fields["id"])
        elif title == "MESSAGE":
            fields["queues"] = _retaining(fields, passing)
        yield title, fields


def _retaining(message, passing):
    """In which of its queues a message is retained."""
    if message["retain"]:
        wants = {1: "all", 2: "none"}[message["retain"][0]]
        if wants == "all":
            return list(message["queues"])
    lasts = message["flags"] & 1 and not message["retain"]
    return [queue for queue in message["queues"] if lasts and queue not in passing]


def _payloads(data):
    _, at = FORMAT.read("Header", data)
    while at + 8 <= len(data):
        try:
            record, end = FORMAT.read("Record", data, at)
        except Malformed:
            return
        if record["crc"] != crc32(record["payload"]):
            return
        if not record["payload"]:
            return  # zeros behind the last record
        at = end
        title, fields = FORMAT.payload(record["payload"])
        if title == "FOOTER":
            return
        if title != "TRANSACTION":
            yield title, fields
        else:
            for part in fields["parts"]:
                yield FORMAT.payload(part["content"])


def rows(data):
    """The rows of ``messages``."""
    names = {}
    found = []
    for title, fields in payloads(data):
        if title == "NAME":
            names[fields["what"], fields["id"]] = fields["name"]
        elif title == "MESSAGE":
            found += [_message(fields, names, queue) for queue in fields["queues"]]
        elif title == "RETAINED":
            for message in retained(fields):
                found += [_message(message, names, queue) for queue in message["queues"]]
    return found


def retained(record):
    """The messages of a RETAINED record, each as a MESSAGE record would have it; ``taken`` has outcome and consumer."""
    at = 0
    for place in range(record["count"]):
        head, size = record["head_lengths"][place], record["lengths"][place]
        tail, at = record["tails"][at : at + size], at + size
        mine = [one for one in record["entries"] if not one["places"] or place in one["places"]]
        yield {
            **record["traits"][record["which"][place]],
            "kind": record["kind"],
            "number": record["numbers"][place],
            "timestamp": record["timestamps"][place],
            "expires": record["expires"][place],
            "due": 0,
            "deliveries": int(all(one["outcome"] == 1 for one in mine)),
            "queues": [one["queue"] for one in mine],
            "written": record["time"],
            "taken": [(one["outcome"], one["consumer"]) for one in mine],
            "head": tail[:head],
            "body": tail[head:-2],
        }


def _message(fields, names, queue):
    head = fields["head"]
    block = head[len(head) - 1 - fields["block_length"] : -1].decode()
    headers = {}
    for line in block.split("\n")[:-1]:
        name, _, value = (re.sub(r"\\.", lambda code: PLAIN[code[0]], part) for part in line.partition(":"))
        headers.setdefault(name, value)
    return {
        "address": names[1, fields["address"]],
        "queue": names[2, queue],
        "message_id": fields["number"],
        "timestamp": time(fields["timestamp"]),
        "expires": time(fields["expires"]),
        "due": time(fields["due"]),
        "priority": fields["priority"],
        "durable": bool(fields["flags"] & 1),
        "deliveries": fields["deliveries"],
        "headers": headers,
        "body": fields["body"],
        "user": fields["user"] or None,
    }


def samples(data):
    """The rows of ``samples``."""
    names = {}
    found = []
    for title, fields in payloads(data):
        if title == "NAME":
            names[fields["what"], fields["id"]] = fields["name"]
        elif title == "SAMPLE":
            for row in fields["queues"]:
                counters = {
                    {"ring": "ring_size"}.get(name, name): value
                    for name, value in row.items()
                    if name not in ("queue", "address")
                }
                address, queue = names[1, row["address"]], names[2, row["queue"]]
                found.append({"time": time(fields["time"]), "address": address, "queue": queue, **counters})
    return found


def events(data):
    """The rows of ``events``, of which those of pages have no number of a message."""
    header, _ = FORMAT.read("Header", data) if len(data) >= 72 else ({"created": 0}, 0)
    every = list(payloads(data))
    names = {(each["what"], each["id"]): each["name"] for title, each in every if title == "NAME"}
    homes = {each["queue"]: each["address"] for title, each in every if title == "QUEUE_ADDRESS"}
    if not homes:
        for title, each in every:
            if title == "MESSAGE" and len(each["queues"]) == 1:
                homes[each["queues"][0]] = each["address"]
    latest = header["created"]
    found = []
    for title, fields in every:
        for about in [fields] if title != "RETAINED" else retained(fields):
            is_message = title == "RETAINED" or (title == "MESSAGE" and _is_new(about))
            told = about["timestamp"] if is_message else about.get("time")
            for row in _events(title, about):
                when = row.pop("when", told)
                latest = max(latest, when or 0)
                queue = row.pop("queue_number")
                row.setdefault("queue", names.get((2, queue)))
                row.setdefault("address", names.get((1, about.get("address", homes.get(queue, 0)))))
                consumer = names.get((4, row.pop("by", about.get("consumer", 0))))
                found.append(
                    {
                        **EMPTY,
                        **row,
                        "time": time(latest if when is None else when),
                        "consumer": consumer,
                    }
                )
    return found


EMPTY = dict.fromkeys(("message_id", "page", "index", "deliveries", "due"))


def _is_new(message):
    return bool(message["flags"] & 16 == 0)


def _events(title, fields):
    about = {"queue_number": fields.get("queue", 0)}
    if title.startswith("PAGE_"):
        about["page"] = fields["page"]
    if title in ("SETTLED", "PAGE_SETTLED"):
        about["event"] = REASONS[fields["reason"] & 127]
    elif title in ("STATE", "PAGE_STATE"):
        about |= {"message_id": fields["number"]} if title == "STATE" else {"index": fields["index"]}
        yield from _states(about, fields)
    if title == "SETTLED":
        for number in fields["numbers"]:
            yield about | {"message_id": number}
    elif title == "DELIVERED":
        for number in fields["numbers"]:
            yield about | {"event": "delivered", "message_id": number}
    elif title == "PAGE_SETTLED":
        for event in ("delivered", about["event"]) if fields["reason"] & 128 else (about["event"],):
            for run in fields["runs"]:
                for at in range(run["count"]):
                    yield about | {"event": event, "index": run["first"] + at}
    elif title == "MESSAGE" and _is_new(fields) and fields["queues"]:
        yield from _added(fields)
    elif title == "RETAINED":
        yield from _added(fields)
        taken = [
            {"message_id": fields["number"], "queue_number": queue, "when": fields["written"]} | {"by": by}
            for queue, (outcome, by) in zip(fields["queues"], fields["taken"], strict=True)
            if outcome == 1
        ]
        for row in taken:
            yield row | {"event": "delivered", "by": 0}
        for row in taken:
            yield row | {"event": "acknowledged"}


def _states(about, fields):
    cause, due, counts = fields["cause"], time(fields["due"]), {"deliveries": fields["deliveries"]}
    if cause == 3:
        yield about | {"event": "added"}
    for _ in range(fields["delivered"]):
        yield about | {"event": "delivered"}
    if cause == 1:
        yield about | counts | {"event": "redelivered"}
    if cause == 2 or (cause == 1 and due):
        yield about | counts | {"event": "scheduled", "due": due}


def _added(fields):
    number = {"message_id": fields["number"]}
    for queue in fields["queues"]:
        yield number | {"queue_number": queue, "event": "added"}
    if fields["due"] > fields["timestamp"]:
        for queue in fields["queues"]:
            yield number | {"queue_number": queue, "event": "scheduled", "due": time(fields["due"])}
    for queue in fields["queues"]:
        for _ in range(fields["deliveries"] if fields["kind"] == 1 else 0):
            yield number | {"queue_number": queue, "event": "delivered"}
    lines = fields["head"].decode().split("\n")[:-1]
    headers = dict(line.partition(":")[::2] for line in lines if ":" in line)
    if fields["flags"] & 96 in (32, 64):
        yield {
            "event": "moved" if fields["flags"] & 64 else "dead-lettered",
            "queue_number": 0,
            "queue": headers["_AMQ_ORIG_QUEUE"],
            "address": headers["_AMQ_ORIG_ADDRESS"],
            "message_id": int(headers["_AMQ_ORIG_MESSAGE_ID"]),
        }
