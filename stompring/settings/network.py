"""Hosts, source networks and web origins: the names by which limits count peers and access rules compare pages."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

#: Bits of an IPv6 address that are one customer's: whoever has one address of a network of this size has them all.
IPV6_NETWORK_BITS = 64


@lru_cache(maxsize=4096)
def source_network(host: str) -> str:
    """What counts as one peer: an IPv4 address, or the network of 64 bits that an IPv6 address is in."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, IPV6_NETWORK_BITS), strict=False))


def is_this_machine(place: str) -> bool:
    """Whether it is this machine itself."""
    try:
        return ipaddress.ip_network(place, strict=False).is_loopback or place == "::/64"
    except ValueError:
        return False


#: Stands in a list for all of them.
ANY_ORIGIN = "*"

#: What browsers send for pages that have none: of a file, or in a sandbox.
NULL_ORIGIN = "null"

_USUAL_PORTS = {"http": 80, "https": 443}


def normal_origin(text: str) -> str:
    """``text`` in small letters and without the port that is usual for its scheme. Raises `ValueError`."""
    lowered = text.strip().lower()
    if lowered == NULL_ORIGIN:
        return NULL_ORIGIN
    split = urlsplit(lowered)
    if not split.scheme or not split.hostname or split.username is not None:
        raise ValueError("must be scheme://host or scheme://host:port")
    if split.path not in ("", "/") or split.query or split.fragment:
        raise ValueError("must end after its host and port")
    host = f"[{split.hostname}]" if ":" in split.hostname else split.hostname
    port = split.port
    shown = "" if port is None or port == _USUAL_PORTS.get(split.scheme) else f":{port}"
    return f"{split.scheme}://{host}{shown}"


def origin_host(origin: str) -> str:
    """The host that an origin names; empty for ``null``, ``*`` and what is none."""
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""


def host_name(host: str) -> str:
    """The name in a ``Host`` header, without its port; empty where there is none."""
    try:
        return urlsplit(f"//{host.strip()}").hostname or ""
    except ValueError:
        return ""


def parse_origins(text: str) -> tuple[str, ...]:
    """A comma list of origins, in their normal form. Raises `ValueError`."""
    found = []
    for part in text.split(","):
        try:
            found.append(ANY_ORIGIN if part.strip() == ANY_ORIGIN else normal_origin(part))
        except ValueError:
            raise ValueError(
                "must be a comma-separated list of origins, for example https://app.example.com,http://localhost:8080, "
                f"or {ANY_ORIGIN} for all; {NULL_ORIGIN} is the origin of pages without one"
            ) from None
    if len(set(found)) < len(found):
        raise ValueError("contains an origin twice")
    if ANY_ORIGIN in found and len(found) > 1:
        raise ValueError(f"contains {ANY_ORIGIN}, which means all origins, and others")
    return tuple(found)
