"""A data directory as a whole: the journal read through, the pages ready to be."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from operator import attrgetter
from pathlib import Path

from .inspection import Findings, Held, Inspection, Progress
from .inspection_files import Snapshot
from .inspection_pages import FolderContents

#: Pages that may be in memory at once.
SIDE_BY_SIDE = 8


class Contents:
    """What is in a data directory. Making one reads the journal."""

    def __init__(self, snapshot: Snapshot, findings: Findings, progress: Progress) -> None:
        self.snapshot = snapshot
        self._progress = progress
        self.journal = journal = Inspection(snapshot, findings, progress)
        seen: set[int] = set()
        self.folders = [FolderContents(folder, journal, findings, seen) for folder in snapshot.folders]

    def paged(self) -> Iterator[tuple[FolderContents, Iterator[Held]]]:
        """What is left in the pages, folder by folder."""
        for folder in self.folders:
            yield folder, self._watched(folder)

    def messages(self) -> Iterator[Held]:
        """Everything that a broker would find when it starts, by number."""
        sparse = len(self.folders) > SIDE_BY_SIDE
        pages = [self._watched(folder, sparse=sparse) for folder in self.folders]
        return merge(self.journal.in_journal(), *pages, key=attrgetter("number"))

    def _watched(self, folder: FolderContents, *, sparse: bool = False) -> Iterator[Held]:
        for page in folder.pages:
            yield from page.sparse_messages() if sparse else page.messages()
            self._progress(page.file.size)


def ignore(path: Path, position: int, text: str) -> None:
    """For those who want to know what is there, and not what is wrong with it."""
