"""The URLs of acceptors and connectors.

The URL of an ``<acceptor>``: protocol, host, port and parameters.

``tcp://127.0.0.1:61613?anycastPrefix=/queue/,queue/;multicastPrefix=/topic/`` listens for STOMP,
``ws://127.0.0.1:61614/stomp`` for STOMP over WebSocket, and ``http://127.0.0.1:8161`` for metrics, health checks and
the management API; ``ssl``, ``wss`` and ``https`` are the same over TLS. Parameters are separated by ``;`` or ``&``,
with optional blanks and line breaks, and may be percent-encoded. Their names are those of the fields of
`StompAcceptor` in camelCase.

The URL of a ``<connector>``: ``tcp://host:port?parameters`` or ``ssl://…``, as in the URL of an acceptor.
"""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from . import value_types
from .artemis import (
    ACCEPTOR_PARAMETERS,
    IN_VM,
    OTHER_PROTOCOLS,
    OTHER_SCHEMES,
    PROTOCOLS,
    Rows,
    not_supported,
)
from .artemis import CONNECTOR_PARAMETERS as ROWS
from .document import HIDDEN, Secret, with_suggestion
from .model import (
    TLS_VERSIONS,
    Connector,
    ConnectorTls,
    FrameLimits,
    HttpAcceptor,
    ProxyProtocol,
    StompAcceptor,
    Tls,
    WebSocketSettings,
    options_of,
)
from .network import parse_origins
from .value_types import VALUE_TYPES, Reader, ValueType

A = TypeVar("A", bound=StompAcceptor | HttpAcceptor)
T = TypeVar("T", Tls, ConnectorTls)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: the field that it sets, and the reader of its value.

    ``part`` is the field of an acceptor whose object has that field; "" is the acceptor itself.
    """

    field: str
    read: Reader
    part: str = ""


def comma_list(what: str, read: Callable[[str], Any] = str) -> Callable[[str], tuple[Any, ...]]:
    """A reader of comma-separated lists; ``read`` reads each item, ``what`` names them in the error."""

    def reader(text: str) -> tuple[Any, ...]:
        found = [part.strip() for part in text.split(",")]
        if not all(found):
            raise ValueError(f"must be a comma-separated list of {what}")
        return tuple(read(part) for part in found)

    return reader


def _version(text: str) -> str:
    for version in TLS_VERSIONS:
        if text.lower() == version.lower():
            return version
    raise ValueError(f"'{text}' is not one of {', '.join(TLS_VERSIONS)}")


def _cipher_suite(text: str) -> str:
    """The name of one suite; OpenSSL's keywords for groups of suites are rejected."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text) or not re.search(r"[-_]", text):
        raise ValueError(f"'{text}' is not the name of a cipher suite, for example TLS_AES_256_GCM_SHA384")
    return text


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(
            f"must be addresses and networks, for example 10.0.0.7,192.168.0.0/24: {error}"
        ) from None


def _store_type(text: str) -> str:
    if text.upper() not in STORE_TYPES:
        raise ValueError(
            "must be PEM, PKCS12 or JKS; 'keytool -importkeystore -deststoretype PKCS12' converts a Java keystore"
        )
    return text.upper()


#: Types of the files of certificates and keys. What a file is, is seen from its content.
STORE_TYPES = ("PEM", "PKCS12", "JKS")


#: Parameters that are checked, and set nothing.
WITHOUT_EFFECT = ("keyStoreType", "trustStoreType")

