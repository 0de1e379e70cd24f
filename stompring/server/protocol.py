"""STOMP connections on Twisted: the protocol between transport and session, its factory, and rejected connections."""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Iterable
from http import HTTPStatus
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IDelayedCall, IPushProducer
from twisted.internet.protocol import Factory, Protocol
from twisted.protocols.policies import ProtocolWrapper
from twisted.python.failure import Failure
from zope.interface import implementer

from stompring.broker.broker import Broker
from stompring.errors import LimitReached
from stompring.security.certificates import peer_subject
from stompring.session.backpressure import Reading
from stompring.session.connect import Authenticator, error_frame
from stompring.session.connection_limits import ConnectionLimit, GlobalConnectionLimit
from stompring.session.destination import Destinations
from stompring.session.outbox import Outgoing
from stompring.session.requests import RequestHandler
from stompring.session.session import Session
from stompring.settings.acceptor import StompAcceptor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stompring.session.connection_limits import ConnectionSlot

    from .websocket import WebSocket, WebSocketFactory

#: Seconds from which on a read is slow: some ten times as much as 64 KiB of ordinary frames.
SLOW_READ = 0.02

#: Seconds, the longest pause for one read.
MAX_PAUSE = 1.0

#: Seconds between checks, and the part of a pause without other reads that ends it early.
CHECK_INTERVAL, IDLE_FRACTION = 0.002, 0.1


class Throttled(NamedTuple):
    """A paused connection: until when (seconds of the reactor), and how many idle seconds end the pause."""

    reading: Reading
    until: float
    idle: float


class ReadThrottle:
    """The paused connections. ``reads`` counts the reads of all connections; their protocols increment it."""

    def __init__(self) -> None:
        self.reads = 0
        self._paused: deque[Throttled] = deque()
        self._before = 0  # reads at the last check
        self._last_read = 0.0  # of another connection, or the beginning of a pause

    def throttle(self, reading: Reading, spent: float, reactor: Any) -> None:
        """Pause a connection whose read has taken ``spent`` seconds, more than `SLOW_READ`."""
        now = reactor.seconds()
        pause = min(spent, MAX_PAUSE)
        begin = self._paused[-1].until if self._paused else now
        self._paused.append(Throttled(reading, begin + pause, pause * IDLE_FRACTION))
        reading.suspend()
        if len(self._paused) == 1:
            self._before, self._last_read = self.reads, now
            reactor.callLater(CHECK_INTERVAL, self._check, reactor)

    def _check(self, reactor: Any) -> None:
        now = reactor.seconds()
        if self.reads != self._before:
            self._before, self._last_read = self.reads, now
        first = self._paused[0]
        if now >= first.until or now - self._last_read >= first.idle:
            self._paused.popleft()
            self._last_read = now
            first.reading.unsuspend()
        if self._paused:
            reactor.callLater(CHECK_INTERVAL, self._check, reactor)


TCP_ESTABLISHED = 1


def tcp_transport(transport: Any) -> Any:
    """The transport that has the socket."""
    while isinstance(transport, ProtocolWrapper):
        transport = transport.transport
    return transport


def is_established(transport: Any) -> bool | None:
    """Whether the client has not closed its side; None where that is unknown (Linux has TCP_INFO)."""
    handle = getattr(tcp_transport(transport), "getHandle", None)
    if handle is None or not hasattr(socket, "TCP_INFO"):
        return None
    state: int = handle().getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state == TCP_ESTABLISHED


def http_error_response(code: int, reason: str, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """The whole answer."""
    body = f"{reason}\n".encode()
    lines = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", "close"),
        *headers,
    ]
    head = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\n{head}\r\n".encode() + body


#: Seconds after which a WebSocket that was refused may be tried again.
RETRY_AFTER = "5"

#: Seconds that it has to take them.
REJECTED_LINGER = 5.0


