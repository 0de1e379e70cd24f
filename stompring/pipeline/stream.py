"""``spark.readStream.format("stompring")``: what comes to a data directory, in batches between two offsets.

An offset is `positions` in the broker's files, as JSON. It says alone what a batch has: one that is repeated after a
crash is the same as before. Nothing is told to the broker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from stompring.pipeline.backlog import DataLoss, Limit, newest, oldest, ranges_between
from stompring.pipeline.files import DataFiles, packed
from stompring.pipeline.options import Options
from stompring.pipeline.positions import START, Position, Range, dumped, loaded
from stompring.pipeline.reading import read_files
from stompring.pipeline.schema import ENDINGS

log = logging.getLogger(__name__)

#: In an offset, beside the folders: up to where in the journal a copy may be all that is left of a message. It stays
#: as it is while the query lives.
COPIES = "copies"

Offset = dict[str, str]


class Part(InputPartition):
    """What one task reads. ``copies``: messages that the broker has written once more are rows too."""

    def __init__(self, ranges: Sequence[Range], copies: bool) -> None:
        super().__init__(tuple(ranges))
        self.copies = copies


class StompringStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module. Spark makes it, copies it and sends it about: it opens nothing before it is asked something."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._endings = ENDINGS[options.wanted.table]
        self._seen: dict[str, Position] | None = None  # the last positions that Spark asked about
        self._until: dict[str, Position] | None = None  # where Trigger.AvailableNow ends

    # ---- Spark's names

    def initialOffset(self) -> Offset:  # noqa: N802
        """Where a query begins that has no checkpoint yet."""
        files = self._files()
        if self._options.streaming.latest:
            return dumped(newest(files, self._endings, {}))
        begin = oldest(files, self._endings)
        first = begin.get("journal", START).number
        if self._options.wanted.copies is None and first > 1:  # what was before it may be in copies alone
            begin[COPIES] = newest(files, (".journal",), {})["journal"]
        return dumped(begin)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One of those that the options name, for Spark takes no more than one."""
        asked = self._options.streaming
        if asked.bytes is not None:
            return ReadMaxBytes(asked.bytes)
        if asked.files is not None:
            return ReadMaxFiles(asked.files)
        return ReadAllAvailable() if asked.rows is None else ReadMaxRows(asked.rows)

    def latestOffset(self, start: Mapping[str, str], limit: ReadLimit) -> Offset:  # noqa: N802
        """Where the next batch ends. A limit that Spark gives is one of the options', and all of those go with it."""
        asked, since = self._options.streaming, loaded(start)
        most = Limit()
        if not isinstance(limit, ReadAllAvailable):
            most = Limit(asked.bytes, asked.files, asked.rows)
        self._seen = newest(self._files(), self._endings, since, most, self._until)
        return dumped(self._seen)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Where the data ends, for the progress that Spark tells."""
        return None if self._seen is None else dumped(newest(self._files(), self._endings, self._seen))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What comes from now on is left for another query."""
        self._until = newest(self._files(), self._endings, {})

    def partitions(self, start: Mapping[str, str], end: Mapping[str, str]) -> Sequence[Part]:
        """The tasks of a batch. Raises `DataLoss`."""
        files, wanted, until = self._files(), self._options.wanted, loaded(end)
        ranges, lost = ranges_between(files, self._endings, loaded(start), until)
        if lost:
            self._lost(", ".join(map(str, lost)))
        if wanted.addresses or wanted.since is not None or wanted.until is not None:
            ranges = [each for each in ranges if files.may_have(each[0].name, wanted)]
        if wanted.copies is not None or COPIES not in until:
            return [Part(part, bool(wanted.copies)) for part in packed(ranges)]
        with_copies, without = parted(ranges, until[COPIES])
        return [Part(part, True) for part in packed(with_copies)] + [
            Part(part, False) for part in packed(without)
        ]

    def read(self, partition: Part) -> Iterator[Any]:
        """Record batches of one task's files."""
        wanted = replace(self._options.wanted, copies=partition.copies)
        gone = self._lost
        return read_files(self._files(), partition.value, wanted, gone)

    # ----

    def _files(self) -> DataFiles:
        return DataFiles.of(self._options)

    def _lost(self, what: str) -> None:
        if self._options.streaming.fail:
            raise DataLoss(self._options.root, what)
        log.warning("%s: %s was deleted before it was read", self._options.root, what)


def parted(
    ranges: Sequence[tuple[Range, int]], border: Position
) -> tuple[list[tuple[Range, int]], list[tuple[Range, int]]]:
    """Ranges of the journal before a position, and all others."""
    before: list[tuple[Range, int]] = []
    others: list[tuple[Range, int]] = []
    for one, size in ranges:
        path = PurePosixPath(one.name)
        number = int(path.stem)
        if path.suffix != ".journal" or number > border.number:
            others.append((one, size))
        elif number < border.number or 0 <= one.stop <= border.offset:
            before.append((one, size))
        elif one.start >= border.offset:
            others.append((one, size))
        else:
            first = border.offset - one.start
            before.append((one._replace(stop=border.offset), first))
            others.append((one._replace(start=border.offset), max(size - first, 0)))
    return before, others
