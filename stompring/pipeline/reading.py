"""From ranges of files to record batches: what a task does. Knows nothing of Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stompring.pipeline.columns import message_batches
from stompring.pipeline.events import Resolve, event_batches
from stompring.pipeline.files import DataFiles
from stompring.pipeline.options import Wanted
from stompring.pipeline.positions import Range
from stompring.pipeline.records import Records
from stompring.pipeline.samples import sample_batches

log = logging.getLogger(__name__)


def table_batches(records: Records, wanted: Wanted, resolve: Resolve | None = None) -> Iterator[Any]:
    """Record batches of one table, from the records of a file."""
    if wanted.table == "messages":
        copies = False if wanted.copies is False else None if wanted.below is None else True
        return message_batches(records, wanted, copies=copies)
    if wanted.table == "events":
        return event_batches(records, wanted, resolve)
    return sample_batches(records, wanted)


def batches(data: bytes, wanted: Wanted, name: str = "", resolve: Resolve | None = None) -> Iterator[Any]:
    """Record batches of a file's bytes. What cannot be read is left out, and told in the log under ``name``."""
    records = Records(data)
    yield from table_batches(records, wanted, resolve)
    tell_faults(records, name)


def tell_faults(records: Records, name: str) -> None:
    """What of a file could not be read, to the log."""
    for fault in records.faults:
        log.warning("%s at %d: %s; it is left out", name, fault.at, fault.reason)
    if records.torn is not None:
        log.info("%s ends at %d: %s", name, records.torn.at, records.torn.reason)


def read_files(
    files: DataFiles, ranges: Iterable[Range], wanted: Wanted, gone: Callable[[str], None] | None = None
) -> Iterator[Any]:
    """Record batches of some ranges, one file after the other. ``gone`` is called with files that are not there."""
    for name, start, stop in ranges:
        data = files.read(name)
        if data is not None and (why := files.misplaced(name, data)):
            log.warning("%s/%s: %s; it is left out", files.root, name, why)
        elif data is not None:
            records = Records(data, start, stop)
            yield from table_batches(records, wanted, files.page_messages)
            tell_faults(records, name)
        elif gone is not None:
            gone(name)
