"""Listeners, as frozen data: one ``<acceptor>`` each. No parsing and no other room of the house, as in `model`."""

from __future__ import annotations

from dataclasses import dataclass

from stompring.settings.proxy_protocol import ProxyProtocol
from stompring.settings.tls import Tls
from stompring.settings.websocket import WebSocketSettings


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
