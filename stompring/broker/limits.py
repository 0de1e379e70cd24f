"""Limits that a client meets: memory, unfinished frames, and the counters of rejections.

Memory limits (``max-size-…``, ``global-max-…``) and other limits that producers wait for.

Rejections because a limit was reached: a counter for each limit, and limits on log lines, so that neither rejections
nor a storm of connections can flood the log.

Unfinished frames: bytes of frames, and of HTTP bodies, whose end has not come (``global-max-unfinished-size``).

Beyond the limit the connection that holds most is refused, so that no small frame is refused because of large ones, and
none waits for another. A connection that alone holds any may go on up to the limit of its frame.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from stompring.errors import LimitReached

from .clock import Call, Clock, Timer, cancel

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
        self.waiting: list[Call] = []  # a deque has 600 bytes, for each address
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
        return int(self.share(self) * 100)

    def share(self, limit: MemoryLimit) -> float:
        """The part of the nearer of these limits that is counted in ``limit``."""
        share = 0.0
        if self.max_bytes > 0:
            share = limit.bytes / self.max_bytes
        if self.max_messages > 0:
            share = max(share, limit.messages / self.max_messages)
        return share


@dataclass(eq=False)
class ByteQuota:
    """Bytes held, with a limit. A limit is reached, not passed: the message that reaches it was the last one.

    One for the broker (``whole`` None), and one for each connection, which counts there as well.
    """

    limit: int
    whole: ByteQuota | None = None
    bytes: int = 0

    @property
    def full(self) -> bool:
        """Whether nothing more may be held."""
        return 0 <= self.limit <= self.bytes

    def reserve(self, size: int) -> None:
        """Hold ``size`` more bytes. Raises `LimitReached`."""
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
        """Give back what was held."""
        self.bytes -= size
        if self.whole is not None:
            self.whole.bytes -= size


class LimitedAddress(Protocol):
    """An address, which has a part of the `GlobalMemoryLimit`."""

    memory_limit: MemoryLimit


class GlobalMemoryLimit(MemoryLimit):
    """What all addresses have in memory together, and which of them should page when that is too much.

    The largest pages first. While the limit is just reached no other does; the more it is exceeded the smaller an
    address must be to stay in memory, and when it is exceeded by an eighth (`OVERDRAFT`) every address pages. So a
    large backlog does not send the traffic of all others to disk, and memory stays bounded.
    """

    def __init__(
        self, max_bytes: int, max_messages: int, addresses: Callable[[], Collection[LimitedAddress]]
    ) -> None:
        self._largest: MemoryLimit | None = None
        self._largest_scanned = 0.0  # the largest share at the last scan of all addresses
        self._addresses = addresses
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
                largest = max((one.memory_limit for one in addresses), key=self.share, default=growing)
                share = self._largest_scanned = self.share(largest)
                self._calls = 0
        if (own := self.share(growing)) > share:
            largest, share = growing, own
            self._largest_scanned = max(self._largest_scanned, own)
        self._largest = largest
        return share


#: Milliseconds of one interval.
INTERVAL = 10_000

#: Lines of one kind that are logged in an interval. A kind has some 10 lines a second then, and 100 at once.
LINES = 100


class LogLimit:
    """Logs at INFO, at most `LINES` lines of each kind in `INTERVAL`.

    An interval begins with a line. Those beyond the limit are counted, and one line says how many they were when the
    interval is over. A timer runs only while lines are suppressed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._intervals: dict[str, _Interval] = {}

    def info(
        self, log: logging.Logger, kind: str, text: str, *values: object, fields: Mapping[str, object]
    ) -> None:
        """Log ``text % values`` with ``fields`` for the JSON format, unless there were too many lines of ``kind``.

        ``kind`` stands in the line about suppressed ones, before the word "lines".
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
        """Report what was suppressed, and set no timer any more."""
        for kind, interval in self._intervals.items():
            cancel(interval.timer)
            _report(kind, interval)
        self._intervals.clear()


@dataclass
class _Interval:
    """Of one kind of line."""

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

#: Every limit, by the name of its setting. ``open-files`` is the system's; ``first-frame``, ``address-words`` and those
#: of HTTP, which begin with ``http-``, have no settings either.
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

#: Milliseconds for which what else is refused by the same limit is counted, and told in one line.
QUIET = 10_000


class RejectionLog:
    """One counter for each of `LIMITS`, kept where the refusal is told to whom it concerns.

    The first refusal by a limit is logged as it is. Those of the next ten seconds are added up and told when these
    are over, so that the log grows by two lines in ten seconds for each limit, however many try.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.counts = dict.fromkeys(LIMITS, 0)  # since the start
        self._more: dict[str, int] = {}  # not logged yet, of limits that rest
        self._timers: dict[str, Timer] = {}

    def add(
        self, limit: str, who: str, text: str, number: int = 1, fields: Mapping[str, object] | None = None
    ) -> None:
        """``who`` was refused by ``limit``, ``number`` times at once, and was told ``text``.

        ``fields`` describe ``who`` in the JSON format of the log.
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
        """`add` a refusal if it is one by a limit, and say whether it is."""
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
        """Tell what was not told yet, and set no timer any more."""
        for timer in self._timers.values():
            cancel(timer)
        for limit, more in self._more.items():
            if more:
                log.warning("rejected %d more times by %s", more, limit)
        self._timers.clear()
        self._more.clear()


#: Bytes of a connection that are not counted: ``server/protocol.py`` counts them in its memory.
UNCOUNTED = 64 * 1024


class Holder(Protocol):
    """A connection with an unfinished frame."""

    def refuse(self, error: Exception) -> None:
        """Answer with an error and close."""


class UnfinishedFrames:
    """Who holds how much. ``limit`` is bytes of all together, -1 for none."""

    def __init__(self, limit: int, clock: Clock) -> None:
        self.bytes = 0
        self.limit = limit
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
        self._clock.soon(lambda: holder.refuse(error))  # it may be in the middle of a read

    def forget(self, holder: Holder) -> None:
        """Its connection is closed, or its frame is whole."""
        self.bytes -= self._held.pop(holder, 0)