TLS_PARAMETERS: Mapping[str, Parameter] = MappingProxyType(
    {
        "sslEnabled": Parameter("enabled", value_types.boolean, "tls"),
        "keyStorePath": Parameter("key_store_path", comma_list("files and directories"), "tls"),
        "keyPath": Parameter("key_path", comma_list("files"), "tls"),
        "keyStorePassword": Parameter("key_store_password", value_types.name, "tls"),
        "keyStoreType": Parameter("key_store_type", _store_type, "tls"),
        "trustStorePath": Parameter("trust_store_path", value_types.name, "tls"),
        "trustStorePassword": Parameter("trust_store_password", value_types.name, "tls"),
        "trustStoreType": Parameter("trust_store_type", _store_type, "tls"),
        "needClientAuth": Parameter("need_client_auth", value_types.boolean, "tls"),
        "wantClientAuth": Parameter("want_client_auth", value_types.boolean, "tls"),
        "enabledProtocols": Parameter("enabled_protocols", comma_list("versions", _version), "tls"),
        "enabledCipherSuites": Parameter("enabled_cipher_suites", comma_list("names", _cipher_suite), "tls"),
        "sslAutoReload": Parameter("ssl_auto_reload", value_types.boolean, "tls"),
    }
)

PROXY_PARAMETERS: Mapping[str, Parameter] = MappingProxyType(
    {
        "proxyProtocolEnabled": Parameter("enabled", value_types.boolean, "proxy"),
        "proxyProtocolTrusted": Parameter(
            "proxy_protocol_trusted", comma_list("addresses and networks", _network), "proxy"
        ),
    }
)

LISTENER_PARAMETERS: Mapping[str, Parameter] = MappingProxyType({**TLS_PARAMETERS, **PROXY_PARAMETERS})


def tls_of(values: dict[str, Any], secure: bool, faults: list[str]) -> Tls | None:
    """TLS with ``values``, by field; None without TLS. ``secure``: the scheme of the URL is one with TLS."""
    given = [name for name, parameter in TLS_PARAMETERS.items() if parameter.field in values]
    enabled = values.get("enabled", secure)
    plain = {
        TLS_PARAMETERS[name].field: values[TLS_PARAMETERS[name].field]
        for name in given
        if name not in ("sslEnabled", *WITHOUT_EFFECT)
    }
    if secure and not enabled:
        faults.append("sslEnabled=false contradicts the URL: use tcp:// or http:// without TLS")
    if not enabled:
        others = [name for name in given if name != "sslEnabled"]
        if others and not secure:
            faults.append(
                f"{others[0]} has no effect without TLS: use ssl:// or https://, or set sslEnabled=true"
            )
        return None
    tls = Tls(**plain)
    if not faults:  # an invalid parameter would look like a missing one
        faults += _tls_conflicts(tls)
    return tls


def _tls_conflicts(tls: Tls) -> Iterator[str]:
    if not tls.key_store_path:
        yield "TLS requires keyStorePath: a PEM file or Java keystore with the broker's certificate and its chain"
    elif tls.key_path and len(tls.key_path) != len(tls.key_store_path):
        yield (
            f"keyPath lists {len(tls.key_path)} files and keyStorePath {len(tls.key_store_path)}: "
            "each certificate needs one key"
        )
    if tls.asks_for_certificates and tls.trust_store_path is None:
        yield (
            "needClientAuth and wantClientAuth require trustStorePath: a PEM file or Java keystore with the CA "
            "certificates"
        )
    if tls.trust_store_path is not None and not tls.asks_for_certificates:
        yield "trustStorePath has no effect without needClientAuth or wantClientAuth"


def proxy_of(values: dict[str, Any], faults: list[str]) -> ProxyProtocol | None:
    """The PROXY protocol with ``values``, by field; None where it is off."""
    trusted = values.get("proxy_protocol_trusted", ())
    if not values.get("enabled", False):
        if trusted:
            faults.append("proxyProtocolTrusted has no effect without proxyProtocolEnabled=true")
        return None
    return ProxyProtocol(trusted)


def with_absolute_paths(acceptor: A, directory: Path) -> A:
    """The acceptor with its relative paths starting at ``directory``."""
    return acceptor if acceptor.tls is None else replace(acceptor, tls=_absolute(acceptor.tls, directory))


def _absolute(tls: T, directory: Path) -> T:
    return replace(
        tls,
        key_store_path=tuple(str(directory / path) for path in tls.key_store_path),
        key_path=tuple(str(directory / path) for path in tls.key_path),
        trust_store_path=None if tls.trust_store_path is None else str(directory / tls.trust_store_path),
    )


Acceptor = StompAcceptor | HttpAcceptor


