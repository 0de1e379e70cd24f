"""The configuration of a broker as frozen data, and the rows that describe its settings.

An `Option`, or row, describes one dataclass field: ``ring_counts_paged: bool | None = option(None, "boolean", "…")``.
The rows are the source of the elements and attributes in schema.xsd and of the tables in docs/settings.md
(``make schema`` writes the former), of the parameters of acceptor URLs, of the JSON fields of queues in the HTTP
interface and in an export, and of the settings that a reload can apply.

Names are those of Artemis's broker.xml with ``-`` as ``_``. Times are milliseconds and sizes bytes unless a field names
another unit; -1 means "no limit" or "not set" as in Artemis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from functools import cache
from ipaddress import IPv4Network, IPv6Network
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

T = TypeVar("T")

ARTEMIS = "Artemis"
ARTEMIS_OTHER_DEFAULT = "Artemis, other default"
STOMPRING = "stompring"

#: Requests of the HTTP interface that may set a queue option: none, POST only, or POST and PATCH.
NOT_IN_HTTP, CREATE_ONLY, CHANGEABLE = "", "create", "change"

_KEY = "option"


def row(type: str, meaning: str, **columns: Any) -> Any:
    """A dataclass field without default, with its row."""
    return field(metadata={_KEY: (type, meaning, columns)})


@dataclass_transform(frozen_default=True, field_specifiers=(field, row))
def frozen(kind: type[T]) -> type[T]:
    """Make a class a dataclass whose instances have slots and do not change."""
    return dataclass(frozen=True, slots=True)(kind)


class Option(NamedTuple):
    """One row: the description of a setting."""

    name: str  # name of the dataclass field
    type: (
        str  # simple type in schema.xsd, key of `value_types.VALUE_TYPES`; empty for an element with children
    )
    default: Any
    meaning: str  # one or more sentences in Markdown
    unit: str = ""
    source: str = ARTEMIS  # where the setting comes from
    group: str = ""  # heading of the table of the setting in docs/settings.md
    default_text: str = ""  # the default in words, if not a constant
    reloadable: bool = True  # whether a reload applies a change; False: a change requires a restart
    element: str = ""  # name in broker.xml or in a URL, if other than the field's name with dashes
    written_as: str = "element"
    # the field of `AddressSettings` whose value applies to a queue without a value of its own
    inherits: str = ""
    http: str = NOT_IN_HTTP

    @property
    def xml_name(self) -> str:
        """The name in broker.xml: ``ring-size``."""
        return self.element or self.name.replace("_", "-")

    @property
    def parameter_name(self) -> str:
        """The name in the URL of an acceptor: ``connectionTtl``."""
        return self.element or camel_case(self.name)

    @property
    def json_name(self) -> str:
        """The name in JSON: ``ringSize``."""
        return camel_case(self.name)


#: Groups of settings that the broker reads only at its start.
AT_START = ("Management by messages", "The store")

#: Units by type of value, for types that imply a unit.
_UNITS = {
    type: unit
    for unit, types in {
        "bytes": "byteLimit bytesOrNoLimit cacheSize fileSize positiveBytes",
        "ms": "milliseconds millisecondsOrUnset positiveMilliseconds positiveMillisecondsOrUnset takeoverTimeout",
        "ns": "nanoseconds",
        "s": "seconds positiveSeconds",
        "percent": "percentage percentageLimit",
        "factor": "heartBeatFactor multiplier retryMultiplier share",
        "messages": "messageLimit prefetchCount ringSize",
        "buckets": "groupBuckets",
    }.items()
    for type in types.split()
}


def option(default: T, type: str, meaning: str, **columns: Any) -> T:
    """The default of a dataclass field, with its row; ``columns`` are fields of `Option`."""
    return field(default=default, metadata={_KEY: (type, meaning, columns)})


def own_option(default: T, type: str, meaning: str, **columns: Any) -> T:
    """`option` for a setting that Artemis does not have."""
    return option(default, type, meaning, source=STOMPRING, **columns)


def flag(default: T, meaning: str, **columns: Any) -> T:
    """`option` for a setting that is true or false."""
    return option(default, "boolean", meaning, **columns)


def text_or_none(meaning: str, **columns: Any) -> Any:
    """`option` for a setting that is a text without white space at its ends, and None unless it is set."""
    return option(None, "name", meaning, **columns)


def section(default: T, element: str, *, reloadable: bool = True) -> T:
    """The default of a field whose element has children. The tables of settings have no row for such an element."""
    return option(default, "", "", element=element, reloadable=reloadable)


@cache
def options_of(kind: type) -> tuple[Option, ...]:
    """The rows of a dataclass, in the order of its fields. A row without a ``group`` has that of the previous row.

    ``COLUMNS`` of the dataclass are defaults for the columns of its rows.
    """
    common = getattr(kind, "COLUMNS", {})
    found: list[Option] = []
    group = ""
    for each in fields(kind):
        if _KEY in each.metadata:
            type_name, meaning, columns = each.metadata[_KEY]
            default = None if each.default is MISSING else each.default
            group = columns.get("group", group)
            defaults = {
                "group": group,
                "unit": _UNITS.get(type_name, ""),
                "reloadable": group not in AT_START,
                **common,
            }
            found.append(Option(each.name, type_name, default, meaning, **(defaults | columns)))
    return tuple(found)


def camel_case(name: str) -> str:
    """``ring_size`` as ``ringSize``."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


#: Supported versions, the older first. Earlier versions are unsafe.
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


@frozen
class CommonTls:
    """TLS of acceptors and connectors. Field names are the parameters of the URL in snake_case."""

    key_store_path: tuple[str, ...] = ()  # files with certificate chains, and directories of them
    key_path: tuple[str, ...] = ()  # the private key of each file; () for keys in or beside the files
    key_store_password: str | None = field(default=None, repr=False)  # password of private keys and keystores
    trust_store_path: str | None = None  # the CAs that may have issued the certificate of the other side
    trust_store_password: str | None = field(default=None, repr=False)  # password of a Java keystore
    enabled_protocols: tuple[str, ...] = ()  # versions in TLS_VERSIONS; () for all of them
    enabled_cipher_suites: tuple[str, ...] = ()  # OpenSSL or IANA names; () for the defaults


@frozen
class Tls(CommonTls):
    """TLS on one acceptor, with paths ready to open."""

    need_client_auth: bool = False
    want_client_auth: bool = False
    ssl_auto_reload: bool = False

    @property
    def asks_for_certificates(self) -> bool:
        """Whether clients may, or must, present a certificate."""
        return self.need_client_auth or self.want_client_auth


@frozen
class ProxyProtocol:
    """Every connection starts with a PROXY header with the address of the client."""

    proxy_protocol_trusted: tuple[
        IPv4Network | IPv6Network, ...
    ] = ()  # networks whose PROXY headers are accepted; () for all


@frozen
class WebSocketSettings:
    """STOMP over WebSocket on one acceptor."""

    only: bool = False  # whether the acceptor accepts WebSocket only (ws://)
    path: str = ""  # path of a ws:// URL; empty: any path
    web_socket_upgrade: bool = flag(
        True,
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
        source=ARTEMIS_OTHER_DEFAULT,
    )
    web_socket_encoder_type: str = option(
        "binary",
        "encoderType",
        "Type of the WebSocket messages from the broker. With text a STOMP frame that is not UTF-8 is still sent as "
        "binary. Clients may send either.",
    )
    web_socket_compression_supported: bool = flag(
        False,
        "Whether clients may negotiate permessage-deflate. It uses 300 KB of memory and much CPU time per connection, "
        "and compressing secrets together with text of an attacker is unsafe. A decompressed message may not exceed "
        "`maxBodyLength` and `maxHeaderLength` together.",
    )
    web_socket_allowed_origins: tuple[str, ...] = own_option(
        (),
        "origins",
        "Origins of pages that may open a WebSocket, in addition to the broker's own host on any port: a comma list of "
        "origins as `https://app.example.com`, `null` for pages without an origin, or `*` for all pages. On an "
        "acceptor with a loopback address the hosts of these origins are accepted in the `Host` header too. See "
        "[protocol.md](protocol.md#websocket).",
    )


@frozen
class FrameLimits:
    """Limits of one frame."""

    max_body_length: int = own_option(
        100 * 1024 * 1024,
        "positiveBytes",
        "Longest body of a frame. The default is that of ActiveMQ Classic. Each connection can make the broker "
        "allocate this much at once: lower it for untrusted clients.",
    )
    max_headers: int = own_option(
        1000,
        "positiveCount",
        "Headers that a frame may have. The default is that of ActiveMQ Classic, far above what programs send; the "
        "limit stops a frame with endless headers.",
        unit="headers",
    )
    max_header_length: int = own_option(
        64 * 1024,
        "positiveBytes",
        "Longest header line, name and value together. ActiveMQ Classic has 10240; the default allows long selectors "
        "and tokens.",
    )


