"""The URLs of acceptors and connectors: protocol, host, port and parameters.

``tcp://127.0.0.1:61613?anycastPrefix=/queue/,queue/;multicastPrefix=/topic/`` listens for STOMP,
``ws://127.0.0.1:61614/stomp`` for STOMP over WebSocket, and ``http://127.0.0.1:8161`` for metrics, health checks and
the management API; ``ssl``, ``wss`` and ``https`` are the same over TLS. Parameters are separated by ``;`` or ``&``,
with optional blanks and line breaks, and may be percent-encoded. Their names are those of the fields of
`StompAcceptor` in camelCase.

The URL of a ``<connector>`` is ``tcp://host:port?parameters`` or ``ssl://…``, with the same syntax.
"""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
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
from .document import HIDDEN, Secret, Values, with_suggestion
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
    camel_case,
    options_of,
)
from .network import parse_origins
from .value_types import VALUE_TYPES, Reader, ValueType, comma_list

A = TypeVar("A", bound=StompAcceptor | HttpAcceptor | Connector)
T = TypeVar("T", Tls, ConnectorTls)


class Parameter(NamedTuple):
    """One parameter: the field that it sets, and the reader of its value.

    ``part`` names the part of the acceptor that has the field, such as ``tls``; "" is the acceptor itself.
    """

    field: str
    read: Reader
    part: str = ""


def _version(text: str) -> str:
    version = {version.lower(): version for version in TLS_VERSIONS}.get(text.lower())
    if version is None:
        raise ValueError(f"'{text}' is not one of {', '.join(TLS_VERSIONS)}")
    return version


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
    if text.upper() not in ("PEM", "PKCS12", "JKS"):
        raise ValueError(
            "must be PEM, PKCS12 or JKS; 'keytool -importkeystore -deststoretype PKCS12' converts a Java keystore"
        )
    return text.upper()


def _parameters(part: str, **readers: Reader) -> dict[str, Parameter]:
    """Return parameters by name. ``readers``: reader of each value, by the name of the field that a parameter sets."""
    return {camel_case(field): Parameter(field, read, part) for field, read in readers.items()}


TLS_PARAMETERS = _parameters(
    "tls",
    ssl_enabled=value_types.boolean,
    key_store_path=comma_list("files and directories", str),
    key_path=comma_list("files", str),
    key_store_password=value_types.name,
    key_store_type=_store_type,
    trust_store_path=value_types.name,
    trust_store_password=value_types.name,
    trust_store_type=_store_type,
    need_client_auth=value_types.boolean,
    want_client_auth=value_types.boolean,
    enabled_protocols=comma_list("versions", _version),
    enabled_cipher_suites=comma_list("names", _cipher_suite),
    ssl_auto_reload=value_types.boolean,
)

PROXY_PARAMETERS = _parameters(
    "proxy",
    proxy_protocol_enabled=value_types.boolean,
    proxy_protocol_trusted=comma_list("addresses and networks", _network),
)

LISTENER_PARAMETERS = TLS_PARAMETERS | PROXY_PARAMETERS


def _tls_of(
    kind: type[T], values: Values, secure: bool, faults: list[str], plain: str, encrypted: str
) -> T | None:
    """Return the TLS settings with ``values`` (by field); None without TLS. ``secure``: whether the scheme means TLS.

    ``plain`` and ``encrypted``: schemes without and with TLS, which the texts of faults propose.
    """
    enabled = values.pop("ssl_enabled", secure)
    if secure and not enabled:
        faults.append(f"sslEnabled=false contradicts the URL: use {plain} without TLS")
    if not enabled:
        if values and not secure:
            table = TLS_PARAMETERS | CONNECTOR_PARAMETERS
            given = next(name for name, one in table.items() if one.field in values)
            faults.append(f"{given} has no effect without TLS: use {encrypted}, or set sslEnabled=true")
        return None
    for checked in ("key_store_type", "trust_store_type"):  # not needed: the content of a file shows its type
        values.pop(checked, None)
    return kind(**values)


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


