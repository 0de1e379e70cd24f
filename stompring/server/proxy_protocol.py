"""The PROXY protocol, versions 1 and 2, and the detection of TLS and PROXY headers at the start of a connection."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
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

#: A header of version 1 is never longer, with its line end.
MAX_V1 = 107
#: Bytes after the first 16 of version 2: addresses, and what a proxy has to add (TLVs). The format allows 65535.
MAX_V2 = 4096

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED = 16

_PORT = re.compile(rb"0|[1-9][0-9]{0,4}")

_LOCAL, _PROXY = 0x20, 0x21
_UNSPECIFIED, _TCP4, _TCP6, _UNIX = 0x00, 0x11, 0x21, 0x31


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A PROXY header. ``source`` is None where the proxy connects for itself (LOCAL)."""

    length: int  # bytes of the header; what follows is the client's
    source: tuple[str, int] | None = None


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """The header at the beginning of ``data``, None where more is needed. Raises `ValueError` with what is wrong."""
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
    raw = data[_FIXED : _FIXED + width]
    source = str(IPv4Address(raw) if family == _TCP4 else IPv6Address(raw))
    (port,) = struct.unpack_from("!H", data, _FIXED + 2 * width)
    return ProxyHeader(length, (source, port))


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
            self._refuse("address not in proxyProtocolTrusted")
        elif factory.timeout > 0:
            self._timer = factory.reactor.callLater(factory.timeout, self._header_timed_out)

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
        following, self._head = self._head[header.length :], b""
        self._cancel_timer()
        if header.source is not None:
            kind = IPv6Place if ":" in header.source[0] else IPv4Place
            self._peer = kind("TCP", *header.source)
        self._begin(following)

    def _begin(self, following: bytes) -> None:
        inner = self.factory.wrappedFactory.buildProtocol(self.getPeer())
        if inner is None:
            self.disconnecting = 1
            self.transport.abortConnection()  # type: ignore[union-attr]
            return
        self.wrappedProtocol = inner
        self._begun = True
        inner.makeConnection(self)
        if following:
            inner.dataReceived(following)

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        """See IProtocol."""
        self._cancel_timer()
        if self._begun:
            super().connectionLost(reason)  # type: ignore[no-untyped-call]
            return
        self.factory.unregisterProtocol(self)  # type: ignore[no-untyped-call]
        if self._head and not self.disconnecting:
            self.factory.failed(self.getPeer(), "connection ended within the PROXY header")

    def getPeer(self) -> IAddress:
        """The client's address from the header; before that, and without one, the proxy's."""
        if self._peer is not None:
            return self._peer
        assert self.transport is not None
        return self.transport.getPeer()

    def _header_timed_out(self) -> None:
        self._timer = None
        self._refuse(f"no PROXY header within {self.factory.timeout:g} s")

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
        """See IProtocolFactory. The other factory is called later, with the client's address."""
        return ProxyConnection(self)

    def trusts(self, host: str) -> bool:
        """Whether a proxy at ``host`` may say where its clients are."""
        if not self._trusted:
            return True
        address = ip_address(host.partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return any((mapped or address) in network or address in network for network in self._trusted)


#: The first byte of a ClientHello, and what a PROXY header begins with.
HANDSHAKE_RECORD = b"\x16"
PROXY_HEADER_START = re.compile(rb"PROXY |" + re.escape(SIGNATURE))

#: What a client that begins with TLS understands: a fatal alert, handshake_failure.
TLS_HANDSHAKE_FAILURE = b"\x15\x03\x03\0\x02\x02\x28"


class ProtocolDetectionFactory(WrappingFactory[Any]):
    """Looks at the first bytes that protocols of another factory get, and is out of the way then."""

    noisy = False

    def __init__(self, wrapped: IProtocolFactory, odd: Callable[[IAddress | None, str], None]) -> None:
        super().__init__(wrapped)  # type: ignore[no-untyped-call]
        self._odd = odd

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """See IProtocolFactory: the other factory's protocol itself."""
        protocol = self.wrappedFactory.buildProtocol(addr)
        if protocol is None:
            return None
        connect = protocol.makeConnection

        def begin(transport: Any) -> None:
            del protocol.makeConnection
            connect(transport)
            own = protocol.__dict__.get("dataReceived")  # it may look at its first bytes itself

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
            self._odd(
                peer,
                "TLS on an acceptor without TLS: use ssl:// or https://, or set sslEnabled=true",
            )
            transport.write(TLS_HANDSHAKE_FAILURE)
            transport.unregisterProducer()  # Twisted keeps a connection open as long as there is one
            transport.loseConnection()
            return True
        if PROXY_HEADER_START.match(data):
            self._odd(peer, "unexpected PROXY header: set proxyProtocolEnabled=true to accept it")
        return False
