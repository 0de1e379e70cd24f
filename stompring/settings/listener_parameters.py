"""The parameters of an acceptor's URL that are about its connections, whatever is spoken there: TLS, PROXY protocol."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from stompring.settings import units
from stompring.settings.acceptor import HttpAcceptor, StompAcceptor
from stompring.settings.proxy_protocol import ProxyProtocol
from stompring.settings.tls import TLS_VERSIONS, Tls
from stompring.settings.units import Reader

A = TypeVar("A", bound=StompAcceptor | HttpAcceptor)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: the field it sets and how it is read.

    ``part`` is the field of an acceptor whose object has that field; "" is the acceptor itself.
    """

    field: str
    read: Reader
    part: str = ""


def comma_list(what: str, read: Callable[[str], Any] = str) -> Callable[[str], tuple[Any, ...]]:
    """A reader of texts with a comma between each two, of which each is read by ``read``."""

    def reader(text: str) -> tuple[Any, ...]:
        found = [part.strip() for part in text.split(",")]
        if not all(found):
            raise ValueError(f"must be {what} with a comma between each two")
        return tuple(read(part) for part in found)

    return reader


def _version(text: str) -> str:
    for version in TLS_VERSIONS:
        if text.lower() == version.lower():
            return version
    raise ValueError(f"'{text}' is not one of {', '.join(TLS_VERSIONS)}")


def _cipher_suite(text: str) -> str:
    """A name, and none of the words and signs by which OpenSSL knows more than one suite."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text) or not re.search(r"[-_]", text):
        raise ValueError(f"'{text}' is not the name of a cipher suite, as TLS_AES_256_GCM_SHA384")
    return text


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"must be addresses and networks, as 10.0.0.7,192.168.0.0/24: {error}") from None


def _store_type(text: str) -> str:
    if text.upper() != "PEM":
        raise ValueError(
            "must be PEM, the one kind that is read here; 'openssl pkcs12 -in FILE -out broker.pem' makes such "
            "of a PKCS12 file"
        )
    return text.upper()


#: What only tells that things are as they are here anyway: it is read, and sets nothing.
FIXED = ("keyStoreType", "trustStoreType")

TLS_PARAMETERS: Mapping[str, Parameter] = MappingProxyType(
    {
        "sslEnabled": Parameter("enabled", units.boolean, "tls"),
        "keyStorePath": Parameter("key_store_path", comma_list("files and directories"), "tls"),
        "keyPath": Parameter("key_path", comma_list("files"), "tls"),
        "keyStorePassword": Parameter("key_store_password", units.name, "tls"),
        "keyStoreType": Parameter("key_store_type", _store_type, "tls"),
        "trustStorePath": Parameter("trust_store_path", units.name, "tls"),
        "trustStoreType": Parameter("trust_store_type", _store_type, "tls"),
        "needClientAuth": Parameter("need_client_auth", units.boolean, "tls"),
        "wantClientAuth": Parameter("want_client_auth", units.boolean, "tls"),
        "enabledProtocols": Parameter("enabled_protocols", comma_list("versions", _version), "tls"),
        "enabledCipherSuites": Parameter("enabled_cipher_suites", comma_list("names", _cipher_suite), "tls"),
        "sslAutoReload": Parameter("ssl_auto_reload", units.boolean, "tls"),
    }
)

PROXY_PARAMETERS: Mapping[str, Parameter] = MappingProxyType(
    {
        "proxyProtocolEnabled": Parameter("enabled", units.boolean, "proxy"),
        "proxyProtocolTrusted": Parameter(
            "proxy_protocol_trusted", comma_list("addresses and networks", _network), "proxy"
        ),
    }
)

LISTENER_PARAMETERS: Mapping[str, Parameter] = MappingProxyType({**TLS_PARAMETERS, **PROXY_PARAMETERS})


def tls_of(values: dict[str, Any], secure: bool, faults: list[str]) -> Tls | None:
    """What ``values``, by field, say about TLS. ``secure``: the scheme of the URL asks for it."""
    given = [name for name, parameter in TLS_PARAMETERS.items() if parameter.field in values]
    enabled = values.get("enabled", secure)
    plain = {
        TLS_PARAMETERS[name].field: values[TLS_PARAMETERS[name].field]
        for name in given
        if name not in ("sslEnabled", *FIXED)
    }
    if secure and not enabled:
        faults.append("sslEnabled is false, and the URL asks for TLS: write tcp:// or http:// for none")
    if not enabled:
        others = [name for name in given if name != "sslEnabled"]
        if others and not secure:
            faults.append(
                f"{others[0]} means nothing without TLS: write ssl:// or https://, or sslEnabled=true"
            )
        return None
    tls = Tls(**plain)
    if not faults:  # what could not be read looks as if it had not been said
        faults += _contradictions(tls)
    return tls


def _contradictions(tls: Tls) -> Iterator[str]:
    if not tls.key_store_path:
        yield "TLS needs keyStorePath: a PEM file with the broker's certificate and those that vouch for it"
    elif tls.key_path and len(tls.key_path) != len(tls.key_store_path):
        yield (
            f"keyPath names {len(tls.key_path)} files and keyStorePath {len(tls.key_store_path)}: "
            "there must be one for each"
        )
    if tls.asks_for_certificates and tls.trust_store_path is None:
        yield "needClientAuth and wantClientAuth need trustStorePath: a PEM file of those who vouch for clients"
    if tls.trust_store_path is not None and not tls.asks_for_certificates:
        yield "trustStorePath means nothing without needClientAuth or wantClientAuth"


def proxy_of(values: dict[str, Any], faults: list[str]) -> ProxyProtocol | None:
    """What ``values``, by field, say about the PROXY protocol."""
    trusted = values.get("proxy_protocol_trusted", ())
    if not values.get("enabled", False):
        if trusted:
            faults.append("proxyProtocolTrusted means nothing without proxyProtocolEnabled=true")
        return None
    return ProxyProtocol(trusted)


def resolved(acceptor: A, directory: Path) -> A:
    """With the paths of its files beginning at ``directory``, where they are not absolute."""
    tls = acceptor.tls
    if tls is None:
        return acceptor

    def each(paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(directory / path) for path in paths)

    trust = None if tls.trust_store_path is None else str(directory / tls.trust_store_path)
    found = replace(
        tls,
        key_store_path=each(tls.key_store_path),
        key_path=each(tls.key_path),
        trust_store_path=trust,
    )
    return replace(acceptor, tls=found)
