"""Limits on logins: delays for hosts that fail, a fair queue of verifications, and the cache of verified logins."""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

from stompring.settings.network import source_network

FREE_FAILURES = 10
"""Logins of a host that may fail before the next one is delayed."""

FIRST_DELAY, LONGEST_DELAY = 0.25, 5.0
"""Seconds of the first delay, which doubles with each failure, and of the longest: below any handshake-timeout."""

FORGET_AFTER = 300.0
"""Seconds without a failure after which a host is like any other."""

MAX_HOSTS = 10_000
"""Hosts that are remembered; beyond them the one whose last failure is oldest is forgotten."""

MAX_DELAYED = 16
"""Logins of one host that may wait out their delay at a time. More are refused at once."""


class LoginThrottle:
    """Failures by host. ``now`` gives seconds. An IPv6 host is its /64 network, which one client has to itself."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()  # how many, the last one when
        self._waiting: dict[str, int] = {}

    def failed(self, host: str) -> bool:
        """A login failed; True where it is the one after which logins of that host are delayed."""
        key = source_network(host)
        failures = self._of(key) + 1
        self._failures[key] = (failures, self._now())
        self._failures.move_to_end(key)
        if len(self._failures) > MAX_HOSTS:
            self._failures.popitem(last=False)
        return failures == FREE_FAILURES

    def delay(self, host: str) -> float:
        """Seconds that a login of that host has to wait."""
        beyond = self._of(source_network(host)) - FREE_FAILURES
        return 0.0 if beyond < 0 else min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(beyond, 16))

    def enter(self, host: str) -> bool:
        """A login is to wait; False where too many of that host do."""
        key = source_network(host)
        if self._waiting.get(key, 0) >= MAX_DELAYED:
            return False
        self._waiting[key] = self._waiting.get(key, 0) + 1
        return True

    def leave(self, host: str) -> None:
        """A login has waited."""
        key = source_network(host)
        left = self._waiting.pop(key) - 1
        if left:
            self._waiting[key] = left

    def _of(self, key: str) -> int:
        found = self._failures.get(key)
        if found is None:
            return 0
        failures, last = found
        if self._now() - last >= FORGET_AFTER:
            del self._failures[key]
            return 0
        return failures


Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """At most ``most`` items: beyond that the host with most of them loses its last one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_host: OrderedDict[str, deque[Item]] = OrderedDict()  # who is next comes first
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def put(self, host: str, item: Item) -> Item | None:
        """Let an item wait; returns the one that has to go for it, which may be itself."""
        self._by_host.setdefault(host, deque()).append(item)
        self._length += 1
        if self._length <= self._most:
            return None
        # of hosts with as many the one that comes now, so that none has to go for one who is no better
        most = max(self._by_host, key=lambda one: (len(self._by_host[one]), one == host))
        gone = self._by_host[most].pop()
        self._left(most)
        return gone

    def take(self) -> Item:
        """The next one, of the host whose turn it is. Raises `KeyError` where nobody waits."""
        host = next(iter(self._by_host), None)
        if host is None:
            raise KeyError("nobody waits")
        item = self._by_host[host].popleft()
        self._by_host.move_to_end(host)
        self._left(host)
        return item

    def _left(self, host: str) -> None:
        self._length -= 1
        if not self._by_host[host]:
            del self._by_host[host]


MAX_VERIFIED_LOGINS = 1000
"""Logins that are remembered (Artemis, ``authentication-cache-size``)."""


class VerifiedLogins:
    """Which logins were found to be right less than ``seconds`` ago.

    What is kept of one is a keyed digest, whose key nobody knows and which ends with the process: no password can be
    had or tried from it elsewhere. ``now`` gives seconds.
    """

    def __init__(self, seconds: float, now: Callable[[], float]) -> None:
        self._seconds = seconds
        self._now = now
        self._key = secrets.token_bytes(32)
        self._ends: OrderedDict[bytes, float] = OrderedDict()

    def digest(self, generation: int, name: str, password: str) -> bytes:
        """What a login is kept as. ``generation`` is that of the users file: another file, another digest."""
        parts = [str(generation).encode(), name.encode("utf-8", "surrogatepass")]
        told = b"".join(b"%d:%b" % (len(part), part) for part in parts)
        told += password.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, told, "sha256")

    def knows(self, digest: bytes) -> bool:
        """Whether it is kept, and not for too long."""
        end = self._ends.get(digest)
        return end is not None and self._now() < end

    def keep(self, digest: bytes) -> None:
        """It was right just now."""
        if self._seconds <= 0:
            return
        self._ends[digest] = self._now() + self._seconds
        self._ends.move_to_end(digest)
        while len(self._ends) > MAX_VERIFIED_LOGINS:
            self._ends.popitem(last=False)

    def clear(self) -> None:
        """Know nothing."""
        self._ends.clear()
