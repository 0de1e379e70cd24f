"""URLs of the engine of a replicated log: ``url`` and ``monitor`` of ``<replicated-log>``.

Engines and their clients take one URL with several hosts in it, or several URLs, with commas. They have no user and no
password here: these have attributes of their own, whose values are never shown.
"""

from __future__ import annotations

import ipaddress
import re

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
    """The URL of an engine. Raises `ValueError`, never with a user or password of the text in it."""
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
    else:
        match = _URL.fullmatch(text)
        assert match is not None
        _check_hosts(match[2])
        if "://" in match[3].partition("?")[0]:
            raise ValueError(
                "must be one URL, several hosts with commas: postgresql://one:5432,two:5432/database"
            )
    return text


def _nats_url(text: str, scheme: str) -> str:
    """The URL with one scheme, in front of all hosts."""
    text, mark, parameters = text.partition("?")
    if mark:
        name, _, monitor = parameters.partition("=")
        if name != "monitor":
            raise ValueError(f"must be {_PLAIN_NATS}, without parameters")
        if monitor.isascii() and monitor.isdigit():  # the port of every node
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
    """The text with stars for a user and password in it, for faults about it."""
    return _SECRET_VALUE.sub(r"\1***", _USER.sub("***@", text))


def monitor_url(text: str) -> str:
    """The URLs of monitoring ports, with commas."""
    for part in text.split(","):
        match = _URL.fullmatch(part.strip())
        if match is None or match[1].lower() not in ("http", "https") or "@" in match[2]:
            raise ValueError("must be http://host:8222, or several with commas")
        _check_hosts(match[2])
    return text


def scheme_of(url: str) -> str:
    """The scheme, in small letters; empty without one."""
    before, mark, _ = url.partition("://")
    return before.lower() if mark and "," not in before and "@" not in before else ""


def _check_hosts(hosts: str) -> None:
    for one in hosts.split(","):
        host, port = _split(one)
        if not host:
            raise ValueError("must have a host in every place")
        if port and not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
            raise ValueError(f"must have ports from 1 to 65535; '{port}' is none")


def _split(text: str) -> tuple[str, str]:
    """Host and port, empty where there is none or the host is not valid."""
    if text.startswith("["):
        address, _, rest = text[1:].partition("]")
        try:
            ipaddress.IPv6Address(address)
        except ValueError:
            return "", ""
        return (address, rest.removeprefix(":")) if not rest or rest[0] == ":" else ("", "")
    host, _, port = text.partition(":")
    return (host, port) if _NAME.fullmatch(host) else ("", "")
