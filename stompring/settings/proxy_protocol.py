"""What an acceptor says about the PROXY protocol, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network


@dataclass(frozen=True, slots=True)
class ProxyProtocol:
    """Every connection begins with a PROXY header that says where the client is."""

    proxy_protocol_trusted: tuple[IPv4Network | IPv6Network, ...] = ()  # who may send one; () for anybody
