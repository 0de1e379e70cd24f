"""Limits for clients: memory, bytes of transactions and of unfinished frames, and log lines about rejections.

`MemoryLimit`: memory limits (``max-size-…``, ``global-max-…``) and other limits that producers wait for.

`RejectionLog` and `LogLimit`: a counter for each limit, and limits of log lines, so that neither rejections nor many
connections can flood the log.

`UnfinishedFrames`: bytes of incomplete frames and HTTP bodies (``global-max-unfinished-size``). Beyond the limit the
broker refuses the connection with the most bytes, so that a large frame never delays or fails a small one. If only one
connection has counted bytes, just the limit of its frame applies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from stompring.errors import LimitReached

from .clock import Call, Clock, Timer, cancel

#: Divisor of a global limit: when the limit is exceeded by more than this part (1/8), all addresses page.
OVERDRAFT: Final = 8

#: Number of calls of `should_page` between two searches for the largest address.
CHECKS_BETWEEN_SCANS: Final = 1000

#: Average number of addresses that a call of `should_page` searches.
ADDRESSES_PER_CHECK: Final = 16

#: The threshold if there is no limit. Compiled code creates no objects for integers below 2**62.
UNLIMITED: Final = 1 << 61


class MemoryLimit:
    """A count of bytes and messages with limits, and the producers that wait until the count is below the limits.

    Each address has one, and the broker has three: for all addresses, for unwritten bytes of the store, for the disk.
    Three flags serve the hot path. ``full``: a limit is reached; a caller that changes ``bytes`` or ``messages``
    (`AddressBase.occupy` and `release`) must call `review` at the thresholds. ``slow_path``: it is not enough to
    enqueue a message, because the address is full or in page mode, or its messages are copied. ``unbounded``: the
    address is in page mode, and accepts messages without a limit.
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
        # text of a fault (for operators) that sets ``full`` whatever the counts are
        self.fault: str | None = None
        self.paging = False
        self.copied = False  # whether diverts or retroactive rings get copies of the address's messages
        self.waiting: list[Call] = []  # calls that resume producers; a list, because a deque takes 600 bytes
        self._resuming = False
        self.set_limits(max_bytes, max_messages)

    def set_limits(self, max_bytes: int, max_messages: int = -1) -> None:
        """Change the limits, -1 for none. A waiting producer resumes if the count is below them."""
        self.max_bytes, self.max_messages = max_bytes, max_messages
        self.threshold_bytes = max_bytes if max_bytes >= 0 else UNLIMITED
        self.threshold_messages = max_messages if max_messages >= 0 else UNLIMITED
        self.review()

    def set_fault(self, fault: str | None) -> None:
        """Set ``fault``: the limit is full until ``fault`` is None again."""
        self.fault = fault
        self.review()

    def set_paging(self, paging: bool) -> None:
        """Set whether the address of this limit is in page mode."""
        self.paging = paging
        self.slow_path = self.full or paging or self.copied

    def review(self) -> None:
        """Update ``full`` and ``slow_path``. A count at the limit is full: the message that reaches it is the last."""
        self.full = (
            self.bytes >= self.threshold_bytes
            or self.messages >= self.threshold_messages
            or self.fault is not None
        )
        self.slow_path = self.full or self.paging or self.copied
        if not self.full and self.waiting and not self._resuming:
            # resume one producer at a time: the memory of one message is not enough for a thousand producers
            self._resuming = True
            self.waiting.pop(0)()

    def retry_all(self) -> None:
        """Let all waiting producers try again, because the policy of the address may have changed."""
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()

    def resumed(self) -> None:
        """Resume the next producer in ``waiting``: the former one has sent its message, or no longer has one."""
        self._resuming = False
        self.review()

    @property
    def percent(self) -> int:
        """Used percentage of the limit of bytes or of messages, whichever is larger (``limitPercent``). 0: no limit."""
        return int(self.share(self) * 100)

    def share(self, limit: MemoryLimit) -> float:
        """Return the count of ``limit`` as a part of this limit: of bytes or messages, whichever part is larger."""
        share = 0.0
        if self.max_bytes > 0:
            share = limit.bytes / self.max_bytes
        if self.max_messages > 0:
            share = max(share, limit.messages / self.max_messages)
        return share


@dataclass(eq=False)
class ByteQuota:
    """A count of the bytes in open transactions, with a limit. The message that reaches the limit is the last that the
    quota accepts.

    There is a quota for the broker (``whole`` None), and one for each connection, which counts in the broker's too.
    """

    limit: int
    whole: ByteQuota | None = None
    bytes: int = 0

    @property
    def full(self) -> bool:
        """Whether the limit is reached. A negative limit never is."""
        return 0 <= self.limit <= self.bytes

    def reserve(self, size: int) -> None:
        """Add ``size`` bytes. Raises `LimitReached`."""
        if self.full:
            raise LimitReached(
                f"The open transactions of this connection hold {self.bytes} bytes, and the limit is "
                f"{self.limit} (maxTransactionBytes)",
                "maxTransactionBytes",
            )
        whole = self.whole
        if whole is not None:
            if whole.full:
                raise LimitReached(
                    f"All open transactions together hold {whole.bytes} bytes, and the limit is {whole.limit} "
                    "(global-max-transaction-size)",
                    "global-max-transaction-size",
                )
            whole.bytes += size
        self.bytes += size

    def release(self, size: int) -> None:
        """Subtract ``size`` bytes."""
        self.bytes -= size
        if self.whole is not None:
            self.whole.bytes -= size


