"""Acceptors, as frozen data: one ``<acceptor>`` each, with its TLS, PROXY protocol and WebSocket."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

from stompring.settings.options import ARTEMIS_OTHER_DEFAULT, STOMPRING, option

#: Supported versions, the older first. Earlier versions are unsafe.
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS on one acceptor. Field names are the parameters of its URL in snake_case, paths as they are opened."""

    key_store_path: tuple[str, ...] = ()  # files with certificate chains, and directories of them
    key_path: tuple[str, ...] = ()  # the private key of each file; () for keys in or beside the files
    key_store_password: str | None = field(
        default=None, repr=False
    )  # of encrypted private keys, and keystores
    trust_store_path: str | None = None  # the CAs of client certificates
    trust_store_password: str | None = field(default=None, repr=False)  # where that is a Java keystore
    need_client_auth: bool = False
    want_client_auth: bool = False
    enabled_protocols: tuple[str, ...] = ()  # of TLS_VERSIONS; () for all of them
    enabled_cipher_suites: tuple[str, ...] = ()  # names of OpenSSL or of IANA; () for ours
    ssl_auto_reload: bool = False

    @property
    def asks_for_certificates(self) -> bool:
        """Whether clients may, or must, present a certificate."""
        return self.need_client_auth or self.want_client_auth


@dataclass(frozen=True, slots=True)
class ProxyProtocol:
    """Every connection starts with a PROXY header with the address of the client."""

    proxy_protocol_trusted: tuple[
        IPv4Network | IPv6Network, ...
    ] = ()  # the sources of PROXY headers; () for any


@dataclass(frozen=True, slots=True)
class WebSocketSettings:
    """STOMP over WebSocket on one acceptor."""

    only: bool = False  # ws://: the acceptor accepts WebSocket only
    path: str = ""  # of a ws:// URL; empty: any
    web_socket_upgrade: bool = option(
        True,
        "boolean",
        "Whether a client of a `tcp://` acceptor may start with HTTP and upgrade to WebSocket, as in Artemis. False: "
        "such a client gets the ERROR of a malformed frame. It cannot be false for `ws://`.",
        source=STOMPRING,
    )
    web_socket_max_frame_payload_length: int = option(
        -1,
        "byteLimit",
        "Longest payload of a WebSocket frame from a client; the connection of a client with a longer one is closed "
        "with 1009. -1: the limits of a STOMP frame (`maxBodyLength` and those of its headers). Before CONNECTED at "
        "most 16384. Artemis: 65536, which rejects every client that sends a large message in one frame, as browsers "
        "do.",
        unit="bytes",
        source=ARTEMIS_OTHER_DEFAULT,
    )
    web_socket_encoder_type: str = option(
        "binary",
        "encoderType",
        "Type of the WebSocket messages from the broker. With text a STOMP frame that is not UTF-8 is still sent as "
        "binary. Clients may send either.",
    )
    web_socket_compression_supported: bool = option(
        False,
        "boolean",
        "Whether clients may negotiate permessage-deflate. It uses 300 KB of memory and much CPU time per connection, "
        "and compressing secrets together with text of an attacker is unsafe. A decompressed message may not exceed "
        "`maxBodyLength` and `maxHeaderLength` together.",
    )
    web_socket_allowed_origins: tuple[str, ...] = option(
        (),
        "origins",
        "Origins of pages that may open a WebSocket, in addition to the broker's own host on any port: a comma list of "
        "origins as `https://app.example.com`, `null` for pages without an origin, or `*` for all pages. On an "
        "acceptor with a loopback address the hosts of these origins are accepted in the `Host` header too. See "
        "[protocol.md](protocol.md#websocket).",
        source=STOMPRING,
    )


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """Limits of one frame."""

    max_body_length: int = option(
        100 * 1024 * 1024,
        "positiveBytes",
        "Longest body of a frame. The default is that of ActiveMQ Classic. Each connection can make the broker "
        "allocate this much at once: lower it for untrusted clients.",
        unit="bytes",
        source=STOMPRING,
    )
    max_headers: int = option(
        1000,
        "positiveCount",
        "Headers that a frame may have. The default is that of ActiveMQ Classic, far above what programs send; the "
        "limit stops a frame with endless headers.",
        unit="headers",
        source=STOMPRING,
    )
    max_header_length: int = option(
        64 * 1024,
        "positiveBytes",
        "Longest header line, name and value together. ActiveMQ Classic has 10240; the default allows long selectors "
        "and tokens.",
        unit="bytes",
        source=STOMPRING,
    )


