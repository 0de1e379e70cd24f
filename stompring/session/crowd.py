"""Connections that are open, counted in all and by where they come from."""

from __future__ import annotations

from collections import Counter


class Crowd:
    """How many are in, and how many of them from each place."""

    __slots__ = ("by_place", "number")

    def __init__(self) -> None:
        self.number = 0
        self.by_place: Counter[str] = Counter()

    def enter(self, place: str) -> None:
        """One more from ``place``."""
        self.number += 1
        self.by_place[place] += 1

    def leave(self, place: str) -> None:
        """One less."""
        self.number -= 1
        self.by_place[place] -= 1
        if self.by_place[place] <= 0:
            del self.by_place[place]
