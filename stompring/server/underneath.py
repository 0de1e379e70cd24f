"""The TCP connection underneath TLS and whatever else stands between it and a protocol."""

from __future__ import annotations

import socket
from typing import Any

from twisted.protocols.policies import ProtocolWrapper

ESTABLISHED = 1


def tcp_transport(transport: Any) -> Any:
    """The transport that has the socket."""
    while isinstance(transport, ProtocolWrapper):
        transport = transport.transport
    return transport


def is_established(transport: Any) -> bool | None:
    """Whether the client has not closed its side; None where that cannot be told (Linux tells, by TCP_INFO)."""
    handle = getattr(tcp_transport(transport), "getHandle", None)
    if handle is None or not hasattr(socket, "TCP_INFO"):
        return None
    state: int = handle().getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state == ESTABLISHED
