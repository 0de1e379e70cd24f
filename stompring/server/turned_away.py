"""A connection beyond a limit: it is told so and closed, and nothing else is ever done for it."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure

#: Seconds that it has to take them.
LINGER = 5.0


class TurnedAway(Protocol):
    """Writes ``words``, an ERROR or an answer of HTTP. What comes in is not looked at."""

    def __init__(self, words: bytes, reactor: Any) -> None:
        self._words = words
        self._reactor = reactor
        self._timer: IDelayedCall | None = None

    def connectionMade(self) -> None:
        """See IProtocol."""
        transport = self.transport
        assert transport is not None
        transport.write(self._words)
        self._timer = self._reactor.callLater(LINGER, transport.abortConnection)  # type: ignore[attr-defined]
        transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        """See IProtocol."""

    def connectionLost(self, reason: Failure = None) -> None:  # type: ignore[assignment]
        """See IProtocol."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