@frozen
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
        source=ARTEMIS_OTHER_DEFAULT,
    )
    connection_ttl_min: int = option(
        1000, "positiveMilliseconds", "Shortest silence that heart-beats can negotiate."
    )
    connection_ttl_max: int | None = option(None, "positiveMilliseconds", "Longest silence. None: no limit.")
    heart_beat_to_connection_ttl_modifier: float = option(
        2.0,
        "heartBeatFactor",
        "A client with a heart-beat every n ms is disconnected after n times this without one. Below 1 the broker "
        "would disconnect clients whose heart-beats are on time.",
    )
    handshake_timeout: int = option(  # seconds, as in Artemis
        10,
        "seconds",
        "How long a connection may take until its CONNECT. 0: without limit. The default is long for clients and short "
        "for sockets that only stay open.",
        element="handshake-timeout",
    )
    connections_allowed: int = option(
        -1,
        "positiveOrNoLimit",
        "Connections of the acceptor. -1: limited by `global-max-connections` only.",
        unit="connections",
    )
    connections_allowed_per_host: int | None = own_option(
        None,
        "positiveOrNoLimit",
        "Connections of one source: an IPv4 address, or the 64-bit network of an IPv6 address, which belongs to one "
        "customer. None: half of `global-max-connections`, so that one machine cannot lock out the others, and no "
        "limit for loopback addresses. -1: no limit.",
        unit="connections",
    )
    subscriptions_allowed: int = own_option(
        10_000,
        "positiveOrNoLimit",
        "Subscriptions of a connection. The default is far above what programs use; it stops a client that subscribes "
        "in a loop. -1: no limit.",
        unit="subscriptions",
    )
    transactions_allowed: int = own_option(
        1_000,
        "positiveOrNoLimit",
        "Open transactions of a connection. -1: no limit.",
        unit="transactions",
    )
    max_transaction_bytes: int = own_option(
        100 * 1024 * 1024,
        "byteLimit",
        "Size of all open transactions of a connection. The SEND that reaches it is the last, so that a message of "
        "`maxBodyLength` always fits. The default is that of `maxBodyLength`: a connection can use as much by a body "
        "that is half sent. -1: no limit.",
    )
    max_unsettled_messages: int = own_option(
        100_000,
        "positiveOrNoLimit",
        "Unacknowledged messages of a subscription, whatever its window. At the limit nothing is rejected: the "
        "subscription gets no message until it acknowledges. The default is far above what programs leave "
        "unacknowledged; that many of the smallest messages use 110 MB. -1: no limit.",
        unit="messages",
    )
    outbox_size: int = own_option(
        256 * 1024,
        "fileSize",
        "Bytes that may wait for a client that does not read, before its subscriptions pause and it counts as slow; "
        "and bytes of answers that may wait, before the broker stops reading from it. The default never delays a fast "
        "client, and thousands of blocked clients do no harm.",
    )
    stomp_consumer_window_size: int = option(
        100 * 1024,
        "bytesOrNoLimit",
        "Unacknowledged bytes of a subscription whose `ack` is not `auto` and whose SUBSCRIBE sets neither "
        "`consumer-window-size` nor `prefetch-count`. 0: one message at a time. -1: no limit. Artemis: 10240, with "
        "which every message of 10 KiB waits for the one before it.",
        source=ARTEMIS_OTHER_DEFAULT,
    )
    stomp_prefetch_count: int = own_option(
        100,
        "prefetchCount",
        "The same limit as a number of messages, for the same subscriptions. Both limits apply. -1: no limit, and the "
        "default of an acceptor that sets `stompConsumerWindowSize`, so that a window of Artemis is as large as it "
        "says. With more than 277 messages stomp.py 9 blocks itself over TLS: it queues its ACKs in a pipe of that "
        "size, which the thread that fills it should empty. A client that acknowledges less often than every 100 "
        "messages, or is far away, asks for more with `prefetch-count`.",
    )
    disable_stomp_server_header: bool = flag(
        False, "Omits the `server` header of CONNECTED. Some clients detect features by it."
    )
    limits: FrameLimits = FrameLimits()
    tls: Tls | None = None
    proxy: ProxyProtocol | None = None
    websocket: WebSocketSettings = WebSocketSettings()


@frozen
class HttpAcceptor:
    """One ``<acceptor>`` with an ``http://`` or ``https://`` URL: metrics, health and the management API."""

    name: str
    host: str
    port: int
    tls: Tls | None = None
    proxy: ProxyProtocol | None = None


#: Time limit in ms of a connection attempt, CONNECTED included (Artemis: 30000).
DEFAULT_CONNECT_TIMEOUT = 30_000


@frozen
class ConnectorTls(CommonTls):
    """TLS of a connector: the broker is the client. Without a trust store it trusts the CAs of the system."""

    verify_host: bool = True
    sni_host: str | None = None


