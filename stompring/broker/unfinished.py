"""Unfinished frames: bytes of frames, and of HTTP bodies, whose end has not come (``global-max-unfinished-size``).

Beyond the limit the connection that holds most is refused, so that no small frame is refused because of large ones, and
none waits for another. A connection that alone holds any may go on up to the limit of its frame.
"""

from __future__ import annotations

from typing import Protocol

from stompring.errors import LimitReached

from .clock import Clock

#: Bytes of a connection that are not counted: the memory of a connection is reckoned with them (``server/limits.py``).
UNCOUNTED = 64 * 1024


class Holder(Protocol):
    """A connection with an unfinished frame."""

    def refuse(self, error: Exception) -> None:
        """Answer with an error and close."""


class UnfinishedFrames:
    """Who holds how much. ``limit`` is bytes of all together, -1 for none."""

    __slots__ = ("_clock", "_held", "bytes", "limit")

    def __init__(self, limit: int, clock: Clock) -> None:
        self.limit = limit
        self.bytes = 0
        self._clock = clock
        self._held: dict[Holder, int] = {}

    def hold(self, holder: Holder, size: int) -> bool:
        """``holder`` has ``size`` bytes now; whether they are counted. Who holds most may be refused, soon."""
        before = self._held.pop(holder, 0)
        if size <= UNCOUNTED:
            self.bytes -= before
            return False
        self._held[holder] = size
        self.bytes += size - before
        while 0 <= self.limit < self.bytes and len(self._held) > 1:
            most = max(self._held, key=self._held.__getitem__)
            self._refuse(most)
        return holder in self._held

    def _refuse(self, holder: Holder) -> None:
        error = LimitReached(
            f"Unfinished frames of all connections hold {self.bytes} bytes, and the limit is {self.limit} "
            f"(global-max-unfinished-size); this connection holds the most, {self._held[holder]}: try again later",
            "global-max-unfinished-size",
            503,
        )
        self.forget(holder)
        self._clock.soon(lambda: holder.refuse(error))  # it may be in the middle of a read

    def forget(self, holder: Holder) -> None:
        """Its connection is closed, or its frame is whole."""
        self.bytes -= self._held.pop(holder, 0)
