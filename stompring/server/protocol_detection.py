"""Protocol detection: recognises TLS and PROXY headers on an acceptor that is not configured for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IAddress, IProtocolFactory
from twisted.protocols.policies import WrappingFactory

from .proxy_protocol import SIGNATURE

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
