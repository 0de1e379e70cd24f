"""Hosts, networks, web origins, and the URLs of replicated logs.

Connection limits count peers by source network, and access rules compare web origins.

The attributes ``url`` and ``monitor`` of ``<replicated-log>`` contain one URL with several hosts, or several URLs;
commas separate them. User and password are in separate attributes, whose values are never shown.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from urllib.parse import urlsplit

#: Prefix length in bits of an IPv6 network that a provider assigns to one customer.
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
    """Whether a source network is that of the loopback interface."""
    try:
        return ipaddress.ip_network(network, strict=False).is_loopback or network == "::/64"
    except ValueError:
        return False


#: The entry in a list of origins that stands for all origins.
ANY_ORIGIN = "*"

#: The origin that browsers send for pages without an origin: pages from a local file, or in a sandbox.
NULL_ORIGIN = "null"

_USUAL_PORTS = {"http": 80, "https": 443}


def normal_origin(text: str) -> str:
    """The origin ``text`` in lower case, without the default port of its scheme. Raises `ValueError`."""
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
    """The host of an origin; empty for ``null``, ``*`` and invalid origins."""
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""


def host_name(host: str) -> str:
    """The host in the value of a ``Host`` header, without the port; empty if the value is invalid."""
    return origin_host(f"//{host.strip()}")


def parse_origins(text: str) -> tuple[str, ...]:
    """The origins of a comma-separated list, each in its normal form. Raises `ValueError` if one is invalid."""
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
    """Whether ``name``, the host in a ``Host`` header or in an origin, always refers to this machine."""
    return is_loopback(name) or name.endswith(".localhost")


NATS = frozenset({"nats", "tls"})
POSTGRESQL = frozenset({"postgresql", "postgres"})
SCHEMES = NATS | POSTGRESQL

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?\.?")
_SECRET = re.compile(r"[?&]\s*(user|password|passfile|sslpassword)\s*=", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"([?&]\s*(?:password|sslpassword)\s*=)[^&]*", re.IGNORECASE)
_USER = re.compile(r"(?<=//)[^/]*@|[^/,]*@")
_PLAIN_NATS = "nats://host:4222, or several with commas"


def log_url(text: str) -> str:
    """Check the URL of the engine of a replicated log, and return it with one scheme.

    Raises `ValueError`. The text of the error never contains the user or the password of the URL.
    """
    scheme = scheme_of(text)
    if scheme not in SCHEMES:
        shown = f"scheme {scheme}:// is unknown" if scheme else "it has no scheme"
        raise ValueError(f"must begin with nats://, tls:// (NATS with TLS) or postgresql://; {shown}")
    if re.search(r"\s", text):
        raise ValueError("must not contain spaces")
    if "@" in text or _SECRET.search(text):
        raise ValueError("must not contain a user or a password: write the attributes user and password")
    if scheme in NATS:
        return _nats_url(text, scheme)
    match = _URL.fullmatch(text)
    assert match is not None
    _check_hosts(match[2])
    if "://" in match[3].partition("?")[0]:
        raise ValueError(
            "must be one URL, several hosts with commas: postgresql://one:5432,two:5432/database"
        )
    return text


def _nats_url(text: str, scheme: str) -> str:
    """Return the URL of NATS servers with a scheme at the first host only. Raises `ValueError`."""
    text, mark, parameters = text.partition("?")
    if mark:
        name, _, monitor = parameters.partition("=")
        if name != "monitor":
            raise ValueError(f"must be {_PLAIN_NATS}, without parameters")
        if monitor.isascii() and monitor.isdigit():  # a number alone is the monitoring port of every node
            _check_hosts(f"node:{monitor}")
        elif monitor:
            monitor_url(monitor)
    hosts: list[str] = []
    for part in text.split(","):
        match = _URL.fullmatch(part)
        if match is None:
            _check_hosts(part)
            hosts.append(part)
            continue
        if match[1].lower() != scheme:
            raise ValueError(f"must have one scheme: {scheme}:// and {match[1]}:// are in it")
        if match[3] not in ("", "/"):
            raise ValueError(f"must be {_PLAIN_NATS}, without a path")
        _check_hosts(match[2])
        hosts.append(match[2])
    return f"{scheme}://{','.join(hosts)}{mark}{parameters}"


def shown_url(text: str) -> str:
    """The URL with stars in place of its user and password, for error messages."""
    return _SECRET_VALUE.sub(r"\1***", _USER.sub("***@", text))


def monitor_url(text: str) -> str:
    """Check and return comma-separated URLs of monitoring ports. Raises `ValueError`."""
    for part in text.split(","):
        match = _URL.fullmatch(part.strip())
        if match is None or match[1].lower() not in ("http", "https") or "@" in match[2]:
            raise ValueError("must be http://host:8222, or several with commas")
        _check_hosts(match[2])
    return text


def ldap_urls(text: str) -> str:
    """Check the blank-separated URLs of an LDAP directory, and return them. Raises `ValueError`."""
    for part in text.split() or [""]:
        match = _URL.fullmatch(part)
        if (
            match is None
            or match[1].lower() not in ("ldap", "ldaps")
            or set("@,") & set(match[2])
            or "?" in match[3]
        ):
            raise ValueError("must be ldap://host:389 or ldaps://host:636, or several with blanks")
        _check_hosts(match[2])
    return text


def key_source(text: str) -> str:
    """Check the source of public keys, a URL or the path of a file, and return it. Raises `ValueError`."""
    match = _URL.fullmatch(text)
    if not text or match is None and "://" in text:
        raise ValueError("must be https://host/path, or the path of a file")
    if match is not None:
        scheme, host = match[1].lower(), _split(match[2])[0]
        if "@" in match[2] or scheme != "https" and not (scheme == "http" and is_loopback(host)):
            raise ValueError(
                "must be https://host/path, or http://127.0.0.1/path: keys must not be changed on their way"
            )
        _check_hosts(match[2])
    return text


def scheme_of(url: str) -> str:
    """The scheme of a URL in lower case; empty if the URL has no scheme."""
    before, mark, _ = url.partition("://")
    return before.lower() if mark and "," not in before and "@" not in before else ""


def _check_hosts(hosts: str) -> None:
    for one in hosts.split(","):
        host, port = _split(one)
        if not host:
            raise ValueError("must have a host in each comma-separated part")
        if port and not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
            raise ValueError(f"must have ports from 1 to 65535; '{port}' is none")


def _split(text: str) -> tuple[str, str]:
    """Split a text into host and port. Both are empty if the host is invalid; a missing port is empty."""
    if text.startswith("["):
        address, _, rest = text[1:].partition("]")
        try:
            ipaddress.IPv6Address(address)
        except ValueError:
            return "", ""
        return (address, rest.removeprefix(":")) if not rest or rest[0] == ":" else ("", "")
    host, _, port = text.partition(":")
    return (host, port) if _NAME.fullmatch(host) else ("", "")
