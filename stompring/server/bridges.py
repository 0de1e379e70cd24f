"""The connections of bridges (`stompring.broker.bridge`) to other brokers: STOMP 1.2 or 1.1 over TCP or TLS."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost, DNSLookupError
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.interfaces import (
    IHandshakeListener,
    IPushProducer,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from stompring.broker.bridge import BridgeWorker
from stompring.broker.clock import cancel
from stompring.errors import CertificateError, ProtocolError
from stompring.session.outbox import Outgoing, printable
from stompring.settings.document import revealed
from stompring.settings.model import Connector
from stompring.stomp.client import StompClient, frame

log = logging.getLogger(__name__)

#: Maximum number of characters of a remote broker's text in logs and management.
MAX_TEXT = 500

#: Number of heart-beat intervals of the remote broker after which a silent connection counts as lost.
GRACE = 2.0

#: Maximum ms that a bridge waits for confirmations while the broker stops.
STOP_TIMEOUT = 5000

#: Commands that may begin the first answer of a STOMP broker, and the number of first bytes that are checked for them.
OPENINGS, MAX_OPENING = (b"CONNECTED", b"ERROR"), 64

DISCONNECT = frame("DISCONNECT")


@implementer(IPushProducer)
class BridgeProtocol(Protocol):
    """STOMP with one remote broker. Twisted pauses this push producer when the socket is slow."""

    transport: Any
    _lost = False
    _timer: Any = None
    _begun = False
    _first = b""

    def __init__(self, connection: BridgeConnection) -> None:
        self._connection: BridgeConnection | None = connection
        configuration = connection.worker.bridge.configuration
        self._client = StompClient(
            heart_beat=max(0, configuration.connection_ttl // 2),
            wanted_heart_beat=max(0, configuration.check_period),
            versions="1.1,1.2",
            on_receipt=self._receipt,
        )
        self._reactor = connection.reactor
        self._sent = self._received = 0.0

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)
        connection = self._connection
        if connection is not None and connection.connector.tls is None:
            self.begin(connection)

    def begin(self, connection: BridgeConnection) -> None:
        """Send CONNECT."""
        self._begun = True
        configuration, connector = connection.worker.bridge.configuration, connection.connector
        password = configuration.password
        limit = configuration.producer_window_size
        # the TCP transport, which is below TLS if the connector uses TLS
        lowest = getattr(self.transport, "transport", None) or self.transport
        lowest.bufferSize = limit if limit > 0 else configuration.confirmation_window_size
        self.transport.registerProducer(self, True)
        self.transport.write(
            self._client.connect(
                connector.virtual_host or connector.host,
                configuration.user,
                None if password is None else revealed(password),
                configuration.client_id,
            )
        )

    def dataReceived(self, data: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        self._received = self._reactor.seconds()
        connection.gather(lambda: self._take(data))

    def _take(self, data: bytes) -> None:
        client = self._client
        if len(self._first) < MAX_OPENING and client.connected is None:
            self._first += data[:MAX_OPENING]
            opening = self._first.lstrip()
            if not any(opening.startswith(each) or each.startswith(opening) for each in OPENINGS):
                shown = printable(opening.decode("latin-1").splitlines()[0], 40)
                self._fail(f"does not speak STOMP; it answers '{shown}'")
                return
        connected = client.connected
        try:
            client.receive(data)
        except ProtocolError as fault:
            self._fail(f"not STOMP: {fault}")
            return
        client.messages.clear()  # ignore MESSAGE frames: the bridge has no subscription at the remote broker
        if connected is None and client.connected is not None:
            self._connected()
        connection = self._connection
        if client.error is not None and connection is not None:
            receipt = client.error[0].headers.get(b"receipt-id")
            connection.worker.on_error(receipt, printable(client.error_text, MAX_TEXT) or "without a reason")

    def _connected(self) -> None:
        connection, head = self._connection, self._client.connected
        assert connection is not None and head is not None
        version = head.headers.get(b"version", b"1.0")
        if version not in (b"1.1", b"1.2"):
            self._fail(f"speaks STOMP {version.decode('ascii', 'replace')} only; 1.1 or 1.2 is required")
            return
        cancel(connection.timeout)
        self._sent = self._received
        self._schedule_heart_beat()
        server = printable(head.headers.get(b"server", b"").decode("utf-8", "replace"), MAX_TEXT)
        connection.worker.on_connected(version, server)

    def _receipt(self, identifier: bytes) -> None:
        if self._connection is not None:
            self._connection.worker.on_receipt(identifier)

    def _fail(self, reason: str) -> None:
        connection = self._connection
        if connection is not None:
            connection.closed(reason)

    # ---- heart-beats

    def _schedule_heart_beat(self) -> None:
        intervals = [each for each in (self._client.send_interval, self._client.receive_interval) if each]
        if intervals:
            self._timer = self._reactor.callLater(min(intervals) / 2, self._heart_beat)

    def _heart_beat(self) -> None:
        now, client = self._reactor.seconds(), self._client
        self._timer = None
        if self._connection is None:
            return
        silence = now - self._received
        if client.receive_interval and silence > GRACE * client.receive_interval:
            self._fail(f"no heart-beat within {GRACE * client.receive_interval:g} s")
            return
        if client.send_interval and now - self._sent >= client.send_interval / 2:
            self.write(b"\n")
        self._schedule_heart_beat()

    # ---- the connection

    def write(self, data: bytes) -> None:
        """Send encoded frames."""
        self._sent = self._reactor.seconds()
        self.transport.write(data)

    def pauseProducing(self) -> None:
        if self._connection is not None:
            self._connection.worker.on_unwritable()

    def resumeProducing(self) -> None:
        if self._connection is not None:
            self._connection.worker.on_writable()

    def stopProducing(self) -> None:
        pass  # `connectionLost` follows

    def end(self) -> None:
        """Send DISCONNECT, close the connection, and report no further event to the worker."""
        self._connection = None
        cancel(self._timer)
        if self._lost:
            return
        if self._begun:
            self.transport.unregisterProducer()
        if self._client.connected is not None and self._client.error is None:
            self.transport.write(DISCONNECT)
        self.transport.loseConnection()
        # without a limit, a remote broker that does not read the DISCONNECT would keep the connection open
        self._timer = self._reactor.callLater(LINGER, self.transport.abortConnection)

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        self._lost = True
        cancel(self._timer)
        self._fail(describe(reason))


#: Seconds that a remote broker has to read the last frames before the broker aborts the connection.
LINGER = 5.0


@implementer(IHandshakeListener)
class SecureBridgeProtocol(BridgeProtocol):
    """A `BridgeProtocol` over TLS. It verifies the remote broker before it sends CONNECT with the password."""

    def handshakeCompleted(self) -> None:
        connection = self._connection
        if connection is None:
            return
        tls = connection.connector.tls
        assert tls is not None
        name = tls.sni_host or connection.connector.host
        from .tls import is_certified

        if tls.verify_host and not is_certified(self.transport.getHandle(), name):
            self._fail(
                f"the certificate of the remote broker is not for {name}; set verifyHost=false to accept it"
            )
        else:
            self.begin(connection)


@dataclass(eq=False, repr=False)
class BridgeConnection:
    """A `RemoteConnection` of a worker."""

    worker: BridgeWorker
    connector: Connector
    outgoing: Outgoing
    reactor: Any
    _protocol: BridgeProtocol | None = None
    _ended = False
    _connecting: Deferred[Any] | None = None

    def __post_init__(self) -> None:
        self.timeout = self.reactor.callLater(self.connector.connect_timeout / 1000, self._timed_out)
        # connect later: the caller must have this object before a connection or a failure is reported
        self.reactor.callLater(0, self._open)

    def _open(self) -> None:
        if self._ended:
            return
        try:
            endpoint = client_endpoint(self.connector, self.reactor)
        except CertificateError as fault:
            self.closed(str(fault))
            return
        kind = BridgeProtocol if self.connector.tls is None else SecureBridgeProtocol
        self._connecting = endpoint.connect(Factory.forProtocol(lambda: kind(self)))
        self._connecting.addCallbacks(self._opened, self._failed)

    def _opened(self, protocol: Any) -> None:
        self._connecting = None
        found = cast(BridgeProtocol, getattr(protocol, "wrappedProtocol", protocol))
        self._protocol = found
        if self._ended:
            found.end()

    def _failed(self, reason: Failure) -> None:
        self._connecting = None
        if not self._ended:
            self.closed(describe(reason))

    def _timed_out(self) -> None:
        self.closed(f"no connection within {self.connector.connect_timeout} ms (connect-timeout-millis)")

    def closed(self, reason: str) -> None:
        """Report to the worker that the connection could not be opened, or is lost."""
        self.gather(lambda: self.worker.on_closed(reason))

    def gather(self, call: Callable[[], None]) -> None:
        """Update the clock, call a function of the worker, and send its frames with one write for each connection."""
        self.worker.bridge.broker.clock.refresh()
        self.outgoing.gather(call)

    def write(self, data: bytes) -> None:
        if self._protocol is not None:
            self._protocol.write(data)

    def close(self) -> None:
        self._ended = True
        cancel(self.timeout)
        if self._protocol is not None:
            self._protocol.end()
        elif self._connecting is not None:
            self._connecting.cancel()


def client_endpoint(connector: Connector, reactor: Any) -> IStreamClientEndpoint:
    """Return the endpoint of a connector. Raises `CertificateError`."""
    from twisted.internet.endpoints import HostnameEndpoint  # imported here: few brokers have bridges

    endpoint = HostnameEndpoint(
        reactor, connector.host, connector.port, timeout=connector.connect_timeout / 1000
    )
    if connector.tls is None:
        return endpoint
    from .tls import TlsEndpoint, client_context  # imported here: its libraries take 20 MB

    return TlsEndpoint(endpoint, connector.tls.sni_host or connector.host, client_context(connector.tls))


def describe(reason: Failure) -> str:
    """Return the reason why a connection was lost or failed."""
    fault = reason.value
    if isinstance(fault, ConnectionDone):
        return "closed by the remote broker"
    if type(fault).__module__ == "OpenSSL.SSL":
        from .tls import openssl_reasons

        return f"TLS: {openssl_reasons(cast(Exception, fault))}"
    if isinstance(fault, ConnectTimeout | CancelledError):
        return "no connection in time"
    if isinstance(fault, DNSLookupError):
        return "host name not found"
    if isinstance(fault, ConnectError | ConnectionLost):
        number = getattr(fault, "osError", None)
        return os.strerror(number) if isinstance(number, int) else str(fault).rstrip(".")
    return printable(str(fault) or type(fault).__name__, MAX_TEXT)