class RejectedConnection(Protocol):
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
        self._timer = self._reactor.callLater(REJECTED_LINGER, transport.abortConnection)  # type: ignore[attr-defined]
        transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        """See IProtocol."""

    def connectionLost(self, reason: Failure = None) -> None:  # type: ignore[assignment]
        """See IProtocol."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()


#: Seconds that a client has to take its last frames after the broker has closed the connection.
LINGER = 5.0

#: Seconds between checks whether the client of a connection that is not read is still there.
PEER_CHECK_INTERVAL = 1.0

#: How a WebSocket begins, and nothing of STOMP.
HTTP_GET = b"GET "


@implementer(IPushProducer)
class StompProtocol(Protocol):
    """One client's connection. As a push producer it learns when the socket is slow; as a `Wire` it writes."""

    def __init__(self, factory: StompFactory, slot: ConnectionSlot | None = None) -> None:
        self._factory = factory
        self._slot = slot  # among the connections that are counted
        self._clock = factory.broker.clock
        self._outgoing = factory.outgoing
        self._fairness = factory.connections.read_throttle
        self._timer: IDelayedCall | None = None
        self._peer_check: IDelayedCall | None = None
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
            self._timer = self._factory.reactor.callLater(timeout, self._handshake_timed_out)

    def take(self, data: bytes) -> None:
        """Bytes of STOMP."""
        outgoing, read_throttle, session = self._outgoing, self._fairness, self.session
        assert session is not None
        self._clock.refresh()
        read_throttle.reads += 1
        begun = perf_counter()
        outgoing.within_read = True
        try:
            session.receive(data)
        finally:
            outgoing.within_read = False
            outgoing.flush()
            spent = perf_counter() - begun
            if spent > SLOW_READ and not session.closed:
                read_throttle.throttle(session.outbox.reading, spent, self._factory.reactor)

    #: Called by Twisted. Replaced until the protocol is detected, and over WebSocket.
    dataReceived = take

    def _begin(self, data: bytes) -> None:
        """The first bytes: HTTP becomes a WebSocket, all else is STOMP."""
        data = self._beginning + data
        if len(data) < len(HTTP_GET) and HTTP_GET.startswith(data):
            self._beginning = data
            return
        self._beginning = b""
        if data.startswith(HTTP_GET):
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
        self._stop_polling()
        self._clock.refresh()
        if self._slot is not None:
            self._slot.release()
        if self._websocket is not None:
            self._websocket.connectionLost()
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
        """The connection is about to be lost; `connectionLost` follows."""

    def _handshake_timed_out(self) -> None:
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
            self._websocket.start_close()

    def pause_reading(self) -> None:
        """See `Wire`."""
        if not self._closing and self.transport is not None:
            self.transport.pauseProducing()  # type: ignore[attr-defined]
            self._poll_peer()

    def _poll_peer(self) -> None:
        """A socket that is not read does not report that its client is gone: poll it."""
        self._stop_polling()
        self._peer_check = self._factory.reactor.callLater(PEER_CHECK_INTERVAL, self._check_peer)

    def _check_peer(self) -> None:
        self._peer_check = None
        alive = None if self.session is None else is_established(self.transport)
        if alive:
            self._poll_peer()
        elif alive is not None and self.session is not None:
            self._clock.refresh()
            self.session.peer_gone()

    def _stop_polling(self) -> None:
        if self._peer_check is not None and self._peer_check.active():
            self._peer_check.cancel()
        self._peer_check = None

    def resume_reading(self) -> None:
        """See `Wire`."""
        self._stop_polling()
        if not self._closing and self.transport is not None:
            self.transport.resumeProducing()  # type: ignore[attr-defined]


log = logging.getLogger(__name__)


class Connections:
    """The open sessions of all acceptors."""

    def __init__(self, epoch: int) -> None:
        self._numbers = count(1)
        self._epoch = f"{epoch:x}"
        self.open: dict[str, Session] = {}
        self.total = 0
        self.refused_because: str | None = None  # why no connection is accepted, while that is so
        self.read_throttle = ReadThrottle()
        self.global_limit = GlobalConnectionLimit()

    def next_number(self) -> str:
        """A session id that no earlier run of the broker used."""
        self.total += 1
        return f"{self._epoch}-{next(self._numbers)}"

    def __len__(self) -> int:
        return len(self.open)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self.open.values()))


class StompFactory(Factory):
    """One STOMP acceptor."""

    noisy = False

    def __init__(
        self,
        broker: Broker,
        acceptor: StompAcceptor,
        authenticator: Authenticator,
        connections: Connections,
        outgoing: Outgoing,
        reactor: Any,
    ) -> None:
        self.broker = broker
        self.acceptor = acceptor
        self.authenticator = authenticator
        self.connections = connections
        self.outgoing = outgoing
        self.reactor = reactor
        self.requests: RequestHandler | None = None  # of management by messages
        self._destinations = Destinations(acceptor)
        self.connection_limit = ConnectionLimit(acceptor, connections.global_limit)
        self._websockets: WebSocketFactory | None = None
        if acceptor.websocket.only:
            _ = self.websockets  # before anybody waits for it

    def buildProtocol(self, addr: IAddress | None) -> StompProtocol | RejectedConnection:
        """See IProtocolFactory. Beyond a limit the client gets an error and is closed."""
        host = str(getattr(addr, "host", ""))
        refused_because = self.connections.refused_because
        if refused_because is not None:
            return RejectedConnection(self._refusal(refused_because), self.reactor)
        try:
            slot = self.connection_limit.acquire(host)
        except LimitReached as refused:
            fields = {"peer": host, "acceptor": self.acceptor.name}
            self.broker.rejections.add_error(refused, host, str(refused), fields)
            return RejectedConnection(self._refusal(str(refused)), self.reactor)
        return StompProtocol(self, slot)

    def _refusal(self, text: str) -> bytes:
        """What a client gets that is refused before it has said anything."""
        if self.acceptor.websocket.only:
            return http_error_response(503, text, [("Retry-After", RETRY_AFTER)])
        return error_frame(text)

    @property
    def websockets(self) -> WebSocketFactory:
        """What makes WebSockets of connections. Made when it is wanted: the library's import takes 20 ms."""
        if self._websockets is None:
            from .websocket import WebSocketFactory

            self._websockets = WebSocketFactory(self.acceptor, self.broker.clock)
        return self._websockets

    def new_session(self, wire: StompProtocol) -> Session:
        """A client has connected."""
        number = self.connections.next_number()
        session = Session(
            self.broker, self.acceptor, self._destinations, self.authenticator, wire, self.outgoing, number
        )
        session.requests = self.requests
        self.connections.open[number] = session
        self.broker.log_limit.info(
            log,
            "connection opened",
            "connection %s (%s) opened: acceptor %s, %s",
            number,
            wire.peer,
            self.acceptor.name,
            wire.carrier,
            fields={**session.log_fields(), "carrier": wire.carrier},
        )
        return session

    def forget(self, session: Session) -> None:
        """A connection is gone."""
        self.connections.open.pop(session.number, None)