@dataclass(frozen=True, slots=True)
class Scheme:
    """The scheme of a URL: what it serves, its usual port, whether with TLS, whether by WebSocket."""

    serves: str
    usual_port: int
    secure: bool = False
    websocket: bool = False


SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        "tcp": Scheme("STOMP", 61613),
        "ssl": Scheme("STOMP over TLS", 61612, secure=True),
        "ws": Scheme("STOMP over WebSocket", 61614, websocket=True),
        "wss": Scheme("STOMP over WebSocket and TLS", 61615, secure=True, websocket=True),
        "http": Scheme("metrics, health, management", 8161),
        "https": Scheme("the same with TLS", 8162, secure=True),
    }
)


def prefixes(text: str) -> tuple[str, ...]:
    """The comma-separated prefixes of ``anycastPrefix`` and ``multicastPrefix``."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise ValueError("must be a comma-separated list of prefixes, for example /queue/,queue/")
    if len(set(found)) < len(found):
        raise ValueError("contains a prefix twice")
    return found


def protocols(text: str) -> tuple[str, ...]:
    """``protocols``: Artemis's list, in which STOMP must be. It sets nothing."""
    listed = [part.strip().upper() for part in text.split(",")]
    for protocol in listed:
        if protocol not in PROTOCOLS:
            raise ValueError(f"must be a comma-separated list of {', '.join(sorted(PROTOCOLS))}")
    if "STOMP" not in listed:
        raise ValueError("must include STOMP, the only supported protocol")
    return tuple(listed)


def encoder_type(text: str) -> str:
    """``webSocketEncoderType``: which WebSocket messages the broker sends."""
    kind = text.lower()
    if kind not in ("binary", "text"):
        raise ValueError("must be binary or text")
    return kind


_DELIVERS_NOTHING = "with 0 no message would be delivered"
_TOO_EARLY = "below 1 the broker would disconnect clients whose heart-beats are on time"

PARAMETER_TYPES: Mapping[str, ValueType] = MappingProxyType(
    {
        **VALUE_TYPES,
        "prefixes": ValueType(prefixes, "a comma list"),
        "origins": ValueType(parse_origins, "a list of origins"),
        "encoderType": ValueType(encoder_type, "binary, text"),
        "seconds": value_types.number(0, value_types.seconds),
        "prefetchCount": value_types.number(1, value_types.whole_number, "no limit", _DELIVERS_NOTHING),
        "heartBeatFactor": ValueType(value_types.decimal(1, why=_TOO_EARLY), "≥ 1", float),
    }
)
"""The types of values in broker.xml, and those of parameters only."""

STOMP_PARAMETERS: Mapping[str, Parameter] = MappingProxyType(
    {
        row.parameter_name: Parameter(row.name, PARAMETER_TYPES[row.type].read, part)
        for kind, part in ((StompAcceptor, ""), (FrameLimits, "limits"), (WebSocketSettings, "websocket"))
        for row in options_of(kind)
    }
)

SECRET_PARAMETER = "password"  # nosec B105
"""Values of parameters with this in their name are never shown."""

OLD_PARAMETER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "stompConsumerCredits": "stompConsumerWindowSize",
        "protocol": "protocols",
        "stompMaxFramePayloadLength": "webSocketMaxFramePayloadLength",
    }
)
"""Names of earlier Artemis versions, still accepted."""


Resolve = Callable[[str], str]
"""Resolves references (`References.resolve`): in the URL before its parameters, and in the value of each parameter."""


Ignored = list[tuple[str, str]]
"""Parameters without effect here, each with the reason."""


IN_VM_ONLY = "in-VM: only clients in the same Java machine use it"


def skip_reason(url: str, resolve: Resolve = str) -> str | None:
    """Why this acceptor of Artemis has no listener here: it speaks other protocols only, or is in-VM. None: it has one.

    Raises `ValueError` for a reference that cannot be resolved.
    """
    endpoint, _, query = url.partition("?")
    if resolve(endpoint.strip()).startswith(f"{IN_VM}:"):
        return IN_VM_ONLY
    for key, text in _pairs(query, []):
        if OLD_PARAMETER_NAMES.get(key, key) == "protocols":
            listed = [part.strip().upper() for part in resolve(text).split(",")]
            if "STOMP" not in listed and PROTOCOLS.issuperset(listed):
                return f"it speaks {', '.join(listed)}, and this broker STOMP only"
    return None