@dataclass(frozen=True, slots=True)
class StompAcceptor:
    """One ``<acceptor>`` for STOMP (tcp, ssl, ws, wss). Field names are the URL's parameters in snake_case."""

    name: str
    host: str
    port: int
    anycast_prefix: tuple[str, ...] = option(
        (),
        "prefixes",
        "A destination with one of these prefixes is anycast; the address is the name after the prefix. Of several "
        "matching prefixes the longest counts.",
    )
    multicast_prefix: tuple[str, ...] = option((), "prefixes", "The same for multicast.")
    connection_ttl: int | None = option(
        None,
        "positiveMilliseconds",
        "How long a connection without heart-beats may be silent. None: `connection-ttl-override`. Artemis: 60000.",
        unit="ms",
        source=ARTEMIS_OTHER_DEFAULT,
    )
    connection_ttl_min: int = option(
        1000, "positiveMilliseconds", "Shortest silence that heart-beats can negotiate.", unit="ms"
    )
    connection_ttl_max: int | None = option(
        None, "positiveMilliseconds", "Longest silence. None: no limit.", unit="ms"
    )
    heart_beat_to_connection_ttl_modifier: float = option(
        2.0,
        "heartBeatFactor",
        "A client with a heart-beat every n ms is disconnected after n times this without one. Below 1 the broker "
        "would disconnect clients whose heart-beats are on time.",
        unit="factor",
    )
    handshake_timeout: int = option(  # seconds, as in Artemis
        10,
        "seconds",
        "How long a connection may take until its CONNECT. 0: without limit. The default is long for clients and short "
        "for sockets that only stay open.",
        unit="s",
        element="handshake-timeout",
    )
    connections_allowed: int = option(
        -1,
        "positiveOrNoLimit",
        "Connections of the acceptor. -1: limited by `global-max-connections` only.",
        unit="connections",
    )
    connections_allowed_per_host: int | None = option(
        None,
        "positiveOrNoLimit",
        "Connections of one source: an IPv4 address, or the 64-bit network of an IPv6 address, which belongs to one "
        "customer. None: half of `global-max-connections`, so that one machine cannot lock out the others, and no "
        "limit for loopback addresses. -1: no limit.",
        unit="connections",
        source=STOMPRING,
    )
    subscriptions_allowed: int = option(
        10_000,
        "positiveOrNoLimit",
        "Subscriptions of a connection. The default is far above what programs use; it stops a client that subscribes "
        "in a loop. -1: no limit.",
        unit="subscriptions",
        source=STOMPRING,
    )
    transactions_allowed: int = option(
        1_000,
        "positiveOrNoLimit",
        "Open transactions of a connection. -1: no limit.",
        unit="transactions",
        source=STOMPRING,
    )
    max_transaction_bytes: int = option(
        100 * 1024 * 1024,
        "byteLimit",
        "Size of all open transactions of a connection. The SEND that reaches it is the last, so that a message of "
        "`maxBodyLength` always fits. The default is that of `maxBodyLength`: a connection can use as much by a body "
        "that is half sent. -1: no limit.",
        unit="bytes",
        source=STOMPRING,
    )
    max_unsettled_messages: int = option(
        100_000,
        "positiveOrNoLimit",
        "Unacknowledged messages of a subscription, whatever its window. At the limit nothing is rejected: the "
        "subscription gets no message until it acknowledges. The default is far above what programs leave "
        "unacknowledged; that many of the smallest messages use 110 MB. -1: no limit.",
        unit="messages",
        source=STOMPRING,
    )
    outbox_size: int = option(
        256 * 1024,
        "fileSize",
        "Bytes that may wait for a client that does not read, before its subscriptions pause and it counts as slow; "
        "and bytes of answers that may wait, before the broker stops reading from it. The default never delays a fast "
        "client, and thousands of blocked clients do no harm.",
        unit="bytes",
        source=STOMPRING,
    )
    stomp_consumer_window_size: int = option(
        100 * 1024,
        "bytesOrNoLimit",
        "Unacknowledged bytes of a subscription whose `ack` is not `auto` and whose SUBSCRIBE sets neither "
        "`consumer-window-size` nor `prefetch-count`. 0: one message at a time. -1: no limit. Artemis: 10240, with "
        "which every message of 10 KiB waits for the one before it.",
        unit="bytes",
        source=ARTEMIS_OTHER_DEFAULT,
    )
    stomp_prefetch_count: int = option(
        100,
        "prefetchCount",
        "The same limit as a number of messages, for the same subscriptions. Both limits apply. -1: no limit, and the "
        "default of an acceptor that sets `stompConsumerWindowSize`, so that a window of Artemis is as large as it "
        "says. With more than 277 messages stomp.py 9 blocks itself over TLS: it queues its ACKs in a pipe of that "
        "size, which the thread that fills it should empty. A client that acknowledges less often than every 100 "
        "messages, or is far away, asks for more with `prefetch-count`.",
        unit="messages",
        source=STOMPRING,
    )
    disable_stomp_server_header: bool = option(
        False,
        "boolean",
        "Omits the `server` header of CONNECTED. Some clients detect features by it.",
    )
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
