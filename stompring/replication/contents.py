"""Which entries the files of a log consist of, in one number that the writer and every reader keep.

Each entry that changes or ends a file has a *serial*: the first one of a log has 1, the next one 2, across all writers.
A file consists of its changes since it was made, or since its last rewrite. The *digest* of files is the sum of
`weight` over the serials of these changes. A beat has the digest of all files that are there (`Summary`), the end of a
file has the digest of that file. A change adds its weight, an end subtracts the digest of its file.

**What is noticed.** Any entries may be lost, changes and ends of files mixed as they come. At a beat, the reader's
digest and that of the beat are sums over two sets of serials: the changes that the reader's files consist of, and those
that the writer's consist of. Where the sets are equal the files are equal: they are the same entries in the same order.
Where the sets differ, so do the digests: their difference has the weight of each change that is in one set alone, added
or subtracted once, and no two are the same. A hash that is as good as random gives 0 for that with a probability of
2^-64, whichever entries are lost.

Behind the newest beat, a reader adds the weights of serials that it has not read to the digest that it expects, and
takes away the digests that ends of files name. An end that is lost adds its own weight, which no file has. The engine
knows the sequence of the last entry, so that those at the very end are missed, too; and it keeps the newest beat, so
that a log with changes and without a beat has lost one. Losses are faults, no attacks: who can delete entries can write
some.

The lowest 32 bits of a digest count the entries, to say how many are missing. In this count losses may hide each other:
it is a lower limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from .log import CONTENT, CONTROLS, FileChange, Operation

#: Of a digest: a hash of 64 bits above a count of 32.
_COUNT_BITS = 32
_COUNT, _DIGEST = (1 << _COUNT_BITS) - 1, (1 << (64 + _COUNT_BITS)) - 1


@lru_cache(1024)  # the writer needs each of them three times: buffered, appended, applied
def weight(serial: int) -> int:
    """The part of one change in a digest."""
    hashed = blake2b(serial.to_bytes(8, "big"), digest_size=8).digest()
    return int.from_bytes(hashed, "big") << _COUNT_BITS | 1


def count(digest: int) -> int:
    """How many entries are in a digest."""
    return digest & _COUNT


def difference(digest: int, other: int) -> int:
    """How many entries two digests differ by, at least; 0 only where they are equal."""
    if digest == other:
        return 0
    entries = (digest - other) & _COUNT
    return min(entries, _COUNT + 1 - entries) or 1


def weights(serials: Iterable[int]) -> int:
    """The digest of some changes."""
    return sum(map(weight, serials)) & _DIGEST


def _effect(change: FileChange) -> int:
    """The change of the digest of all files by an entry, for its writer."""
    return (weight(change.serial) if change.operation in CONTENT else 0) - (change.dropped or 0)


@dataclass(frozen=True, slots=True)
class Summary:
    """The contents of a log at a sequence: the last ``serial``, the number of the last ``control`` entry, and the
    ``digest`` of all files that are there.
    """

    serial: int = 0
    control: int = 0
    digest: int = 0

    def after(self, changes: Iterable[FileChange], skipped: Iterable[int] = ()) -> Summary:
        """The summary behind some entries; ``skipped`` are serials that are missing before them."""
        serial, control, digest = self.serial, self.control, self.digest + weights(skipped)
        for change in changes:
            serial = max(serial, change.serial)
            if change.operation in CONTROLS:
                control = max(control, change.at)
            digest += _effect(change)
        return Summary(serial, control, digest & _DIGEST)


class Contents:
    """The digests of the files that are there, each since it was made or its last `Operation.REWRITTEN`.

    ``digests`` has them by path, ``total`` is their sum. ``rewrites`` has, of files that are being written again, those
    since `Operation.REWRITE`. ``serial`` and ``control`` are those of `Summary`.
    """

    def __init__(
        self,
        digests: Mapping[str, int] | None = None,
        rewrites: Mapping[str, int] | None = None,
        serial: int = 0,
        control: int = 0,
    ) -> None:
        self.digests = dict(digests or {})
        self.rewrites = dict(rewrites or {})
        self.serial = serial
        self.control = control
        self.total = sum(self.digests.values()) & _DIGEST

    def copy(self) -> Contents:
        """Another one that says the same."""
        return Contents(self.digests, self.rewrites, self.serial, self.control)

    @property
    def summary(self) -> Summary:
        """The summary for a beat."""
        return Summary(self.serial, self.control, self.total)

    def add(self, change: FileChange) -> None:
        """Take the next entry in."""
        path, operation = change.path, change.operation
        if operation in CONTROLS:
            self.control = max(self.control, change.at)
            self.total = (self.total - self.digests.pop(path, 0)) & _DIGEST
            self.rewrites.pop(path, None)
        elif operation in CONTENT:
            added = weight(change.serial)
            before = self.digests.get(path, 0)
            digest = (before + added) & _DIGEST
            if operation is Operation.REWRITE:
                self.rewrites[path] = added
            elif path in self.rewrites:
                self.rewrites[path] = (self.rewrites[path] + added) & _DIGEST
            if operation is Operation.REWRITTEN:
                # 0 where the begin was not read: nobody knows what the file has, and it counts as missing
                digest = self.rewrites.pop(path, 0)
            self.total = (self.total + digest - before) & _DIGEST
            self.digests[path] = digest
        self.serial = max(self.serial, change.serial)

    def before_rewrite(self, path: str) -> int:
        """The digest of a file before its `Operation.REWRITE`, if it is being written again."""
        return (self.digests.get(path, 0) - self.rewrites.get(path, 0)) & _DIGEST
