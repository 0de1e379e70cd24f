"""Connections over TLS: Twisted's, which say what went wrong with their handshake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from OpenSSL import SSL
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IOpenSSLServerConnectionCreator,
    IProtocolFactory,
)
from twisted.internet.protocol import Protocol
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from .first_bytes import HANDSHAKE_RECORD, PROXY_BEGINS
from .tls_context import TlsContext, reasons

#: Seconds that a client has to take what was written before it ended TLS.
LINGER = 5.0


class TlsConnection(TLSMemoryBIOProtocol):
    """One connection.

    Twisted's own default puts small writes together in the next turn of the reactor; an `Outbox` has done so already.
    That a handshake is over and why it failed is in fields of Twisted's class that are not in its documentation.
    """

    factory: TlsFactory
    verify_fault = ""  # why the client's certificate is not taken
    _heard = b""
    _over = False
    _timer: IDelayedCall | None = None

    def dataReceived(self, data: bytes) -> None:
        """See IProtocol."""
        if not self._heard:
            self._heard = data[:16]
        super().dataReceived(data)  # type: ignore[no-untyped-call]
        if self._lostTLSConnection and self._handshakeDone and not self._over:
            self._end()

    def _end(self) -> None:
        """The client has ended TLS, or broken it, and perhaps not TCP: nothing that is written reaches it any more.

        Twisted tells the protocol when TCP is closed too, which with a client that does not read may take for ever;
        meanwhile all that is written, as the messages of a subscription, would be thrown away.
        """
        self._over = True
        inner, self.wrappedProtocol = self.wrappedProtocol, Protocol()
        self.unregisterProducer()  # type: ignore[no-untyped-call]
        self._timer = self.factory.reactor.callLater(LINGER, self.abortConnection)
        inner.connectionLost(self._reason or Failure(ConnectionDone()))

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        """See IProtocol."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        cause: Failure = self._reason or reason
        peer = self.getPeer()  # type: ignore[no-untyped-call]
        if not self._handshakeDone and self._heard:
            self.factory.failed(peer, f"the TLS handshake failed: {self._why(cause)}")
        elif self._handshakeDone and cause.check(SSL.Error):
            self.factory.failed(peer, f"TLS broke off: {reasons(cause.value)}")  # type: ignore[arg-type]
        super().connectionLost(reason)  # type: ignore[no-untyped-call]
        self._producer = None  # who refers to this

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        """TLS has ended, for a reason of whose traceback the frames refer to this connection, and to the reason."""
        if reason is not None:
            reason.cleanFailure()
        super()._tlsShutdownFinished(reason)  # type: ignore[no-untyped-call]

    def _why(self, cause: Failure) -> str:
        if PROXY_BEGINS.match(self._heard):
            return "it begins with a PROXY header; proxyProtocolEnabled=true would read that"
        if not self._heard.startswith(HANDSHAKE_RECORD):
            return f"it speaks without TLS, and begins with {self._heard!r}"
        if self.verify_fault:
            return self.verify_fault
        if cause.check(SSL.Error):
            return reasons(cause.value)  # type: ignore[arg-type]
        return "the client went away" if cause.check(ConnectionDone) else cause.getErrorMessage()

    def getPeerCertificate(self) -> Any:
        """See ISSLTransport; None also when the connection is gone."""
        gone = self.getHandle() is None  # type: ignore[no-untyped-call]
        return None if gone else super().getPeerCertificate()  # type: ignore[no-untyped-call]


class TlsFactory(TLSMemoryBIOFactory):
    """Puts TLS before another factory's protocols."""

    protocol = TlsConnection
    noisy = False

    def __init__(
        self,
        wrapped: IProtocolFactory,
        context: Callable[[], TlsContext],
        failed: Callable[[IAddress, str], None],
        reactor: Any,
    ) -> None:
        super().__init__(_Creator(context), isClient=False, wrappedFactory=wrapped)
        self.failed = failed
        self.reactor = reactor

    def buildProtocol(self, addr: IAddress | None) -> TlsConnection | None:  # type: ignore[override]
        """See IProtocolFactory."""
        inner = self.wrappedFactory.buildProtocol(addr)
        return None if inner is None else TlsConnection(self, inner)  # type: ignore[no-untyped-call]


@implementer(IOpenSSLServerConnectionCreator)
class _Creator:
    """Asks for each connection anew with what it begins: files may have been read again."""

    def __init__(self, context: Callable[[], TlsContext]) -> None:
        self._context = context

    def serverConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """See IOpenSSLServerConnectionCreator."""
        return self._context().connection(protocol)
