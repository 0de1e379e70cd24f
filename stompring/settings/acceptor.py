"""Acceptors, as frozen data: one ``<acceptor>`` each, with its TLS, PROXY protocol and WebSocket."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

#: The versions that are spoken, the older first. What is older than these is not safe.
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS on one acceptor. Field names are the parameters of its URL in snake_case, paths as they are opened."""

    key_store_path: tuple[str, ...] = ()  # files with certificate chains, and directories of such
    key_path: tuple[
        str, ...
    ] = ()  # of each of those files the private key; () where they lie in or beside them
    key_store_password: str | None = field(default=None, repr=False)  # of private keys that are encrypted
    trust_store_path: str | None = None  # whose client certificates are taken
    need_client_auth: bool = False
    want_client_auth: bool = False
    enabled_protocols: tuple[str, ...] = ()  # of TLS_VERSIONS; () for all of them
    enabled_cipher_suites: tuple[str, ...] = ()  # names of OpenSSL or of IANA; () for ours
    ssl_auto_reload: bool = False

    @property
    def asks_for_certificates(self) -> bool:
        """Whether clients may, or must, show a certificate."""
        return self.need_client_auth or self.want_client_auth


@dataclass(frozen=True, slots=True)
class ProxyProtocol:
    """Every connection begins with a PROXY header that says where the client is."""

    proxy_protocol_trusted: tuple[IPv4Network | IPv6Network, ...] = ()  # who may send one; () for anybody


@dataclass(frozen=True, slots=True)
class WebSocketSettings:
    """STOMP over WebSocket on one acceptor. What has a parameter is called as that, in snake_case."""

    only: bool = False  # ws://: nothing else is spoken here
    path: str = ""  # of a ws:// URL; empty: any
    web_socket_upgrade: bool = (
        True  # what begins with GET may become a WebSocket where STOMP is spoken plainly
    )
    web_socket_max_frame_payload_length: int = -1
    web_socket_encoder_type: str = "binary"
    web_socket_compression_supported: bool = False
    web_socket_allowed_origins: tuple[
        str, ...
    ] = ()  # normal (`settings.origin`); the broker's own host is another


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """What one frame may be. Each is an acceptor parameter; see docs/settings.md for the reasons."""

    max_body_length: int = 100 * 1024 * 1024
    max_headers: int = 1000
    max_header_length: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class StompAcceptor:
    """One ``<acceptor>`` for STOMP (tcp, ssl, ws, wss). Field names are the URL's parameters in snake_case."""

    name: str
    host: str
    port: int
    anycast_prefix: tuple[str, ...] = ()
    multicast_prefix: tuple[str, ...] = ()
    connection_ttl: int | None = None
    connection_ttl_min: int = 1000
    connection_ttl_max: int | None = None
    heart_beat_to_connection_ttl_modifier: float = 2.0
    handshake_timeout: int = 10  # seconds, as in Artemis
    connections_allowed: int = -1
    connections_allowed_per_host: int | None = None  # None: half of all, and no limit for this machine
    subscriptions_allowed: int = 10_000
    transactions_allowed: int = 1_000
    max_transaction_bytes: int = 100 * 1024 * 1024
    max_unsettled_messages: int = 100_000
    outbox_size: int = 256 * 1024
    stomp_consumer_window_size: int = 100 * 1024
    stomp_prefetch_count: int = -1
    disable_stomp_server_header: bool = False
    limits: FrameLimits = FrameLimits()
    tls: Tls | None = None
    proxy: ProxyProtocol | None = None
    websocket: WebSocketSettings = WebSocketSettings()


@dataclass(frozen=True, slots=True)
class HttpAcceptor:
    """One ``<acceptor>`` with an ``http://`` or ``https://`` URL: metrics, health and the management API."""

    name: str
    host: str
    port: int
    tls: Tls | None = None
    proxy: ProxyProtocol | None = None
