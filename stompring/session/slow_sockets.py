"""Connections whose clients do not read: which they are, and a word in the log about them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from stompring.broker.clock import Clock, Timer

if TYPE_CHECKING:
    from .outbox import Outbox

log = logging.getLogger(__name__)

#: Milliseconds for which a full outbox may be stuck before its client is slow. A pause of the network, or of a client
#: that collects its garbage, is over by then.
SLOW = 10_000


class SlowSockets:
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

    def _slow(self, now: int) -> list[Outbox]:
        return [outbox for outbox, since in self._since.items() if outbox.room <= 0 and now - since >= SLOW]

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
                "%s%s: slow, nothing was taken of %d bytes for %d s",
                new[0].wire.peer,
                more,
                new[0].size - new[0].room,
                (now - self._since[new[0]]) // 1000,
                extra={"peer": new[0].wire.peer},
            )
        if self._since:
            self._timer = self._clock.call_at(now + SLOW, self._look)