@frozen
class Connector:
    """One ``<connector>``. Field names are the URL's parameters in snake_case."""

    name: str
    host: str
    port: int
    virtual_host: str | None = own_option(
        None,
        "name",
        "The `host` header of CONNECT: the virtual host at the remote broker. RabbitMQ needs it, `/` for its default "
        "one. None: the host of the URL.",
    )
    connect_timeout: int = option(
        DEFAULT_CONNECT_TIMEOUT,
        "positiveMilliseconds",
        "How long it may take to connect, TLS and CONNECTED included.",
        element="connect-timeout-millis",
    )
    tls: ConnectorTls | None = None

    @property
    def remote(self) -> str:
        """Host and port, for logs and management."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class PermissionType(StrEnum):
    """A permission (Artemis, ``type`` of ``<permission>``). ERRORs show the names in capitals."""

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


@frozen
class SecuritySettingEntry:
    """One ``<security-setting match="…">``: the roles with each permission. A permission without an entry is denied."""

    match: str
    roles: Mapping[PermissionType, frozenset[str]] = field(default_factory=dict)
    line: int | None = field(default=None, compare=False)


class SlowConsumerPolicy(StrEnum):
    """Action on a slow consumer (``slow-consumer-policy``)."""

    NOTIFY = "NOTIFY"
    KILL = "KILL"


class ThresholdUnit(StrEnum):
    """Unit of ``slow-consumer-threshold`` (``slow-consumer-threshold-measurement-unit``)."""

    MESSAGES_PER_SECOND = "MESSAGES_PER_SECOND"
    MESSAGES_PER_MINUTE = "MESSAGES_PER_MINUTE"
    MESSAGES_PER_HOUR = "MESSAGES_PER_HOUR"
    MESSAGES_PER_DAY = "MESSAGES_PER_DAY"

    @property
    def seconds(self) -> int:
        """Length of the time unit in seconds."""
        return {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400}[self.value.rpartition("_")[2]]


@frozen
class Guest:
    """User and role of a STOMP client without login and passcode (Artemis, GuestLoginModule of ``login.config``)."""

    user: str
    role: str


class LoginFlag(StrEnum):
    """The weight of a login module in the login: the control flags of JAAS."""

    REQUIRED = "REQUIRED"  # must succeed; if it fails, the next modules still run
    REQUISITE = "REQUISITE"  # must succeed; a failure ends the login
    SUFFICIENT = "SUFFICIENT"  # a success ends the login, unless a required module has failed
    OPTIONAL = "OPTIONAL"  # counts only if no module is required or requisite


class LdapAuthentication(StrEnum):
    """How the broker logs in to an LDAP directory for its searches."""

    SIMPLE = "SIMPLE"
    NONE = "NONE"


_LOGIN_FLAG = "Meaning of its outcome, as in JAAS. The modules run in the order of their elements."


@frozen
class LoginModule:
    """``<certificate>`` or ``<properties>`` in ``<login-modules>``: logins by a client certificate, or by a password in
    the users file. ``kind`` is the name of the element."""

    COLUMNS: ClassVar[Mapping[str, str]] = {"written_as": "attribute", "source": "Artemis, `login.config`"}

    kind: str
    flag: LoginFlag = own_option(
        LoginFlag.SUFFICIENT,
        "loginFlag",
        _LOGIN_FLAG,
        group="Login modules",
    )


@frozen
class LdapLogin:
    """``<ldap>`` in ``<login-modules>``, or an LDAPLoginModule in ``login.config``: logins that a directory checks.

    The JSON names of the rows are the names of the options in ``login.config``. ``connection_password`` is a `Secret`.
    """

    COLUMNS: ClassVar[Mapping[str, str]] = LoginModule.COLUMNS

    connection_url: str = row(
        "ldapUrls",
        "The directory: `ldap://host:389` or `ldaps://host:636` (TLS), several with blanks, tried in order. A path "
        "(`/dc=example,dc=org`) is appended to `user-base` and `role-base`.",
        written_as="attribute, required",
        group="LDAP",
    )
    connection_username: str | None = text_or_none(
        "DN with which the broker logs in for its searches. Required, unless authentication is none.",
    )
    connection_password: str | None = option(
        None,
        "secretText",
        "Password of that DN, best as `${file:PATH}` or `${env:NAME}`. It is shown nowhere.",
    )
    authentication: LdapAuthentication = option(
        LdapAuthentication.SIMPLE,
        "ldapAuthentication",
        "How the broker logs in for its searches. NONE: anonymously. Users log in by password (a simple bind).",
    )
    connection_protocol: str = option(
        "", "text", "`ssl`: TLS also with `ldap://`. Other texts have no effect."
    )
    start_tls: bool = flag(False, "Whether TLS begins on the port of `ldap://` (StartTLS).", source=STOMPRING)
    trust_store_path: str | None = own_option(
        None,
        "name",
        "PEM file of the CAs that sign the certificate of the directory; its host name is verified. A relative path "
        "starts at the directory of broker.xml. None: the CAs of the system.",
    )
    user_base: str = option("", "text", "DN below which the entries of users are searched.")
    user_search_matching: str | None = text_or_none(
        "Filter that finds the entry of a user, for example `(uid={0})`: `{0}` is the login, escaped. None: the login "
        "is the DN of the user.",
    )
    user_search_subtree: bool = flag(
        False, "Whether the whole tree below `user-base` is searched, not one level."
    )
    role_base: str = option("", "text", "DN below which the entries of roles are searched.")
    role_name: str | None = text_or_none(
        "Attribute of a role's entry that has the name of the role. None: the name is its DN."
    )
    role_search_matching: str | None = text_or_none(
        "Filter that finds the roles of a user, for example `(member={0})`: `{0}` is the DN of the user, `{1}` the "
        "login, both escaped. None: no roles are searched.",
    )
    role_search_subtree: bool = flag(
        False, "Whether the whole tree below `role-base` is searched, not one level."
    )
    user_role_name: str | None = text_or_none(
        "Attribute of a user's entry with DNs of roles, for example `memberOf`."
    )
    expand_roles: bool = flag(
        False, "Whether roles that contain a role of the user count too, over any depth."
    )
    expand_roles_matching: str | None = text_or_none(
        "Filter that finds the roles that contain a role, for example `(member={0})`: `{0}` is its DN.",
    )
    authenticate_user: bool = flag(
        True, "False: the directory checks no password, and adds roles to the users of other modules."
    )
    connection_timeout: int = option(
        5000, "positiveMilliseconds", "Maximum time to connect.", source=ARTEMIS_OTHER_DEFAULT
    )
    read_timeout: int = option(
        5000,
        "positiveMilliseconds",
        "Maximum time to wait for each answer, rounded up to seconds.",
        source=ARTEMIS_OTHER_DEFAULT,
    )
    cache_time: int = own_option(
        10_000,
        "milliseconds",
        "How long a successful login counts without another question to the directory. 0: every login is checked.",
    )
    max_logins: int = own_option(
        4,
        "positiveCount",
        "Maximum number of logins that the directory checks at a time; 100 more wait.",
    )
    flag: LoginFlag = option(LoginFlag.SUFFICIENT, "loginFlag", _LOGIN_FLAG)


@frozen
class TokenLogin:
    """``<token>`` in ``<login-modules>``: logins by a token (JWT) of an identity provider, as the passcode."""

    COLUMNS: ClassVar[Mapping[str, str]] = {"written_as": "attribute", "source": STOMPRING}

    issuer: str = row(
        "name",
        "Issuer of the tokens, as in their claim `iss`.",
        written_as="attribute, required",
        group="Tokens",
    )
    audience: str = row(
        "name",
        "This broker, as in the claim `aud` of its tokens.",
        written_as="attribute, required",
    )
    keys: str = row(
        "keySource",
        "Public keys of the issuer (JWKS): a URL `https://…`, on this machine also `http://…`, or a file, whose "
        "relative path starts at the directory of broker.xml. The broker reads them again after an unknown key, at "
        "most every 10 s.",
        written_as="attribute, required",
    )
    user_claim: str = option("sub", "name", "Claim that has the name of the user.")
    roles_claim: str = option(
        "roles",
        "name",
        "Claim that has the roles, a list or a text with blanks. Dots lead into objects: `realm_access.roles`.",
    )
    key_cache_time: int = option(3_600_000, "milliseconds", "Time after which the keys are read again.")
    trust_store_path: str | None = text_or_none(
        "PEM file of the CAs that sign the certificate of the URL. None: the CAs of the system."
    )
    connection_timeout: int = option(5000, "positiveMilliseconds", "Maximum time to wait for the keys.")
    max_logins: int = option(
        4, "positiveCount", "Maximum number of tokens that are verified at a time; 100 more wait."
    )
    flag: LoginFlag = option(LoginFlag.SUFFICIENT, "loginFlag", _LOGIN_FLAG)


#: The settings of a login module.
AnyLogin = LoginModule | LdapLogin | TokenLogin


@frozen
class ResourceLimit:
    """One ``<resource-limit-setting>``: limits of the user with that exact name. -1: no limit."""

    user: str
    max_sessions: int = option(
        -1,
        "countOrNoLimit",
        "Sessions that the user may have. A session is a connection here; Artemis counts one more for each open "
        "transaction. 0: none. -1: no limit. The old name `max-connections` is accepted too.",
    )
    max_queues: int = option(
        -1,
        "countOrNoLimit",
        "Queues that the user may have: those created by its SENDs and SUBSCRIBEs, temporary ones included, and those "
        "with it as their `user`. A durable queue counts after a restart too; a deleted one does not. -1: no limit.",
    )


class RoutingType(StrEnum):
    """Routing type of an address or a queue (Artemis, address model)."""

    ANYCAST = "ANYCAST"
    MULTICAST = "MULTICAST"


class FullPolicy(StrEnum):
    """Action on a message for a full address (``address-full-policy``)."""

    PAGE = "PAGE"
    DROP = "DROP"
    FAIL = "FAIL"
    BLOCK = "BLOCK"


class ComponentRoutingType(StrEnum):
    """Routing type of the messages that a divert or a bridge sends (Artemis, ``component-routing-type``)."""

    ANYCAST = "ANYCAST"
    MULTICAST = "MULTICAST"
    PASS = "PASS"  # nosec B105 - a routing type: as the message was sent
    STRIP = "STRIP"  # no routing type: the forwarding address decides


class PageFullPolicy(StrEnum):
    """Action on a message beyond the limit of the pages (``page-full-policy``)."""

    DROP = "DROP"
    FAIL = "FAIL"


class DiskFullPolicy(StrEnum):
    """Action on a message to be written while the disk is full (``disk-full-policy``)."""

    BLOCK = "BLOCK"
    DROP = "DROP"
    FAIL = "FAIL"


class Retain(StrEnum):
    """Which messages of an address are retained (``retain``, not in Artemis)."""

    DURABLE = "DURABLE"  # durable messages in durable queues
    ALL = "ALL"  # all messages in all queues
    NONE = "NONE"


class RingPolicy(StrEnum):
    """Action on a message evicted from a full ring (``ring-policy``, not in Artemis)."""

    DISCARD = "DISCARD"
    DEAD_LETTER = "DEAD_LETTER"


class TimeUnit(StrEnum):
    """Unit of a period (``unit`` of ``journal-retention-directory``)."""

    DAYS = "DAYS"
    HOURS = "HOURS"
    MINUTES = "MINUTES"
    SECONDS = "SECONDS"
    MILLISECONDS = "MILLISECONDS"

    @property
    def milliseconds(self) -> int:
        """Length of the unit in milliseconds."""
        return {"DAYS": 86_400_000, "HOURS": 3_600_000, "MINUTES": 60_000, "SECONDS": 1000}.get(self.value, 1)


class DeletionPolicy(StrEnum):
    """Whether a reload deletes objects removed from broker.xml (``config-delete-queues``)."""

    OFF = "OFF"
    FORCE = "FORCE"


@frozen
class Property:
    """One ``<property key="…" value="…"/>``. Equality ignores the line."""

    key: str
    value: str
    line: int | None = field(default=None, compare=False)


@frozen
class PluginConfiguration:
    """One ``<broker-plugin>``: a policy, and the name of the plugin in address-settings."""

    name: str
    policy: str  # name of the policy's module or entry point
    properties: tuple[Property, ...] = ()
    line: int = 1


@frozen
class PolicyUse:
    """One ``<address-policy>``: a broker-plugin for the addresses of an address-setting."""

    name: str
    properties: tuple[Property, ...] = ()
    enabled: bool = True
    line: int | None = field(default=None, compare=False)


@frozen
class TransformerConfiguration:
    """One ``<transformer>`` of a divert or a bridge: headers that it sets and removes, or a policy."""

    add_headers: tuple[Property, ...] = ()
    remove_headers: tuple[str, ...] = ()
    policy: PolicyUse | None = None


@frozen
class DivertConfiguration:
    """One ``<divert>``: copies messages of one address to others, or moves them with ``exclusive``."""

    name: str = row(
        "name",
        "Name of the divert, unique in the broker. Copies have it in `_AMQ_ORIG_QUEUE`.",
        written_as="attribute, required",
    )
    address: str = row(
        "resourceName",
        "Address whose messages are copied. A wildcard address stands for all addresses that it matches.",
        written_as="element, required",
        default_text="required",
    )
    forwarding_address: tuple[str, ...] = row(
        "addressList",
        "Address that gets the copies, or several with commas between them: each gets one. An address that does "
        "not exist is created as for a SEND.",
        written_as="element, required",
        default_text="required",
    )
    filter: str | None = option(
        None,
        "filter",
        "Selector: only messages that match it are copied.",
        written_as="element, with the attribute `string`",
    )
    exclusive: bool = flag(
        False,
        "Whether a message that is copied does not enter the queues of its own address, and is not copied by the "
        "diverts that are not exclusive. Several exclusive diverts that match one message all copy it.",
    )
    routing_name: str | None = text_or_none(
        "A second name, shown by the HTTP API. None: the name of the divert."
    )
    routing_type: ComponentRoutingType = option(
        ComponentRoutingType.STRIP,
        "componentRoutingType",
        "Routing type of the copies: `ANYCAST` or `MULTICAST`; `PASS` that of the message; `STRIP` none, so that the "
        "forwarding address decides.",
    )
    transformer: TransformerConfiguration | None = section(None, "transformer")
    line: int | None = field(default=None, compare=False)


@frozen
class BridgeConfiguration:
    """One ``<bridge>`` with the connectors it names, in the order in which they are tried."""

    name: str
    connectors: tuple[Connector, ...]
    queue_name: str = row(
        "resourceName", "Queue whose messages are forwarded. It is required.", group="Bridges"
    )
    forwarding_address: str | None = text_or_none(
        "Destination at the remote broker, as that broker writes it: `orders` for stompring and Artemis, "
        "`/queue/orders` or `/exchange/…` for RabbitMQ. None: the name of the address to which the message was sent.",
    )
    filter: str | None = option(
        None,
        "filter",
        "Selector: only messages that match it are forwarded; the others stay in the queue.",
        written_as="element, with the attribute `string`",
    )
    routing_type: ComponentRoutingType = option(
        ComponentRoutingType.PASS,
        "componentRoutingType",
        "The `destination-type` header of forwarded messages: `PASS` that of the message, `STRIP` none, or the one "
        "given.",
    )
    concurrency: int = option(
        1,
        "positiveCount",
        "Connections that forward messages of the queue side by side. With more than one connection messages may "
        "arrive in another order.",
        unit="connections",
    )
    user: str | None = text_or_none("The `login` header of CONNECT. None: none.")
    password: str | None = option(
        None, "secretText", "The `passcode` header of CONNECT. Use a reference, `${file:…}` or `${env:…}`."
    )
    client_id: str | None = text_or_none("The `client-id` header of CONNECT. None: none.")
    use_duplicate_detection: bool = flag(
        True,
        "Whether a forwarded message gets an `_AMQ_DUPL_ID` made of the data directory, the queue and the message, so "
        "that stompring and Artemis drop what is sent again after a lost connection. An id that the client set is "
        "kept in any case.",
    )
    confirmation_window_size: int = option(
        1024 * 1024,
        "positiveBytes",
        "Bytes of messages that were sent and not confirmed by the remote broker; at the limit no more are taken from "
        "the queue. The message that reaches it is the last. One connection has one window.",
    )
    producer_window_size: int = option(
        1024 * 1024,
        "byteLimit",
        "Bytes that may wait in this process because the remote broker does not read its socket. -1: limited by "
        "`confirmation-window-size` only.",
    )
    retry_interval: int = option(
        2000,
        "positiveMilliseconds",
        "Delay before the next attempt to connect, after all connectors were tried.",
    )
    retry_interval_multiplier: float = option(
        1.0, "retryMultiplier", "Factor of that delay for each further attempt."
    )
    max_retry_interval: int = option(
        2000,
        "positiveMilliseconds",
        "Longest delay that the multiplier can reach; it does not shorten a longer `retry-interval`.",
    )
    initial_connect_attempts: int = option(
        -1,
        "positiveOrNoLimit",
        "Attempts for the first connection, after which the bridge has failed until it is started again. One attempt "
        "tries all connectors. -1: no limit.",
        unit="attempts",
    )
    reconnect_attempts: int = option(
        -1,
        "countOrNoLimit",
        "The same after a connection was lost. 0: it is not replaced. -1: no limit.",
        unit="attempts",
    )
    check_period: int = option(
        30_000,
        "positiveMillisecondsOrUnset",
        "Interval of the heart-beats that this broker requests from the remote broker. When none arrives for twice "
        "that time the connection is replaced. -1: no heart-beats from there.",
    )
    connection_ttl: int = option(
        60_000,
        "positiveMillisecondsOrUnset",
        "The bridge sends a heart-beat at least twice in this time, so that the remote broker may close a connection "
        "that is silent for longer. -1: no heart-beats to it.",
    )
    pending_ack_timeout: int = option(
        60_000,
        "milliseconds",
        "How long a bridge that is stopped or changed waits for the confirmation of what it has sent. When the broker "
        "stops, at most 5000.",
    )
    transformer: TransformerConfiguration | None = section(None, "transformer")
    line: int | None = field(default=None, compare=False)


@frozen
class AddressSettings:
    """The settings in force for one address: all matching ``<address-setting>`` entries merged."""

    max_size_bytes: int = option(
        -1,
        "bytesOrNoLimit",
        "Memory that the messages of one address may use before `address-full-policy` applies: their frames, 400 bytes "
        "for each, and 256 for each further queue that holds it. -1: no limit for the single address. 0: with PAGE "
        "every message goes to a page; with the other policies 0 is refused.",
        group="Full addresses",
    )
    max_size_messages: int = option(
        -1,
        "countOrNoLimit",
        "Messages that one address may hold in all its queues before `address-full-policy` applies; paged messages do "
        "not count. The limit that is reached first counts, this one or `max-size-bytes`. -1: no limit.",
        unit="messages",
    )
    address_full_policy: str = option(  # one of `FullPolicy`, or the name of a broker-plugin
        FullPolicy.PAGE,
        "fullPolicy",
        "What happens to a message for a full address, and for any address while `global-max-size` or "
        "`global-max-messages` is used up. `PAGE` writes it to the pages of the address, until they are empty again. "
        "`BLOCK` stops reading the producer's socket until memory is free; the RECEIPT waits. `DROP` discards and "
        "counts the message. `FAIL` answers with an ERROR. The name of a `broker-plugin` asks that plugin. PAGE needs "
        "the store: where `persistence-enabled` is false the default is BLOCK, and PAGE becomes BLOCK, with a WARNING.",
        source="Artemis, and plugins",
    )
    page_size_bytes: int = option(
        10 * 1024 * 1024,
        "fileSize",
        "Size at which a page file is closed and the next one begins. A file is deleted when all its messages are "
        "settled.",
        group="Pages",
    )
    page_limit_bytes: int = option(
        -1,
        "byteLimit",
        "Disk space that the page files of the address may use before `page-full-policy` applies. Page files are then "
        "at most a quarter of the limit, so that consumed messages free space early. Artemis counts whole page files, "
        "and admits nothing if the limit is below `page-size-bytes`. -1: no limit.",
    )
    page_limit_messages: int = option(
        -1,
        "messageLimit",
        "The same limit as a number of paged messages that a queue has not settled; the queue with the most counts. "
        "The limit that is reached first counts. -1: no limit.",
    )
    page_full_policy: PageFullPolicy | None = option(
        None,
        "pageFullPolicy",
        "What happens to a message beyond that limit: `DROP` discards and counts it, `FAIL` answers with an ERROR. "
        "Limit and policy have no effect without each other; the broker logs a warning for a file with only one, as "
        "Artemis does.",
    )
    max_read_page_messages: int = option(
        -1,
        "messageLimit",
        "Messages read from pages that one queue may have in memory, delivering or pending. -1: no limit.",
    )
    max_read_page_bytes: int | None = option(
        None,
        "byteLimit",
        "The same limit in bytes. None: twice `page-size-bytes`. -1: no limit. A consumer with a selector never waits "
        "for other consumers because of it.",
    )
    prefetch_page_messages: int | None = option(
        None, "messageLimit", "How many of those messages may be pending. None: `max-read-page-messages`."
    )
    prefetch_page_bytes: int | None = option(
        None, "byteLimit", "The same limit in bytes. None: `max-read-page-bytes`."
    )
    page_max_cache_size: int = option(
        5,
        "count",
        "Pages of `page-size-bytes` that may stay in memory after a read or write, for consumers that reach them "
        "later. The cache is part of `dispatch-memory`.",
        unit="pages",
    )
    disk_full_policy: DiskFullPolicy = own_option(
        DiskFullPolicy.BLOCK,
        "diskFullPolicy",
        "What happens to a durable message, and to one that has to be paged, while the disk is full "
        "(`max-disk-usage`, `min-disk-free`). `BLOCK` stops reading the producer's socket until there is space; the "
        "RECEIPT waits. `DROP` discards and counts the message. `FAIL` answers with an ERROR. Messages that need no "
        "disk are not affected.",
    )
    retain: Retain = own_option(
        Retain.DURABLE,
        "retain",
        "Which messages of the address are retained, with their acknowledgements: `DURABLE` the durable ones in "
        "durable queues; `ALL` every message in every queue, including those of non-durable subscribers and those "
        "evicted from a ring; `NONE` none. The value at the time of the SEND counts. With `ALL` a non-durable message "
        "is written too: while the disk is full or too slow it waits, is dropped or fails as a durable one does "
        "(`disk-full-policy`). No RECEIPT waits for it, and a restart does not restore it. The setting has no effect "
        "without `journal-retention-directory`.",
        group="Retained messages",
    )
    id_cache_size: int | None = option(
        None,
        "count",
        "How many `_AMQ_DUPL_ID`s the address remembers. None: the value of `<core>`. 0: the header has no effect.",
        unit="ids",
        group="Duplicates of messages",
    )
    address_policy: tuple[PolicyUse, ...] = own_option(
        (),
        "",
        '`<address-policy name="…"/>` applies a `broker-plugin` to the addresses; it may be repeated. '
        '`<property key="…" value="…"/>` in it sets parameters for these addresses; `enabled="false"` removes a policy '
        "of a less specific entry. An address has the policies of all entries that match it, the least specific "
        "first, then its `address-full-policy`.",
        group="Policies",
    )
    dead_letter_address: str | None = option(
        None,
        "optionalName",
        "Destination of a message after `max-delivery-attempts`. None: the message is dropped. An empty element undoes "
        "the value of a less specific entry.",
        group="Dead letters and redelivery",
    )
    auto_create_dead_letter_resources: bool = flag(
        False,
        "Whether the broker creates the dead-letter address, and on it one queue for each address with dead letters, "
        "on first use. The name of the queue is prefix + address + suffix; its filter is on `_AMQ_ORIG_ADDRESS`.",
    )
    dead_letter_queue_prefix: str = option("DLQ.", "text", "Prefix of the name of such a queue.")
    dead_letter_queue_suffix: str = option("", "text", "Suffix of the name of such a queue.")
    send_to_dla_on_no_route: bool = flag(
        False,
        "Whether a message that matches no queue goes to the dead-letter address. False: it is dropped.",
    )
    max_delivery_attempts: int = option(
        10,
        "countOrNoLimit",
        "Deliveries after which a message is a dead letter. -1 and 0: no limit.",
        unit="deliveries",
    )
    redelivery_delay: int = option(
        0, "milliseconds", "Delay before the next delivery after a NACK, a lost connection or DISCONNECT."
    )
    redelivery_delay_multiplier: float = option(
        1.0, "multiplier", "Factor of the delay for each further redelivery."
    )
    redelivery_collision_avoidance_factor: float = option(
        0.0,
        "share",
        "Random change of the delay, up or down, by at most this share, so that many messages do not return at once.",
    )
    max_redelivery_delay: int = option(
        -1,
        "positiveMillisecondsOrUnset",
        "Longest delay that the multiplier can reach. -1: ten times `redelivery-delay`.",
    )
    expiry_address: str | None = option(
        None,
        "optionalName",
        "Destination of an expired message. None: the message is dropped. An empty element undoes the value of a less "
        "specific entry.",
        group="Expiry",
    )
    auto_create_expiry_resources: bool = flag(
        False, "As `auto-create-dead-letter-resources`, for expired messages."
    )
    expiry_queue_prefix: str = option("EXP.", "text", "Prefix of the name of such a queue.")
    expiry_queue_suffix: str = option("", "text", "Suffix of the name of such a queue.")
    no_expiry: bool = flag(False, "Messages never expire; the `expires` header is ignored.")
    expiry_delay: int = option(
        -1, "millisecondsOrUnset", "Lifetime of messages without an `expires` header. -1: unlimited."
    )
    min_expiry_delay: int = option(
        -1, "millisecondsOrUnset", "Shortest lifetime; a shorter one is raised to it. -1: none."
    )
    max_expiry_delay: int = option(
        -1, "millisecondsOrUnset", "Longest lifetime; a longer or unlimited one is lowered to it. -1: none."
    )
    min_scheduled_period: int = own_option(
        100,
        "positiveMilliseconds",
        "Shortest `AMQ_SCHEDULED_PERIOD` of a message with repeats; a SEND with a shorter one is refused. A message "
        "that comes again every millisecond would need no client to fill the address.",
    )
    auto_create_addresses: bool = flag(
        True,
        "Whether the broker creates an address when a client first uses it.",
        group="Creation and deletion",
    )
    auto_create_queues: bool = flag(
        True, "Whether the broker creates a queue when a client first sends or subscribes to it."
    )
    auto_delete_addresses: bool = flag(
        True,
        "Whether the broker deletes an auto-created address when its last queue is deleted, or, if it never had a "
        "queue, after 30 to 60 s without a SEND.",
    )
    auto_delete_addresses_delay: int = option(0, "milliseconds", "Delay of that deletion.")
    auto_delete_queues: bool = flag(
        True,
        "Whether the broker deletes an auto-created queue that was used, has no consumer, and holds at most "
        "`auto-delete-queues-message-count` messages.",
    )
    auto_delete_queues_delay: int = option(
        0,
        "milliseconds",
        "Time from the last consumer's end to the deletion. The deletion is exact, by timer, without sweeps.",
    )
    auto_delete_queues_message_count: int = option(
        0,
        "countOrNoLimit",
        "Messages that a queue may hold and still be deleted. -1: any number.",
        unit="messages",
    )
    auto_delete_queues_skip_usage_check: bool = flag(
        False,
        "Whether a queue that was never used may be deleted too; the delay then counts from its creation.",
    )
    auto_delete_created_queues: bool = flag(
        False,
        "Whether all this also applies to queues created by the HTTP interface or by broker.xml.",
    )
    config_delete_queues: DeletionPolicy = option(
        DeletionPolicy.OFF,
        "deletionPolicy",
        "Whether a reload deletes queues that were removed from broker.xml. `FORCE` deletes their messages too.",
    )
    config_delete_addresses: DeletionPolicy = option(
        DeletionPolicy.OFF, "deletionPolicy", "The same for addresses."
    )
    config_delete_diverts: DeletionPolicy = option(
        DeletionPolicy.OFF,
        "deletionPolicy",
        "The same for diverts of the address. With `OFF` a divert that was removed from broker.xml copies messages "
        "until the next start.",
    )
    default_address_routing_type: RoutingType = option(
        RoutingType.MULTICAST,
        "routingType",
        "Routing type of an address that is created without one. The shipped file sets ANYCAST.",
    )
    default_queue_routing_type: RoutingType = option(
        RoutingType.MULTICAST,
        "routingType",
        "Routing type of a queue that is created without one. The shipped file sets ANYCAST.",
    )
    retroactive_message_count: int = option(
        0,
        "count",
        "How many messages of the address are kept for queues that are created later: the last so many of each routing "
        "type. A new queue gets copies of those that match its filter, in the order they were sent. They use memory, "
        "outside of the limits of the address. 0: none.",
        unit="messages",
        group="Retroactive addresses",
    )
    default_ring_size: int = option(
        -1,
        "ringSize",
        "`ring-size` of queues that do not set it, those in `broker.xml` among them. Read when a queue is created.",
        group="Defaults of queues",
    )
    ring_policy: RingPolicy = own_option(
        RingPolicy.DISCARD,
        "ringPolicy",
        "`ring-policy` of queues that do not set it: what happens to a message evicted from a full ring. `DISCARD` "
        "drops it, `DEAD_LETTER` moves it to the dead-letter address. Both count it as replaced.",
    )
    ring_counts_paged: bool = flag(
        False, "`ring-counts-paged` of queues that do not set it.", source=STOMPRING
    )
    default_max_consumers: int = option(
        -1, "countOrNoLimit", "`max-consumers` of queues that do not set it.", unit="consumers"
    )
    default_purge_on_no_consumers: bool = flag(
        False,
        "`purge-on-no-consumers` of queues that do not set it and that `broker.xml` does not declare.",
    )
    default_exclusive_queue: bool = flag(False, "`exclusive` of queues that do not set it.")
    default_non_destructive: bool = flag(False, "`non-destructive` of queues that do not set it.")
    default_last_value_queue: bool = flag(False, "`last-value` of queues that do not set it.")
    default_last_value_key: str | None = option(
        None,
        "keyHeader",
        "`last-value-key` of queues that do not set it, subscriptions among them. An empty element undoes the value of "
        "a less specific entry.",
    )
    default_consumers_before_dispatch: int = option(
        0, "count", "`consumers-before-dispatch` of queues that do not set it.", unit="consumers"
    )
    default_delay_before_dispatch: int = option(
        -1, "millisecondsOrUnset", "`delay-before-dispatch` of queues that do not set it."
    )
    default_group_buckets: int = option(-1, "groupBuckets", "`group-buckets` of queues that do not set it.")
    default_group_rebalance: bool = flag(False, "`group-rebalance` of queues that do not set it.")
    default_group_rebalance_pause_dispatch: bool = flag(
        False, "`group-rebalance-pause-dispatch` of queues that do not set it."
    )
    default_group_first_key: str | None = option(
        None,
        "messageHeader",
        "`group-first-key` of queues that do not set it. An empty element undoes the value of a less specific entry.",
    )
    slow_consumer_threshold: int = option(
        -1,
        "countOrNoLimit",
        "Messages that a consumer has to settle in the time unit below; with fewer it is slow. 0: only a consumer that "
        "settled none is slow. -1: disabled.",
        unit="messages",
        group="Slow consumers",
    )
    slow_consumer_threshold_measurement_unit: ThresholdUnit = option(
        ThresholdUnit.MESSAGES_PER_SECOND, "thresholdUnit", "Time unit of the threshold."
    )
    slow_consumer_policy: SlowConsumerPolicy = option(
        SlowConsumerPolicy.NOTIFY,
        "slowConsumerPolicy",
        "What happens to a slow consumer: `NOTIFY` reports it in the log, in metrics and to subscribers of "
        "`activemq.notifications`; `KILL` closes its connection with an ERROR and requeues its messages.",
    )
    slow_consumer_check_period: int = option(  # seconds, as in Artemis
        5, "positiveSeconds", "Interval of the check."
    )
    management_browse_page_size: int = option(
        200,
        "positiveCount",
        "Messages on one page of `GET /api/v1/queues/{name}/messages` where the request sets no size.",
        unit="messages",
        group="Management",
    )
    enable_ingress_timestamp: bool = flag(
        False,
        "Whether messages get the time of their arrival in the broker as headers: see "
        "[protocol.md](protocol.md#message).",
    )
    enable_metrics: bool = flag(True, "Whether `/metrics` includes the address and its queues.")

    @property
    def page_file_bytes(self) -> int:
        """Size of a page file: at most a quarter of ``page-limit-bytes``, so that consumed files free space early."""
        if self.page_full_policy is None or self.page_limit_bytes < 0:
            return self.page_size_bytes
        return min(self.page_size_bytes, max(self.page_limit_bytes // 4, 1024))

    @property
    def read_bytes(self) -> int:
        """``max-read-page-bytes`` in force: by default the size of two pages, -1 for no limit."""
        given = self.max_read_page_bytes
        return 2 * self.page_size_bytes if given is None else given

    @property
    def prefetch_messages(self) -> int:
        """``prefetch-page-messages`` in force: by default ``max-read-page-messages``."""
        given = self.prefetch_page_messages
        return self.max_read_page_messages if given is None else given

    @property
    def prefetch_bytes(self) -> int:
        """``prefetch-page-bytes`` in force: by default ``max-read-page-bytes``."""
        given = self.prefetch_page_bytes
        return self.read_bytes if given is None else given


@frozen
class AddressSettingEntry:
    """One ``<address-setting match="…">``: only the values that it sets, by the field names of `AddressSettings`."""

    match: str
    values: Mapping[str, object] = field(default_factory=dict)
    line: int | None = None


@frozen
class QueueConfiguration:
    """One queue as declared in broker.xml, in a POST, or by the broker for a client.

    ``None`` means "not set": a new queue takes the value of the address-setting that the row names (``inherits``).
    """

    COLUMNS: ClassVar[Mapping[str, str]] = {"written_as": "attribute", "http": CHANGEABLE}

    name: str = row(
        "resourceName",
        "Name of the queue, unique in the broker.",
        written_as="attribute, required",
        http=NOT_IN_HTTP,
    )
    address: str
    routing_type: RoutingType
    durable: bool = flag(
        True,
        "Whether the queue survives a restart with its durable messages. Where `persistence-enabled` is false only "
        "broker.xml restores it, empty.",
        http=CREATE_ONLY,
        written_as="element",
    )
    filter: str | None = option(
        None,
        "filter",
        "Selector: only messages that match it are routed to the queue.",
        written_as="element, with the attribute `string`",
    )
    ring_size: int | None = option(
        None,
        "ringSize",
        "Pending messages that the queue may hold; the next message evicts the oldest. -1: no ring. Messages that are "
        "delivering or scheduled do not count. 0 is refused.",
        inherits="default_ring_size",
    )
    ring_policy: RingPolicy | None = own_option(
        None,
        "ringPolicy",
        "What happens to the evicted message: `DISCARD` drops it, `DEAD_LETTER` moves it to the dead-letter address.",
        inherits="ring_policy",
    )
    ring_counts_paged: bool | None = flag(
        None,
        "Whether paged messages count too, so that the ring is exact. False, as in Artemis: only messages in memory "
        "count.",
        source=STOMPRING,
        inherits="ring_counts_paged",
    )
    max_consumers: int | None = option(
        None,
        "countOrNoLimit",
        "Consumers that the queue may have at once. -1: any number.",
        unit="consumers",
        inherits="default_max_consumers",
    )
    purge_on_no_consumers: bool | None = flag(
        None,
        "The queue accepts messages only while it has a consumer, and is purged when the last one leaves.",
        inherits="default_purge_on_no_consumers",
    )
    exclusive: bool | None = flag(
        None,
        "One consumer receives all messages; when it unsubscribes another consumer replaces it.",
        inherits="default_exclusive_queue",
    )
    non_destructive: bool | None = flag(
        None,
        "Acknowledged messages stay in the queue; each new consumer receives all of them.",
        inherits="default_non_destructive",
        http=CREATE_ONLY,
    )
    last_value: bool | None = flag(
        None,
        "The queue has one message for each key: a new message replaces the pending one with its key. `last-value-key` "
        "implies it.",
        inherits="default_last_value_queue",
        http=CREATE_ONLY,
    )
    last_value_key: str | None = option(
        None,
        "keyHeader",
        "Header whose value is the key. Without it, and for messages that lack that header: `_AMQ_LVQ_NAME`. A message "
        "with neither replaces nothing.",
        inherits="default_last_value_key",
        http=CREATE_ONLY,
    )
    consumers_before_dispatch: int | None = option(
        None,
        "count",
        "Consumers that the queue needs before it delivers the first message.",
        unit="consumers",
        inherits="default_consumers_before_dispatch",
    )
    delay_before_dispatch: int | None = option(
        None,
        "millisecondsOrUnset",
        "How long the queue waits for them, from the first consumer on. -1: without limit.",
        inherits="default_delay_before_dispatch",
    )
    group_buckets: int | None = option(
        None,
        "groupBuckets",
        "Buckets into which message groups are put by a hash of their ids; a bucket, not a group, has an owner among "
        "the consumers. -1: each group has an owner, which takes memory for each group. 0: groups have no effect.",
        inherits="default_group_buckets",
    )
    group_rebalance: bool | None = flag(
        None,
        "Whether a new consumer unpins all message groups, so that it gets a share of them.",
        inherits="default_group_rebalance",
    )
    group_rebalance_pause_dispatch: bool | None = flag(
        None,
        "Whether the queue then delivers nothing until its consumers have settled what is in delivery, so that no "
        "group is with two consumers at once.",
        inherits="default_group_rebalance_pause_dispatch",
    )
    group_first_key: str | None = option(
        None,
        "messageHeader",
        "Name of a header: the first message of a group that a consumer receives has it, with the value true. On an "
        "exclusive queue the first message that a consumer receives has it.",
        inherits="default_group_first_key",
    )
    enabled: bool = flag(True, "False: no message is routed to the queue.")
    user: str | None = text_or_none("Owner of the queue.", written_as="attribute or element")
    # set by the broker, never by broker.xml
    auto_created: bool = False
    auto_delete: bool = False
    temporary: bool = False
    configured: bool = False


def queue_defaults() -> dict[str, object]:
    """The value of each queue option that neither the queue nor an address-setting sets, by the name of its field."""
    settings = AddressSettings()
    return {
        each.name: getattr(settings, each.inherits) if each.inherits else each.default
        for each in options_of(QueueConfiguration)
    }


@frozen
class AddressConfiguration:
    """One ``<address>`` with its queues."""

    name: str
    routing_types: frozenset[RoutingType]
    queues: tuple[QueueConfiguration, ...] = ()


@frozen
class WildcardSyntax:
    """``<wildcard-addresses>``: the delimiter and the wildcards of addresses."""

    delimiter: str = option(".", "character", "Character between two words of an address.")
    any_words: str = option("#", "character", "Word that stands for any number of words, including none.")
    single_word: str = option("*", "character", "Word that stands for exactly one word.")
    routing_enabled: bool = flag(
        True,
        "Whether a queue on a wildcard address receives the messages of all matching addresses, and whether SUBSCRIBE "
        "may name one. Address-settings have wildcards in any case.",
    )


#: The shortest ``takeover-timeout`` in ms. An active broker stops deliveries 0.5 s before the timeout expires, and
#: writes a beat every 0.5 s: with a shorter timeout one late beat would interrupt the deliveries.
MIN_TAKEOVER_TIMEOUT = 2000


@frozen
class ReplicatedLogSettings:
    """``<ha-policy><replicated-log …/>``: the engine that stores the data directory, and how to reach it.

    As read from broker.xml, ``broker`` is never empty, the paths of files start at the directory of broker.xml, and
    ``password`` is a `Secret`: `revealed` returns its text.
    """

    COLUMNS: ClassVar[Mapping[str, str]] = {"written_as": "attribute", "source": STOMPRING}

    url: str = row(
        "logUrl",
        "The engine. NATS JetStream: `nats://host:4222`, several nodes with commas, `tls://` with TLS. PostgreSQL: "
        "`postgresql://host:5432/database`, several hosts with commas. It has no user and no password in it.",
        written_as="attribute, required",
    )
    stream: str = row(
        "streamName",
        "Name of the log. Each pair of active and standby has a log of its own; `stompring ha init` creates "
        "it.",
        written_as="attribute, required",
    )
    broker: str = option(
        "",
        "memberName",
        "Name of this broker among those of the log, which must differ between them.",
        default_text="`name`, `@` and the name of the machine",
    )
    user: str | None = text_or_none("User who logs in to the engine.")
    password: str | None = option(
        None,
        "secretText",
        "The user's password, best as `${file:PATH}` or `${env:NAME}`. It is shown nowhere.",
    )
    credentials: str | None = text_or_none(
        "File of credentials of NATS (`.creds`), in place of user and password. A relative path starts at the "
        "directory of broker.xml, here and below.",
    )
    ca: str | None = text_or_none(
        "PEM file of the CAs that sign the engine's certificates. None: those of the system."
    )
    certificate: str | None = text_or_none(
        "PEM file of the certificate that this broker shows to the engine."
    )
    key: str | None = text_or_none("PEM file of the private key of `certificate`. None: it is in that file.")
    monitor: str | None = option(
        None,
        "monitorUrl",
        "Monitoring ports of the nodes of NATS, where the broker reads whether every node syncs before it confirms "
        "(`sync_interval: always`): URLs `http://host:8222` with commas.",
        default_text="port 8222 of each node",
    )
    takeover_timeout: int = option(
        3000,
        "takeoverTimeout",
        "Silence of the active broker after which a standby takes over. Silence counts only while the engine answers. "
        "The active broker delivers nothing from 0.5 s before that on, at the latest after 3 s. It must be the same "
        "for all brokers of the log.",
    )
    confirmed_sync: bool = flag(
        False,
        "Confirms that every node of the engine syncs an entry to its disk before it confirms it, where the broker "
        "cannot read that from the engine; for PostgreSQL also that its storage has several copies.",
    )


@frozen
class Retention:
    """``<journal-retention-directory>``: where consumed journal and page files are retained, how long and how much."""

    directory: str
    period: int = option(  # ms in this field, in any unit in the file
        -1,
        "countOrNoLimit",
        "How long a file is retained, from its move to the directory. -1: no limit.",
        unit="`unit`",
        written_as="attribute",
    )
    storage_limit: int = option(
        -1,
        "byteLimit",
        "Disk space of all retained files; beyond it the oldest are deleted. -1: no limit.",
        written_as="attribute",
    )
    sample_period: int = own_option(
        10_000,
        "positiveMillisecondsOrUnset",
        "Interval at which the counters of the queues are recorded there. -1: never.",
        written_as="attribute",
    )
    unit: TimeUnit = field(
        default=TimeUnit.DAYS,
        compare=False,
        metadata={_KEY: ("timeUnit", "Unit of `period`.", {"written_as": "attribute"})},
    )


class IgnoredSetting(NamedTuple):
    """A setting of Artemis that the file has and that has no effect here."""

    line: int
    name: str  # for example "journal-type", or "useEpoll of acceptor"
    reason: str
    is_warning: bool = False  # whether the warnings of the file have this setting, too


@frozen
class BrokerConfiguration:
    """A whole broker.xml."""

    name: str = option(
        "stompring",
        "name",
        "Name of the broker in logs, metrics and `GET /api/v1/broker`.",
        source=ARTEMIS_OTHER_DEFAULT,
        group="Elements of core",
    )
    file: str | None = None
    files: tuple[str, ...] = field(default=(), compare=False)  # the file and its included files
    document: Any = field(default=None, compare=False, repr=False)  # XML tree of the file, for `run_time`
    warnings: tuple[str, ...] = ()  # settings that are valid and have no effect, with file and line
    ignored: tuple[IgnoredSetting, ...] = ()  # settings of Artemis without effect here
    guest: Guest | None = None  # guest of Artemis's login.config
    login_modules: tuple[AnyLogin, ...] = section((), "login-modules")
    notified: frozenset[str] = (
        frozenset()
    )  # notifications that a plugin of Artemis enables: MESSAGE_DELIVERED, MESSAGE_EXPIRED
    security_enabled: bool = flag(
        True,
        "Whether clients need a login and a passcode. False: every acceptor must listen on a loopback address.",
        reloadable=False,
    )
    users_file: str | None = own_option(
        None,
        "name",
        "File of user names and password hashes, maintained by `stompring user` and the HTTP API. A relative path "
        "starts at the directory of broker.xml. Without the element, and with security enabled: `users.properties` in "
        "that directory; if it does not exist, the file that Artemis's `login.config` names there, or "
        "`artemis-users.properties`: see [security.md](security.md#users-of-artemis).",
        reloadable=False,
    )
    roles_file: str | None = text_or_none(
        "File of roles, `role = user, user` per line, maintained by `stompring user` and the HTTP API. Paths as above. "
        "Without the element, and with security enabled: `roles.properties`, or with the users of Artemis its file. If "
        "the file does not exist no user has a role.",
        source="stompring, Artemis's `artemis-roles.properties`",
        reloadable=False,
    )
    certificate_users_file: str | None = text_or_none(
        "File that maps client certificates to users, `user = CN=ada,O=Company` per line (subject as in RFC 4514). A "
        "client with such a certificate needs no passcode. None: clients cannot log in with a certificate.",
        source="stompring, Artemis's `cert-users.properties`",
        reloadable=False,
    )
    populate_validated_user: bool = flag(
        False,
        "Whether messages get the user who sent them as `JMSXUserID`, which no client can set. Where security is "
        "disabled no user is known to be true, and the header is not set.",
    )
    security_invalidation_interval: int = option(
        10_000,
        "milliseconds",
        "How long a verified login that is not used stays valid without another check (a changed users file ends it at "
        "once), and how often the files of users and roles are checked for changes while no client logs in (at least "
        "once a second). 0: every login is checked.",
        reloadable=False,
    )
    connection_ttl_override: int = option(
        -1,
        "positiveMillisecondsOrUnset",
        "How long a connection without heart-beats may be silent, on acceptors without `connectionTtl`. -1: without "
        "limit; in Artemis -1 stands for 60000.",
        source="Artemis, other meaning of -1",
    )
    configuration_file_refresh_period: int = option(
        -1,
        "millisecondsOrUnset",
        "How often broker.xml and the files that it includes are checked for changes; changed files are reloaded, as "
        "by SIGHUP. A fault in them is logged, and the present configuration stays in force. -1 and 0: never. Artemis: "
        "5000.",
        source=ARTEMIS_OTHER_DEFAULT,
    )
    literal_match_markers: str | None = option(
        None,
        "markers",
        "Two characters, as `()`: an `address-setting` whose match is between them is for the one address of that "
        "name, wildcard characters included.",
        reloadable=False,
    )
    wildcard: WildcardSyntax = section(WildcardSyntax(), "wildcard-addresses", reloadable=False)
    management_address: str = option(
        "activemq.management",
        "name",
        "Address of management by messages: a SEND to it is a request, which needs `manage` on it, and its reply goes "
        "to its `reply-to`. Nothing is stored there. The permissions of the HTTP API stay those on "
        "`activemq.management`.",
        group="Management by messages",
    )
    management_notification_address: str = option(
        "activemq.notifications",
        "name",
        "Address of notifications: messages about connections, consumers, queues, addresses and limits, for the "
        "clients that subscribe to it.",
    )
    management_message_rbac: bool = flag(
        False,
        "Whether management by messages also checks `view` or `edit` on the address of each operation: "
        "`mops.queue.orders.pause` and the like.",
    )
    management_rbac_prefix: str = option(
        "mops", "name", "First word of the addresses of `management-message-rbac`."
    )
    view_permission_method_match_pattern: str = option(
        "^(get|is|count|list|browse|query).*$",
        "regularExpression",
        "Operations whose name matches need `view` under `management-message-rbac`; all others `edit`. A regular "
        "expression.",
    )
    suppress_session_notifications: bool = flag(
        False,
        "Whether to send no notifications of the types `SESSION_CREATED` and `SESSION_CLOSED`.",
    )
    persistence_enabled: bool = flag(
        True,
        "Whether the broker writes durable messages to disk and pages full addresses. False: all messages are in "
        "memory, and lost when the broker stops.",
        group="The store",
    )
    journal_directory: str = option(
        "data/journal",
        "name",
        "Directory of the journal: all durable messages in memory, and their acknowledgements. Its parent is the data "
        "directory, with `broker.lock`, `schema-version` and `identity`.",
    )
    journal_file_size: int = option(
        10 * 1024 * 1024, "fileSize", "Size at which a journal file is closed and the next one begins."
    )
    journal_buffer_timeout: int = option(  # nanoseconds, as in Artemis
        0,
        "nanoseconds",
        "How long the writer collects records before it writes and syncs. 0: it writes at once; records that arrive "
        "during a write form the next batch, so that batches grow with the load. Artemis: 3333333 for plain files.",
        source=ARTEMIS_OTHER_DEFAULT,
    )
    journal_sync_transactional: bool = flag(
        True,
        "Whether the RECEIPT of a COMMIT waits until its messages are synced. False: they are written a moment later.",
    )
    journal_sync_non_transactional: bool = flag(
        True,
        "The same for durable messages, and acknowledgements of durable messages, outside of transactions.",
    )
    journal_compact_min_files: int = option(
        10,
        "count",
        "Compaction starts only when the journal has this many files. 0: never; one unconsumed message then retains "
        "all later files.",
        unit="files",
    )
    journal_compact_percentage: int = option(
        30,
        "percentage",
        "Compaction starts when the share of live bytes is below this. It appends live messages to the end of the "
        "journal in small steps and deletes the old files. 0: never.",
    )
    journal_retention_directory: Retention | None = text_or_none(
        "Directory to which consumed journal and page files are moved, so that messages of the past can be read "
        "later. None: the files are deleted. Its attributes are below.",
        written_as="element with attributes",
    )
    paging_directory: str = option(
        "data/paging",
        "name",
        "Directory of the pages, with a directory for each address that pages. It may be on another disk than the "
        "journal.",
    )
    page_sync_timeout: int | None = option(  # nanoseconds
        None,
        "nanoseconds",
        "As `journal-buffer-timeout`, for messages that are written to pages only. None: the same time.",
    )
    purge_page_folders: bool = flag(
        True,
        "Whether the page directory of an address is removed when its pages are empty. Artemis: false.",
        source=ARTEMIS_OTHER_DEFAULT,
    )
    id_cache_size: int = option(
        20_000,
        "count",
        "How many `_AMQ_DUPL_ID`s each address remembers, the latest ones: see [Duplicates](protocol.md#duplicates). "
        "An id uses about 120 bytes of memory and its own length. 0: the header has no effect. A reload with a lower "
        "value drops the oldest ids at once.",
        unit="ids",
        group="Duplicates",
    )
    persist_id_cache: bool = flag(
        True,
        "Whether the ids of durable messages are written with their messages and restored at a restart. False: none is "
        "written, and those on disk are ignored. Ids of non-durable messages are never written.",
    )
    global_max_size: int = option(
        -1,
        "byteLimit",
        "Memory that the messages of all addresses may use together. The memory is that of the machine, or the limit "
        "of the process's control group (containers, `MemoryMax` of systemd); the broker logs it at the start. -1: no "
        "limit. Artemis: half of the JVM's memory, which -1 stands for too.",
        source=ARTEMIS_OTHER_DEFAULT,
        group="Memory and disk",
        default_text="a quarter of the memory",
    )
    global_max_messages: int = option(
        -1,
        "messageLimit",
        "The same limit as a number of messages; it needs no `global-max-size`. -1: no limit. Artemis ignores it "
        "where `global-max-size` is off.",
    )
    dispatch_memory: int = own_option(
        16 * 1024 * 1024,
        "cacheSize",
        "Memory for messages read back from pages, in addition to `global-max-size`. Messages that are delivering have "
        "priority; caches use the remainder.",
        default_text="a quarter of `global-max-size`, at least 16MB",
    )
    max_disk_usage: int = option(
        90,
        "percentageLimit",
        "Usage of the disks of journal and pages above which `disk-full-policy` applies. The remainder is for "
        "acknowledgements, which are always written. -1: no limit.",
    )
    min_disk_free: int = option(
        -1,
        "bytesOrNoLimit",
        "The same limit as free bytes. Where it is set `max-disk-usage` is ignored. -1: not set.",
    )
    disk_scan_period: int = option(
        5000, "positiveMilliseconds", "Interval at which the disk usage is checked."
    )
    global_max_connections: int | None = own_option(
        None,
        "positiveOrNoLimit",
        "STOMP connections of all acceptors together. None: the limit follows from file descriptors and memory, see "
        "[Limits](#limits). -1: no limit.",
        unit="connections",
        group="Limits of the broker",
    )
    global_max_queues: int = own_option(
        100_000,
        "positiveOrNoLimit",
        "Queues beyond which clients and the HTTP interface cannot create more. -1: no limit.",
        unit="queues",
    )
    global_max_addresses: int = own_option(
        100_000, "positiveOrNoLimit", "The same for addresses.", unit="addresses"
    )
    global_max_wildcard_words: int = own_option(
        10_000,
        "positiveOrNoLimit",
        "Words after the first wildcard in all wildcard addresses together: two in `orders.#.eu.*`, none in "
        "`orders.eu.#`. Words that several addresses share at their beginning count once. -1: no limit.",
        unit="words",
    )
    global_max_transaction_size: int = own_option(
        -1,
        "byteLimit",
        "Memory that the messages of all open transactions may use together, in addition to `global-max-size`. -1: no "
        "limit.",
        default_text="a quarter of `global-max-size`, at least 16MB",
    )
    global_max_unfinished_size: int = own_option(
        -1,
        "byteLimit",
        "Memory that unfinished frames of all connections, and unfinished bodies of HTTP, may use together, in "
        "addition to `global-max-size`. Beyond it the connection that holds most is refused; one that alone holds any "
        "may go on up to `maxBodyLength`. The first 64 KiB of a connection are not counted. -1: no limit.",
        default_text="a quarter of `global-max-size`, at least 16MB",
    )
    global_max_subscription_size: int = own_option(
        -1,
        "byteLimit",
        "Memory that all subscriptions may use together, with their selectors and the queues of topics, in addition to "
        "`global-max-size`. A subscription counts 3 KiB, its selector 2 KiB and 40 times its length. -1: no limit.",
        default_text="a quarter of `global-max-size`, at least 16MB",
    )
    resource_limits: tuple[ResourceLimit, ...] = section((), "resource-limit-settings")
    stomp_acceptors: tuple[StompAcceptor, ...] = section((), "acceptors", reloadable=False)
    http_acceptors: tuple[HttpAcceptor, ...] = section((), "acceptors", reloadable=False)
    plugins: tuple[PluginConfiguration, ...] = section((), "broker-plugins")
    bridges: tuple[BridgeConfiguration, ...] = section((), "bridges")
    security_settings: tuple[SecuritySettingEntry, ...] = section((), "security-settings")
    address_settings: tuple[AddressSettingEntry, ...] = section((), "address-settings")
    addresses: tuple[AddressConfiguration, ...] = section((), "addresses")
    diverts: tuple[DivertConfiguration, ...] = section((), "diverts")
    replicated_log: ReplicatedLogSettings | None = section(None, "ha-policy", reloadable=False)

    @property
    def uses_users_file(self) -> bool:
        """Whether clients can log in by a password in the users file."""
        modules = self.login_modules
        return not modules or any(
            isinstance(each, LoginModule) and each.kind == "properties" for each in modules
        )

    @property
    def transformers(self) -> tuple[TransformerConfiguration, ...]:
        """The transformers of all diverts and bridges."""
        declared = *(one.transformer for one in self.diverts), *(one.transformer for one in self.bridges)
        return tuple(each for each in declared if each is not None)
