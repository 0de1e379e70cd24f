"""Numbers of messages: none is given twice in the life of a data directory, whatever becomes of the broker.

Numbers are used within a *lease* that is on disk before they are: after a start they go on behind the last one. The
next lease is taken when half of the last one is used. Where it is late all the same, because the disk takes nothing,
nobody waits for it: numbers go on from the clock, far above all that leases give.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import chain

log = logging.getLogger(__name__)

#: Numbers that are in use before the lease is looked at again.
STEP = 10_000

#: The same while there is none.
LATE_STEP = 1000

#: No lease comes near it before the clock was used once.
FIRST_OF_CLOCK = 1_000_000_000_000_000


def clock_number(now: int) -> int:
    """The first number of a broker that starts at ``now`` (epoch ms) and has no lease: no broker gives 1000 in a ms."""
    return now * 1000


class MessageNumbers:
    """``next`` gives the next number. ``first`` is greater than all that were given in earlier runs.

    ``request`` is called with the end of the lease that is wanted, and `granted` once it is on disk.
    """

    def __init__(
        self, first: int, lease: int, now: Callable[[], int], request: Callable[[int], None]
    ) -> None:
        if first >= FIRST_OF_CLOCK:  # some run had no lease: what it gave ended before now
            first = max(first, clock_number(now()))
        self._at = first
        self._lease = lease
        self._now = now
        self._request = request
        self._requested = first
        self._granted = first
        self._late = False
        self.next: Callable[[], int] = chain.from_iterable(self._ranges()).__next__

    def skip_to(self, first: int) -> None:
        """Lower numbers are found to be in use, before any was given."""
        self._at = max(self._at, first)

    def granted(self, end: int) -> None:
        """Numbers before ``end`` may be used."""
        self._granted = max(self._granted, end)
        self._requested = max(self._requested, end)

    def _ranges(self) -> Iterator[range]:
        """Each is used up before the next one is asked for: so giving a number calls nothing of Python's."""
        while True:
            at = self._at
            if at >= self._granted:
                at = self._go_by_clock(at)
                end = at + LATE_STEP
            else:
                if self._late:
                    self._late = False
                    log.info(
                        "message numbers: the lease is written, numbers up to %d are reserved", self._granted
                    )
                end = min(at + STEP, self._granted)
            self._at = end
            if self._requested - end < self._lease // 2:
                self._requested = end + self._lease
                self._request(self._requested)
            yield range(at, end)

    def _go_by_clock(self, at: int) -> int:
        if not self._late:
            self._late = True
            log.warning(
                "message numbers: the lease could not be written before it was needed, numbering goes on from the clock"
            )
        return max(at, clock_number(self._now()))
