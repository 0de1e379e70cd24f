"""The configuration of a broker, as frozen data: no parsing, no I/O, nothing of the other packages.

Names are those of Artemis's broker.xml with ``-`` as ``_``. Times are milliseconds and sizes bytes unless a
field says otherwise; -1 means "no limit" or "not set" as it does in Artemis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from stompring.settings.acceptor import HttpAcceptor, StompAcceptor


class PermissionType(StrEnum):
    """What a role may be allowed (Artemis, ``type`` of ``<permission>``). ERRORs show the names in capitals."""

    SEND = "send"
    CONSUME = "consume"
    BROWSE = "browse"
    CREATE_ADDRESS = "createAddress"
    DELETE_ADDRESS = "deleteAddress"
    CREATE_DURABLE_QUEUE = "createDurableQueue"
    DELETE_DURABLE_QUEUE = "deleteDurableQueue"
    CREATE_NON_DURABLE_QUEUE = "createNonDurableQueue"
    DELETE_NON_DURABLE_QUEUE = "deleteNonDurableQueue"
    MANAGE = "manage"
    VIEW = "view"
    EDIT = "edit"


@dataclass(frozen=True, slots=True)
class SecuritySettingEntry:
    """One ``<security-setting match="…">``: the roles that have each permission. What is not named nobody has."""

    match: str
    roles: Mapping[PermissionType, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    line: int | None = field(default=None, compare=False)


class SlowConsumerPolicy(StrEnum):
    """What becomes of a consumer that is slow (``slow-consumer-policy``)."""

    NOTIFY = "NOTIFY"
    KILL = "KILL"


class ThresholdUnit(StrEnum):
    """What ``slow-consumer-threshold`` is counted in (``slow-consumer-threshold-measurement-unit``)."""

    MESSAGES_PER_SECOND = "MESSAGES_PER_SECOND"
    MESSAGES_PER_MINUTE = "MESSAGES_PER_MINUTE"
    MESSAGES_PER_HOUR = "MESSAGES_PER_HOUR"
    MESSAGES_PER_DAY = "MESSAGES_PER_DAY"

    @property
    def seconds(self) -> int:
        """How long the time is in which so many messages are wanted."""
        return {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400}[self.value.rpartition("_")[2]]


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """One ``<resource-limit-setting>``: what the user of that exact name may have. -1: no limit."""

    user: str
    max_sessions: int = -1
    max_queues: int = -1


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


class PageFullPolicy(StrEnum):
    """What a paging address does with the next message once its pages have reached their limit."""

    DROP = "DROP"
    FAIL = "FAIL"


class DiskFullPolicy(StrEnum):
    """What becomes of a message that has to be written while the disk is full (``disk-full-policy``)."""

    BLOCK = "BLOCK"
    DROP = "DROP"
    FAIL = "FAIL"


class Retain(StrEnum):
    """Which messages of an address are retained (``retain``, ours)."""

    DURABLE = "DURABLE"  # durable ones in durable queues
    ALL = "ALL"  # in whatever queue
    NONE = "NONE"


class RingPolicy(StrEnum):
    """What becomes of the message that a full ring gives up (``ring-policy``, ours)."""

    DISCARD = "DISCARD"
    DEAD_LETTER = "DEAD_LETTER"


class TimeUnit(StrEnum):
    """What a period is counted in (``unit`` of ``journal-retention-directory``)."""

    DAYS = "DAYS"
    HOURS = "HOURS"
    MINUTES = "MINUTES"
    SECONDS = "SECONDS"
    MILLISECONDS = "MILLISECONDS"

    @property
    def milliseconds(self) -> int:
        """How long one is."""
        return {"DAYS": 86_400_000, "HOURS": 3_600_000, "MINUTES": 60_000, "SECONDS": 1000}.get(self.value, 1)


class DeletionPolicy(StrEnum):
    """Whether what vanished from broker.xml is deleted on reload (``config-delete-queues``)."""

    OFF = "OFF"
    FORCE = "FORCE"


@dataclass(frozen=True, slots=True)
class Property:
    """One ``<property key="…" value="…"/>``. Two of the same text are equal, wherever they stand."""

    key: str
    value: str
    line: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class PluginConfiguration:
    """One ``<broker-plugin>``: a policy under the name by which address-settings speak of it."""

    name: str
    policy: str  # the name of its module or entry point
    properties: tuple[Property, ...] = ()
    line: int = 1


@dataclass(frozen=True, slots=True)
class PolicyUse:
    """One ``<address-policy>``: a broker-plugin for the addresses of an address-setting."""

    name: str
    properties: tuple[Property, ...] = ()
    enabled: bool = True
    line: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """The settings in force for one address: all matching ``<address-setting>`` entries merged."""

    # full addresses
    max_size_bytes: int = -1
    max_size_messages: int = -1
    address_full_policy: str = FullPolicy.PAGE  # one of these, or the name of a broker-plugin
    # pages
    page_size_bytes: int = 10 * 1024 * 1024
    page_limit_bytes: int = -1
    page_limit_messages: int = -1
    page_full_policy: PageFullPolicy | None = None
    max_read_page_messages: int = -1
    max_read_page_bytes: int | None = None
    prefetch_page_messages: int | None = None
    prefetch_page_bytes: int | None = None
    page_max_cache_size: int = 5
    disk_full_policy: DiskFullPolicy = DiskFullPolicy.BLOCK
    # what is retained
    retain: Retain = Retain.DURABLE
    # duplicates
    id_cache_size: int | None = None  # None: what `BrokerConfiguration` says
    # plugins
    address_policy: tuple[PolicyUse, ...] = ()
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
    ring_counts_paged: bool = False
    default_max_consumers: int = -1
    default_purge_on_no_consumers: bool = False
    default_exclusive_queue: bool = False
    default_non_destructive: bool = False
    default_consumers_before_dispatch: int = 0
    default_delay_before_dispatch: int = -1
    # slow consumers
    slow_consumer_threshold: int = -1
    slow_consumer_threshold_measurement_unit: ThresholdUnit = ThresholdUnit.MESSAGES_PER_SECOND
    slow_consumer_policy: SlowConsumerPolicy = SlowConsumerPolicy.NOTIFY
    slow_consumer_check_period: int = 5  # seconds, as in Artemis
    # management
    management_browse_page_size: int = 200
    enable_metrics: bool = True

    @property
    def page_file_bytes(self) -> int:
        """How long a page file becomes: a limit on all of them is better kept with several."""
        if self.page_full_policy is None or self.page_limit_bytes < 0:
            return self.page_size_bytes
        return min(self.page_size_bytes, max(self.page_limit_bytes // 4, 1024))

    @property
    def read_bytes(self) -> int:
        """``max-read-page-bytes`` in force: two pages where it is not given, -1 for no limit."""
        given = self.max_read_page_bytes
        return 2 * self.page_size_bytes if given is None else given

    @property
    def prefetch_messages(self) -> int:
        """``prefetch-page-messages`` in force: ``max-read-page-messages`` where it is not given."""
        given = self.prefetch_page_messages
        return self.max_read_page_messages if given is None else given

    @property
    def prefetch_bytes(self) -> int:
        """``prefetch-page-bytes`` in force: ``max-read-page-bytes`` where it is not given."""
        given = self.prefetch_page_bytes
        return self.read_bytes if given is None else given


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
    ring_counts_paged: bool | None = None
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
class Retention:
    """``<journal-retention-directory>``: what is done with is kept there, for a period and up to a size."""

    directory: str
    period: int = -1  # ms
    storage_limit: int = -1
    sample_period: int = 10_000


@dataclass(frozen=True, slots=True)
class BrokerConfiguration:
    """A whole broker.xml."""

    name: str = "stompring"
    file: str | None = None
    warnings: tuple[str, ...] = ()  # what is allowed and yet looks like a slip, with file and line
    persistence_enabled: bool = True
    journal_directory: str = "data/journal"
    journal_file_size: int = 10 * 1024 * 1024
    journal_buffer_timeout: int = 0  # nanoseconds, as in Artemis
    journal_sync_transactional: bool = True
    journal_sync_non_transactional: bool = True
    journal_compact_min_files: int = 10
    journal_compact_percentage: int = 30
    journal_retention_directory: Retention | None = None
    paging_directory: str = "data/paging"
    page_sync_timeout: int | None = None  # nanoseconds
    purge_page_folders: bool = True
    id_cache_size: int = 20_000
    persist_id_cache: bool = True
    security_enabled: bool = True
    users_file: str | None = None
    roles_file: str | None = None
    certificate_users_file: str | None = None
    security_invalidation_interval: int = 10_000
    global_max_size: int = -1  # what a file does not say becomes a quarter of the machine's memory
    global_max_messages: int = -1
    global_max_transaction_size: int = -1  # what a file does not say becomes a quarter of global_max_size
    global_max_connections: int | None = None  # None: as many as there are file descriptors and memory for
    global_max_queues: int = 100_000
    global_max_addresses: int = 100_000
    global_max_wildcard_words: int = 10_000
    resource_limits: tuple[ResourceLimit, ...] = ()
    dispatch_memory: int = 16 * 1024 * 1024  # what a file does not say becomes a quarter of that, or this
    max_disk_usage: int = 90  # per cent
    min_disk_free: int = -1
    disk_scan_period: int = 5000
    connection_ttl_override: int = -1
    wildcard: WildcardSyntax = WildcardSyntax()
    literal_match_markers: str | None = None
    stomp_acceptors: tuple[StompAcceptor, ...] = ()
    http_acceptors: tuple[HttpAcceptor, ...] = ()
    plugins: tuple[PluginConfiguration, ...] = ()
    security_settings: tuple[SecuritySettingEntry, ...] = ()
    address_settings: tuple[AddressSettingEntry, ...] = ()
    addresses: tuple[AddressConfiguration, ...] = ()
