"""Hosts, source networks and web origins: the names by which limits count peers and access rules compare pages."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

#: Prefix length of an IPv6 network that belongs to one customer.
IPV6_NETWORK_BITS = 64


@lru_cache(maxsize=4096)
def source_network(host: str) -> str:
    """The source network of a host: an IPv4 address, or the 64-bit network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, IPV6_NETWORK_BITS), strict=False))


def is_this_machine(network: str) -> bool:
    """Whether a source network is the loopback interface."""
    try:
        return ipaddress.ip_network(network, strict=False).is_loopback or network == "::/64"
    except ValueError:
        return False


#: All origins, in a list of them.
ANY_ORIGIN = "*"

#: The origin that browsers send for pages without one: of a file, or in a sandbox.
NULL_ORIGIN = "null"

_USUAL_PORTS = {"http": 80, "https": 443}


def normal_origin(text: str) -> str:
    """``text`` in lower case and without the default port of its scheme. Raises `ValueError`."""
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
    """The host of an origin; empty for ``null``, ``*`` and invalid ones."""
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""


def host_name(host: str) -> str:
    """The name in a ``Host`` header, without its port; empty if there is none."""
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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on ``host``."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def is_local(name: str) -> bool:
    """Whether ``name``, of a ``Host`` header or an origin, can only mean this machine."""
    return is_loopback(name) or name.endswith(".localhost")
