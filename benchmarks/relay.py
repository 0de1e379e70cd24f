"""A relay of bytes, which shows the cost of Twisted and Python without a broker.

    python -m benchmarks.relay ENDPOINT …

It listens on endpoints of Twisted: ``tcp:PORT``, or ``ssl:PORT:certKey=FILE:privateKey=FILE``. A connection that sends
SUBSCRIBE receives, unchanged, all bytes that the other connections send after their CONNECT. The relay does not parse,
queue or acknowledge. `stompload -F relay` is its client. It uses Twisted's own reactor and TLS.
"""

from __future__ import annotations

import sys

from twisted.internet import reactor
from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IReactorCore
from twisted.internet.protocol import Factory, Protocol

CONNECTED = b"CONNECTED\nversion:1.2\n\n\0"


class Relay(Protocol):
    """A connection. It answers its first bytes. If SUBSCRIBE follows, it is a receiver, else it relays all bytes."""

    receivers: list[Relay] = []

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)  # type: ignore[attr-defined]
        self.dataReceived = self._greet  # type: ignore[method-assign]

    def _greet(self, data: bytes) -> None:
        self.transport.write(CONNECTED)
        self.dataReceived = self._choose  # type: ignore[method-assign]

    def _choose(self, data: bytes) -> None:
        if data.startswith(b"SUBSCRIBE"):
            self.receivers.append(self)
            self.dataReceived = self._ignore  # type: ignore[method-assign]
            return
        self.dataReceived = self._pass_on  # type: ignore[method-assign]
        self._pass_on(data)

    def _ignore(self, data: bytes) -> None:
        pass

    def _pass_on(self, data: bytes) -> None:
        for receiver in self.receivers:
            receiver.transport.write(data)

    def connectionLost(self, reason: object = None) -> None:
        if self in self.receivers:
            self.receivers.remove(self)


def main() -> None:
    """Listen on the endpoints of the command line until a signal ends the process."""
    factory = Factory.forProtocol(Relay)
    for endpoint in sys.argv[1:]:
        serverFromString(reactor, endpoint).listen(factory)
    IReactorCore(reactor).run()


if __name__ == "__main__":
    main()