def with_absolute_paths(given: A, directory: Path) -> A:
    """Return the acceptor or connector with absolute paths. ``directory``: start of its relative paths."""
    tls: Any = given.tls
    if tls is None:
        return given
    trusted = tls.trust_store_path
    absolute = replace(
        tls,
        key_store_path=tuple(str(directory / path) for path in tls.key_store_path),
        key_path=tuple(str(directory / path) for path in tls.key_path),
        trust_store_path=trusted and str(directory / trusted),
    )
    return replace(given, tls=absolute)


Acceptor = StompAcceptor | HttpAcceptor


class Scheme(NamedTuple):
    """The scheme of a URL: the protocol, its usual port, and whether it means TLS, WebSocket or HTTP."""

    serves: str
    usual_port: int
    secure: bool = False
    websocket: bool = False
    http: bool = False


SCHEMES: Mapping[str, Scheme] = {
    "tcp": Scheme("STOMP", 61613),
    "ssl": Scheme("STOMP over TLS", 61612, secure=True),
    "ws": Scheme("STOMP over WebSocket", 61614, websocket=True),
    "wss": Scheme("STOMP over WebSocket and TLS", 61615, secure=True, websocket=True),
    "http": Scheme("metrics, health, management", 8161, http=True),
    "https": Scheme("the same with TLS", 8162, secure=True, http=True),
}


def prefixes(text: str) -> tuple[str, ...]:
    """The comma-separated prefixes of ``anycastPrefix`` and ``multicastPrefix``."""
    found = comma_list("prefixes, for example /queue/,queue/", str)(text)
    if len(set(found)) < len(found):
        raise ValueError("contains a prefix twice")
    return found


def protocols(text: str) -> tuple[str, ...]:
    """The items of ``protocols``, a comma list."""
    listed = tuple(part.strip().upper() for part in text.split(","))
    if not PROTOCOLS.issuperset(listed):
        raise ValueError(f"must be a comma-separated list of {', '.join(sorted(PROTOCOLS))}")
    if "STOMP" not in listed:
        raise ValueError("must include STOMP, the only supported protocol")
    return listed


def encoder_type(text: str) -> str:
    """Read ``webSocketEncoderType``: whether the broker sends binary or text WebSocket messages."""
    kind = text.lower()
    if kind not in ("binary", "text"):
        raise ValueError("must be binary or text")
    return kind


_DELIVERS_NOTHING = "with 0 no message would be delivered"
_TOO_EARLY = "below 1 the broker would disconnect clients whose heart-beats are on time"

PARAMETER_TYPES: Mapping[str, ValueType] = {
    **VALUE_TYPES,
    "prefixes": ValueType(prefixes, "a comma list"),
    "origins": ValueType(parse_origins, "a list of origins"),
    "encoderType": ValueType(encoder_type, "binary, text"),
    "seconds": value_types.number(0, value_types.seconds),
    "prefetchCount": value_types.number(1, value_types.whole_number, "no limit", _DELIVERS_NOTHING),
    "heartBeatFactor": ValueType(value_types.bounded(value_types.decimal, 1, why=_TOO_EARLY), "≥ 1", float),
}
"""The types of values in broker.xml, and those of parameters only."""


def _of_rows(kind: type, part: str = "") -> dict[str, Parameter]:
    """Return a parameter for each option of the dataclass ``kind``."""
    return {
        row.parameter_name: Parameter(row.name, PARAMETER_TYPES[row.type].read, part)
        for row in options_of(kind)
    }


STOMP_PARAMETERS = (
    _of_rows(StompAcceptor) | _of_rows(FrameLimits, "limits") | _of_rows(WebSocketSettings, "websocket")
)

CONNECTOR_PARAMETERS = (
    _of_rows(Connector)
    | TLS_PARAMETERS
    | _parameters("tls", verify_host=value_types.boolean, sni_host=value_types.name)
)
for _name in ("needClientAuth", "wantClientAuth", "sslAutoReload"):
    del CONNECTOR_PARAMETERS[_name]

#: Artemis's list of protocols. It must include STOMP, and has no other effect.
_PROTOCOLS = _parameters("protocols", protocols=protocols)

SECRET_PARAMETER = "password"  # nosec B105
"""Values of parameters with this in their name are never shown."""

OLD_PARAMETER_NAMES: Mapping[str, str] = {
    "stompConsumerCredits": "stompConsumerWindowSize",
    "protocol": "protocols",
    "stompMaxFramePayloadLength": "webSocketMaxFramePayloadLength",
}
"""Names of earlier Artemis versions, still accepted."""


