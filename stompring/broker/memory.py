"""Memory limits (``max-size-…``, ``global-max-…``) and other limits that producers wait for."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol

#: By which part of a global limit the messages of small addresses may go beyond it before they page.
OVERDRAFT = 8

#: Asks after which the largest address is looked for again.
CHECKS_BETWEEN_SCANS = 1000

#: Addresses that one ask may have to pay for.
ADDRESSES_PER_CHECK = 16

#: The brim of a room without a limit.
UNLIMITED = sys.maxsize


class MemoryLimit:
    """A count of bytes and messages with limits, and the producers that wait for it to fall below them.

    Each address has one, the broker has one; so have the store, for what is to be written, and the disk.

    Three flags are kept up to date for the hot path. ``full``: a limit is reached. Whoever changes ``bytes`` and
    ``messages`` (`Address.occupy`, `Address.release`) calls `review` when they are at the thresholds. ``slow_path``:
    messages cannot just be enqueued, because the address is full or pages. ``unbounded``: the address pages, and
    neither its policy nor a limit of its pages can end that.
    """

    __slots__ = (
        "threshold_bytes",
        "threshold_messages",
        "bytes",
        "slow_path",
        "unbounded",
        "fault",
        "full",
        "max_bytes",
        "max_messages",
        "messages",
        "paging",
        "waiting",
        "_waking",
    )

    def __init__(self, max_bytes: int = -1, max_messages: int = -1) -> None:
        self.bytes = 0
        self.messages = 0
        self.full = self.slow_path = self.unbounded = False
        self.fault: str | None = None  # why nothing may enter, whatever the counts say
        self.paging = False
        self.waiting: deque[Callable[[], None]] = deque()
        self._waking = False
        self.limit(max_bytes, max_messages)

    def limit(self, max_bytes: int, max_messages: int = -1) -> None:
        """Change the limits; waiting producers go on when that made room."""
        self.max_bytes, self.max_messages = max_bytes, max_messages
        self.threshold_bytes = max_bytes if max_bytes >= 0 else UNLIMITED
        self.threshold_messages = max_messages if max_messages >= 0 else UNLIMITED
        self.review()

    def shut(self, fault: str | None) -> None:
        """Let nothing enter because of ``fault``, a text for people, until that is None again."""
        self.fault = fault
        self.review()

    def page(self, paging: bool) -> None:
        """The address of this room pages from now on, or no longer."""
        self.paging = paging
        self.slow_path = self.full or paging

    def review(self) -> None:
        """Set ``full`` anew. A limit is reached, not passed: the message that reaches it was the last to enter."""
        self.full = (
            self.bytes >= self.threshold_bytes
            or self.messages >= self.threshold_messages
            or self.fault is not None
        )
        self.slow_path = self.full or self.paging
        if not self.full and self.waiting and not self._waking:
            # one at a time: a thousand producers must not all rush to the place of one message
            self._waking = True
            self.waiting.popleft()()

    def retry(self) -> None:
        """What decides about those who wait has changed: all try again, and wait anew if they must."""
        waiting, self.waiting = self.waiting, deque()
        for call in waiting:
            call()

    def resumed(self) -> None:
        """Who was called from ``waiting`` has used the room, or needs none any more: the next one may try."""
        self._waking = False
        self.review()

    @property
    def percent(self) -> int:
        """How far the nearer limit is used, 0 when there is none (``limitPercent``)."""
        shares = [0.0]
        if self.max_bytes > 0:
            shares.append(self.bytes / self.max_bytes)
        if self.max_messages > 0:
            shares.append(self.messages / self.max_messages)
        return int(max(shares) * 100)


class MemoryLimits:
    """Several rooms, of which a message needs all."""

    __slots__ = ("_rooms",)

    def __init__(self, *rooms: MemoryLimit) -> None:
        self._rooms = rooms

    @property
    def full(self) -> bool:
        """Whether one of them is."""
        for room in self._rooms:
            if room.full:
                return True
        return False


class LimitedAddress(Protocol):
    """Who has a part of a `SharedRoom`: an address."""

    room: MemoryLimit


class GlobalMemoryLimit(MemoryLimit):
    """What all addresses hold together, and which of them should page when that is too much.

    The largest pages first. While the limit is just reached nobody else does; the more it is passed the smaller an
    address must be to go on in memory, and when it is passed by an eighth (`OVERDRAFT`) every address pages. So a
    large backlog does not send the traffic of all others to disk, and memory stays bounded.
    """

    __slots__ = ("_largest", "_looked_at", "_sharers", "_since")

    def __init__(
        self, max_bytes: int, max_messages: int, sharers: Callable[[], Collection[LimitedAddress]] = tuple
    ) -> None:
        self._sharers = sharers
        self._largest: MemoryLimit | None = None
        self._looked_at = 0.0  # the share of the largest when all addresses were looked at
        self._since = CHECKS_BETWEEN_SCANS  # asks since then
        super().__init__(max_bytes, max_messages)

    def should_page(self, room: MemoryLimit) -> bool:
        """Whether an address with this room should page. Cheap enough to be asked for each of its messages."""
        if room.full:
            return True
        if not self.full:
            return False
        passed = (self.share(self) - 1) * OVERDRAFT
        return passed >= 1 or self.share(room) >= self._largest_share(room) * (1 - passed)

    def share(self, room: MemoryLimit) -> float:
        """The part of the nearer limit that a room takes."""
        share = 0.0
        if self.max_bytes > 0:
            share = room.bytes / self.max_bytes
        if self.max_messages > 0:
            share = max(share, room.messages / self.max_messages)
        return share

    def _largest_share(self, asking: MemoryLimit) -> float:
        """Who grows asks, so that only who shrinks must be looked for.

        A look at all addresses is due when the largest has lost half of its share, and now and then for all that
        grew while nobody asked. Many asks pay for each look.
        """
        largest = self._largest or asking
        share = self.share(largest)
        self._since += 1
        if share < self._looked_at / 2 or self._since > CHECKS_BETWEEN_SCANS or self._largest is None:
            sharers = self._sharers()
            if self._largest is None or self._since > len(sharers) // ADDRESSES_PER_CHECK:
                rooms = [sharer.room for sharer in sharers]
                largest = max(rooms, key=self.share, default=asking)
                share = self._looked_at = self.share(largest)
                self._since = 0
        if (own := self.share(asking)) > share:
            largest, share = asking, own
            self._looked_at = max(self._looked_at, own)
        self._largest = largest
        return share
