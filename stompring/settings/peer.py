"""Where a connection comes from, for what is counted by that: limits of connections, failed logins."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

#: Bits of an IPv6 address that are one customer's: whoever has one address of a network of this size has them all.
NETWORK = 64


@lru_cache(maxsize=4096)
def place_of(host: str) -> str:
    """What counts as one peer: an IPv4 address, or the network of 64 bits that an IPv6 address is in."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, NETWORK), strict=False))


def is_here(place: str) -> bool:
    """Whether it is this machine itself."""
    try:
        return ipaddress.ip_network(place, strict=False).is_loopback or place == "::/64"
    except ValueError:
        return False
