"""Connectors, as frozen data: where a bridge connects to, and how."""

from __future__ import annotations

from dataclasses import dataclass, field

from stompring.settings.options import STOMPRING, option

#: ms that a connection may take, CONNECTED included (Artemis: 30000).
DEFAULT_CONNECT_TIMEOUT = 30_000


@dataclass(frozen=True, slots=True)
class ConnectorTls:
    """TLS of a connector: this side is the client. Field names are the parameters in snake_case."""

    trust_store_path: str | None = None  # the CAs of the remote broker; None: those of the system
    trust_store_password: str | None = field(default=None, repr=False)  # where that is a Java keystore
    key_store_path: tuple[str, ...] = ()  # a certificate of our own, with its chain
    key_path: tuple[str, ...] = ()  # its private key, where it is in a file of its own
    key_store_password: str | None = field(default=None, repr=False)
    verify_host: bool = True
    sni_host: str | None = None
    enabled_protocols: tuple[str, ...] = ()
    enabled_cipher_suites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Connector:
    """One ``<connector>``. Field names are the URL's parameters in snake_case."""

    name: str
    host: str
    port: int
    virtual_host: str | None = option(
        None,
        "name",
        "The `host` header of CONNECT: the virtual host at the remote broker. RabbitMQ needs it, `/` for its default "
        "one. None: the host of the URL.",
        source=STOMPRING,
    )
    connect_timeout: int = option(
        DEFAULT_CONNECT_TIMEOUT,
        "positiveMilliseconds",
        "How long it may take to connect, TLS and CONNECTED included.",
        unit="ms",
        element="connect-timeout-millis",
    )
    tls: ConnectorTls | None = None

    @property
    def remote(self) -> str:
        """Host and port, for logs and management."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
