"""Segments of a journal, generated without a broker, for benchmarks of their readers."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from stompring.store.record import ADDRESS, MESSAGE, NAME, PREFIX, QUEUE, SETTLED, TRAITS, Kind, framed
from stompring.store.segment import HEADER, JOURNAL, Footer, pack_header

#: Bytes of a segment, number of consecutive messages of one queue, number of queues.
SEGMENT, TOGETHER, QUEUES = 10 << 20, 100, 8

BODY = b"x" * 128

#: Headers of a SEND, 145 bytes. With distinct headers the digits are the number of the message.
BLOCK = (
    b"order:000000000\ncustomer:c-000000000\ncontent-type:application/json\npersistent:true\npriority:4\n"
    b"region:eu-central-1\ntrace:7f3a9c\nsource:shop-01\n"
)

#: Milliseconds from the arrival of a message to its acknowledgement.
UNTIL_SETTLED = 5

#: First message number, so that all numbers have the same number of digits.
FIRST = 100_000_000
DIGITS = len(str(FIRST))


def make(directory: Path, messages: int, *, distinct: bool = True, acknowledged: float = 0.5) -> int:
    """Write durable messages into sealed segments below ``directory``/journal. Returns the number of bytes.

    ``distinct``: each message has different headers. ``acknowledged``: share of each hundred, from its first message.
    """
    folder = directory / "journal"
    folder.mkdir(parents=True)
    chunks = _chunks(messages, distinct, acknowledged)
    number, size = 0, 0
    segment = _Segment(_now())
    for chunk, width, count, arrived in chunks:
        segment.add(chunk, width, count)
        segment.footer.include(FIRST, arrived)
        if segment.size >= SEGMENT:
            number += 1
            size += segment.write(folder / f"{number:09d}.journal")
            segment = _Segment(arrived + UNTIL_SETTLED)
    if segment.size > HEADER.size:
        size += segment.write(folder / f"{number + 1:09d}.journal")
    return size


class _Segment:
    def __init__(self, created: int) -> None:
        self.parts = [pack_header(JOURNAL, FIRST, created)]
        self.size = HEADER.size
        self.starts = array("I")
        self.footer = Footer(self.starts)
        for queue in range(1, QUEUES + 1):
            for what in (ADDRESS, QUEUE):
                name = framed(NAME.pack(Kind.NAME, what, 0, queue) + _name(queue))
                self.add(name, len(name), 1)

    def add(self, data: bytes, width: int, count: int) -> None:
        """Append ``count`` records of ``width`` bytes each, and one more record if ``data`` is longer than these."""
        self.starts.extend(range(self.size, self.size + width * count, width))
        if len(data) > width * count:
            self.starts.append(self.size + width * count)
        self.parts.append(data)
        self.size += len(data)

    def write(self, path: Path) -> int:
        data = b"".join(self.parts)
        data += self.footer.ending(data)
        path.write_bytes(data)
        return len(data)


def _now() -> int:
    return int(time.time() * 1000)


def _name(queue: int) -> bytes:
    return b"orders.%d" % queue


def _template(queue: int) -> tuple[bytes, int, int]:
    """Return a record, and the offsets of the number's digits and of the headers in it."""
    destination, origin = b"/queue/" + _name(queue), b"session-1"
    traits = TRAITS.pack(len(BLOCK), len(destination), 0, len(origin), 0) + destination + origin
    own = b"%d\ncontent-length:%d\n" % (FIRST, len(BODY))
    head = own + BLOCK + b"\n"
    fixed = (1, 1, 4, 0, queue, FIRST, 0, 0, 0, 0, len(head), len(BODY), 1, len(traits))
    before = MESSAGE.pack(*fixed) + queue.to_bytes(4, "little") + traits
    at = PREFIX.size + len(before)
    return framed(before + head + BODY + b"\0\n"), at, at + len(own)


def _chunks(messages: int, distinct: bool, acknowledged: float) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield arguments of `_Segment.add` (messages of one queue, then a record of their acknowledgements), and the
    arrival time of the messages (epoch ms)."""
    now = _now()
    templates = [_template(queue) for queue in range(1, QUEUES + 1)]
    powers: Any = 10 ** np.arange(DIGITS - 1, -1, -1)
    for at in range(0, messages, TOGETHER):
        queue = at // TOGETHER % QUEUES + 1
        record, head, block = templates[queue - 1]
        count = min(TOGETHER, messages - at)
        numbers = np.arange(FIRST + at, FIRST + at + count, dtype=np.uint64)
        rows = np.tile(np.frombuffer(record, np.uint8), (count, 1))
        rows[:, 16:24] = numbers.view(np.uint8).reshape(-1, 8)
        times = np.full(count, now + at // 50, np.uint64)  # 50 messages per millisecond
        rows[:, 24:32] = times.view(np.uint8).reshape(-1, 8)
        digits = numbers[:, None].astype(np.int64) // powers % 10 + ord("0")
        rows[:, head : head + DIGITS] = digits
        if distinct:
            for place in (BLOCK.index(b"0"), BLOCK.index(b"-0") + 1):
                rows[:, block + place : block + place + DIGITS] = digits
        crcs = np.array([crc32(row) for row in rows[:, PREFIX.size :].copy()], np.uint32)
        rows[:, 4:8] = crcs.view(np.uint8).reshape(-1, 4)
        done = numbers[: int(count * acknowledged)]
        fact = SETTLED.pack(Kind.SETTLED, 0, 0, queue, now + at // 50 + UNTIL_SETTLED) + done.tobytes()
        yield rows.tobytes() + (framed(fact) if len(done) else b""), len(record), count, now + at // 50
