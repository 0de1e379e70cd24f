"""Connections that are open, counted in all and by where they come from."""

from __future__ import annotations

import ipaddress
from collections import Counter
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


class Crowd:
    """How many are in, and how many of them from each place."""

    __slots__ = ("by_place", "number")

    def __init__(self) -> None:
        self.number = 0
        self.by_place: Counter[str] = Counter()

    def enter(self, place: str) -> None:
        """One more from ``place``."""
        self.number += 1
        self.by_place[place] += 1

    def leave(self, place: str) -> None:
        """One less."""
        self.number -= 1
        self.by_place[place] -= 1
        if self.by_place[place] <= 0:
            del self.by_place[place]
