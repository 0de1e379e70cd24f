"""The URL of an ``<acceptor>``: where to listen, for what, and with which parameters.

``tcp://127.0.0.1:61613?anycastPrefix=/queue/,queue/;multicastPrefix=/topic/`` listens for STOMP,
``ws://127.0.0.1:61614/stomp`` for STOMP over WebSocket, and ``http://127.0.0.1:8161`` for metrics, health checks and
the management API; ``ssl``, ``wss`` and ``https`` are the same over TLS. Parameters are separated by ``;`` or ``&``,
with blanks and new lines around them as you like, and may be percent-encoded; they are called what the fields of
`StompAcceptor` are called, in camelCase.
"""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from stompring.settings import units
from stompring.settings.acceptor import FrameLimits, HttpAcceptor, StompAcceptor
from stompring.settings.artemis_names import (
    ACCEPTOR_PARAMETERS,
    OTHER_SCHEMES,
    PROTOCOLS,
    not_supported,
)
from stompring.settings.listener_parameters import LISTENER_PARAMETERS, Parameter, proxy_of, tls_of
from stompring.settings.nearest import unknown
from stompring.settings.origin import origins
from stompring.settings.secret import HIDDEN, Secret
from stompring.settings.websocket import WebSocketSettings

Acceptor = StompAcceptor | HttpAcceptor


@dataclass(frozen=True, slots=True)
class Scheme:
    """What a URL may start with: what is served there, the usual port, whether over TLS, whether by WebSocket."""

    serves: str
    usual_port: int
    secure: bool = False
    websocket: bool = False


SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        "tcp": Scheme("STOMP", 61613),
        "ssl": Scheme("STOMP over TLS", 61612, secure=True),
        "ws": Scheme("STOMP over WebSocket", 61614, websocket=True),
        "wss": Scheme("the same over TLS", 61615, secure=True, websocket=True),
        "http": Scheme("metrics, health, management", 8161),
        "https": Scheme("the same over TLS", 8162, secure=True),
    }
)


def prefixes(text: str) -> tuple[str, ...]:
    """The comma-separated prefixes of ``anycastPrefix`` and ``multicastPrefix``."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise ValueError("must be prefixes with a comma between each two, as /queue/,queue/")
    if len(set(found)) < len(found):
        raise ValueError("names a prefix twice")
    return found


def protocols(text: str) -> tuple[str, ...]:
    """``protocols``: Artemis's list, in which STOMP must be. It sets nothing."""
    listed = [part.strip().upper() for part in text.split(",")]
    for protocol in listed:
        if protocol not in PROTOCOLS:
            raise ValueError(f"must be a list of {', '.join(sorted(PROTOCOLS))}")
    if "STOMP" not in listed:
        raise ValueError("must include STOMP, the one protocol spoken here")
    return tuple(listed)


def encoder_type(text: str) -> str:
    """``webSocketEncoderType``: which WebSocket messages the broker sends."""
    kind = text.lower()
    if kind not in ("binary", "text"):
        raise ValueError("must be binary or text")
    return kind


_TIME = units.at_least(1, units.milliseconds)
_ALLOWED = units.at_least(1, units.whole_number, "no limit")
_FRAME_COUNT = units.at_least(1, units.whole_number)
_FRAME_BYTES = units.at_least(1, units.byte_size)

