"""Back-pressure: when a connection is not read, which frames wait, and which clients do not read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from stompring.broker.address import Address
from stompring.broker.clock import Clock, Timer
from stompring.broker.memory import MemoryLimit

if TYPE_CHECKING:
    from .outbox import Outbox, Wire
    from .send import SendEvaluation


class Reading:
    """Stops and starts the reading of one wire for three reasons, any of which is enough to stop.

    The session pauses it while it is blocked or a login is checked. A client that sends frames with receipts and reads
    none of the answers is ``choked`` by its outbox until it has taken them, so that they cannot fill the memory. One
    whose frames took long is ``resting`` while it is the turn of others.
    """

    __slots__ = ("_paused", "_wire", "throttled", "suspended")

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._paused = False
        self.throttled = False
        self.suspended = False

    @property
    def stopped(self) -> bool:
        """Whether the client could not be heard even if it said something, for a reason that is not the session's."""
        return self.throttled or self.suspended

    def pause(self) -> None:
        """The session waits."""
        self._paused = True
        self._wire.pause_reading()

    def resume(self) -> None:
        """The session goes on."""
        self._paused = False
        self._read_again()

    def throttle(self) -> None:
        """There are too many answers that the socket has not taken."""
        self.throttled = True
        self._wire.pause_reading()

    def unthrottle(self) -> None:
        """They were taken."""
        self.throttled = False
        self._read_again()

    def suspend(self) -> None:
        """It is the turn of others."""
        self.suspended = True
        self._wire.pause_reading()

    def unsuspend(self) -> None:
        """It is its own turn again."""
        self.suspended = False
        self._read_again()

    def end(self) -> None:
        """The connection is closed: it is not read any more, whoever still means to let it."""
        self._paused = True

    def _read_again(self) -> None:
        if not (self._paused or self.throttled or self.suspended):
            self._wire.resume_reading()


log = logging.getLogger(__name__)

#: Milliseconds for which a full outbox may be stuck before its client is slow. A pause of the network, or of a client
#: that collects its garbage, is over by then.
SLOW = 10_000


class SlowReaders:
    """The outboxes whose sockets take nothing for now. One timer for all, which runs only while there are such."""

    __slots__ = ("_clock", "_known", "_since", "_timer")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[Outbox, int] = {}  # ms of the steady clock
        self._known: set[Outbox] = set()  # slow, and told
        self._timer: Timer | None = None

    @property
    def count(self) -> int:
        """Connections that are slow now."""
        return len(self._slow(self._clock.now))

    def is_slow(self, outbox: Outbox) -> bool:
        """Whether the client of an outbox has read nothing for `SLOW` milliseconds while that was full."""
        since = self._since.get(outbox)
        return since is not None and outbox.capacity <= 0 and self._clock.now - since >= SLOW

    def _slow(self, now: int) -> list[Outbox]:
        return [
            outbox for outbox, since in self._since.items() if outbox.capacity <= 0 and now - since >= SLOW
        ]

    def enter(self, outbox: Outbox) -> None:
        """Its socket takes no more."""
        self._since[outbox] = self._clock.now
        if self._timer is None:
            self._timer = self._clock.call_at(self._clock.now + SLOW, self._look)

    def leave(self, outbox: Outbox) -> None:
        """Its socket has taken everything."""
        self._since.pop(outbox, None)
        self._known.discard(outbox)

    def forget(self, outbox: Outbox) -> None:
        """It is closed."""
        self.leave(outbox)
        if not self._since and self._timer is not None:
            if self._timer.active():
                self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        now = self._clock.refresh()
        new = [outbox for outbox in self._slow(now) if outbox not in self._known]
        self._known.update(new)
        if new:
            more = f", and {len(new) - 1} others" if len(new) > 1 else ""
            log.warning(
                "%s%s: slow reader: %d bytes unread for %d s",
                new[0].wire.peer,
                more,
                new[0].size - new[0].capacity,
                (now - self._since[new[0]]) // 1000,
                extra={"peer": new[0].wire.peer},
            )
        if self._since:
            self._timer = self._clock.call_at(now + SLOW, self._look)


class InProgress(Exception):
    """What a frame asks for is done in slices; the next frame is looked at when that is done."""


class Blocked(Exception):
    """A frame cannot be processed yet; it is tried again when ``limit`` is no longer full, or after ``milliseconds``.

    ``offered`` is a SEND that policies have begun to evaluate: it continues from there.
    """

    def __init__(
        self,
        address: Address,
        limit: MemoryLimit | None,
        milliseconds: int = 0,
        offered: SendEvaluation | None = None,
    ) -> None:
        super().__init__()
        assert limit is not None or milliseconds > 0, "there must be an end to it"
        self.address = address
        self.limit = limit
        self.milliseconds = milliseconds
        self.offered = offered
