"""A transport in memory that behaves as a TCP connection does where the protocol relies on it."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection


class TcpTransport(StringTransportWithDisconnection):
    """Closes only when no producer is registered, and knows a slow socket."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.aborted = False
        self.half_closed = False

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Nothing to delay."""

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """Nothing to keep alive."""

    def loseConnection(self) -> None:
        assert self.producer is None, "Twisted waits for a producer before it closes"
        self.clock.callLater(0, self.hang_up)

    def loseWriteConnection(self) -> None:
        assert self.producer is None, "Twisted waits for a producer before it closes"
        self.half_closed = True

    def hang_up(self) -> None:
        """The client is gone."""
        if self.connected:
            super().loseConnection()

    def abortConnection(self) -> None:
        self.aborted = True
        self.hang_up()
