"""What a file's tables should hold: read record by record with the tables of docs/store-format.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

from ..store.format_tables import Format, Malformed

FORMAT = Format.of_document()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REASONS = ("acknowledged", "expired", "killed", "replaced")
PLAIN = {"\\n": "\n", "\\r": "\r", "\\c": ":", "\\\\": "\\"}

Row = dict[str, Any]


def time(milliseconds: int) -> datetime | None:
    """As Arrow gives it, None for 0."""
    return EPOCH + timedelta(milliseconds=milliseconds) if milliseconds else None


def payloads(data: bytes) -> Iterator[tuple[str, Row]]:
    """All payloads of a file that is not damaged, those within transactions too."""
    _, at = FORMAT.read("Header", data)
    while at + 8 <= len(data):
        try:
            record, end = FORMAT.read("Record", data, at)
        except Malformed:
            return
        if record["crc"] != crc32(record["payload"]):
            return
        at = end
        title, fields = FORMAT.payload(record["payload"])
        if title == "FOOTER":
            return
        if title != "TRANSACTION":
            yield title, fields
        else:
            for part in fields["parts"]:
                yield FORMAT.payload(part["payload"])


def rows(data: bytes) -> list[Row]:
    """The rows of ``messages``."""
    names: dict[tuple[int, int], str] = {}
    found = []
    for title, fields in payloads(data):
        if title == "NAME":
            names[fields["what"], fields["id"]] = fields["name"]
        elif title == "MESSAGE":
            found += [_message(fields, names, queue) for queue in fields["queues"]]
    return found


def _message(fields: Row, names: dict[tuple[int, int], str], queue: int) -> Row:
    head = fields["head"]
    block = head[len(head) - 1 - fields["block_length"] : -1].decode()
    headers: dict[str, str] = {}
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


def samples(data: bytes) -> list[Row]:
    """The rows of ``samples``."""
    names: dict[tuple[int, int], str] = {}
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


def events(data: bytes) -> list[Row]:
    """The rows of ``events``."""
    names: dict[tuple[int, int], str] = {}
    found: list[Row] = []
    for title, fields in payloads(data):
        if title == "NAME":
            names[fields["what"], fields["id"]] = fields["name"]
            continue
        empty = dict.fromkeys(("time", "address", "message_id", "page", "index", "deliveries", "due"))
        about: Row = {**empty, "queue": names.get((2, fields.get("queue", 0)))}
        if title in ("SETTLED", "PAGE_SETTLED"):
            about |= {"event": REASONS[fields["reason"]], "time": time(fields["time"])}
        elif title in ("STATE", "PAGE_STATE"):
            about |= {"event": "returned", "deliveries": fields["deliveries"], "due": time(fields["due"])}
        if title.startswith("PAGE_"):
            about |= {"address": names.get((1, fields["address"])), "page": fields["page"]}
        if title == "SETTLED":
            found += [about | {"message_id": number} for number in fields["numbers"]]
        elif title == "DELIVERED":
            found += [about | {"event": "delivered", "message_id": each} for each in fields["numbers"]]
        elif title == "STATE":
            found.append(about | {"message_id": fields["number"]})
        elif title == "PAGE_STATE":
            found.append(about | {"index": fields["index"]})
        elif title == "PAGE_SETTLED":
            places = [run["first"] + at for run in fields["runs"] for at in range(run["count"])]
            found += [about | {"index": place} for place in places]
    return found
