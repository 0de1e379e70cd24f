"""The shell around a session: bytes from a transport in, bytes to it out, and nothing else."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall, IPushProducer
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from stompring.errors import LimitReached
from stompring.security.certificates import peer_subject
from stompring.session.session import Session

from .fairness import DEAR
from .underneath import is_established

if TYPE_CHECKING:
    from .factory import StompFactory
    from .threshold import Place
    from .websocket import WebSocket

#: Seconds that a client has to take its last frames after the broker said good-bye.
LINGER = 5.0

#: Seconds between looks at a connection that is not read.
WATCH = 1.0

#: How a WebSocket begins, and nothing of STOMP.
HTTP = b"GET "


@implementer(IPushProducer)
class StompProtocol(Protocol):
    """One client's connection. As a push producer it learns when the socket is slow; as a `Wire` it writes."""

    def __init__(self, factory: StompFactory, place: Place | None = None) -> None:
        self._factory = factory
        self._place = place  # among the connections that are counted
        self._clock = factory.broker.clock
        self._outgoing = factory.outgoing
        self._fairness = factory.connections.fairness
        self._timer: IDelayedCall | None = None
        self._watching: IDelayedCall | None = None
        self._closing = False
        self._beginning = b""  # of what may become HTTP
        self._websocket: WebSocket | None = None
        self.session: Session | None = None

    @property
    def peer(self) -> str:
        """The client's host and port."""
        assert self.transport is not None
        address = self.transport.getPeer()
        if isinstance(address, (IPv4Address, IPv6Address)):
            return f"{address.host}:{address.port}"
        return str(address)

    @property
    def host(self) -> str:
        """See `Wire`."""
        assert self.transport is not None
        return str(getattr(self.transport.getPeer(), "host", ""))

    @property
    def certificate(self) -> str | None:
        """See `Wire`."""
        return peer_subject(self.transport)

    @property
    def carrier(self) -> str:
        """See `Wire`."""
        return "TCP" if self._websocket is None else "WebSocket"

    # ---- what Twisted calls

    def connectionMade(self) -> None:
        """See IProtocol."""
        transport = self.transport
        assert transport is not None
        transport.setTcpNoDelay(True)  # type: ignore[attr-defined]
        transport.setTcpKeepAlive(True)  # type: ignore[attr-defined]
        transport.registerProducer(self, True)  # type: ignore[attr-defined]
        self._clock.refresh()
        websocket = self._factory.acceptor.websocket
        if websocket.only:
            self._upgrade()
        elif websocket.web_socket_upgrade:
            self.dataReceived = self._begin  # type: ignore[method-assign]
        self.session = self._factory.new_session(self)
        timeout = self._factory.acceptor.handshake_timeout
        if timeout > 0:
            self._timer = self._factory.reactor.callLater(timeout, self._too_late)

    def take(self, data: bytes) -> None:
        """Bytes of STOMP."""
        outgoing, fairness, session = self._outgoing, self._fairness, self.session
        assert session is not None
        self._clock.refresh()
        fairness.reads += 1
        begun = perf_counter()
        outgoing.within_read = True
        try:
            session.receive(data)
        finally:
            outgoing.within_read = False
            outgoing.flush()
            spent = perf_counter() - begun
            if spent > DEAR and not session.closed:
                fairness.tire(session.outbox.reading, spent, self._factory.reactor)

    #: What Twisted calls. Until the first bytes have told what is spoken, and over WebSocket, another stands here.
    dataReceived = take

    def _begin(self, data: bytes) -> None:
        """The first bytes: HTTP becomes a WebSocket, all else is STOMP."""
        data = self._beginning + data
        if len(data) < len(HTTP) and HTTP.startswith(data):
            self._beginning = data
            return
        self._beginning = b""
        if data.startswith(HTTP):
            self._upgrade()
        else:
            del self.dataReceived
        self.dataReceived(data)

    def _upgrade(self) -> None:
        websocket = self._websocket = self._factory.websockets.open(self)
        self.dataReceived = websocket.dataReceived  # type: ignore[method-assign]
        self.write = websocket.write  # type: ignore[method-assign]

    def connectionLost(self, reason: Failure = ConnectionDone()) -> None:  # type: ignore[assignment] # noqa: B008
        """See IProtocol."""
        self._cancel_timer()
        self._stop_watching()
        self._clock.refresh()
        if self._place is not None:
            self._place.leave()
        if self._websocket is not None:
            self._websocket.connectionLost(reason)
            del self.write
        self.__dict__.pop("dataReceived", None)  # a cycle, as the one before
        session, self.session = self.session, None
        if session is not None:
            fault = getattr(reason, "value", reason)
            if isinstance(fault, ConnectionDone):
                session.lost()
            else:
                session.lost(f"connection lost: {fault}")
            self._factory.forget(session)

    def pauseProducing(self) -> None:
        """The socket is slow."""
        if self.session is not None:
            self.session.outbox.pause()

    def resumeProducing(self) -> None:
        """The socket has taken everything."""
        if self.session is not None:
            self._clock.refresh()
            self.session.outbox.resume()

    def stopProducing(self) -> None:
        """The connection is about to be lost; `connectionLost` says so."""

    def _too_late(self) -> None:
        self._timer = None
        session = self.session
        # a login that is still being checked was in time: its answer comes, and is the end of it one way or the other
        if session is not None and not session.connected and not session.awaiting_login:
            seconds = self._factory.acceptor.handshake_timeout
            session.refuse(
                LimitReached(f"No CONNECT within {seconds} s (handshake-timeout)", "handshake-timeout")
            )

    def _cancel_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    # ---- Wire

    def write(self, data: bytes) -> None:
        """See `Wire`."""
        assert self.transport is not None
        self.transport.write(data)

    def close(self) -> None:
        """See `Wire`."""
        transport = self.transport
        if transport is None or self._closing:
            return
        self._closing = True
        self._cancel_timer()
        # Twisted keeps a connection open as long as a producer is registered
        transport.unregisterProducer()  # type: ignore[attr-defined]
        self._timer = self._factory.reactor.callLater(LINGER, transport.abortConnection)  # type: ignore[attr-defined]
        if self._websocket is None:
            transport.loseConnection()
        else:
            self._websocket.say_goodbye()

    def pause_reading(self) -> None:
        """See `Wire`."""
        if not self._closing and self.transport is not None:
            self.transport.pauseProducing()  # type: ignore[attr-defined]
            self._watch()

    def _watch(self) -> None:
        """A socket that is not read does not tell that its client is gone: ask, now and then."""
        self._stop_watching()
        self._watching = self._factory.reactor.callLater(WATCH, self._look)

    def _look(self) -> None:
        self._watching = None
        alive = None if self.session is None else is_established(self.transport)
        if alive:
            self._watch()
        elif alive is not None and self.session is not None:
            self._clock.refresh()
            self.session.peer_gone()

    def _stop_watching(self) -> None:
        if self._watching is not None and self._watching.active():
            self._watching.cancel()
        self._watching = None

    def resume_reading(self) -> None:
        """See `Wire`."""
        self._stop_watching()
        if not self._closing and self.transport is not None:
            self.transport.resumeProducing()  # type: ignore[attr-defined]
