"""STOMP connections on Twisted: the protocol between transport and session, its factory, and rejected connections.

Also the PROXY protocol, versions 1 and 2, the detection of TLS and PROXY headers at the start of a connection, and the
limits that depend on the machine: open files, connections, memory for messages. The connection limit leaves file
descriptors free: without a free descriptor the broker can neither accept a connection nor open a file.
"""

from __future__ import annotations

import logging
import re
import resource
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from twisted.internet.address import IPv4Address as IPv4Place
from twisted.internet.address import IPv6Address as IPv6Place
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IDelayedCall, IProtocolFactory, IPushProducer
from twisted.internet.protocol import Factory, Protocol
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from zope.interface import directlyProvides, implementer, providedBy

from stompring.broker.broker import Broker
from stompring.broker.clock import cancel
from stompring.errors import LimitReached
from stompring.security.accounts import peer_subject
from stompring.session.commands import StompSession
from stompring.session.connect import Authenticator, RequestHandler, error_frame
from stompring.session.destination import Destinations
from stompring.session.outbox import ConnectionLimit, GlobalConnectionLimit, Outgoing, Reading
from stompring.session.session import Session
from stompring.settings.machine import default_global_max_size, machine_memory
from stompring.settings.model import BrokerConfiguration, ProxyProtocol, StompAcceptor, frozen
from stompring.stomp.websocket_frames import http_error_response

if TYPE_CHECKING:
    from .websocket import WebSocket, WebSocketFactory

log = logging.getLogger(__name__)

#: Number of open files that is assumed if the system sets no limit.
UNLIMITED_FILES = 1_048_576

#: File descriptors reserved for journal and page files, HTTP connections and Python itself. If the process may open
#: fewer than twice this number, half of its descriptors are reserved.
RESERVED_FILES = 1000

#: Estimated bytes of memory per connection: 4 KiB if idle. A busy connection may cache 256 KiB of headers, and a slow
#: one may have 256 KiB in its outbox, but few connections are busy or slow at the same time.
MEMORY_PER_CONNECTION = 64 * 1024

#: By default, connections may take the machine's memory divided by this number.
CONNECTION_MEMORY_SHARE = 4


def raise_open_file_limit() -> int:
    """Raise the soft limit of open files to the hard limit if possible. Returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = UNLIMITED_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as fault:
            log.warning("cannot raise the limit of open files, %d: %s", soft, fault)
    return open_file_limit()


def open_file_limit() -> int:
    """Return the number of files and sockets that this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED_FILES if soft == resource.RLIM_INFINITY else soft


