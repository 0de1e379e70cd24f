"""A relay that passes on bytes: what Twisted and Python cost without a broker.

    python -m benchmarks.relay PORT

A connection that sends SUBSCRIBE receives, unchanged, everything that the other connections send after their CONNECT.
Nothing is parsed, queued or acknowledged. `stompload -F relay` is its client. The reactor is Twisted's own.
"""

from __future__ import annotations

import sys

from twisted.internet import reactor
from twisted.internet.interfaces import IReactorCore, IReactorTCP
from twisted.internet.protocol import Factory, Protocol

from benchmarks.brokers.process import HOST

CONNECTED = b"CONNECTED\nversion:1.2\n\n\0"


class Relay(Protocol):
    """The first bytes are answered, the next ones show whether this is a receiver, all others are passed on."""

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
    """Listens on the port that the command line names, until it is ended."""
    factory = Factory.forProtocol(Relay)
    IReactorTCP(reactor).listenTCP(int(sys.argv[1]), factory, interface=HOST, backlog=1000)
    IReactorCore(reactor).run()


if __name__ == "__main__":
    main()
