"""Who fails to log in again and again is answered ever more slowly."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from stompring.settings.network import source_network

FREE = 10
"""Logins of a host that may fail before the next one is delayed."""

FIRST, LONGEST = 0.25, 5.0
"""Seconds of the first delay, which doubles with each failure, and of the longest: below any handshake-timeout."""

FORGETS = 300.0
"""Seconds without a failure after which a host is like any other."""

HOSTS = 10_000
"""Hosts that are remembered; beyond them the one whose last failure is oldest is forgotten."""

WAITING = 16
"""Logins of one host that may wait out their delay at a time. More are refused at once."""


class Throttle:
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
        if len(self._failures) > HOSTS:
            self._failures.popitem(last=False)
        return failures == FREE

    def delay(self, host: str) -> float:
        """Seconds that a login of that host has to wait."""
        beyond = self._of(source_network(host)) - FREE
        return 0.0 if beyond < 0 else min(LONGEST, FIRST * 2.0 ** min(beyond, 16))

    def enter(self, host: str) -> bool:
        """A login is to wait; False where too many of that host do."""
        key = source_network(host)
        if self._waiting.get(key, 0) >= WAITING:
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
        if self._now() - last >= FORGETS:
            del self._failures[key]
            return 0
        return failures