def parse_acceptor(name: str, url: str, resolve: Resolve = str, ignored: Ignored | None = None) -> Acceptor:
    """The acceptor with this URL. Adds its parameters without effect to ``ignored``.

    Raises `ValueError` whose text is all that is wrong with it, a fault per line.
    """
    ignored = [] if ignored is None else ignored
    endpoint, _, query = url.partition("?")
    split, host, port = resolved_endpoint(endpoint.strip(), resolve)
    if split.scheme in ("http", "https"):
        return _http_acceptor(name, split, host, port, query, resolve)
    return _stomp_acceptor(name, split, host, port, query, resolve, ignored)


def resolved_endpoint(written: str, resolve: Resolve) -> tuple[SplitResult, str, int]:
    """The URL before its parameters, with its references resolved: all of it, its host and its port."""
    url = resolve(written)
    try:
        return _endpoint(url)
    except ValueError:
        if url == written:
            raise
        raise ValueError(f"'{written}' does not resolve to a listener URL, scheme://host:port") from None


def _endpoint(url: str) -> tuple[SplitResult, str, int]:
    if re.search(r"\s", url):
        raise ValueError("the URL must not contain spaces before its parameters")
    split = _split(url)
    if split.scheme not in SCHEMES:
        raise ValueError(_wrong_scheme(split.scheme, url))
    if SCHEMES[split.scheme].websocket:
        if split.fragment or split.username is not None:
            raise ValueError(
                f"the URL must be {split.scheme}://host:port/path?parameters, without user or '#'"
            )
    elif split.path not in ("", "/") or split.fragment or split.username is not None:
        raise ValueError(f"the URL must be {split.scheme}://host:port?parameters, without path, user or '#'")
    try:
        port = split.port
    except ValueError:
        raise ValueError("the port must be a number from 0 to 65535") from None
    if not split.hostname:
        raise ValueError("the URL has no host: use 127.0.0.1, or 0.0.0.0 for all interfaces")
    if port is None:
        usual = SCHEMES[split.scheme].usual_port
        raise ValueError(f"the URL has no port: write {split.scheme}://{split.netloc.rstrip(':')}:{usual}")
    return split, split.hostname, port


def _split(url: str) -> SplitResult:
    try:
        split = urlsplit(url)
        if "[" in split.netloc:
            ipaddress.IPv6Address(split.hostname or "")
        return split
    except ValueError as error:
        raise ValueError(f"not a URL: {error}") from None


def _wrong_scheme(scheme: str, url: str) -> str:
    if scheme in OTHER_SCHEMES:
        known = " or ".join(f"{name}://" for name in SCHEMES)
        return f"{scheme}:// ({OTHER_SCHEMES[scheme]}) is not supported; use {known}"
    known = " or ".join(f"{name}:// ({scheme.serves})" for name, scheme in SCHEMES.items())
    return f"'{url}' is not a listener URL; it must start with {known}"


def _stomp_acceptor(
    name: str, split: SplitResult, host: str, port: int, query: str, resolve: Resolve, ignored: Ignored
) -> StompAcceptor:
    scheme = SCHEMES[split.scheme]
    faults: list[str] = []
    parts = read_parameters(query, {**STOMP_PARAMETERS, **LISTENER_PARAMETERS}, faults, resolve, ignored)
    if scheme.websocket:
        parts["websocket"] |= {"only": True, "path": split.path.removesuffix("/")}
    if "stomp_consumer_window_size" in parts[""]:  # a file of Artemis means the whole window
        parts[""].setdefault("stomp_prefetch_count", -1)
    acceptor = StompAcceptor(
        name,
        host,
        port,
        **parts[""],
        limits=FrameLimits(**parts["limits"]),
        websocket=WebSocketSettings(**parts["websocket"]),
        tls=tls_of(parts["tls"], scheme.secure, faults),
        proxy=proxy_of(parts["proxy"], faults),
    )
    faults += _conflicts(acceptor)
    if faults:
        raise ValueError("\n".join(faults))
    return acceptor


