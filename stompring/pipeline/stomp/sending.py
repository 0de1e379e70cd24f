"""What a task of a sink does: its rows to a broker, all or none of them. Knows nothing of Spark.

With duplicate ids a task may be done again after it was committed: by a batch that Spark replays, or when a task died
after its COMMIT and before it said so. A broker that knows the ids refuses that COMMIT. The rows are then sent once
more without a transaction: those that are there are dropped by the broker, and those that are not are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from stompring.pipeline.stomp.connection import BrokerError, Connection
from stompring.pipeline.stomp.kept import Kept
from stompring.pipeline.stomp.options import SinkOptions
from stompring.pipeline.stomp.sends import TRANSACTION, Sends, check_columns

#: Receipts that may be on their way, so that neither side waits for the other between groups.
IN_FLIGHT = 4


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of a task. ``again`` tells that it had been done before, in part at least."""

    rows: int = 0
    again: bool = False


def is_duplicate(refused: BrokerError, header: str) -> bool:
    """Whether an ERROR speaks of a duplicate id: by the name of its header (stompring), or as Artemis has it."""
    text = str(refused)
    return header in text or "duplicate message detected" in text.lower()


def send_rows(options: SinkOptions, prefix: str | None, batches: Iterable[Any]) -> Sent:
    """Send the rows of a task. ``prefix`` begins their duplicate ids, None where none are made.

    Raises `BrokerError`, `ConnectionFailed`, or `ValueError` for a row that cannot be sent; in a transaction nothing
    has been sent then.
    """
    coming = (batch for batch in batches if len(batch))
    first = next(coming, None)
    if first is None:
        return Sent()
    check_columns(first.schema, options)
    sends = Sends(options, prefix)
    every = chain([first], coming)
    has_ids = options.dedup_header is not None and (prefix is not None or "dedup_id" in first.schema.names)
    if not options.transaction:
        return Sent(_in_groups(options, sends, every))
    if not has_ids:
        return Sent(_in_transaction(options, sends, every))
    with Kept() as kept:
        rest = kept.through(every)
        try:
            return Sent(_in_transaction(options, sends, rest))
        except BrokerError as refused:
            if not is_duplicate(refused, options.dedup_header or ""):
                raise
        # some brokers say so at the SEND, when rows are still to come
        return Sent(_in_groups(options, sends, chain(kept.again(), rest)), again=True)


def _in_transaction(options: SinkOptions, sends: Sends, batches: Iterable[Any]) -> int:
    rows = 0
    with Connection(
        options.endpoint
    ) as connection:  # which is dropped when anything fails, and all of it with it
        connection.begin(TRANSACTION)
        for batch in batches:
            for frames, count in sends.pieces(batch, rows, transaction=True):
                connection.send(frames)
                rows += count
        connection.commit(TRANSACTION)
        _take_leave(connection)
    return rows


def _in_groups(options: SinkOptions, sends: Sends, batches: Iterable[Any]) -> int:
    rows = waiting = 0
    with Connection(options.endpoint) as connection:
        for batch in batches:
            for part in _parts(batch, options.receipt_rows - waiting, options.receipt_rows):
                last = waiting + len(part) == options.receipt_rows
                plain = part.slice(0, len(part) - 1) if last else part
                for frames, count in sends.pieces(plain, rows, transaction=False):
                    connection.send(frames)
                    rows += count
                if last:
                    receipt = connection.next_receipt()
                    connection.send(sends.encode(part.slice(len(part) - 1), rows, receipt=receipt))
                    connection.await_receipts(IN_FLIGHT)
                    rows += 1
                waiting = 0 if last else waiting + len(part)
        connection.close()  # whose receipt tells of all that was sent
    return rows


def _parts(batch: Any, first: int, size: int) -> Iterator[Any]:
    """Slices of a batch: ``first`` rows, then ``size`` at a time, then what is left."""
    at = 0
    while at < len(batch):
        part = batch.slice(at, first)
        yield part
        at += len(part)
        first = size


def _take_leave(connection: Connection) -> None:
    """What counts has been done: whether the farewell arrives does not matter."""
    with suppress(OSError, BrokerError):
        connection.say("DISCONNECT")
