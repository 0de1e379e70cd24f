"""How many entries each file of a log consists of.

The writer of a log and everybody who reads it count the same. Where the counts differ at the end of the log, the engine
has lost entries: purged ones belong to no file that is there.
"""

from __future__ import annotations

from collections.abc import Mapping

from .log import CONTENT, CONTROLS, FileChange, Operation


class Contents:
    """The entries of the files that are there, since each was made or its last `Operation.REWRITTEN`.

    ``entries`` has them by path, ``total`` is their sum. ``rewrites`` has, of files that are being written again, those
    since `Operation.REWRITE`.
    """

    def __init__(self, entries: Mapping[str, int] | None = None, rewrites: Mapping[str, int] | None = None):
        self.entries = dict(entries or {})
        self.rewrites = dict(rewrites or {})
        self.total = sum(self.entries.values())

    def copy(self) -> Contents:
        """Another one that says the same."""
        return Contents(self.entries, self.rewrites)

    def add(self, change: FileChange) -> None:
        """Count the next entry."""
        path = change.path
        if change.operation in CONTROLS:
            self.total -= self.entries.pop(path, 0)
            self.rewrites.pop(path, None)
        elif change.operation in CONTENT:
            count = self.entries.get(path, 0) + 1
            self.total += 1
            if change.operation is Operation.REWRITE:
                self.rewrites[path] = 1
            elif path in self.rewrites:
                self.rewrites[path] += 1
            if change.operation is Operation.REWRITTEN:
                # 0 where the begin was not read: nobody knows what the file has, and it counts as missing
                since = self.rewrites.pop(path, 0)
                self.total += since - count
                count = since
            self.entries[path] = count

    def before_rewrite(self, path: str) -> int:
        """Entries of a file from before its `Operation.REWRITE`, if it is being written again."""
        return self.entries.get(path, 0) - self.rewrites.get(path, 0)