def _http_acceptor(
    name: str, split: SplitResult, host: str, port: int, query: str, resolve: Resolve
) -> HttpAcceptor:
    secure = SCHEMES[split.scheme].secure
    faults: list[str] = []
    parts = read_parameters(query, LISTENER_PARAMETERS, faults, resolve, None)
    tls, proxy = tls_of(parts["tls"], secure, faults), proxy_of(parts["proxy"], faults)
    if faults:
        raise ValueError("\n".join(faults))
    return HttpAcceptor(name, host, port, tls=tls, proxy=proxy)


def read_parameters(
    query: str,
    table: Mapping[str, Parameter],
    faults: list[str],
    resolve: Resolve,
    ignored: Ignored | None,
    rows: Rows = ACCEPTOR_PARAMETERS,
) -> defaultdict[str, dict[str, Any]]:
    """The values of all parameters, by part of the acceptor and field.

    ``rows`` are the parameters of Artemis that are not in ``table``. Those without effect are added to ``ignored``;
    None: there are none.
    """
    parts: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    seen: set[str] = set()
    for key, text in _pairs(query, faults):
        known = OLD_PARAMETER_NAMES.get(key, key)
        if ignored is not None and known not in table and _is_ignored(key, text, resolve, ignored, rows):
            continue
        if known in seen:
            faults.append(f"parameter '{key}' is given twice")
        seen.add(known)
        try:
            parameter, value = _read_parameter(key, known, text, table, resolve, rows)
        except ValueError as error:
            faults.append(str(error))
            continue
        if parameter is not None:
            parts[parameter.part][parameter.field] = value
    return parts


def _is_ignored(key: str, text: str, resolve: Resolve, ignored: Ignored, rows: Rows) -> bool:
    """Whether the parameter has no effect here; it is then added to ``ignored``."""
    if OLD_PARAMETER_NAMES.get(key, key) == "protocols":
        if "," in text:
            ignored.append(("protocols other than STOMP", OTHER_PROTOCOLS.reason))
        return False
    row = rows.get(key)
    if row is None:
        return False
    try:
        value = resolve(text)
    except ValueError:
        value = text
    if not row.has_no_effect(value):
        return False
    ignored.append((key, row.reason))
    return True


def _pairs(query: str, faults: list[str]) -> Iterator[tuple[str, str]]:
    for part in re.split("[;&]", query):
        key, equals, text = part.partition("=")
        if key and equals:
            yield unquote(key.strip()), unquote(text).strip()
        elif part.strip():
            faults.append(f"'{part.strip()}' is not a parameter: write name=value")


def _read_parameter(
    key: str, known: str, text: str, table: Mapping[str, Parameter], resolve: Resolve, rows: Rows
) -> tuple[Parameter | None, object]:
    parameter = table.get(known)
    if parameter is None and (known != "protocols" or table is LISTENER_PARAMETERS):
        raise ValueError(_unknown_parameter(key, table, rows))
    try:
        given = resolve(text)
    except ValueError as error:
        raise ValueError(f"parameter '{key}': {error}") from None
    try:
        value = parameter.read(given) if parameter else protocols(given)
    except ValueError as error:
        secret = SECRET_PARAMETER in key.lower()
        # show neither the value of a reference nor a password
        fault = str(error).replace(given, HIDDEN if secret else text) if given else str(error)
        shown = "" if secret else f" is '{text}'"
        raise ValueError(f"parameter '{key}'{shown}: {fault}") from None
    return parameter, Secret(value) if isinstance(value, str) and SECRET_PARAMETER in key.lower() else value


def _unknown_parameter(key: str, table: Mapping[str, Parameter], rows: Rows) -> str:
    if key in rows:
        return not_supported(f"parameter '{key}'", rows[key])
    if table is LISTENER_PARAMETERS:
        text = f"an http acceptor accepts parameters of TLS and of the PROXY protocol only, not '{key}'"
        return with_suggestion(text, key, table)
    return with_suggestion(f"unknown parameter '{key}'", key, (*table, "protocols"))