Resolve = Callable[[str], str]
"""Resolves references (`References.resolve`): in the URL before its parameters, and in the value of each parameter."""


Ignored = list[tuple[str, str]]
"""Parameters without effect here, each with the reason."""


IN_VM_ONLY = "in-VM: only clients in the same Java machine use it"


def skip_reason(url: str, resolve: Resolve = str) -> str | None:
    """Return the reason why the broker opens no listener for an acceptor of Artemis; None if it opens one.

    Such an acceptor has only other protocols than STOMP, or is for clients in the same Java machine (in-VM).

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

    Raises `ValueError` with all faults, one per line.
    """
    split, host, port, query = _endpoint(url, resolve)
    scheme = SCHEMES[split.scheme]
    table = LISTENER_PARAMETERS
    if not scheme.http:
        table = STOMP_PARAMETERS | table | _PROTOCOLS
    faults: list[str] = []
    parts = _read_parameters(query, table, faults, resolve, ACCEPTOR_PARAMETERS, ignored)
    tls = _tls_of(Tls, parts["tls"], scheme.secure, faults, "tcp:// or http://", "ssl:// or https://")
    if tls is not None and not faults:  # an invalid parameter would also be reported as missing
        faults += _tls_conflicts(tls)
    proxy = None
    trusted = parts["proxy"].get("proxy_protocol_trusted", ())
    if parts["proxy"].get("proxy_protocol_enabled", False):
        proxy = ProxyProtocol(trusted)
    elif trusted:
        faults.append("proxyProtocolTrusted has no effect without proxyProtocolEnabled=true")
    acceptor: Acceptor
    if scheme.http:
        acceptor = HttpAcceptor(name, host, port, tls=tls, proxy=proxy)
    else:
        if scheme.websocket:
            parts["websocket"] |= {"only": True, "path": split.path.removesuffix("/")}
        # as in Artemis: without a prefetch count only the window limits deliveries
        if "stomp_consumer_window_size" in parts[""]:
            parts[""].setdefault("stomp_prefetch_count", -1)
        acceptor = StompAcceptor(
            name,
            host,
            port,
            **parts[""],
            limits=FrameLimits(**parts["limits"]),
            websocket=WebSocketSettings(**parts["websocket"]),
            tls=tls,
            proxy=proxy,
        )
        faults += _conflicts(acceptor)
    if faults:
        raise ValueError("\n".join(faults))
    return acceptor


def _endpoint(url: str, resolve: Resolve) -> tuple[SplitResult, str, int, str]:
    """Resolve references in the URL up to its ``?``. Returns the split URL, host, port, and parameters."""
    written, _, query = url.partition("?")
    written = written.strip()
    resolved = resolve(written)
    try:
        return *_split(resolved), query
    except ValueError:
        if resolved == written:
            raise
        raise ValueError(f"'{written}' does not resolve to a listener URL, scheme://host:port") from None


def _split(url: str) -> tuple[SplitResult, str, int]:
    if re.search(r"\s", url):
        raise ValueError("the URL must not contain spaces before its parameters")
    try:
        split = urlsplit(url)
        if "[" in split.netloc:
            ipaddress.IPv6Address(split.hostname or "")
    except ValueError as error:
        raise ValueError(f"not a URL: {error}") from None
    if split.scheme not in SCHEMES:
        if split.scheme in OTHER_SCHEMES:
            known = " or ".join(f"{name}://" for name in SCHEMES)
            reason = OTHER_SCHEMES[split.scheme]
            raise ValueError(f"{split.scheme}:// ({reason}) is not supported; use {known}")
        known = " or ".join(f"{name}:// ({scheme.serves})" for name, scheme in SCHEMES.items())
        raise ValueError(f"'{url}' is not a listener URL; it must start with {known}")
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


