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

from stompring.pipeline.backlog import DataLoss, Limit, Replaced, newest, oldest, ranges_between
from stompring.pipeline.files import DataFiles, packed
from stompring.pipeline.options import Options
from stompring.pipeline.positions import START, Position, Positions, Range, dumped, loaded
from stompring.pipeline.reading import read_files
from stompring.pipeline.schema import ENDINGS

log = logging.getLogger(__name__)

#: In an offset, beside the folders: up to where in the journal a copy may be all that is left of a message. It stays
#: as it is while the query lives.
COPIES = "copies"

#: Beside them too: the identity of the data directory, where it has one. Offsets of earlier versions have none.
IDENTITY = "identity"

Offset = dict[str, str]


class Part(InputPartition):
    """What one task reads. ``copies``: messages that the broker has written once more are rows too.

    ``identity`` is that of the data directory: files of another one are left out.
    """

    def __init__(self, ranges: Sequence[Range], copies: bool, identity: bytes | None = None) -> None:
        super().__init__(tuple(ranges))
        self.copies = copies
        self.identity = identity


class StompringStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module. Spark makes it, copies it and sends it about: it opens nothing before it is asked something."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._endings = ENDINGS[options.wanted.table]
        self._seen: dict[str, Position] | None = None  # the last positions that Spark asked about
        self._until: dict[str, Position] | None = None  # where Trigger.AvailableNow ends
        self._identity: bytes | None = None  # of the directory, as it was when Spark asked last

    # ---- Spark's names

    def initialOffset(self) -> Offset:  # noqa: N802
        """Where a query begins that has no checkpoint yet."""
        files = self._files()
        files.require()
        self._identity = files.identity()
        if self._options.streaming.latest:
            return self._offset(newest(files, self._endings, {}))
        begin = oldest(files, self._endings)
        first = begin.get("journal", START).number
        if self._options.wanted.copies is None and first > 1:  # what was before it may be in copies alone
            begin[COPIES] = newest(files, (".journal",), {})["journal"]
        return self._offset(begin)

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
        asked, since = self._options.streaming, self._since(start)
        most = Limit()
        if not isinstance(limit, ReadAllAvailable):
            most = Limit(asked.bytes, asked.files, asked.rows)
        self._seen = newest(self._files(), self._endings, since, most, self._until)
        return self._offset(self._seen)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Where the data ends, for the progress that Spark tells."""
        if self._seen is None:
            return None
        return self._offset(newest(self._files(), self._endings, self._seen))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What comes from now on is left for another query."""
        self._until = newest(self._files(), self._endings, {})

    def partitions(self, start: Mapping[str, str], end: Mapping[str, str]) -> Sequence[Part]:
        """The tasks of a batch. Raises `DataLoss`."""
        since, until = positions_of(start), self._since(end)
        files, wanted = self._files(), self._options.wanted
        ranges, lost = ranges_between(files, self._endings, since, until)
        if lost:
            self._lost(", ".join(map(str, lost)))
        if wanted.addresses or wanted.since is not None or wanted.until is not None:
            ranges = [each for each in ranges if files.may_have(each[0].name, wanted)]
        if wanted.copies is not None or COPIES not in until:
            return self._parts(ranges, bool(wanted.copies))
        with_copies, without = parted(ranges, until[COPIES])
        return self._parts(with_copies, True) + self._parts(without, False)

    def read(self, partition: Part) -> Iterator[Any]:
        """Record batches of one task's files."""
        wanted = replace(self._options.wanted, copies=partition.copies)
        gone = self._lost
        files = DataFiles.of(self._options, partition.identity)
        return read_files(files, partition.value, wanted, gone)

    # ----

    def _files(self) -> DataFiles:
        return DataFiles.of(self._options)

    def _parts(self, ranges: Sequence[tuple[Range, int]], copies: bool) -> list[Part]:
        return [Part(part, copies, self._identity) for part in packed(ranges)]

    def _offset(self, positions: Positions) -> Offset:
        offset = dumped(positions)
        return offset if self._identity is None else {**offset, IDENTITY: self._identity.hex()}

    def _since(self, offset: Mapping[str, str]) -> dict[str, Position]:
        """The positions of an offset, if they are of this directory. Raises `Replaced`."""
        files = self._files()
        files.require()
        self._identity = files.identity()
        was, now = offset.get(IDENTITY), self._identity and self._identity.hex()
        if was is not None and was != now:
            raise Replaced(
                f"the data directory {files.root} has {f'the identity {now}' if now else 'no identity'}, and the query "
                f"has read one with the identity {was}: it is the directory of another broker, or was wiped and begun "
                "anew. Give the query the directory that it has read, or a new checkpoint"
            )
        return positions_of(offset)

    def _lost(self, what: str) -> None:
        if self._options.streaming.fail:
            raise DataLoss(self._options.root, what)
        log.warning("%s: %s was deleted before it was read", self._options.root, what)


def positions_of(offset: Mapping[str, str]) -> dict[str, Position]:
    """The positions alone."""
    return loaded({folder: text for folder, text in offset.items() if folder != IDENTITY})


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
