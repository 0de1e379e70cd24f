"""When something falls due for a message: a heap of times and one ``callLater`` for the soonest of them; when a message
expires (Artemis, "Message Expiry"), and when one that came back is delivered again ("Undelivered Messages").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count

from stompring.settings.model import AddressSettings

from .clock import Background, Clock, Timer, cancel
from .message import Message
from .reference import Reference

Entry = tuple[int, int, Reference]


class TimerQueue:
    """References by due time (epoch ms); those due at the same time keep the order in which they were entered.

    Nothing is searched for when an entry is no longer wanted: ``wanted(ref, due)`` is asked when its time comes, and
    `forget` only counts, so that a heap of mostly unwanted entries is rebuilt. ``fall_due()`` gives what is called
    with each reference that is due now; where those are many it is done in slices (`Background`).
    """

    def __init__(
        self,
        clock: Clock,
        background: Background,
        wanted: Callable[[Reference, int], bool],
        fall_due: Callable[[], Callable[[Reference], None]],
    ) -> None:
        self._busy = False  # with what is due
        self._unwanted = 0
        self._timer: Timer | None = None
        self._timer_due = 0
        self._clock = clock
        self._background = background
        self._wanted = wanted
        self._fall_due = fall_due
        self._heap: list[Entry] = []
        self._former: list[Entry] = []  # while the heap is rebuilt: what was not looked at, a heap as well
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap) + len(self._former)

    def enter(self, ref: Reference, due: int) -> None:
        """``ref`` falls due at ``due``; never earlier."""
        heappush(self._heap, (due, next(self._order), ref))
        if self._timer is None or due < self._timer_due:
            self._arm()

    def forget(self) -> None:
        """One of the entries is no longer wanted."""
        self._unwanted += 1
        if self._unwanted > 64 and self._unwanted * 2 > len(self._heap) and not self._former:
            self._former, self._heap = self._heap, []
            self._unwanted = 0
            self._background.run(self._rebuild())

    def _rebuild(self) -> Iterator[None]:
        """What is still wanted goes over, from the end: what is left is a heap at any time."""
        while self._former:
            entry = self._former.pop()
            if self._wanted(entry[2], entry[0]):
                heappush(self._heap, entry)
            yield

    def stop(self) -> None:
        """No timer is left behind."""
        cancel(self._timer)
        self._timer = None

    def _first(self) -> list[Entry]:
        """The heap that has the soonest entry."""
        heap, former = self._heap, self._former
        return former if former and (not heap or former[0] < heap[0]) else heap

    def _arm(self) -> None:
        if self._busy:
            return
        self.stop()
        heap = self._first()
        if heap:
            self._timer_due = heap[0][0]
            self._timer = self._clock.call_at(self._timer_due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._busy = True
        self._background.run(self._sweep())

    def _sweep(self) -> Iterator[None]:
        """All that is due by the time at which this begins."""
        now = self._clock.refresh()
        try:
            fall_due = self._fall_due()
            while (heap := self._first()) and heap[0][0] <= now:
                when, _, ref = heappop(heap)
                if self._wanted(ref, when):
                    fall_due(ref)
                elif self._unwanted:
                    self._unwanted -= 1
                yield
        finally:
            self._busy = False
            self._arm()


def expiry_time(settings: AddressSettings, now: int, requested: int) -> int:
    """When a message expires (epoch ms, 0: never), from the ``expires`` header of its sender (0: none).

    ``no-expiry`` beats all. ``expiry-delay`` applies to messages without an expiry; ``min-expiry-delay`` and
    ``max-expiry-delay`` then bound what there is, and set one (the maximum, else the minimum) where there is none.
    """
    if settings.no_expiry:
        return 0
    if not requested and settings.expiry_delay >= 0:
        return now + settings.expiry_delay
    least, most = settings.min_expiry_delay, settings.max_expiry_delay
    if not requested:
        bound = most if most >= 0 else least
        return now + bound if bound >= 0 else 0
    if most >= 0:
        requested = min(requested, now + most)
    if least >= 0:
        requested = max(requested, now + least)
    return requested


def changes_expiry(settings: AddressSettings) -> bool:
    """Whether `expiry_time` can differ from what the sender requested."""
    longest = max(settings.expiry_delay, settings.min_expiry_delay, settings.max_expiry_delay)
    return settings.no_expiry or longest >= 0


def is_expired(message: Message, now: int) -> bool:
    """Whether a message has expired at ``now`` (epoch ms). Hot paths test ``message.expires`` before they call."""
    return 0 < message.expires <= now


#: max-redelivery-delay when it is not set: so many times redelivery-delay.
DEFAULT_CEILING = 10


def redelivery_delay(settings: AddressSettings, attempts: int, random: Callable[[], float]) -> int:
    """Milliseconds to wait before the delivery after ``attempts`` failed ones.

    redelivery-delay × multiplier^(attempts-1), at most max-redelivery-delay, then up or down by at most
    redelivery-collision-avoidance-factor of itself; ``random`` gives numbers from 0 to 1.
    """
    base = settings.redelivery_delay
    if base <= 0:
        return 0
    ceiling = settings.max_redelivery_delay if settings.max_redelivery_delay > 0 else base * DEFAULT_CEILING
    # the exponent is capped so that a float never overflows on its way to the ceiling
    delay = min(ceiling, base * settings.redelivery_delay_multiplier ** min(max(attempts, 1) - 1, 64))
    spread = settings.redelivery_collision_avoidance_factor
    if spread > 0:
        delay *= 1 + spread * (2 * random() - 1)
    return max(0, min(ceiling, int(delay)))
