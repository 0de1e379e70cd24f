"""Connections that come through a proxy which says by a PROXY header where the client is."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Any

from twisted.internet.address import IPv4Address as IPv4Place
from twisted.internet.address import IPv6Address as IPv6Place
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IDelayedCall, IProtocolFactory
from twisted.internet.protocol import Protocol
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from zope.interface import directlyProvides, providedBy

from stompring.settings.acceptor import ProxyProtocol

from .proxy_header import read_proxy_header


class ProxyConnection(ProtocolWrapper):
    """Reads the header, and makes the protocol behind it then: that one never knew of another client.

    It is the transport of that protocol; of what passes through it changes nothing but the answer of `getPeer`.
    """

    factory: ProxyFactory

    def __init__(self, factory: ProxyFactory) -> None:
        super().__init__(factory, Protocol())  # until there is the right one
        self._head = b""
        self._timer: IDelayedCall | None = None
        self._peer: IAddress | None = None
        self._begun = False

    def makeConnection(self, transport: Any) -> None:
        """See IProtocol."""
        directlyProvides(self, providedBy(transport))
        Protocol.makeConnection(self, transport)
        factory = self.factory
        factory.registerProtocol(self)  # type: ignore[no-untyped-call]
        if not factory.trusts(str(getattr(transport.getPeer(), "host", ""))):
            self._refuse("it is not in proxyProtocolTrusted")
        elif factory.timeout > 0:
            self._timer = factory.reactor.callLater(factory.timeout, self._too_late)

    def dataReceived(self, data: bytes) -> None:
        """See IProtocol. The header is before everything else; what follows goes straight on."""
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
        rest, self._head = self._head[header.length :], b""
        self._cancel_timer()
        if header.source is not None:
            kind = IPv6Place if ":" in header.source[0] else IPv4Place
            self._peer = kind("TCP", *header.source)
        self._begin(rest)

    def _begin(self, rest: bytes) -> None:
        inner = self.factory.wrappedFactory.buildProtocol(self.getPeer())
        if inner is None:
            self.disconnecting = 1
            self.transport.abortConnection()  # type: ignore[union-attr]
            return
        self.wrappedProtocol = inner
        self._begun = True
        inner.makeConnection(self)
        if rest:
            inner.dataReceived(rest)

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        """See IProtocol."""
        self._cancel_timer()
        if self._begun:
            super().connectionLost(reason)  # type: ignore[no-untyped-call]
            return
        self.factory.unregisterProtocol(self)  # type: ignore[no-untyped-call]
        if self._head and not self.disconnecting:
            self.factory.failed(self.getPeer(), "it ended within its PROXY header")

    def getPeer(self) -> IAddress:
        """Where the client is, as the header says; before that, and where it says nothing, where the proxy is."""
        if self._peer is not None:
            return self._peer
        assert self.transport is not None
        return self.transport.getPeer()

    def _too_late(self) -> None:
        self._timer = None
        self._refuse(f"it sends no PROXY header within {self.factory.timeout:g} s")

    def _refuse(self, why: str) -> None:
        self.disconnecting = 1
        self._cancel_timer()
        self.factory.failed(self.getPeer(), why)
        assert self.transport is not None
        self.transport.abortConnection()  # type: ignore[attr-defined]

    def _cancel_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None


class ProxyFactory(WrappingFactory[ProxyConnection]):
    """Puts `ProxyConnection` before another factory's protocols. ``timeout`` is seconds for the header, 0 for ever."""

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
        """See IProtocolFactory. The other factory is asked later, when it is known where the client is."""
        return ProxyConnection(self)

    def trusts(self, host: str) -> bool:
        """Whether a proxy at ``host`` may say where its clients are."""
        if not self._trusted:
            return True
        address = ip_address(host.partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return any((mapped or address) in network or address in network for network in self._trusted)
