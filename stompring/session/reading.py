"""Whether a connection is read: not while its session waits for something, and not while it takes no answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .outbox import Wire


class Reading:
    """Stops and starts the reading of one wire for two reasons, either of which is enough to stop.

    The session pauses it while it is blocked or a login is checked. A client that sends frames with receipts and reads
    none of the answers is ``choked`` by its outbox until it has taken them, so that they cannot fill the memory.
    """

    __slots__ = ("_paused", "_wire", "choked")

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._paused = False
        self.choked = False

    def pause(self) -> None:
        """The session waits."""
        self._paused = True
        self._wire.pause_reading()

    def resume(self) -> None:
        """The session goes on."""
        self._paused = False
        if not self.choked:
            self._wire.resume_reading()

    def choke(self) -> None:
        """There are too many answers that the socket has not taken."""
        self.choked = True
        self._wire.pause_reading()

    def unchoke(self) -> None:
        """They were taken."""
        self.choked = False
        if not self._paused:
            self._wire.resume_reading()
