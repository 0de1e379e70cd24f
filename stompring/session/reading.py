"""Whether a connection is read: not while its session waits for something, takes no answers, or has had its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .outbox import Wire


class Reading:
    """Stops and starts the reading of one wire for three reasons, any of which is enough to stop.

    The session pauses it while it is blocked or a login is checked. A client that sends frames with receipts and reads
    none of the answers is ``choked`` by its outbox until it has taken them, so that they cannot fill the memory. One
    whose frames took long is ``resting`` while it is the turn of others.
    """

    __slots__ = ("_paused", "_wire", "choked", "resting")

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._paused = False
        self.choked = False
        self.resting = False

    @property
    def held_back(self) -> bool:
        """Whether the client could not be heard even if it said something, for a reason that is not the session's."""
        return self.choked or self.resting

    def pause(self) -> None:
        """The session waits."""
        self._paused = True
        self._wire.pause_reading()

    def resume(self) -> None:
        """The session goes on."""
        self._paused = False
        self._read_again()

    def choke(self) -> None:
        """There are too many answers that the socket has not taken."""
        self.choked = True
        self._wire.pause_reading()

    def unchoke(self) -> None:
        """They were taken."""
        self.choked = False
        self._read_again()

    def rest(self) -> None:
        """It is the turn of others."""
        self.resting = True
        self._wire.pause_reading()

    def wake(self) -> None:
        """It is its own turn again."""
        self.resting = False
        self._read_again()

    def end(self) -> None:
        """The connection is closed: it is not read any more, whoever still means to let it."""
        self._paused = True

    def _read_again(self) -> None:
        if not (self._paused or self.choked or self.resting):
            self._wire.resume_reading()
