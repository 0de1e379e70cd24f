"""Listening sockets whose connections write at once.

Twisted puts every write into a buffer and sends it when epoll says that the socket is writable: two more system calls
and one more turn of the reactor for each. A socket that nothing waits for is nearly always writable, so it is tried
first; only what it does not take goes the long way. docs/performance.md has what that is worth.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, execute
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IStreamServerEndpoint
from twisted.internet.tcp import Port, Server
from zope.interface import implementer


class EagerServer(Server):
    """A server-side TCP connection that sends at once what it can."""

    def write(self, data: bytes) -> None:
        """See ITransport."""
        if data and self.connected and not self.disconnecting and not self._unsent():
            sent = self.writeSomeData(data)
            # a failure is not an int, or is -1: it comes again, and is dealt with, when the reactor writes
            if isinstance(sent, int) and sent > 0:
                if sent == len(data):
                    return
                data = data[sent:]
        super().write(data)  # type: ignore[no-untyped-call]

    def _unsent(self) -> bool:
        return bool(self._tempDataBuffer) or self.offset < len(self.dataBuffer)


class EagerPort(Port):
    """A listening socket that makes such connections."""

    transport = EagerServer


@implementer(IStreamServerEndpoint)
class EagerEndpoint:
    """Listens on a host and port; ``port`` 0 is any free one."""

    def __init__(self, reactor: Any, port: int, backlog: int, interface: str) -> None:
        self._port = port
        self._backlog = backlog
        self._interface = interface
        self._reactor = reactor

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """See IStreamServerEndpoint. Fails with CannotListenError."""
        port = EagerPort(self._port, protocolFactory, self._backlog, self._interface, self._reactor)

        def start() -> EagerPort:
            port.startListening()
            return port

        return execute(start)
