"""Opens a listener: where an acceptor says, for the protocols of a factory."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint, TCP6ServerEndpoint
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IStreamServerEndpoint

from stompring.settings.acceptor import HttpAcceptor, StompAcceptor

#: Connections that may wait to be accepted: bursts of thousands of clients come after a network fault.
BACKLOG = 4096


def endpoint(acceptor: StompAcceptor | HttpAcceptor, reactor: Any) -> IStreamServerEndpoint:
    """Where ``acceptor`` listens."""
    kind = TCP6ServerEndpoint if ":" in acceptor.host else TCP4ServerEndpoint
    return kind(reactor, acceptor.port, backlog=BACKLOG, interface=acceptor.host)


def listen(
    acceptor: StompAcceptor | HttpAcceptor, factory: IProtocolFactory, reactor: Any
) -> Deferred[IListeningPort]:
    """Open the listener of ``acceptor``. Fails with CannotListenError."""
    return endpoint(acceptor, reactor).listen(factory)
