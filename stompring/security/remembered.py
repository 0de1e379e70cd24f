"""Logins that were right a moment ago: argon2 is slow on purpose, and a scrape comes every few seconds."""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable

MOST = 1000
"""Logins that are remembered (Artemis, ``authentication-cache-size``)."""


class Remembered:
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
        while len(self._ends) > MOST:
            self._ends.popitem(last=False)

    def clear(self) -> None:
        """Know nothing."""
        self._ends.clear()
