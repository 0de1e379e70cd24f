"""Maintenance of a lake during a continuous ingest: compaction of small files, and vacuum of unreferenced files.

Both run between two batches, in the process that ingests: nothing else writes to the tables then. Readers see a table
as it was before or as it is after. Files that an incomplete replay reads are not deleted.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .data_files import BUCKET, DATE
from .delta import LakeTable
from .lake import Lake

log = logging.getLogger(__name__)

#: Bytes of the files that compaction makes, about. Smaller than half of that is small.
TARGET_BYTES = 128 << 20

#: Seconds between two times that files of no use are looked for.
VACUUM_INTERVAL = 3600.0


@dataclass(slots=True)
class MaintenanceCounts:
    """What upkeep has done so far, by table: files that were put together, and files that were deleted."""

    compacted: Counter[str] = field(default_factory=Counter)
    vacuumed: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Maintenance:
    """See the module. None for a rule switches it off."""

    lake: Lake
    small_files: int | None = 64  # more of them in one partition of a table are put together
    hours: int | None = 168  # for which a file must have been of no use
    now: Callable[[], float] = time.monotonic
    done: MaintenanceCounts = field(default_factory=MaintenanceCounts)
    _looked: float | None = None

    def run_due(self) -> None:
        """Do what is due. Raises `OSError` and what delta-rs raises: nothing is half done then."""
        if self.small_files is not None:
            for name, table in self.lake.tables.items():
                for date in days_to_compact(table, self.small_files):
                    with self.lake.rewriting():
                        made, gone = table.compact(TARGET_BYTES, date)
                    self.done.compacted[name] += gone
                    log.info("%s of %s: compacted %d files into %d", name, date, gone, made)
            for view in self.lake.views.materialized():
                if view.small_files(TARGET_BYTES // 2) > self.small_files:
                    made, gone = view.compact(TARGET_BYTES)
                    self.done.compacted[view.name] += gone
                    log.info("view %s: compacted %d files into %d", view.name, gone, made)
        if self.hours is not None and (self._looked is None or self.now() - self._looked >= VACUUM_INTERVAL):
            self._looked = self.now()
            self.lake.check_lock()  # it would delete what another process is about to commit
            for name, table in self.lake.tables.items():
                keep = list(needed_versions(self.lake)) if name == "messages" else []
                gone = len(table.vacuum(self.hours, dry_run=False, keep=keep))
                self.done.vacuumed[name] += gone
                if gone:
                    log.info("%s: vacuumed %d files unreferenced for %d hours", name, gone, self.hours)
            for view in self.lake.views.materialized():
                self.done.vacuumed[view.name] += len(view.vacuum(self.hours, dry_run=False))


def days_to_compact(table: LakeTable, most: int) -> list[str]:
    """The days of which some partition has more small files than that."""
    counts = Counter(
        (str(file[f"partition.{DATE}"]), file[f"partition.{BUCKET}"])
        for file in table.actions().to_pylist()
        if file["size_bytes"] < TARGET_BYTES // 2
    )
    return sorted({day for (day, _), count in counts.items() if count > most})


def needed_versions(lake: Lake) -> Iterator[int]:
    """The versions of ``messages`` that replays which are not complete go on with."""
    plans = [one.name for one in lake.state.entries("replays", deep=True) if one.name.endswith("/plan.json")]
    for name in plans:
        if not lake.state.exists(f"{name.rpartition('/')[0]}/complete.json"):
            yield int(lake.state.load(name)["tableVersion"])
