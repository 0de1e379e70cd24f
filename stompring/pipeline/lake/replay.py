"""Replay of messages of a lake to a broker: each message once, with receipts, in order for each address.

The arguments of a replay identify it. Its state contains the version of the table and the number of parts. If a replay
is interrupted, the next run with the same arguments resumes it: each part continues after its last checkpoint. Messages
that were already sent after this checkpoint are sent again with the same duplicate id, and the broker drops them.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stompring.pipeline.arrays import LONG, indices, integers, integers_of, rows_where, strings
from stompring.pipeline.stomp.connection import Connection
from stompring.pipeline.stomp.options import SinkOptions
from stompring.pipeline.stomp.sink import SendEncoder, data_of, digits, header_lines, pieces_of
from stompring.pipeline.storage import Folder
from stompring.pipeline.workers import error_reporting
from stompring.stomp.frames import header_line

from .delta import DEFAULT_BROKER
from .lake import Lake
from .selection import MessageSelection

#: Number of messages in a group, and maximum number of groups without a receipt. Only the last message of a group
#: requests a receipt.
RECEIPT_MESSAGES, IN_FLIGHT = 1000, 4

#: A part writes a checkpoint after this number of messages or seconds. The number must be well below the broker's
#: `id-cache-size`: the broker recognizes only so many messages as duplicates if they are sent again.
CHECKPOINT_MESSAGES, CHECKPOINT_SECONDS = 4000, 1.0

#: Headers that are not sent again: their values would be wrong now, or the replay sets the header itself.
OMITTED_HEADERS = (
    *("expires", "priority", "persistent", "content-length", "AMQ_SCHEDULED_TIME", "_AMQ_SCHED_DELIVERY"),
    *("AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON"),
    *("original-timestamp", "original-message-id"),
)

_RESULT = "sent bigint, skipped bigint"


class ReplayPlan(NamedTuple):
    """Arguments of a replay. ``destination``: address for all messages; None: their original addresses."""

    choice: MessageSelection
    to: str
    destination: str | None
    name: str  # distinguishes replays with otherwise equal arguments
    version: int = 0  # version of ``messages`` that is replayed
    parts: int = 1
    broker: str | None = None  # the broker whose messages are replayed; None: all messages
    at: int | None = None  # requested version of ``messages``; None: the latest

    @property
    def id(self) -> str:
        """Identifier of the replay, equal for equal arguments."""
        request: list[Any] = [self.choice._asdict(), self.to, self.destination, self.name]
        if self.broker not in (None, DEFAULT_BROKER):  # ids of older replays contain no broker
            request.append(self.broker)
        if self.at is not None:
            request.append(self.at)
        return sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:16]


class Replay:
    """A replay of messages of a lake. Methods raise Spark's exceptions. `run` also raises one if the broker rejects a
    message or closes the connection."""

    def __init__(self, spark: Any, lake: Lake, plan: ReplayPlan) -> None:
        lake.require()
        self._spark = spark
        self._lake = lake
        self._state = lake.state.folder(f"replays/{plan.id}")
        document = self._state.load("plan.json")
        self.resumed = document is not None
        if self.resumed:
            plan = plan._replace(version=int(document["tableVersion"]), parts=int(document["parts"]))
        else:
            plan = plan._replace(version=lake.tables["messages"].open(plan.at).version())
        self.plan = plan

    def selected(self) -> Any:
        """Return the selected rows, one for each message and queue. Raises `InvalidCondition`."""
        messages = self._lake.tables["messages"].frame(self._spark, version=self.plan.version)
        if self.plan.broker is not None:
            messages = messages.where(messages.broker == self.plan.broker)
        return self.plan.choice.of(messages)

    def summary(self) -> list[Any]:
        """Return for each address the number of messages, their bytes, and the first and last timestamp."""
        from pyspark.sql import functions as F

        once = self.selected().select("address", "message_id", "timestamp", F.length("body").alias("size"))
        rows = (
            once.dropDuplicates(["message_id"])
            .groupBy("address")
            .agg(
                F.count("*").alias("messages"),
                F.sum("size").alias("bytes"),
                F.min("timestamp").alias("first"),
                F.max("timestamp").alias("last"),
            )
        )
        return list(rows.orderBy("address").collect())

    def run(self, options: SinkOptions, rate: float | None = None) -> tuple[int, int]:
        """Send the messages. Returns the number of messages that this run has sent, and that earlier runs had sent.
        ``rate``: maximum messages per second."""
        from pyspark.sql.functions import col, concat, lit

        plan = self.plan
        selected = self.selected()
        if not self.resumed:
            about = {"version": 1, "tableVersion": plan.version, "parts": plan.parts, "to": plan.to}
            self._state.save("plan.json", about)
        prefix = f"{self._lake.id[:12]}-{plan.id}-"
        columns = ["message_id", "timestamp", "priority", "headers", "body"]
        columns += [concat(lit(prefix), col("message_id")).alias("dedup_id")]
        columns += [] if plan.destination is not None else [col("address").alias("destination")]
        rows = selected.repartition(plan.parts, col("address")).sortWithinPartitions("message_id")
        sender = partial(_send_part, self._state, options, None if rate is None else rate / plan.parts)
        found = rows.select(*columns).mapInArrow(sender, _RESULT).collect()
        sent, skipped = sum(row.sent for row in found), sum(row.skipped for row in found)
        self._state.save("complete.json", {"sent": sent + skipped})
        return sent, skipped

    @property
    def complete(self) -> int | None:
        """Number of messages that a complete replay has sent, None if it is not complete."""
        document = self._state.load("complete.json")
        return None if document is None else int(document["sent"])

    def sent(self) -> int:
        """Return the number of messages that were sent before the last checkpoints of all parts."""
        return sum(_checkpoint_of(self._state, part)[1] for part in range(self.plan.parts))


def _checkpoint_of(state: Folder, part: int) -> tuple[int, int]:
    """Return two numbers from a part's checkpoint: the message number of the last message that was sent (-1: none), and
    the count of messages that were sent."""
    document = state.load(f"part-{part}.json")
    return (-1, 0) if document is None else (int(document["message"]), int(document["sent"]))


def _send_part(
    state: Folder, options: SinkOptions, rate: float | None, batches: Iterator[Any]
) -> Iterator[Any]:
    """Send the rows of one part, at most ``rate`` messages a second. Called in tasks."""
    from pyspark import TaskContext

    with error_reporting():
        part = TaskContext.get().partitionId()
        last, before = _checkpoint_of(state, part)
        coming, count = _new_rows(batches, last), before
        first = next(coming, None)
        if first is not None:
            with Connection(options.endpoint) as connection:
                sending = _PartSender(
                    state, part, connection, SendEncoder(options, None, OMITTED_HEADERS), rate, before
                )
                for rows in chain.from_iterable(map(pieces_of, chain([first], coming))):
                    sending.send(rows)
                sending.finish()
                count = sending.count
        row = [integers(np.array([each]), LONG) for each in (count - before, before)]
        yield pa.RecordBatch.from_arrays(row, ["sent", "skipped"])


def _new_rows(batches: Iterator[Any], last: int) -> Iterator[Any]:
    """Yield one row of each message with a number above ``last``. The given rows are ordered by message number."""
    for batch in batches:
        found = integers_of(batch.column(0), np.int64)
        new = (found > last) & (np.diff(found, prepend=last) > 0)
        if new.any():
            last = int(found[-1])
            yield rows_where(new, batch)


@dataclass
class _PartSender:
    """The sender of one part."""

    state: Folder
    part: int
    connection: Connection
    encoder: SendEncoder
    rate: float | None
    count: int  # messages sent, including those of earlier runs

    def __post_init__(self) -> None:
        # for each group without a receipt: number of its last message, and ``count`` after the group
        self._waiting: deque[tuple[int, int]] = deque()
        self._began, self._begun_with = time.monotonic(), self.count
        self._checkpoint, self._checkpoint_at = self.count, self._began
        rate = self.rate
        self._group = RECEIPT_MESSAGES if rate is None else max(1, min(RECEIPT_MESSAGES, int(rate / 10)))

    def send(self, rows: Any) -> None:
        """Encode rows, and send them in groups. The last frame of each group has a ``receipt`` header."""
        numbers = integers_of(rows.column(0), np.int64)
        ends = [*range(self._group, len(rows), self._group), len(rows)]
        receipts = strings(
            [None, *(header_line(b"receipt", self.connection.next_receipt().encode()) for _ in ends)]
        )
        which = np.zeros(len(rows), np.int64)
        which[np.array(ends) - 1] = np.arange(1, len(ends) + 1)
        request = receipts.cast(pa.binary()).take(indices(which))
        sent = rows.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        origin = ((b"original-timestamp", sent), (b"original-message-id", rows.column("message_id")))
        lines = [*(header_lines(name, digits(values)) for name, values in origin), request]
        frames = self.encoder.frames(rows, 0, lines=lines)
        for group, (at, end) in enumerate(pairwise([0, *ends]), 1):
            self.connection.send(data_of(frames.slice(at, end - at)))
            self.count += end - at
            self._waiting.append((int(numbers[end - 1]), self.count))
            self._settle(IN_FLIGHT, unsent=len(ends) - group)
            if self.rate is not None:
                ahead = (self.count - self._begun_with) / self.rate - (time.monotonic() - self._began)
                time.sleep(max(ahead, 0))

    def finish(self) -> None:
        """Wait for all receipts, and close the connection."""
        self._settle(0)
        self.connection.close()

    def _settle(self, most: int, unsent: int = 0) -> None:
        """Wait until at most ``most`` sent groups have no receipt. Write a checkpoint if it is due. ``unsent``: number
        of groups that already have a receipt id, but are not sent yet."""
        self.connection.await_receipts(most + unsent)
        known = None
        while len(self._waiting) > most:
            known = self._waiting.popleft()
        if known is None:
            return
        (message, sent), now = known, time.monotonic()
        due = (
            sent - self._checkpoint >= CHECKPOINT_MESSAGES or now - self._checkpoint_at >= CHECKPOINT_SECONDS
        )
        if due or not most:
            self.state.save(f"part-{self.part}.json", {"message": message, "sent": sent})
            self._checkpoint, self._checkpoint_at = sent, now
