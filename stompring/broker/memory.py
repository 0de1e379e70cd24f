"""Memory limits (``max-size-…``, ``global-max-…``) and other limits that producers wait for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

#: The part of a global limit by which small addresses may exceed it before they page: 1/8.
OVERDRAFT = 8

#: Calls of `should_page` after which the largest address is searched for again.
CHECKS_BETWEEN_SCANS = 1000

#: Addresses that are searched per call of `should_page`, on average.
ADDRESSES_PER_CHECK = 16

#: The threshold where there is no limit. (Of integers below 2**62 compiled code makes no objects.)
UNLIMITED = 1 << 61


class MemoryLimit:
    """A count of bytes and messages with limits, and the producers that wait for it to fall below them.

    Each address has one, the broker has one; so have the store, for what is to be written, and the disk.

    Three flags are kept up to date for the hot path. ``full``: a limit is reached. Whoever changes ``bytes`` and
    ``messages`` (`Address.occupy`, `Address.release`) calls `review` when they are at the thresholds. ``slow_path``:
    messages cannot just be enqueued, because the address is full, pages, or its messages are copied. ``unbounded``:
    the address pages, and neither its policy nor a limit of its pages can end that.
    """

    __slots__ = (
        "_resuming",
        "bytes",
        "copied",
        "fault",
        "full",
        "max_bytes",
        "max_messages",
        "messages",
        "paging",
        "slow_path",
        "threshold_bytes",
        "threshold_messages",
        "unbounded",
        "waiting",
    )

    def __init__(self, max_bytes: int = -1, max_messages: int = -1) -> None:
        self.bytes = 0
        self.messages = 0
        self.full = self.slow_path = self.unbounded = False
        self.fault: str | None = None  # why nothing is admitted, whatever the counts say
        self.paging = False
        self.copied = False  # diverts, or a ring for later queues, get copies of the messages of its address
        self.waiting: list[Callable[[], None]] = []  # a deque has 600 bytes, for each address
        self._resuming = False
        self.set_limits(max_bytes, max_messages)

    def set_limits(self, max_bytes: int, max_messages: int = -1) -> None:
        """Change the limits, -1 for none; a waiting producer resumes if they are not reached any more."""
        self.max_bytes, self.max_messages = max_bytes, max_messages
        self.threshold_bytes = max_bytes if max_bytes >= 0 else UNLIMITED
        self.threshold_messages = max_messages if max_messages >= 0 else UNLIMITED
        self.review()

    def set_fault(self, fault: str | None) -> None:
        """Count as full because of ``fault`` (a text for an operator), until that is None again."""
        self.fault = fault
        self.review()

    def set_paging(self, paging: bool) -> None:
        """The address of this limit pages from now on, or no longer."""
        self.paging = paging
        self.slow_path = self.full or paging or self.copied

    def set_copied(self, copied: bool) -> None:
        """The messages of the address of this limit are copied from now on, or no longer."""
        self.copied = copied
        self.slow_path = self.full or self.paging or copied

    def review(self) -> None:
        """Compute ``full`` anew. A limit is reached, not exceeded: the message that reaches it is the last one."""
        self.full = (
            self.bytes >= self.threshold_bytes
            or self.messages >= self.threshold_messages
            or self.fault is not None
        )
        self.slow_path = self.full or self.paging or self.copied
        if not self.full and self.waiting and not self._resuming:
            # one at a time: what one message has freed is not enough for a thousand producers
            self._resuming = True
            self.waiting.pop(0)()

    def retry_all(self) -> None:
        """The policy for those who wait may have changed: all of them try again, and wait anew if they must."""
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()

    def resumed(self) -> None:
        """A producer called from ``waiting`` has sent, or has nothing to send: the next one may try."""
        self._resuming = False
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
    """Several limits, none of which may be full."""

    __slots__ = ("_limits",)

    def __init__(self, *limits: MemoryLimit) -> None:
        self._limits = limits

    @property
    def full(self) -> bool:
        """Whether one of them is."""
        for limit in self._limits:
            if limit.full:
                return True
        return False


class LimitedAddress(Protocol):
    """An address, which has a part of the `GlobalMemoryLimit`."""

    memory_limit: MemoryLimit


class GlobalMemoryLimit(MemoryLimit):
    """What all addresses have in memory together, and which of them should page when that is too much.

    The largest pages first. While the limit is just reached no other does; the more it is exceeded the smaller an
    address must be to stay in memory, and when it is exceeded by an eighth (`OVERDRAFT`) every address pages. So a
    large backlog does not send the traffic of all others to disk, and memory stays bounded.
    """

    __slots__ = ("_addresses", "_calls", "_largest", "_largest_scanned")

    def __init__(
        self, max_bytes: int, max_messages: int, addresses: Callable[[], Collection[LimitedAddress]] = tuple
    ) -> None:
        self._addresses = addresses
        self._largest: MemoryLimit | None = None
        self._largest_scanned = 0.0  # the largest share at the last scan of all addresses
        self._calls = CHECKS_BETWEEN_SCANS  # of `should_page` since then
        super().__init__(max_bytes, max_messages)

    def should_page(self, limit: MemoryLimit) -> bool:
        """Whether the address of ``limit`` should page. Cheap enough to be called for each of its messages."""
        if limit.full:
            return True
        if not self.full:
            return False
        excess = (self.share(self) - 1) * OVERDRAFT
        return excess >= 1 or self.share(limit) >= self._largest_share(limit) * (1 - excess)

    def share(self, limit: MemoryLimit) -> float:
        """The part of the nearer global limit that an address uses."""
        share = 0.0
        if self.max_bytes > 0:
            share = limit.bytes / self.max_bytes
        if self.max_messages > 0:
            share = max(share, limit.messages / self.max_messages)
        return share

    def _largest_share(self, growing: MemoryLimit) -> float:
        """The largest share of an address. Those that grow call this, so that only those that shrink are searched for.

        All addresses are scanned when the largest has lost half of its share, and at times for those that grew without
        a call (dead letters). There is one scan in so many calls that each pays for a few addresses.
        """
        largest = self._largest or growing
        share = self.share(largest)
        self._calls += 1
        if share < self._largest_scanned / 2 or self._calls > CHECKS_BETWEEN_SCANS or self._largest is None:
            addresses = self._addresses()
            if self._largest is None or self._calls > len(addresses) // ADDRESSES_PER_CHECK:
                limits = [address.memory_limit for address in addresses]
                largest = max(limits, key=self.share, default=growing)
                share = self._largest_scanned = self.share(largest)
                self._calls = 0
        if (own := self.share(growing)) > share:
            largest, share = growing, own
            self._largest_scanned = max(self._largest_scanned, own)
        self._largest = largest
        return share
