"""Cache references: positions in pages that are known to be wanted, eight bytes each."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from stompring.broker.paging import Page

#: Used-up references at the front that are worth a copy of the rest.
SLACK = 1024


def key_of(page: Page, index: int) -> int:
    """A position as one number; positions of one address sort as they follow each other."""
    return page.number << 32 | index


class References:
    """Positions in ascending order, each once."""

    __slots__ = ("_keys", "_start")

    def __init__(self) -> None:
        self._keys = array("Q")
        self._start = 0

    def __len__(self) -> int:
        return len(self._keys) - self._start

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys[self._start :])

    def add(self, key: int) -> None:
        """Add a position; nothing happens where it is known."""
        keys = self._keys
        if not self or keys[-1] < key:
            keys.append(key)
            return
        at = bisect_left(keys, key, self._start)
        if keys[at] != key:
            keys.insert(at, key)

    @property
    def first(self) -> int:
        """The first position. Raises `IndexError` where there is none."""
        return self._keys[self._start]

    def drop_first(self) -> None:
        """Forget the first position."""
        self._start += 1
        if self._start > SLACK and self._start * 2 > len(self._keys):
            del self._keys[: self._start]
            self._start = 0