def connections_for_files(available: int) -> int:
    """Return the number of connections that ``available`` descriptors allow after `RESERVED_FILES` are reserved."""
    return max(1, available - min(RESERVED_FILES, available // 2))


def default_connections(available: int, memory: int) -> int:
    """Return the default of ``global-max-connections``. ``available``: descriptors; ``memory``: bytes."""
    return max(
        1, min(connections_for_files(available), memory // CONNECTION_MEMORY_SHARE // MEMORY_PER_CONNECTION)
    )


def max_connections(configured: int | None, memory: int) -> int:
    """Return the limit of connections: ``configured`` (``global-max-connections``), or the default if None.

    If ``configured`` is more than the descriptors allow, logs a warning, and returns it nevertheless.
    """
    available = open_file_limit()
    if configured is None:
        return default_connections(available, memory)
    if configured < 0 or configured > connections_for_files(available):
        log.warning(
            "global-max-connections is %d, and the limit of open files is %d: with more than %d connections the broker "
            "may be unable to open its files; raise the limit (ulimit -n, LimitNOFILE)",
            configured,
            available,
            connections_for_files(available),
        )
    return configured


UNITS = ("bytes", "KB", "MB", "GB", "TB")


def format_size(size: int) -> str:
    """Format a number of bytes with a unit. 1 KB is 1024 bytes, as in broker.xml."""
    amount, unit = float(size), UNITS[0]
    for unit in UNITS:
        if amount < 1024 or unit == UNITS[-1]:
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if amount == int(amount) else f"{amount:.1f} {unit}"


def describe_limits(configuration: BrokerConfiguration, memory: int | None = None) -> str:
    """Describe the memory limits of messages for the log. ``memory``: bytes for the process; None: measure it."""
    memory = machine_memory() if memory is None else memory
    size = configuration.global_max_size
    if size < 0:
        text = "no limit (global-max-size -1)"
    elif size == default_global_max_size(memory):
        text = f"{format_size(size)}, a quarter of {format_size(memory)}"
    else:
        text = f"{format_size(size)} of {format_size(memory)} (global-max-size)"
    if configuration.global_max_messages >= 0:
        text += f", {configuration.global_max_messages} messages (global-max-messages)"
    if configuration.persistence_enabled:
        text += f"; {format_size(configuration.dispatch_memory)} for messages read back from pages"
    return f"memory for messages: {text}"


#: Maximum bytes of a PROXY header of version 1, with its line end.
MAX_V1 = 107
#: Maximum bytes of the addresses and TLVs in a PROXY header of version 2, which follow its first 16 bytes. The format
#: allows 65535 bytes.
MAX_V2 = 4096

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED = 16

_PORT = re.compile(rb"0|[1-9][0-9]{0,4}")

_LOCAL, _PROXY = 0x20, 0x21
_UNSPECIFIED, _TCP4, _TCP6, _UNIX = 0x00, 0x11, 0x21, 0x31


@frozen
class ProxyHeader:
    """A PROXY header. ``source``: address of the client, None if the proxy gives none (LOCAL, UNKNOWN, UNIX)."""

    length: int  # bytes of the header; bytes of the client follow it
    source: tuple[str, int] | None = None


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """Parse the header at the beginning of ``data``. Returns None if it is incomplete. Raises `ValueError`."""
    if data.startswith(SIGNATURE[: len(data)]):
        return _version_2(data) if len(data) >= _FIXED else None
    if data.startswith(b"PROXY "[: len(data)]):
        return _version_1(data)
    raise ValueError("no PROXY header")


def _version_1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, MAX_V1)
    if end < 0:
        if len(data) >= MAX_V1:
            raise ValueError(f"PROXY header longer than {MAX_V1} bytes")
        return None
    length = end + 2
    words = data[:end].split(b" ")
    if words[1] == b"UNKNOWN":
        return ProxyHeader(length)
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise ValueError("PROXY header is not 'PROXY TCP4|TCP6 SOURCE DESTINATION PORT PORT'")
    kind = IPv4Address if words[1] == b"TCP4" else IPv6Address
    try:
        source, _ = (str(kind(word.decode("ascii"))) for word in words[2:4])
    except ValueError:
        raise ValueError("PROXY header with an invalid address") from None
    if not all(_PORT.fullmatch(word) and int(word) < 65_536 for word in words[4:]):
        raise ValueError("PROXY header with an invalid port")
    return ProxyHeader(length, (source, int(words[4])))


def _version_2(data: bytes) -> ProxyHeader | None:
    command, family, size = struct.unpack_from("!BBH", data, len(SIGNATURE))
    if command not in (_LOCAL, _PROXY):
        raise ValueError(f"PROXY header with unknown version or command 0x{command:02x}")
    if size > MAX_V2:
        raise ValueError(f"PROXY header longer than {MAX_V2} bytes")
    length = _FIXED + size
    if len(data) < length:
        return None
    if command == _LOCAL or family in (_UNSPECIFIED, _UNIX):
        return ProxyHeader(length)
    if family not in (_TCP4, _TCP6):
        raise ValueError(f"PROXY header for something other than TCP (0x{family:02x})")
    width = 4 if family == _TCP4 else 16
    if size < 2 * width + 4:
        raise ValueError("PROXY header too short for its addresses")
    source = ip_address(data[_FIXED : _FIXED + width])
    (port,) = struct.unpack_from("!H", data, _FIXED + 2 * width)
    return ProxyHeader(length, (str(source), port))


class ProxyConnection(ProtocolWrapper):
    """A connection with a PROXY header. It parses the header before it creates the protocol of the client.

    This object is then the transport of that protocol. `getPeer` returns the client's address from the header.
    """

    factory: ProxyFactory
    transport: Any

    _head = b""
    _timer: IDelayedCall | None = None
    _peer: IAddress | None = None
    _begun = False

    def __init__(self, factory: ProxyFactory) -> None:
        super().__init__(factory, Protocol())  # replaced by the protocol of the acceptor after the header

    def makeConnection(self, transport: Any) -> None:
        directlyProvides(self, providedBy(transport))
        Protocol.makeConnection(self, transport)
        factory = self.factory
        factory.registerProtocol(self)  # type: ignore[no-untyped-call]
        if not factory.trusts(str(getattr(transport.getPeer(), "host", ""))):
            self._refuse("address not in proxyProtocolTrusted")
        elif factory.timeout > 0:
            self._timer = factory.reactor.callLater(factory.timeout, self._header_timed_out)

    def dataReceived(self, data: bytes) -> None:
        if self._begun:
            self.wrappedProtocol.dataReceived(data)
        elif not self.disconnecting:
            self._read(data)

    def _read(self, data: bytes) -> None:
        self._head += data
        try:
            header = read_proxy_header(self._head)
        except ValueError as fault:
            self._refuse(str(fault))
            return
        if header is None:
            return
        following, self._head = self._head[header.length :], b""
        cancel(self._timer)
        if header.source is not None:
            kind = IPv6Place if ":" in header.source[0] else IPv4Place
            self._peer = kind("TCP", *header.source)
        inner = self.factory.wrappedFactory.buildProtocol(self.getPeer())
        if inner is None:
            self.disconnecting = 1
            self.transport.abortConnection()
            return
        self.wrappedProtocol = inner
        self._begun = True
        inner.makeConnection(self)
        if following:
            inner.dataReceived(following)

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        cancel(self._timer)
        if self._begun:
            super().connectionLost(reason)  # type: ignore[no-untyped-call]
            return
        self.factory.unregisterProtocol(self)  # type: ignore[no-untyped-call]
        if self._head and not self.disconnecting:
            self.factory.failed(self.getPeer(), "connection ended within the PROXY header")

    def getPeer(self) -> IAddress:
        """Return the client's address from the header; the proxy's if the header is missing or has no address."""
        peer: IAddress = self._peer or self.transport.getPeer()
        return peer

    def _header_timed_out(self) -> None:
        self._timer = None
        self._refuse(f"no PROXY header within {self.factory.timeout:g} s")

    def _refuse(self, why: str) -> None:
        self.disconnecting = 1
        cancel(self._timer)
        self.factory.failed(self.getPeer(), why)
        self.transport.abortConnection()


class ProxyFactory(WrappingFactory[ProxyConnection]):
    """The factory of `ProxyConnection` around another factory. ``timeout``: seconds for the header, 0: no limit."""

    noisy = False

    def __init__(
        self,
        wrapped: IProtocolFactory,
        proxy: ProxyProtocol,
        timeout: float,
        failed: Callable[[IAddress, str], None],
        reactor: Any,
    ) -> None:
        super().__init__(wrapped)  # type: ignore[no-untyped-call]
        self.timeout = timeout
        self.failed = failed
        self.reactor = reactor
        self._trusted = proxy.proxy_protocol_trusted

    def buildProtocol(self, addr: IAddress | None) -> ProxyConnection:
        return ProxyConnection(self)

    def trusts(self, host: str) -> bool:
        """Return whether the broker accepts PROXY headers from ``host``."""
        if not self._trusted:
            return True
        address = ip_address(host.partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return any((mapped or address) in network or address in network for network in self._trusted)


#: The first byte of a ClientHello, and the beginning of a PROXY header.
HANDSHAKE_RECORD = b"\x16"
PROXY_HEADER_START = re.compile(rb"PROXY |" + re.escape(SIGNATURE))

#: A fatal alert of TLS: handshake_failure.
TLS_HANDSHAKE_FAILURE = b"\x15\x03\x03\0\x02\x02\x28"


class ProtocolDetectionFactory(WrappingFactory[Any]):
    """Checks the first bytes of another factory's connections for TLS, and for a PROXY header. A protocol receives all
    later bytes directly. If a connection begins with TLS or a PROXY header, ``odd`` gets the peer and a log text.
    """

    noisy = False

    def __init__(self, wrapped: IProtocolFactory, odd: Callable[[IAddress | None, str], None]) -> None:
        super().__init__(wrapped)  # type: ignore[no-untyped-call]
        self._odd = odd

    def buildProtocol(self, addr: IAddress | None) -> Any:
        protocol = self.wrappedFactory.buildProtocol(addr)
        if protocol is None:
            return None
        connect = protocol.makeConnection

        def begin(transport: Any) -> None:
            del protocol.makeConnection
            connect(transport)
            own = protocol.__dict__.get("dataReceived")  # set by a `StompProtocol` that detects WebSocket

            def first(data: bytes) -> None:
                if own is None:
                    del protocol.dataReceived
                else:
                    protocol.dataReceived = own
                if not self._is_for_others(addr, transport, data):
                    protocol.dataReceived(data)

            protocol.dataReceived = first

        protocol.makeConnection = begin
        return protocol

    def _is_for_others(self, peer: IAddress | None, transport: Any, data: bytes) -> bool:
        if data.startswith(HANDSHAKE_RECORD):
            self._odd(peer, "TLS on an acceptor without TLS: use ssl:// or https://, or set sslEnabled=true")
            transport.write(TLS_HANDSHAKE_FAILURE)
            transport.unregisterProducer()  # Twisted keeps a connection open as long as it has a producer
            transport.loseConnection()
            return True
        if PROXY_HEADER_START.match(data):
            self._odd(peer, "unexpected PROXY header: set proxyProtocolEnabled=true to accept it")
        return False


#: Seconds above which a read is slow: about ten times as long as a read of 64 KiB of ordinary frames.
SLOW_READ = 0.02

#: Maximum pause after one read, in seconds.
MAX_PAUSE = 1.0

#: Seconds between two checks whether a pause has ended. ``IDLE_FRACTION``: a pause ends early if no connection is read
#: for this fraction of its length.
CHECK_INTERVAL, IDLE_FRACTION = 0.002, 0.1


class Throttled(NamedTuple):
    """A paused connection. ``until``: reactor time in seconds at which the pause ends.

    ``idle``: seconds. If no connection is read for this time, the pause ends earlier.
    """

    reading: Reading
    until: float
    idle: float


class ReadThrottle:
    """The paused connections. ``reads`` counts the reads of all connections; each protocol increments it."""

    reads = 0
    _before = 0  # value of ``reads`` at the last check
    _last_read = 0.0  # reactor time of the last read of another connection, or of the beginning of a pause

    def __init__(self) -> None:
        self._paused: deque[Throttled] = deque()

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


def is_established(transport: Any) -> bool | None:
    """Return whether the client still has its side of the connection open; None if unknown: without TCP_INFO."""
    while isinstance(transport, ProtocolWrapper):  # the innermost transport has the socket
        transport = transport.transport
    handle = getattr(transport, "getHandle", None)
    if handle is None or not hasattr(socket, "TCP_INFO"):
        return None
    return bool(handle().getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_ESTABLISHED)


#: Seconds after which a refused WebSocket client may try again.
RETRY_AFTER = "5"

#: Seconds that a rejected client has to read the answer.
REJECTED_LINGER = 5.0


class RejectedConnection(Protocol):
    """A connection that sends ``words``, an ERROR or an HTTP response, and closes. It ignores incoming bytes."""

    transport: Any

    _timer: IDelayedCall | None = None

    def __init__(self, words: bytes, reactor: Any) -> None:
        self._words = words
        self._reactor = reactor

    def connectionMade(self) -> None:
        self.transport.write(self._words)
        self._timer = self._reactor.callLater(REJECTED_LINGER, self.transport.abortConnection)
        self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        pass

    def connectionLost(self, reason: Failure = None) -> None:  # type: ignore[assignment]
        cancel(self._timer)


#: Seconds that a client has to read its last frames after the broker has closed the connection.
LINGER = 5.0

#: Seconds between checks whether the client of a connection with paused reading is still connected.
PEER_CHECK_INTERVAL = 1.0

#: The first bytes of a WebSocket; no STOMP frame begins with these bytes.
HTTP_GET = b"GET "


#: Minimum bytes of an unfinished frame whose rest is read in larger steps.
LONG_FRAME = 16 * 1024


@implementer(IPushProducer)
class StompProtocol(Protocol):
    """The connection of one client: a `Wire` for the session, and a push producer, paused when the socket is slow."""

    transport: Any

    _timer: IDelayedCall | None = None
    _peer_check: IDelayedCall | None = None
    _closing = False
    _beginning = b""  # first bytes of the client, while they are only a part of `HTTP_GET`
    _websocket: WebSocket | None = None
    session: StompSession | None = None

    def __init__(self, factory: StompFactory, network: str) -> None:
        self._factory = factory
        self._network = network  # the network of the client, counted by the connection limit
        self._clock = factory.broker.clock
        self._outgoing = factory.outgoing
        self._fairness = factory.connections.read_throttle

    @property
    def peer(self) -> str:
        """The client's host and port, joined by a colon."""
        address = self.transport.getPeer()
        if isinstance(address, (IPv4Place, IPv6Place)):
            return f"{address.host}:{address.port}"
        return str(address)

    @property
    def host(self) -> str:
        return str(getattr(self.transport.getPeer(), "host", ""))

    @property
    def certificate(self) -> str | None:
        return peer_subject(self.transport)

    @property
    def carrier(self) -> str:
        return "TCP" if self._websocket is None else "WebSocket"

    # ---- called by Twisted

    def connectionMade(self) -> None:
        transport = self.transport
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)
        transport.registerProducer(self, True)
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
        """Process bytes of STOMP. A read longer than `SLOW_READ` pauses the connection."""
        outgoing, read_throttle, session = self._outgoing, self._fairness, self.session
        assert session is not None
        self._clock.refresh()
        read_throttle.reads += 1
        begun = perf_counter()
        outgoing.within_read = True
        try:
            session.receive(data)
            if session.unfinished >= LONG_FRAME:
                self.transport.reads_long = True
        finally:
            outgoing.within_read = False
            if outgoing.dirty:
                outgoing.flush()
            spent = perf_counter() - begun
            if spent > SLOW_READ and not session.closed:
                read_throttle.throttle(session.outbox.reading, spent, self._factory.reactor)

    #: The function that Twisted calls. Another one stands here until the protocol is detected, and over WebSocket.
    dataReceived = take

    def _begin(self, data: bytes) -> None:
        """Detect the protocol by the first bytes: HTTP starts a WebSocket, other bytes are STOMP."""
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
        cancel(self._timer)
        cancel(self._peer_check)
        self._timer = self._peer_check = None  # breaks a reference cycle
        self._clock.refresh()
        self._factory.connection_limit.release(self._network)
        if self._websocket is not None:
            self._websocket.connectionLost()
            del self.write
        self.__dict__.pop("dataReceived", None)  # breaks a reference cycle
        session, self.session = self.session, None
        if session is not None:
            fault = getattr(reason, "value", reason)
            if isinstance(fault, ConnectionDone):
                session.lost()
            else:
                session.lost(f"connection lost: {fault}")
            self._factory.connections.open.pop(session.number, None)

    def pauseProducing(self) -> None:
        if self.session is not None:
            self.session.outbox.pause()

    def resumeProducing(self) -> None:
        if self.session is not None:
            self._clock.refresh()
            self.session.outbox.resume()

    def stopProducing(self) -> None:
        pass  # `connectionLost` follows

    def _handshake_timed_out(self) -> None:
        self._timer = None
        session = self.session
        # no timeout while a login is checked: its CONNECT was in time, and the result of the check ends the handshake
        if session is not None and not session.connected and not session.awaiting_login:
            session.refuse(
                LimitReached(
                    f"No CONNECT within {self._factory.acceptor.handshake_timeout} s (handshake-timeout)",
                    "handshake-timeout",
                )
            )

    # ---- Wire

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def close(self) -> None:
        transport = self.transport
        if transport is None or self._closing:
            return
        self._closing = True
        cancel(self._timer)
        # Twisted keeps a connection open as long as a producer is registered
        transport.unregisterProducer()
        self._timer = self._factory.reactor.callLater(LINGER, transport.abortConnection)
        if self._websocket is None:
            transport.loseConnection()
        else:
            self._websocket.start_close()

    def pause_reading(self) -> None:
        if not self._closing and self.transport is not None:
            self.transport.pauseProducing()
            self._poll_peer()

    def _poll_peer(self) -> None:
        # a socket with paused reading does not report that its client has disconnected
        cancel(self._peer_check)
        self._peer_check = self._factory.reactor.callLater(PEER_CHECK_INTERVAL, self._check_peer)

    def _check_peer(self) -> None:
        self._peer_check = None
        session = self.session
        alive = None if session is None else is_established(self.transport)
        if alive:
            self._poll_peer()
        elif alive is not None and session is not None:
            self._clock.refresh()
            session.peer_gone()

    def resume_reading(self) -> None:
        cancel(self._peer_check)
        if not self._closing and self.transport is not None:
            self.transport.resumeProducing()


class Connections:
    """The open sessions of all acceptors."""

    total = 0
    refused_because: str | None = None  # reason for refusing all new connections; None: they are accepted

    def __init__(self, epoch: int) -> None:
        self._numbers = count(1)
        self._epoch = f"{epoch:x}"
        self.open: dict[str, Session] = {}
        self.read_throttle = ReadThrottle()
        self.global_limit = GlobalConnectionLimit()

    def next_number(self) -> str:
        """Return a new session id, which no earlier run of the broker used."""
        self.total += 1
        return f"{self._epoch}-{next(self._numbers)}"

    def __len__(self) -> int:
        return len(self.open)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self.open.values()))


