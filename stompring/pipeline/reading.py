"""From the names of files to record batches: what a task does. Knows nothing of Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stompring.pipeline.columns import message_batches
from stompring.pipeline.events import event_batches
from stompring.pipeline.files import DataFiles
from stompring.pipeline.options import Wanted
from stompring.pipeline.records import Records
from stompring.pipeline.samples import sample_batches

log = logging.getLogger(__name__)

BATCHES: dict[str, Callable[[Records, Wanted], Iterator[Any]]] = {
    "messages": message_batches,
    "events": event_batches,
    "samples": sample_batches,
}


def batches(data: bytes, wanted: Wanted, name: str = "") -> Iterator[Any]:
    """Record batches of a file's bytes. What cannot be read is left out, and told in the log under ``name``."""
    records = Records(data)
    yield from BATCHES[wanted.table](records, wanted)
    for fault in records.faults:
        log.warning("%s at %d: %s; it is left out", name, fault.at, fault.reason)
    if records.torn is not None:
        log.info("%s ends at %d: %s", name, records.torn.at, records.torn.reason)


def read_files(files: DataFiles, names: Iterable[str], wanted: Wanted) -> Iterator[Any]:
    """Record batches of some files, one file after the other."""
    for name in names:
        data = files.read(name)
        if data is not None:
            yield from batches(data, wanted, name)