class LimitedAddress(Protocol):
    """The part of an address that `GlobalMemoryLimit` uses."""

    memory_limit: MemoryLimit


class GlobalMemoryLimit(MemoryLimit):
    """The memory limit for all addresses together. Decides which addresses page when it is reached.

    The largest address pages first, so that its backlog does not send the messages of all others to disk. The more the
    limit is exceeded, the smaller an address must be to stay in memory; beyond an eighth (`OVERDRAFT`) all page.
    """

    def __init__(
        self, max_bytes: int, max_messages: int, addresses: Callable[[], Collection[LimitedAddress]]
    ) -> None:
        self._largest: MemoryLimit | None = None
        self._largest_scanned = 0.0  # largest share of one address, at the last scan of all addresses
        self._addresses = addresses
        self._calls = CHECKS_BETWEEN_SCANS  # calls since the last scan
        super().__init__(max_bytes, max_messages)

    def should_page(self, limit: MemoryLimit) -> bool:
        """Return whether the address with the limit ``limit`` should page. Fast enough for a call per message."""
        if limit.full:
            return True
        if not self.full:
            return False
        excess = (self.share(self) - 1) * OVERDRAFT
        return excess >= 1 or self.share(limit) >= self._largest_share(limit) * (1 - excess)

    def _largest_share(self, growing: MemoryLimit) -> float:
        """Return the largest share that one address has of this limit. ``growing``: limit of the address that grows.

        Scans all addresses when the largest share has halved. Also scans them at intervals, because dead letters make
        an address grow without a call. On average a call scans only a few addresses.
        """
        largest = self._largest or growing
        share = self.share(largest)
        self._calls += 1
        if share < self._largest_scanned / 2 or self._calls > CHECKS_BETWEEN_SCANS or self._largest is None:
            addresses = self._addresses()
            if self._largest is None or self._calls > len(addresses) // ADDRESSES_PER_CHECK:
                largest = max((one.memory_limit for one in addresses), key=self.share, default=growing)
                share = self._largest_scanned = self.share(largest)
                self._calls = 0
        if (own := self.share(growing)) > share:
            largest, share = growing, own
            self._largest_scanned = max(self._largest_scanned, own)
        self._largest = largest
        return share


#: Milliseconds of one interval of `LogLimit`.
INTERVAL: Final = 10_000

#: Maximum number of log lines of one kind in `INTERVAL`: bursts of 100, about 10 per second on average.
LINES: Final = 100


