"""Limits on logins: delays for hosts that fail, a fair queue of verifications, and the cache of verified logins."""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

from stompring.settings.network import source_network

FREE_FAILURES = 10
"""Failed logins of a host before further ones are delayed."""

FIRST_DELAY, LONGEST_DELAY = 0.25, 5.0
"""Seconds of the first delay, doubled with each failure, and of the longest: below any handshake-timeout."""

FORGET_AFTER = 300.0
"""Seconds without a failure after which the failures of a host are forgotten."""

MAX_HOSTS = 10_000
"""Hosts with recorded failures; beyond them the host with the oldest last failure is removed."""

MAX_DELAYED = 16
"""Delayed logins of one host at a time. Further ones are refused at once."""


class LoginThrottle:
    """Delays for hosts with failed logins. ``now`` returns seconds. IPv6 hosts are counted by their /64 network."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures: OrderedDict[str, tuple[int, float]] = (
            OrderedDict()
        )  # number of failures, time of the last one
        self._delayed: dict[str, int] = {}

    def failed(self, host: str) -> bool:
        """Record a failed login. True if it is the one after which logins of the host are delayed."""
        key = source_network(host)
        failures = self._of(key) + 1
        self._failures[key] = (failures, self._now())
        self._failures.move_to_end(key)
        if len(self._failures) > MAX_HOSTS:
            self._failures.popitem(last=False)
        return failures == FREE_FAILURES

    def delay(self, host: str) -> float:
        """Seconds by which the next login of a host is delayed."""
        beyond = self._of(source_network(host)) - FREE_FAILURES
        return 0.0 if beyond < 0 else min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(beyond, 16))

    def begin_delay(self, host: str) -> bool:
        """Count a delayed login. False if the host has too many."""
        key = source_network(host)
        if self._delayed.get(key, 0) >= MAX_DELAYED:
            return False
        self._delayed[key] = self._delayed.get(key, 0) + 1
        return True

    def end_delay(self, host: str) -> None:
        """The delay of a login is over."""
        key = source_network(host)
        remaining = self._delayed.pop(key) - 1
        if remaining:
            self._delayed[key] = remaining

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
    """A round-robin queue over hosts of at most ``maximum`` items.

    Beyond the maximum the host with the most items loses its last one, so that a host that sends many delays itself
    and not others.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._by_host: OrderedDict[str, deque[Item]] = OrderedDict()  # the next host comes first
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def put(self, host: str, item: Item) -> Item | None:
        """Append an item. Returns the item that is dropped for it, which may be itself, or None."""
        self._by_host.setdefault(host, deque()).append(item)
        self._length += 1
        if self._length <= self._maximum:
            return None
        # among hosts with equally many items this one, so that no other host loses an item to it
        longest = max(self._by_host, key=lambda one: (len(self._by_host[one]), one == host))
        dropped = self._by_host[longest].pop()
        self._removed(longest)
        return dropped

    def get(self) -> Item:
        """Remove and return the next item, one of each host in turn. Raises `KeyError` if the queue is empty."""
        host = next(iter(self._by_host), None)
        if host is None:
            raise KeyError("the queue is empty")
        item = self._by_host[host].popleft()
        self._by_host.move_to_end(host)
        self._removed(host)
        return item

    def _removed(self, host: str) -> None:
        self._length -= 1
        if not self._by_host[host]:
            del self._by_host[host]


MAX_VERIFIED_LOGINS = 1000
"""Size of the cache of verified logins (Artemis, ``authentication-cache-size``)."""


class VerifiedLogins:
    """A cache of logins that were verified or used again less than ``seconds`` ago: argon2 is slow by design.

    The cache stores keyed digests; the key is random and exists only in this process, so that passwords cannot be
    recovered from them. ``now`` returns seconds.
    """

    def __init__(self, seconds: float, now: Callable[[], float]) -> None:
        self._seconds = seconds
        self._now = now
        self._key = secrets.token_bytes(32)
        self._expiry: OrderedDict[bytes, float] = OrderedDict()

    def digest(self, generation: int, name: str, password: str) -> bytes:
        """The keyed digest of a login. ``generation`` is that of the users file: a changed file changes the digest."""
        parts = [str(generation).encode(), name.encode("utf-8", "surrogatepass")]
        message = b"".join(b"%d:%b" % (len(part), part) for part in parts)
        message += password.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, message, "sha256")

    def contains(self, digest: bytes) -> bool:
        """Whether the login was verified or used less than ``seconds`` ago; this is a use."""
        end = self._expiry.get(digest)
        if end is None or self._now() >= end:
            return False
        self.add(digest)
        return True

    def add(self, digest: bytes) -> None:
        """Add a login that was verified or used just now."""
        if self._seconds <= 0:
            return
        self._expiry[digest] = self._now() + self._seconds
        self._expiry.move_to_end(digest)
        while len(self._expiry) > MAX_VERIFIED_LOGINS:
            self._expiry.popitem(last=False)

    def clear(self) -> None:
        """Remove all logins."""
        self._expiry.clear()