@dataclass(eq=False, repr=False)
class StompFactory(Factory):
    """The factory of the connections of one STOMP acceptor."""

    broker: Broker
    acceptor: StompAcceptor
    authenticator: Authenticator
    connections: Connections
    outgoing: Outgoing
    reactor: Any
    requests: RequestHandler | None = None  # handler of management messages

    noisy = False

    def __post_init__(self) -> None:
        self._destinations = Destinations(self.acceptor)
        self.connection_limit = ConnectionLimit(self.acceptor, self.connections.global_limit)
        if self.acceptor.websocket.only:
            _ = self.websockets  # import the library before the first client connects

    def buildProtocol(self, addr: IAddress | None) -> StompProtocol | RejectedConnection:
        host = str(getattr(addr, "host", ""))
        reason = self.connections.refused_because
        if reason is None:
            try:
                return StompProtocol(self, self.connection_limit.acquire(host))
            except LimitReached as refused:
                reason = str(refused)
                self.broker.rejections.add_error(
                    refused, host, reason, {"peer": host, "acceptor": self.acceptor.name}
                )
        if self.acceptor.websocket.only:
            words = http_error_response(503, reason, [("Retry-After", RETRY_AFTER)])
        else:
            words = error_frame(reason)
        return RejectedConnection(words, self.reactor)

    @cached_property
    def websockets(self) -> WebSocketFactory:
        """The factory of WebSockets. It is created at the first use, because the library's import takes 20 ms."""
        from .websocket import WebSocketFactory

        return WebSocketFactory(self.acceptor, self.broker.clock)

    def new_session(self, wire: StompProtocol) -> StompSession:
        """Create the session of a new connection, and log the connection."""
        number = self.connections.next_number()
        session = StompSession(
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
