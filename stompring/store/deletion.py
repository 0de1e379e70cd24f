"""Retained files go, in the disk thread; and the reactor hears which of them had not been ingested by then."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from stompring.broker.clock import Clock

from .files import Files
from .ingested import INGESTED, Lake, parse_ingested
from .segment import TRAILER, footer_place

log = logging.getLogger(__name__)

#: Milliseconds in which what was not ingested is spoken of once: files may go by the thousand.
SILENCE = 60_000


class Doomed(NamedTuple):
    """A file that is to go, and why."""

    path: Path
    reason: str


class Missed(NamedTuple):
    """A file that went although some lakes did not have all of it."""

    path: Path
    reason: str
    lakes: tuple[str, ...]


class Report(NamedTuple):
    """What came of one try. ``fault`` is what is wrong with the list of what is ingested."""

    missed: list[Missed]
    fault: str | None


class Deletion:
    """A chore: delete files. ``reports`` is read by the reactor; everything else here is the disk thread's alone.

    Where it fails it goes on with the same file at the next try, and nothing is reported twice.
    """

    def __init__(self, directory: Path, doomed: Iterable[Doomed], reports: deque[Report]) -> None:
        self._directory = directory
        self._doomed = deque(doomed)
        self._reports = reports

    def __call__(self, files: Files) -> None:
        """See `Chore`."""
        lakes, fault = self._lakes(files)
        missed: list[Missed] = []
        try:
            while self._doomed:
                path, reason = self._doomed[0]
                lacking = self._lacking(files, path, lakes)
                files.remove(path)
                if lacking:
                    missed.append(Missed(path, reason, lacking))
                self._doomed.popleft()
                self._tidy(files, path.parent)
        finally:
            self._reports.append(Report(missed, fault))

    def _tidy(self, files: Files, folder: Path) -> None:
        """The directory of an address goes with its last page."""
        if folder.parent.parent == self._directory and not files.names(folder):
            files.remove_directory(folder)

    def _lakes(self, files: Files) -> tuple[list[Lake], str | None]:
        """Who ingests. What is wrong there keeps no file from being deleted."""
        path = self._directory / INGESTED
        try:
            return list(parse_ingested(files.read(path)).values()), None
        except FileNotFoundError:
            return [], None
        except OSError as fault:
            return [], f"{path} cannot be read: {fault.strerror or fault}"
        except ValueError as fault:
            return [], f"{path} cannot be understood: {fault}"

    def _lacking(self, files: Files, path: Path, lakes: list[Lake]) -> tuple[str, ...]:
        """The names of the lakes that do not have all of a file."""
        folder, number = path.parent.relative_to(self._directory).as_posix(), int(path.stem)
        end = 0
        if any(folder in lake.positions and lake.positions[folder].number == number for lake in lakes):
            end = _end(files, path)
        return tuple(lake.name for lake in lakes if lake.lacks(folder, number, end))


def _end(files: Files, path: Path) -> int:
    """Where the records of a file end: before its footer, where it has one."""
    try:
        size = files.size(path)
        place = footer_place(files.read(path, max(0, size - TRAILER.size)))
    except OSError:
        return 0  # it cannot be ingested either
    return size if place < 0 else place


class Losses:
    """Counts and tells, on the reactor, of files that went before they were ingested."""

    def __init__(self) -> None:
        self.count = 0
        self.reports: deque[Report] = deque()  # the disk thread adds to it
        self._untold: list[Missed] = []
        self._fault: str | None = None
        self._timer: Any = None
        self._stopped = False

    def collect(self, clock: Clock) -> None:
        """Take in what the disk thread has reported."""
        while self.reports:
            missed, fault = self.reports.popleft()
            if fault is not None and fault != self._fault:
                log.warning("%s; what is deleted is not compared with it", fault)
            self._fault = fault
            self.count += len(missed)
            self._untold += missed
        if self._untold and self._stopped:
            self._tell()
        elif self._untold and self._timer is None:
            self._tell()
            self._timer = clock.steady.call_at(clock.steady.now + SILENCE, lambda: self._rung(clock))

    def _rung(self, clock: Clock) -> None:
        self._timer = None
        clock.refresh()
        self.collect(clock)

    def _tell(self) -> None:
        untold, self._untold = self._untold, []
        lakes = ", ".join(sorted({name for missed in untold for name in missed.lakes}))
        first, last = untold[0], untold[-1]
        if first is last:
            log.warning("%s is deleted before it was ingested into %s: %s", first.path, lakes, first.reason)
            return
        log.warning(
            "%d retained files are deleted before they were ingested into %s; the first is %s: %s; the last is %s: %s",
            len(untold),
            lakes,
            first.path,
            first.reason,
            last.path,
            last.reason,
        )

    def stop(self, clock: Clock) -> None:
        """Tell all, now and from now on; no timer is left behind."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.collect(clock)
        if self._untold:
            self._tell()