def _conflicts(acceptor: StompAcceptor) -> Iterator[str]:
    least, most = acceptor.connection_ttl_min, acceptor.connection_ttl_max
    if most is not None and least > most:
        yield f"connectionTtlMin ({least}) is above connectionTtlMax ({most})"
    if acceptor.websocket.only and not acceptor.websocket.web_socket_upgrade:
        yield "webSocketUpgrade=false contradicts ws://, which accepts WebSocket only: remove it, or use tcp://"
    for prefix in sorted(set(acceptor.anycast_prefix) & set(acceptor.multicast_prefix)):
        yield f"'{prefix}' is both an anycastPrefix and a multicastPrefix"


_TLS_SHARED = (
    "sslEnabled",
    "keyStorePath",
    "keyPath",
    "keyStorePassword",
    "keyStoreType",
    "trustStorePath",
    "trustStorePassword",
    "trustStoreType",
    "enabledProtocols",
    "enabledCipherSuites",
)

CONNECTOR_TLS_PARAMETERS: Mapping[str, Parameter] = MappingProxyType(
    {
        **{name: TLS_PARAMETERS[name] for name in _TLS_SHARED},
        "verifyHost": Parameter("verify_host", value_types.boolean, "tls"),
        "sniHost": Parameter("sni_host", value_types.name, "tls"),
    }
)

CONNECTOR_PARAMETERS: Mapping[str, Parameter] = MappingProxyType(
    {
        **{
            row.parameter_name: Parameter(row.name, PARAMETER_TYPES[row.type].read)
            for row in options_of(Connector)
        },
        **CONNECTOR_TLS_PARAMETERS,
    }
)


def parse_connector(name: str, url: str, resolve: Resolve = str, ignored: Ignored | None = None) -> Connector:
    """The connector with this URL. Parameters of Artemis without effect are added to ``ignored``.

    Raises `ValueError` whose text is all that is wrong with it, a fault per line.
    """
    endpoint, _, query = url.partition("?")
    split, host, port = resolved_endpoint(endpoint.strip(), resolve)
    scheme = SCHEMES[split.scheme]
    if split.scheme not in ("tcp", "ssl"):
        raise ValueError(f"{split.scheme}:// is not supported for a connector; use tcp:// or ssl://")
    if not port:
        raise ValueError("the port of a connector must be from 1 to 65535")
    faults: list[str] = []
    parts = read_parameters(
        query, CONNECTOR_PARAMETERS, faults, resolve, [] if ignored is None else ignored, ROWS
    )
    tls = _tls(parts["tls"], scheme.secure, faults)
    if faults:
        raise ValueError("\n".join(faults))
    return Connector(name, host, port, **parts[""], tls=tls)


def _tls(values: dict[str, Any], secure: bool, faults: list[str]) -> ConnectorTls | None:
    enabled = values.pop("enabled", secure)
    for kind in ("key_store_type", "trust_store_type"):  # there is one, which was checked
        values.pop(kind, None)
    if secure and not enabled:
        faults.append("sslEnabled=false contradicts the URL: use tcp:// without TLS")
    if not enabled:
        if values and not secure:
            given = next(name for name, one in CONNECTOR_TLS_PARAMETERS.items() if one.field in values)
            faults.append(f"{given} has no effect without TLS: use ssl://, or set sslEnabled=true")
        return None
    tls = ConnectorTls(**values)
    if len(tls.key_store_path) > 1:
        faults.append(
            "keyStorePath of a connector is one file: the certificate that the remote broker is shown"
        )
    if len(tls.key_path) > len(tls.key_store_path):
        faults.append("keyPath requires keyStorePath, the certificate of that key")
    return tls


def connector_with_absolute_paths(connector: Connector, directory: Path) -> Connector:
    """The connector with its relative paths starting at ``directory``."""
    return connector if connector.tls is None else replace(connector, tls=_absolute(connector.tls, directory))
