"""What the broker is done with is kept for a while instead of deleted (``journal-retention-directory``).

Files come here as they are, by a rename where the directory is on the same disk: complete segments of the journal,
pages in which nothing is left, and samples. They go after their period, or when all of them take more than the storage
limit, the oldest first.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from stompring.broker.clock import Clock
from stompring.errors import StoreError
from stompring.settings.model import Retention as Settings

from .datadir import IDENTITY, identity_text, read_identity
from .deletion import Deletion, Doomed, Losses
from .files import Files
from .ingested import INGESTED, parse_ingested
from .segment import NO_IDENTITY
from .stream import Stream
from .writer import Writer

log = logging.getLogger(__name__)

#: Directories within the one for retention, as beside it. ``paging`` has one for each address again.
JOURNAL, PAGING, SAMPLES = "journal", "paging", "samples"

#: Files that are kept: a number, and what they are.
RETAINED = re.compile(r"(\d{9,})\.(journal|page|samples)")

#: The longest time until a file whose period is over is looked for, ms: a timer cannot be set for years.
LONGEST = 3_600_000


class Retained(NamedTuple):
    """One file. ``since`` is when it came here (epoch ms)."""

    since: int
    path: Path
    size: int


class Retention:
    """See the module. ``files``, ``bytes`` count what is there, ``deleted`` what has gone since the start."""

    def __init__(
        self,
        settings: Settings,
        directory: Path,
        writer: Writer,
        clock: Clock,
        identity: bytes = NO_IDENTITY,
    ) -> None:
        self.directory = directory
        self.identity = identity  # of the data directory whose files come here
        self.bytes = 0
        self.deleted = 0
        self.last_page = 0  # the greatest number of a page that was here at the start
        self.last_samples = 0
        self.clock = clock
        self.settings = settings
        self._writer = writer
        self._retained: deque[Retained] = deque()  # the oldest first
        self._timer: Any = None
        self._losses = Losses()

    @property
    def files(self) -> int:
        """How many files there are."""
        return len(self._retained)

    def begin(self) -> None:
        """Find what an earlier run has kept. Reads directories: before the broker is up. Raises `StoreError`."""
        files, found = self._writer.files, []
        self._identify(files)
        for folder in self._folders(files):
            for name in files.names(folder):
                match = RETAINED.fullmatch(name)
                if match is None:
                    continue
                size, modified = files.status(folder / name)
                found.append(Retained(modified, folder / name, size))
                if match[2] == "page":
                    self.last_page = max(self.last_page, int(match[1]))
                elif match[2] == "samples":
                    self.last_samples = max(self.last_samples, int(match[1]))
        self._go_on_behind(files)
        self._retained = deque(sorted(found))
        self.bytes = sum(one.size for one in found)
        self.enforce()

    def _identify(self, files: Files) -> None:
        """A copy of the identity, for those who have this directory alone."""
        path = self.directory / IDENTITY
        try:
            known = read_identity(files, path)
            if known is None and self.identity != NO_IDENTITY:
                files.replace(path, identity_text(self.identity))
        except OSError as fault:
            raise StoreError(fault.strerror or str(fault), str(fault.filename or path), 0) from None
        if known is not None and known != self.identity != NO_IDENTITY:
            raise StoreError(
                f"files of the data directory {known.hex()} are retained here, and this one is "
                f"{self.identity.hex()}: each data directory needs a journal-retention-directory of its own",
                str(path),
                0,
            )

    def _go_on_behind(self, files: Files) -> None:
        """Numbers that were ingested are not given again, be the files gone: who reads on would pass over them."""
        try:
            lakes = parse_ingested(files.read(self.directory / INGESTED)).values()
        except (OSError, ValueError):
            return  # there is none, or `Deletion` tells of it
        for lake in lakes:
            for folder, (number, offset) in lake.positions.items():
                last = number if offset else number - 1
                if folder.startswith(f"{PAGING}/"):
                    self.last_page = max(self.last_page, last)
                elif folder == SAMPLES:
                    self.last_samples = max(self.last_samples, last)

    def _folders(self, files: Files) -> list[Path]:
        paging = self.directory / PAGING
        return [
            self.directory / JOURNAL,
            self.directory / SAMPLES,
            *(paging / name for name in files.names(paging)),
        ]

    # ---- files come

    def keep_segment(self, path: Path, size: int) -> None:
        """A complete segment of the journal in which nothing counts any more."""
        self._keep(path, self.directory / JOURNAL / path.name, size)

    def keep_page(self, path: Path, size: int) -> None:
        """A page in which nothing is left."""
        self._keep(path, self.directory / PAGING / path.parent.name / path.name, size)

    def open(self, path: Path) -> Stream:
        """A file that is written here from the start."""
        return self._writer.open(path)

    def own(self, path: Path, size: int) -> None:
        """A file that was written here is complete."""
        self._note(path, size)

    def _keep(self, path: Path, target: Path, size: int) -> None:
        self._writer.chore(lambda files: files.move(path, target))
        self._note(target, size)

    def _note(self, path: Path, size: int) -> None:
        self._retained.append(Retained(self.clock.now, path, size))
        self.bytes += size
        self.enforce()

    # ---- files go

    def enforce(self) -> None:
        """Delete what is too old, and the oldest while there is too much."""
        period, limit = self.settings.period, self.settings.storage_limit
        retained, now = self._retained, self.clock.now
        doomed: list[Doomed] = []
        while retained:
            oldest = retained[0]
            if 0 <= period <= now - oldest.since:
                doomed.append(self._doom(f"its period of {period} ms is over", logging.DEBUG))
            elif 0 <= limit < self.bytes:
                doomed.append(self._doom(f"storage-limit {limit} is reached", logging.INFO))
            else:
                break
        if doomed:
            self._writer.chore(Deletion(self.directory, doomed, self._losses.reports))
            self._writer.with_next(self._collect)
        if retained and period >= 0 and self._timer is None:
            due = min(retained[0].since + period, now + LONGEST)
            self._timer = self.clock.call_at(due, self._rung)

    def _rung(self) -> None:
        self._timer = None
        self.clock.refresh()
        self.enforce()

    def _doom(self, reason: str, level: int) -> Doomed:
        oldest = self._retained.popleft()
        self.bytes -= oldest.size
        self.deleted += 1
        log.log(level, "%s is deleted: %s", oldest.path, reason)
        return Doomed(oldest.path, reason)

    @property
    def deleted_not_ingested(self) -> int:
        """How many files have gone before all lakes had them (`store.ingested`), as far as the disk has told."""
        self._collect()  # those too whose deletion failed at first: nobody is called for them
        return self._losses.count

    def _collect(self) -> None:
        self._losses.collect(self.clock)

    def stop(self) -> None:
        """No timer is left behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._losses.stop(self.clock)