STOMP_PARAMETERS: Mapping[str, Parameter] = MappingProxyType(
    {
        "anycastPrefix": Parameter("anycast_prefix", prefixes),
        "multicastPrefix": Parameter("multicast_prefix", prefixes),
        "connectionTtl": Parameter("connection_ttl", _TIME),
        "connectionTtlMin": Parameter("connection_ttl_min", _TIME),
        "connectionTtlMax": Parameter("connection_ttl_max", _TIME),
        "heartBeatToConnectionTtlModifier": Parameter(
            "heart_beat_to_connection_ttl_modifier",
            units.decimal(1, why="below 1 a client that beats on time would be cut off"),
        ),
        "handshake-timeout": Parameter("handshake_timeout", units.at_least(0, units.seconds)),
        "connectionsAllowed": Parameter("connections_allowed", _ALLOWED),
        "connectionsAllowedPerHost": Parameter("connections_allowed_per_host", _ALLOWED),
        "subscriptionsAllowed": Parameter("subscriptions_allowed", _ALLOWED),
        "transactionsAllowed": Parameter("transactions_allowed", _ALLOWED),
        "maxTransactionBytes": Parameter(
            "max_transaction_bytes", units.at_least(1, units.byte_size, "no limit")
        ),
        "maxUnsettledMessages": Parameter("max_unsettled_messages", _ALLOWED),
        "outboxSize": Parameter("outbox_size", units.at_least(1024, units.byte_size)),
        "stompConsumerWindowSize": Parameter(
            "stomp_consumer_window_size", units.at_least(0, units.byte_size, "no limit")
        ),
        "stompPrefetchCount": Parameter(
            "stomp_prefetch_count",
            units.at_least(1, units.whole_number, "no limit", "with 0 nothing would ever be delivered"),
        ),
        "disableStompServerHeader": Parameter("disable_stomp_server_header", units.boolean),
        "maxBodyLength": Parameter("max_body_length", _FRAME_BYTES, "limits"),
        "maxHeaders": Parameter("max_headers", _FRAME_COUNT, "limits"),
        "maxHeaderLength": Parameter("max_header_length", _FRAME_BYTES, "limits"),
        "webSocketUpgrade": Parameter("web_socket_upgrade", units.boolean, "websocket"),
        "webSocketMaxFramePayloadLength": Parameter(
            "web_socket_max_frame_payload_length", units.at_least(1, units.byte_size, "no limit"), "websocket"
        ),
        "webSocketEncoderType": Parameter("web_socket_encoder_type", encoder_type, "websocket"),
        "webSocketCompressionSupported": Parameter(
            "web_socket_compression_supported", units.boolean, "websocket"
        ),
        "webSocketAllowedOrigins": Parameter("web_socket_allowed_origins", origins, "websocket"),
    }
)

SECRET = "password"  # nosec B105
"""Texts of parameters with this in their name are never shown."""

OLD_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "stompConsumerCredits": "stompConsumerWindowSize",
        "protocol": "protocols",
        "stompMaxFramePayloadLength": "webSocketMaxFramePayloadLength",
    }
)
"""Names of earlier Artemis versions, still taken."""

"""Parameters whose values are not shown where they are wrong."""


Resolve = Callable[[str], str]
"""Puts in what a text refers to (`References.resolve`): in the place of a URL, and in each value of its own."""


def parse_acceptor(name: str, url: str, resolve: Resolve = str) -> Acceptor:
    """The acceptor that ``url`` describes.

    Raises `ValueError` whose text is all that is wrong with it, a fault per line.
    """
    place, _, query = url.partition("?")
    split, host, port = _resolved_place(place.strip(), resolve)
    if split.scheme in ("http", "https"):
        return _http_acceptor(name, split, host, port, query, resolve)
    return _stomp_acceptor(name, split, host, port, query, resolve)


def _resolved_place(written: str, resolve: Resolve) -> tuple[SplitResult, str, int]:
    url = resolve(written)
    try:
        return _place(url)
    except ValueError:
        if url == written:
            raise
        raise ValueError(
            f"'{written}' does not stand for the URL of a listener, scheme://host:port"
        ) from None


def _place(url: str) -> tuple[SplitResult, str, int]:
    if re.search(r"\s", url):
        raise ValueError("the URL must not contain blanks before its parameters")
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
        raise ValueError("the URL names no host: write 127.0.0.1, or 0.0.0.0 for every interface")
    if port is None:
        usual = SCHEMES[split.scheme].usual_port
        raise ValueError(f"the URL names no port, as {split.scheme}://{split.netloc.rstrip(':')}:{usual}")
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
        return f"{scheme}:// ({OTHER_SCHEMES[scheme]}) is not supported by this version; use {known}"
    known = " or ".join(f"{name}:// ({taken.serves})" for name, taken in SCHEMES.items())
    return f"'{url}' is not a URL that starts with {known}"


