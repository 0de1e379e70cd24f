"""How much all held messages take together (``global-max-size``), and who waits for room."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Room:
    """A count of bytes and messages with limits, and the producers that wait for it to fall below them.

    An address has one, the broker has one. ``full`` is kept up to date so that the hot path reads one flag: who
    changes ``bytes`` and ``messages`` (`Address.occupy`, `Address.release`) calls `review` where it may change.
    """

    __slots__ = ("bytes", "full", "limited", "max_bytes", "max_messages", "messages", "waiting", "_waking")

    def __init__(self, max_bytes: int = -1, max_messages: int = -1) -> None:
        self.bytes = 0
        self.messages = 0
        self.full = False
        self.waiting: deque[Callable[[], None]] = deque()
        self._waking = False
        self.limit(max_bytes, max_messages)

    def limit(self, max_bytes: int, max_messages: int = -1) -> None:
        """Change the limits; waiting producers go on when that made room."""
        self.max_bytes, self.max_messages = max_bytes, max_messages
        self.limited = max_bytes >= 0 or max_messages >= 0
        self.review()

    def review(self) -> None:
        """Set ``full`` anew. A limit is reached, not passed: the message that reaches it was the last to enter."""
        self.full = (0 <= self.max_bytes <= self.bytes) or (0 <= self.max_messages <= self.messages)
        if not self.full and self.waiting and not self._waking:
            # one at a time: a thousand producers must not all rush to the place of one message
            self._waking = True
            self.waiting.popleft()()

    def woken(self) -> None:
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