def _read_parameters(
    query: str,
    table: Mapping[str, Parameter],
    faults: list[str],
    resolve: Resolve,
    rows: Rows,
    ignored: Ignored | None,
) -> defaultdict[str, Values]:
    """Return the values of all parameters, by `Parameter.part` and field. ``rows``: parameters of Artemis that are not
    in ``table``. Each of these is a fault, or is added to ``ignored`` if it has no effect and this is not an HTTP
    acceptor."""
    parts: defaultdict[str, Values] = defaultdict(dict)
    seen: set[str] = set()
    for key, text in _pairs(query, faults):
        known = OLD_PARAMETER_NAMES.get(key, key)
        if table is not LISTENER_PARAMETERS:
            try:
                value = resolve(text)
            except ValueError:
                value = text
            if key in rows and rows[key].has_no_effect(value):
                if ignored is not None:
                    ignored.append((key, rows[key].reason))
                continue
            if known == "protocols" and "," in text and ignored is not None:
                ignored.append(("protocols other than STOMP", OTHER_PROTOCOLS.reason))
        if known in seen:
            faults.append(f"parameter '{key}' is given twice")
        seen.add(known)
        parameter = table.get(known)
        try:
            if parameter is None and key in rows:
                raise ValueError(not_supported(f"parameter '{key}'", rows[key]))
            if parameter is None:
                text = f"unknown parameter '{key}'"
                if table is LISTENER_PARAMETERS:
                    text = f"an http acceptor accepts parameters of TLS and of the PROXY protocol only, not '{key}'"
                raise ValueError(with_suggestion(text, key, table))
            parts[parameter.part][parameter.field] = _value(key, text, parameter.read, resolve)
        except ValueError as error:
            faults.append(str(error))
    return parts


def _pairs(query: str, faults: list[str]) -> Iterator[tuple[str, str]]:
    for part in re.split("[;&]", query):
        key, equals, text = part.partition("=")
        if key and equals:
            yield unquote(key.strip()), unquote(text).strip()
        elif part.strip():
            faults.append(f"'{part.strip()}' is not a parameter: write name=value")


def _value(key: str, text: str, read: Reader, resolve: Resolve) -> object:
    try:
        given = resolve(text)
    except ValueError as error:
        raise ValueError(f"parameter '{key}': {error}") from None
    secret = SECRET_PARAMETER in key.lower()
    try:
        value = read(given)
    except ValueError as error:
        # show neither the value of a reference nor a password
        fault = str(error).replace(given, HIDDEN if secret else text) if given else str(error)
        shown = "" if secret else f" is '{text}'"
        raise ValueError(f"parameter '{key}'{shown}: {fault}") from None
    return Secret(value) if secret and isinstance(value, str) else value


def _conflicts(acceptor: StompAcceptor) -> Iterator[str]:
    least, most = acceptor.connection_ttl_min, acceptor.connection_ttl_max
    if most is not None and least > most:
        yield f"connectionTtlMin ({least}) is above connectionTtlMax ({most})"
    if acceptor.websocket.only and not acceptor.websocket.web_socket_upgrade:
        yield "webSocketUpgrade=false contradicts ws://, which accepts WebSocket only: remove it, or use tcp://"
    for prefix in sorted(set(acceptor.anycast_prefix) & set(acceptor.multicast_prefix)):
        yield f"'{prefix}' is both an anycastPrefix and a multicastPrefix"


def parse_connector(name: str, url: str, resolve: Resolve = str, ignored: Ignored | None = None) -> Connector:
    """The connector with this URL. Adds parameters of Artemis without effect to ``ignored``.

    Raises `ValueError` with all faults, one per line.
    """
    split, host, port, query = _endpoint(url, resolve)
    if split.scheme not in ("tcp", "ssl"):
        raise ValueError(f"{split.scheme}:// is not supported for a connector; use tcp:// or ssl://")
    if not port:
        raise ValueError("the port of a connector must be from 1 to 65535")
    faults: list[str] = []
    table = CONNECTOR_PARAMETERS | _PROTOCOLS
    parts = _read_parameters(query, table, faults, resolve, ROWS, ignored)
    tls = _tls_of(ConnectorTls, parts["tls"], SCHEMES[split.scheme].secure, faults, "tcp://", "ssl://")
    if tls is not None and len(tls.key_store_path) > 1:
        faults.append(
            "keyStorePath of a connector is one file: the certificate that the remote broker is shown"
        )
    if tls is not None and len(tls.key_path) > len(tls.key_store_path):
        faults.append("keyPath requires keyStorePath, the certificate of that key")
    if faults:
        raise ValueError("\n".join(faults))
    return Connector(name, host, port, **parts[""], tls=tls)