class LogLimit:
    """Logs at INFO, at most `LINES` log lines of each kind in `INTERVAL` milliseconds. The first line begins an
    interval. At its end one line reports the number of suppressed lines.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._intervals: dict[str, _Interval] = {}

    def info(
        self, log: logging.Logger, kind: str, text: str, *values: object, fields: Mapping[str, object]
    ) -> None:
        """Log ``text % values`` with ``fields`` for the JSON format, unless there were too many lines of ``kind``.

        ``kind`` is in the line about suppressed lines, before the word "lines".
        """
        if not log.isEnabledFor(logging.INFO):
            return
        now = self._clock.now
        interval = self._intervals.get(kind)
        if interval is None or (not interval.suppressed and now >= interval.begun + INTERVAL):
            interval = self._intervals[kind] = _Interval(log, now)
        if interval.lines < LINES:
            interval.lines += 1
            log.info(text, *values, extra=fields)
            return
        interval.suppressed += 1
        if interval.timer is None:
            end = interval.begun + INTERVAL
            interval.timer = self._clock.call_at(end, lambda: _report(kind, self._intervals.pop(kind)))

    def stop(self) -> None:
        """Report the suppressed lines, and cancel all timers."""
        for kind, interval in self._intervals.items():
            cancel(interval.timer)
            _report(kind, interval)
        self._intervals.clear()


@dataclass
class _Interval:
    log: logging.Logger
    begun: int
    lines: int = 0
    suppressed: int = 0
    timer: Timer | None = None


def _report(kind: str, interval: _Interval) -> None:
    if interval.suppressed:
        interval.log.info(
            "%d %s lines suppressed: more than %d in %d s",
            interval.suppressed,
            kind,
            LINES,
            INTERVAL // 1000,
            extra={"suppressed": interval.suppressed},
        )


log = logging.getLogger(__name__)

#: All limits, by the names of their settings. No settings exist for ``open-files`` (a limit of the operating system),
#: ``first-frame``, ``address-words`` and the limits of HTTP, which begin with ``http-``.
LIMITS = (
    "global-max-connections",
    "connectionsAllowed",
    "connectionsAllowedPerHost",
    "open-files",
    "handshake-timeout",
    "maxBodyLength",
    "maxHeaders",
    "maxHeaderLength",
    "first-frame",
    "global-max-unfinished-size",
    "subscriptionsAllowed",
    "global-max-subscription-size",
    "min-scheduled-period",
    "transactionsAllowed",
    "maxTransactionBytes",
    "global-max-transaction-size",
    "global-max-queues",
    "global-max-addresses",
    "global-max-wildcard-words",
    "address-words",
    "max-sessions",
    "max-queues",
    "http-connections",
    "http-connections-per-host",
    "http-head",
    "http-body",
    "http-request-time",
    "http-answer-time",
)

#: Milliseconds after a log line about a limit in which further rejections by that limit are only counted.
QUIET: Final = 10_000


class RejectionLog:
    """Counts the rejections of clients by each of `LIMITS`, and logs them. One line reports the first rejection by a
    limit. A second line reports how many followed within `QUIET` milliseconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.counts = dict.fromkeys(LIMITS, 0)  # rejections since the start, by limit
        self._more: dict[str, int] = {}  # by limit: rejections within `QUIET` after the log line of the limit
        self._timers: dict[str, Timer] = {}

    def add(
        self, limit: str, who: str, text: str, number: int = 1, fields: Mapping[str, object] | None = None
    ) -> None:
        """Count ``number`` rejections by ``limit``, and log the first one.

        ``who``: the client. ``text``: the error that it received. ``fields`` describe it in the JSON format of the log.
        """
        self.counts[limit] += number
        if limit in self._more:
            self._more[limit] += number
            return
        log.warning("%s: %s", who, text, extra=fields)
        self._rest(limit)

    def add_error(
        self, error: Exception, who: str, text: str, fields: Mapping[str, object] | None = None
    ) -> bool:
        """Call `add` if ``error`` is a rejection by a limit, and return whether it is."""
        limit: str | None = getattr(error, "limit", None)
        if limit is not None:
            self.add(limit, who, text, fields=fields)
        return limit is not None

    def _rest(self, limit: str) -> None:
        self._more[limit] = 0
        self._timers[limit] = self._clock.call_at(self._clock.refresh() + QUIET, lambda: self._sum_up(limit))

    def _sum_up(self, limit: str) -> None:
        del self._timers[limit]
        more = self._more.pop(limit)
        if more:
            log.warning("rejected %d more times within %d s by %s", more, QUIET // 1000, limit)
            self._rest(limit)

    def stop(self) -> None:
        """Report the unreported rejections, and cancel all timers."""
        for timer in self._timers.values():
            cancel(timer)
        for limit, more in self._more.items():
            if more:
                log.warning("rejected %d more times by %s", more, limit)
        self._timers.clear()
        self._more.clear()


#: Maximum bytes of an unfinished frame that is not counted: the memory reserved for each connection includes them
#: (``MEMORY_PER_CONNECTION`` in ``server/protocol.py``).
UNCOUNTED: Final = 64 * 1024


class Holder(Protocol):
    """A connection with an unfinished frame."""

    def refuse(self, error: Exception) -> None:
        """Answer with an error, and close the connection."""


class UnfinishedFrames:
    """The bytes of unfinished frames, by connection. ``limit``: maximum of their sum, -1 for none."""

    def __init__(self, limit: int, clock: Clock) -> None:
        self.bytes = 0
        self.limit = limit
        self._clock = clock
        self._held: dict[Holder, int] = {}

    def hold(self, holder: Holder, size: int) -> bool:
        """Set the bytes of the unfinished frame of a connection to ``size``. Return whether these bytes are counted.
        Beyond the limit, the connections with the most bytes are refused after this call has returned.
        """
        before = self._held.pop(holder, 0)
        if size <= UNCOUNTED:
            self.bytes -= before
            return False
        self._held[holder] = size
        self.bytes += size - before
        while 0 <= self.limit < self.bytes and len(self._held) > 1:
            self._refuse(max(self._held, key=self._held.__getitem__))
        return holder in self._held

    def _refuse(self, holder: Holder) -> None:
        error = LimitReached(
            f"Unfinished frames of all connections hold {self.bytes} bytes, and the limit is {self.limit} "
            f"(global-max-unfinished-size); this connection holds the most, {self._held[holder]}: try again later",
            "global-max-unfinished-size",
            503,
        )
        self.forget(holder)
        self._clock.soon(
            lambda: holder.refuse(error)
        )  # refuse later, because the connection of ``holder`` may be processing a read

    def forget(self, holder: Holder) -> None:
        """Remove the bytes of a connection that is closed, or whose frame is complete."""
        self.bytes -= self._held.pop(holder, 0)