def _stomp_acceptor(
    name: str, split: SplitResult, host: str, port: int, query: str, resolve: Resolve
) -> StompAcceptor:
    scheme = SCHEMES[split.scheme]
    faults: list[str] = []
    parts = _read_parameters(query, {**STOMP_PARAMETERS, **LISTENER_PARAMETERS}, faults, resolve)
    if scheme.websocket:
        parts["websocket"] |= {"only": True, "path": split.path.removesuffix("/")}
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
    faults += _contradictions(acceptor)
    if faults:
        raise ValueError("\n".join(faults))
    return acceptor


def _http_acceptor(
    name: str, split: SplitResult, host: str, port: int, query: str, resolve: Resolve
) -> HttpAcceptor:
    secure = SCHEMES[split.scheme].secure
    faults: list[str] = []
    parts = _read_parameters(query, LISTENER_PARAMETERS, faults, resolve)
    tls, proxy = tls_of(parts["tls"], secure, faults), proxy_of(parts["proxy"], faults)
    if faults:
        raise ValueError("\n".join(faults))
    return HttpAcceptor(name, host, port, tls=tls, proxy=proxy)


def _read_parameters(
    query: str, table: Mapping[str, Parameter], faults: list[str], resolve: Resolve
) -> defaultdict[str, dict[str, Any]]:
    """The values of all parameters, by the part of the acceptor and the field there that they set."""
    parts: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    seen: set[str] = set()
    for key, text in _pairs(query, faults):
        known = OLD_NAMES.get(key, key)
        if known in seen:
            faults.append(f"parameter '{key}' is given twice")
        seen.add(known)
        try:
            parameter, value = _read_parameter(key, known, text, table, resolve)
        except ValueError as error:
            faults.append(str(error))
            continue
        if parameter is not None:
            parts[parameter.part][parameter.field] = value
    return parts


def _pairs(query: str, faults: list[str]) -> Iterator[tuple[str, str]]:
    for part in re.split("[;&]", query):
        key, equals, text = part.partition("=")
        if key and equals:
            yield unquote(key.strip()), unquote(text).strip()
        elif part.strip():
            faults.append(f"'{part.strip()}' is not a parameter: write name=value")


def _read_parameter(
    key: str, known: str, text: str, table: Mapping[str, Parameter], resolve: Resolve
) -> tuple[Parameter | None, object]:
    parameter = table.get(known)
    if parameter is None and (known != "protocols" or table is LISTENER_PARAMETERS):
        raise ValueError(_unknown_parameter(key, table))
    try:
        given = resolve(text)
    except ValueError as error:
        raise ValueError(f"parameter '{key}': {error}") from None
    try:
        value = parameter.read(given) if parameter else protocols(given)
    except ValueError as error:
        secret = SECRET in key.lower()
        # neither what it refers to is shown, nor what must not be
        fault = str(error).replace(given, HIDDEN if secret else text) if given else str(error)
        shown = "" if secret else f" is '{text}'"
        raise ValueError(f"parameter '{key}'{shown}: {fault}") from None
    return parameter, Secret(value) if isinstance(value, str) and SECRET in key.lower() else value


def _unknown_parameter(key: str, table: Mapping[str, Parameter]) -> str:
    if key in ACCEPTOR_PARAMETERS:
        return not_supported(f"parameter '{key}'", ACCEPTOR_PARAMETERS[key])
    if table is LISTENER_PARAMETERS:
        text = f"an http acceptor takes parameters of TLS and of the PROXY protocol alone, not '{key}'"
        return unknown(text, key, table)
    return unknown(f"unknown parameter '{key}'", key, (*table, "protocols"))


def _contradictions(acceptor: StompAcceptor) -> Iterator[str]:
    least, most = acceptor.connection_ttl_min, acceptor.connection_ttl_max
    if most is not None and least > most:
        yield f"connectionTtlMin ({least}) is above connectionTtlMax ({most})"
    if acceptor.websocket.only and not acceptor.websocket.web_socket_upgrade:
        yield "webSocketUpgrade is false, and nothing but WebSocket is spoken here: remove it, or listen with tcp://"
    for prefix in sorted(set(acceptor.anycast_prefix) & set(acceptor.multicast_prefix)):
        yield f"'{prefix}' is both an anycastPrefix and a multicastPrefix"


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
