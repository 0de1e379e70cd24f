"""Everything that can be configured, as frozen data: no parsing, no I/O, no other room of the house.

Names are those of Artemis's broker.xml with ``-`` as ``_``. Times are milliseconds and sizes bytes unless a
field says otherwise; -1 means "no limit" or "not set" as it does in Artemis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class RoutingType(StrEnum):
    """How an address hands out its messages (Artemis, address model)."""

    ANYCAST = "ANYCAST"
    MULTICAST = "MULTICAST"


class FullPolicy(StrEnum):
    """What a full address does with the next message (``address-full-policy``)."""

    PAGE = "PAGE"
    DROP = "DROP"
    FAIL = "FAIL"
    BLOCK = "BLOCK"


class RingPolicy(StrEnum):
    """What becomes of the message that a full ring gives up (``ring-policy``, ours)."""

    DISCARD = "DISCARD"
    DEAD_LETTER = "DEAD_LETTER"


class DeletionPolicy(StrEnum):
    """Whether what vanished from broker.xml is deleted on reload (``config-delete-queues``)."""

    OFF = "OFF"
    FORCE = "FORCE"


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """The settings in force for one address: all matching ``<address-setting>`` entries merged."""

    # full addresses
    max_size_bytes: int = -1
    max_size_messages: int = -1
    address_full_policy: FullPolicy = FullPolicy.BLOCK
    # dead letters
    dead_letter_address: str | None = None
    auto_create_dead_letter_resources: bool = False
    dead_letter_queue_prefix: str = "DLQ."
    dead_letter_queue_suffix: str = ""
    send_to_dla_on_no_route: bool = False
    max_delivery_attempts: int = 10
    redelivery_delay: int = 0
    redelivery_delay_multiplier: float = 1.0
    redelivery_collision_avoidance_factor: float = 0.0
    max_redelivery_delay: int = -1
    # expiry
    expiry_address: str | None = None
    auto_create_expiry_resources: bool = False
    expiry_queue_prefix: str = "EXP."
    expiry_queue_suffix: str = ""
    no_expiry: bool = False
    expiry_delay: int = -1
    min_expiry_delay: int = -1
    max_expiry_delay: int = -1
    # creation and deletion
    auto_create_addresses: bool = True
    auto_create_queues: bool = True
    auto_delete_addresses: bool = True
    auto_delete_addresses_delay: int = 0
    auto_delete_queues: bool = True
    auto_delete_queues_delay: int = 0
    auto_delete_queues_message_count: int = 0
    auto_delete_queues_skip_usage_check: bool = False
    auto_delete_created_queues: bool = False
    config_delete_queues: DeletionPolicy = DeletionPolicy.OFF
    config_delete_addresses: DeletionPolicy = DeletionPolicy.OFF
    default_address_routing_type: RoutingType = RoutingType.MULTICAST
    default_queue_routing_type: RoutingType = RoutingType.MULTICAST
    # what new queues get
    default_ring_size: int = -1
    ring_policy: RingPolicy = RingPolicy.DISCARD
    default_max_consumers: int = -1
    default_purge_on_no_consumers: bool = False
    default_exclusive_queue: bool = False
    default_non_destructive: bool = False
    default_consumers_before_dispatch: int = 0
    default_delay_before_dispatch: int = -1
    # management
    management_browse_page_size: int = 200
    enable_metrics: bool = True


@dataclass(frozen=True, slots=True)
class AddressSettingEntry:
    """One ``<address-setting match="…">``: only what it sets, keyed by the names of `AddressSettings`."""

    match: str
    values: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    line: int | None = None


@dataclass(frozen=True, slots=True)
class QueueConfiguration:
    """One queue as written down: in broker.xml, in a POST, or made by the broker for a client.

    ``None`` means "not said": the address-settings' ``default-…`` value is taken when the queue is created.
    """

    name: str
    address: str
    routing_type: RoutingType
    durable: bool = True
    filter: str | None = None
    ring_size: int | None = None
    ring_policy: RingPolicy | None = None
    max_consumers: int | None = None
    purge_on_no_consumers: bool | None = None
    exclusive: bool | None = None
    non_destructive: bool | None = None
    consumers_before_dispatch: int | None = None
    delay_before_dispatch: int | None = None
    enabled: bool = True
    user: str | None = None
    # set by the broker, never by broker.xml
    auto_created: bool = False
    auto_delete: bool = False
    temporary: bool = False
    configured: bool = False


@dataclass(frozen=True, slots=True)
class AddressConfiguration:
    """One ``<address>`` with its queues."""

    name: str
    routing_types: frozenset[RoutingType]
    queues: tuple[QueueConfiguration, ...] = ()


@dataclass(frozen=True, slots=True)
class WildcardSyntax:
    """``<wildcard-addresses>``: the words that make an address a pattern."""

    delimiter: str = "."
    any_words: str = "#"
    single_word: str = "*"
    routing_enabled: bool = True


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """What one frame may be. Each is an acceptor parameter; see docs/settings.md for the reasons."""

    max_body_length: int = 100 * 1024 * 1024
    max_headers: int = 1000
    max_header_length: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class StompAcceptor:
    """One ``<acceptor>`` with a ``tcp://`` URL. Field names are the URL's parameters in snake_case."""

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
    subscriptions_allowed: int = 10_000
    transactions_allowed: int = 1_000
    stomp_consumer_window_size: int = 100 * 1024
    stomp_prefetch_count: int = -1
    disable_stomp_server_header: bool = False
    limits: FrameLimits = FrameLimits()


@dataclass(frozen=True, slots=True)
class HttpAcceptor:
    """One ``<acceptor>`` with an ``http://`` URL: metrics, health and the management API."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerConfiguration:
    """A whole broker.xml."""

    name: str = "stompring"
    file: str | None = None
    persistence_enabled: bool = False
    security_enabled: bool = True
    users_file: str | None = None
    global_max_size: int = -1
    connection_ttl_override: int = -1
    wildcard: WildcardSyntax = WildcardSyntax()
    literal_match_markers: str | None = None
    stomp_acceptors: tuple[StompAcceptor, ...] = ()
    http_acceptors: tuple[HttpAcceptor, ...] = ()
    address_settings: tuple[AddressSettingEntry, ...] = ()
    addresses: tuple[AddressConfiguration, ...] = ()
