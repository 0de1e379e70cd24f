"""Compatibility with Artemis: its settings that this broker does not support, and the users of its instances.

A setting of Artemis's schema is supported, has no effect here, or is refused with advice. The supported settings are
the names in schema.xsd and the parameters in `settings.urls`; every other setting has a row here, under its parent
element. A row of an element with children applies to all of its contents. Settings that only tune Artemis's own machine
have no effect: the broker accepts and lists them. It refuses settings that change permissions, routing or the stored
messages, except for values that change nothing. docs/artemis.md shows the whole table.

Names are those of Artemis 2.44: its schema, its ``TransportConstants`` and the setters of its protocol managers, and
a few of earlier versions.

`find_logins` reads ``login.config`` beside broker.xml: the files of users, and the directories (LDAPLoginModule).
Artemis's ``create`` writes a PropertiesLoginModule into it, and a GuestLoginModule for ``--allow-anonymous``. Its
default entry is ``activemq``; ``bootstrap.xml`` can name another one.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from stompring.errors import ConfigurationError, Line

from .document import Secret, Values, revealed
from .model import (
    AnyLogin,
    Guest,
    IgnoredSetting,
    LdapAuthentication,
    LdapLogin,
    LoginFlag,
    LoginModule,
    options_of,
)
from .value_types import VALUE_TYPES


class Support(StrEnum):
    """Treatment of a setting of Artemis."""

    SUPPORTED = "supported"
    NO_EFFECT = "no effect"
    REFUSED = "refused"


class Row(NamedTuple):
    """A setting of Artemis that this broker does not support."""

    support: Support
    reason: str = ""  # why the setting has no effect, or the advice in its error (empty: remove the setting)
    neutral: str = ""  # regular expression: values of a refused setting that are accepted without effect
    refused_with: frozenset[str] = frozenset()  # child elements with which a setting is refused
    advice: str = ""  # the advice in the error, if it is not ``reason``
    is_warning: bool = False  # reported with a WARNING, not in the list of settings without effect

    def has_no_effect(self, value: str, inside: Iterable[str] = ()) -> bool:
        """Whether the setting is accepted with this value and with the child elements ``inside``."""
        if self.support is Support.NO_EFFECT:
            return self.refused_with.isdisjoint(inside)
        return bool(self.neutral) and re.fullmatch(self.neutral, value, re.IGNORECASE) is not None


Rows = Mapping[str, Row]


def not_supported(what: str, row: Row) -> str:
    """The error for a refused setting."""
    advice = row.advice or row.reason
    ending = f": {advice}" if advice else "; remove it"
    return f"{what} is an Artemis setting without support in stompring{ending}"


def ignored_names(ignored: Iterable[IgnoredSetting]) -> list[str]:
    """The names of the settings without effect, each once, except settings with a WARNING of their own."""
    return list(dict.fromkeys(each.name for each in ignored if not each.is_warning))


def describe_ignored(ignored: Iterable[IgnoredSetting]) -> str | None:
    """Return ``2 settings have no effect here: journal-type, useEpoll of acceptor``; None if there are no settings."""
    names = ignored_names(ignored)
    if not names:
        return None
    verb = "settings have" if len(names) > 1 else "setting has"
    return f"{len(names)} {verb} no effect here: {', '.join(names)}"


def no_effect(names: str, reason: str) -> dict[str, Row]:
    """Return rows of settings without effect. Blanks separate the ``names``."""
    return dict.fromkeys(names.split(), Row(Support.NO_EFFECT, reason))


def refused(names: str, advice: str = "", neutral: str = "") -> dict[str, Row]:
    """Return rows of refused settings. ``neutral``: regular expression of values that are accepted without effect."""
    return dict.fromkeys(names.split(), Row(Support.REFUSED, advice, neutral))


def _table(*rows: Mapping[str, Row]) -> Rows:
    table: dict[str, Row] = {}
    for each in rows:
        assert not set(table) & set(each), f"two rows: {set(table) & set(each)}"
        table |= each
    return table


FILES_ON_DEMAND = "journal files are created on demand and deleted when all their records are consumed"
ONE_WRITER = "one thread writes the journal, in batches"
ONE_REACTOR = "one thread serves all connections"
EXACT_TIMERS = "timers are exact: nothing is scanned for what is due"
NO_JMX = "there is no JMX: management is over HTTP, with an http:// acceptor"
METRICS = "metrics are always on, at /metrics of an http:// acceptor"
NO_CLUSTER = "this broker is alone: nothing is forwarded to other brokers"
CLUSTER_ONLY = "only a cluster uses it"
AMQP_ONLY, MQTT_ONLY, OPENWIRE_ONLY = (
    f"only {protocol} uses it: this broker speaks STOMP" for protocol in ("AMQP", "MQTT", "OpenWire")
)
CORE_CLIENTS = "only clients of the core protocol use it: this broker speaks STOMP"
MIRRORS_ONLY = "only mirrors use it; <broker-connections> is refused"
NETWORK_CHECK = "a broker that is alone runs on without the network"
AUTO_CREATE = "use auto-create-queues and auto-create-addresses"
AUTO_DELETE = "use auto-delete-queues and auto-delete-addresses"
MEMORY = "memory is a metric, at /metrics of an http:// acceptor; global-max-size limits it"
JAVA_TLS = "TLS is by OpenSSL"
SOCKETS = "sockets use the defaults of the operating system"
HTTP_TUNNEL = "the tunnel of the core protocol through HTTP; STOMP has WebSocket"
TRUST = "client certificates must be signed by a CA in trustStorePath; remove it"
PLUGINS = "use a <broker-plugin> (docs/plugins.md)"
PASSWORDS = "write the password plainly, or as ${env:NAME} or ${file:PATH}"

CORE = _table(
    # the journal
    no_effect("create-bindings-dir create-journal-dir", "missing directories are always created"),
    no_effect("journal-min-files journal-pool-files journal-max-atticfiles", FILES_ON_DEMAND),
    no_effect("journal-max-io journal-buffer-size journal-device-block-size", ONE_WRITER),
    no_effect("journal-type", "the only journal type is plain files with one sync per batch"),
    no_effect(
        "journal-datasync",
        "every write is synced; journal-sync-transactional and journal-sync-non-transactional set whether a RECEIPT "
        "waits for it",
    ),
    no_effect("journal-file-open-timeout", "there is no timeout for opening files"),
    no_effect(
        "journal-lock-acquisition-timeout node-manager-lock-directory",
        "the lock is the file broker.lock beside the journal directory; a second broker fails at once",
    ),
    no_effect("bindings-directory", "addresses and queues are stored in the journal"),
    no_effect(
        "large-messages-directory large-message-sync",
        "messages of any size are stored in the journal and in pages, and synced with it",
    ),
    no_effect("log-journal-write-rate", "the write rate is a metric, at /metrics of an http:// acceptor"),
    no_effect(
        "max-redelivery-records", "the delivery count of a durable message is written when it is requeued"
    ),
    refused(
        "persist-delivery-count-before-delivery",
        "the delivery count of a durable message is written when it is requeued; remove it",
        "false",
    ),
    # pages
    no_effect("literal-page-folders", "address.txt in a page folder has the name of its address"),
    no_effect("page-max-concurrent-io", "one thread reads all pages"),
    no_effect("read-whole-page", "pages are read in blocks, see prefetch-page-bytes"),
    {
        "store": Row(
            Support.NO_EFFECT,
            "messages are stored in files, never in a database: see journal-directory and paging-directory",
            is_warning=True,
        )
    },
    # settings of threads, memory and the Java machine
    no_effect(
        "thread-pool-max-size scheduled-thread-pool-max-size async-connection-execution-enabled "
        "message-expiry-thread-priority",
        ONE_REACTOR,
    ),
    no_effect(
        "critical-analyzer critical-analyzer-check-period critical-analyzer-policy critical-analyzer-timeout",
        "a failed disk blocks durable sends and is logged; the watchdog is that of systemd",
    ),
    no_effect("memory-measure-interval memory-warning-threshold server-dump-interval", MEMORY),
    no_effect(
        "global-max-size-percent-of-jvm-max-memory",
        "there is no JVM; the default of global-max-size is a quarter of the machine's memory",
    ),
    no_effect("jmx-domain jmx-management-enabled jmx-use-broker-name", NO_JMX),
    no_effect("metrics metrics-plugin", METRICS),
    no_effect(
        "message-counter-enabled message-counter-max-day-history message-counter-sample-period",
        "counters of all queues are always on, in /metrics and in the HTTP API",
    ),
    no_effect("log-delegate-factory-class-name", "there is one log; docs/logging.md"),
    no_effect("system-property-prefix", "there are no Java system properties; use ${env:NAME}"),
    no_effect(
        "graceful-shutdown-enabled graceful-shutdown-timeout",
        "'stompring run --drain-timeout' waits for clients",
    ),
    # time
    no_effect("connection-ttl-check-interval message-expiry-scan-period", EXACT_TIMERS),
    refused(
        "address-queue-scan-period",
        "deletion is exact, by timer; to keep all queues set auto-delete-queues and auto-delete-addresses to false",
        "[1-9][0-9]*",
    ),
    no_effect(
        "transaction-timeout transaction-timeout-scan-period",
        "for XA transactions; a transaction of STOMP ends with its connection",
    ),
    # names
    no_effect("internal-naming-prefix", "the broker has no internal queues of that prefix"),
    refused(
        "uuid-namespace temporary-queue-namespace",
        "temporary queues have the settings of their name, /temp-queue/NAME; remove it",
    ),
    refused("wild-card-routing-enabled", "use <wildcard-addresses><routing-enabled>", "true"),
    refused("queues", "declare the queue in <addresses>, in <address><anycast> or <address><multicast>"),
    # security
    no_effect(
        "authentication-cache-size authorization-cache-size",
        "verified logins are cached for security-invalidation-interval, permissions for each session",
    ),
    refused(
        "reject-empty-validated-user",
        "with <security-enabled> every message is of a user who has logged in; remove it",
        "false",
    ),
    refused("mask-password", PASSWORDS, "false"),
    refused("password-codec", PASSWORDS),
    # settings of other protocols
    no_effect("amqp-use-core-subscription-naming", AMQP_ONLY),
    no_effect(
        "mqtt-session-scan-interval mqtt-session-state-persistence-timeout mqtt-subscription-persistence-enabled",
        MQTT_ONLY,
    ),
    no_effect("resolve-protocols resolveProtocols", "this broker speaks STOMP; no protocol is loaded"),
    # settings of clusters
    no_effect("cluster-user cluster-password", CLUSTER_ONLY),
    no_effect("broadcast-groups broadcast-group-security discovery-groups", CLUSTER_ONLY),
    {
        "cluster-connections": Row(
            Support.NO_EFFECT,
            NO_CLUSTER,
            refused_with=frozenset({"static-connectors"}),
            advice="this broker is alone and forwards nothing to the brokers in <static-connectors>; remove it, and "
            "forward queues by <bridges>",
            is_warning=True,
        ),
    },
    no_effect(
        "network-check-NIC network-check-URL-list network-check-list network-check-period "
        "network-check-ping-command network-check-ping6-command network-check-timeout",
        NETWORK_CHECK,
    ),
    no_effect("check-for-active-server max-saved-replicated-journals-size", CLUSTER_ONLY),
    no_effect(
        "mirror-ack-manager-page-attempts mirror-ack-manager-queue-attempts mirror-ack-manager-retry-delay "
        "mirror-ack-manager-warn-unacked mirror-page-transaction",
        MIRRORS_ONLY,
    ),
    refused("broker-connections", "this broker has no AMQP connections to other brokers"),
    refused("connection-routers", "this broker sends no client to another one"),
    refused("connector-services", f"forward queues by <bridges>, or {PLUGINS}"),
    refused("federations", "this broker is alone: consumers read from its own queues only"),
    refused("grouping-handler", "message groups of a broker that is alone need no handler; remove it"),
    refused("lock-coordinators", "this broker is alone and waits for no lock of others; remove it"),
    # code
    refused("remoting-incoming-interceptors remoting-interceptors remoting-outgoing-interceptors", PLUGINS),
)

CONFIGURATION = _table(
    {
        "jms": Row(
            Support.NO_EFFECT,
            "it declares nothing",
            refused_with=frozenset({"queue", "topic"}),
            advice="declare addresses and queues in <core><addresses>",
        )
    },
    refused("server", "write its elements into <core>"),
)

ADDRESS_SETTING = _table(
    no_effect(
        "default-consumer-window-size",
        "only clients of the core protocol; for STOMP: stompConsumerWindowSize",
    ),
    no_effect(
        "initial-queue-buffer-size intermediate-message-buffer-initial-size", "queues grow as they need"
    ),
    no_effect("management-message-attribute-size-limit", NO_JMX),
    no_effect(
        "message-counter-history-day-limit",
        "counters of all queues are always on, in /metrics and in the HTTP API",
    ),
    no_effect("redistribution-delay", CLUSTER_ONLY),
    no_effect("max-size-bytes-reject-threshold", AMQP_ONLY),
    refused(
        "auto-delete-addresses-skip-usage-check",
        "an address that was never used is deleted after 30 to 60 s; remove it",
        "false",
    ),
    refused("auto-create-jms-queues auto-create-jms-topics", AUTO_CREATE, "true"),
    refused("auto-delete-jms-queues auto-delete-jms-topics", AUTO_DELETE, "true"),
)

QUEUE = refused(
    "auto-delete auto-delete-delay auto-delete-message-count",
    "set auto-delete-created-queues and auto-delete-queues-… in <address-setting>",
)

DIVERT = refused(
    "transformer-class-name", "use <transformer>, which sets and removes headers or names a policy"
)

#: Artemis's plugin for notifications, and the type of notification that each property of the plugin enables. None: this
#: broker always sends the notifications.
NOTIFICATION_PLUGIN = "org.apache.activemq.artemis.core.server.plugin.impl.NotificationActiveMQServerPlugin"
NOTIFICATION_PROPERTIES: Mapping[str, str | None] = {
    "SEND_CONNECTION_NOTIFICATIONS": None,
    "SEND_SESSION_NOTIFICATIONS": None,
    "SEND_ADDRESS_NOTIFICATIONS": None,
    "SEND_DELIVERED_NOTIFICATIONS": "MESSAGE_DELIVERED",
    "SEND_EXPIRED_NOTIFICATIONS": "MESSAGE_EXPIRED",
}

PLUGIN = refused(
    "class-name",
    "plugins are Python modules: set name and policy (docs/plugins.md)",
    # accepted without effect: this plugin only logs
    r"org\.apache\.activemq\.artemis\.core\.server\.plugin\.impl\.LoggingActiveMQServerPlugin",
)

SECURITY_SETTINGS = _table(
    refused("role-mapping", "use the role names of the roles-file in <permission>"),
    refused("security-setting-plugin", "write every <security-setting> in broker.xml"),
)

_BACKUPS = frozenset({"backup", "slave", "secondary", "colocated", "scale-down"})

#: Elements of ``<ha-policy>`` in Artemis. They have no effect here unless they contain an element for backups.
HA_POLICY: Rows = {
    name: Row(
        Support.NO_EFFECT,
        "this broker is alone: there is no backup, and none takes over",
        refused_with=_BACKUPS,
        advice="this broker is alone: it neither waits as a backup nor hands its messages to another broker when "
        "it stops; remove it on the one broker that serves the clients, or use <replicated-log>",
        is_warning=True,
    )
    for name in ("live-only", "primary-only", "replication", "shared-store")
}

WILDCARDS = refused("enabled", "use routing-enabled", "true")

BRIDGE = _table(
    no_effect("min-large-message-size", "messages of any size are sent in one frame"),
    no_effect("failover-on-server-shutdown", "it has none in Artemis either"),
    no_effect("reconnect-attempts-same-node", "the connectors are tried in order"),
    refused("discovery-group-ref", "there is no discovery: list the connectors in <static-connectors>"),
    refused(
        "ha",
        "a remote broker does not announce its backups: list the connectors of all of them in <static-connectors>, "
        "they are tried in order",
        "false",
    ),
    refused("transformer-class-name", "Java classes cannot be loaded: use <transformer>"),
)

OLD_ELEMENT_NAMES: Mapping[tuple[str, str], str] = {
    ("address-setting", "last-value-queue"): "default-last-value-queue"
}
"""Old names of elements that Artemis still accepts, by parent and name."""

SECTIONS: Mapping[str, Rows] = {
    "configuration": CONFIGURATION,
    "core": CORE,
    "address-setting": ADDRESS_SETTING,
    "bridge": BRIDGE,
    "static-connectors": no_effect("allow-direct-connections-only", CLUSTER_ONLY),
    "queue": QUEUE,
    "wildcard-addresses": WILDCARDS,
    "divert": DIVERT,
    "broker-plugin": PLUGIN,
    "ha-policy": HA_POLICY,
    "security-settings": SECURITY_SETTINGS,
}
"""By the parent element of the names."""

ACCEPTOR_PARAMETERS = _table(
    no_effect(
        """
        ackManagerFlushTimeout amqpCredits amqpDrainOnTransientDeliveryErrors amqpDuplicateDetection amqpIdleTimeout
        amqpLinkQuiesceTimeout amqpLowCredits amqpMinLargeMessageSize amqpSendSettled
        amqpTreatRejectAsUnmodifiedDeliveryFailed amqpUseModifiedForTransientDeliveryErrors
        initialRemoteMaxFrameSize maxFrameSize mirrorMaxPendingAcks pubSubPrefix saslLoginConfigScope saslMechanisms
        """,
        AMQP_ONLY,
    ),
    no_effect(
        """
        allowLinkStealing closeMqttConnectionOnPublishAuthorizationFailure defaultMaximumInFlightPublishMessages
        defaultMqttSessionExpiryInterval maximumPacketSize receiveMaximum serverKeepAlive topicAliasMaximum
        """,
        MQTT_ONLY,
    ),
    no_effect(
        """
        actorThresholdBytes brokerName maxInactivityDuration maxInactivityDurationInitalDelay
        openWireDestinationCacheSize openwireMaxPacketChunkSize openwireUseDuplicateDetectionOnFailover
        rebalanceClusterClients supportAdvisory suppressInternalManagementObjects updateClusterClients
        updateClusterClientsOnRemove useKeepAlive virtualTopicConsumerLruCacheMax virtualTopicConsumerWildcards
        """,
        OPENWIRE_ONLY,
    ),
    no_effect("activemqServerName connect-timeout-millis", CORE_CLIENTS),
    no_effect(
        """
        httpClientIdleScanPeriod httpClientIdleTime httpEnabled httpRequiresSessionId httpResponseTime
        httpServerScanPeriod httpUpgradeEnabled httpUpgradeEndpoint servletPath useServlet
        """,
        HTTP_TUNNEL,
    ),
    no_effect(
        """
        backlog batchDelay directDeliver localAddress localPort tcpNoDelay tcpReceiveBufferSize
        tcpSendBufferSize writeBufferHighWaterMark writeBufferLowWaterMark
        """,
        SOCKETS,
    ),
    no_effect(
        """
        nioRemotingThreads quietPeriod remotingThreads shutdownTimeout useEpoll useGlobalWorkerPool useInvm useKQueue
        useNio useNioGlobalWorkerPool
        """,
        ONE_REACTOR,
    ),
    no_effect("clusterConnection", CLUSTER_ONLY),
    no_effect("forceSSLParameters keyStoreProvider sslContext sslProvider trustStoreProvider", JAVA_TLS),
    no_effect("stompMinLargeMessageSize stomp-min-large-message-size", "large messages need no setting"),
    no_effect(
        "stompEnableMessageId stomp-enable-message-id",
        "every MESSAGE has a message-id; the property is for clients of JMS",
    ),
    refused("autoStart auto-start", "remove the acceptor, or the parameter", "true"),
    refused("redirect-to router", "this broker sends no client to another one"),
    refused("securityDomain", "all acceptors have the users of users-file; remove it"),
    refused("host port scheme", "write scheme://host:port before the parameters"),
    refused("sslKrb5Config trustManagerFactoryPlugin", TRUST),
    refused("useDefaultSslContext", "set keyStorePath to a PEM file", "false"),
    refused("trustAll", TRUST, "false"),
    refused("verifyHost", "host names of clients are not verified; remove it", "false"),
    refused(
        "crlPath",
        "revocation lists are not supported: remove the issuer from trustStorePath, or use short-lived certificates",
    ),
    refused("ocspResponderURL", "revocation checks are not supported; remove it"),
    refused("keyStoreAlias", "a PEM file has one certificate: set keyStorePath to that file"),
    refused(
        "passwordCodec activemq.passwordcodec",
        "keyStorePassword is not encoded; remove it",
    ),
    refused("activemq.usemaskedpassword", "keyStorePassword is not encoded; remove it", "false"),
    refused(
        "sniHost",
        "keyStorePath may list several certificates; each client gets the one for its requested name; remove it",
    ),
)

CONNECTOR_PARAMETERS = _table(
    no_effect("activemqServerName", "only the tunnel through HTTP uses it"),
    no_effect(
        "httpClientIdleScanPeriod httpClientIdleTime httpRequiresSessionId httpUpgradeEndpoint servletPath",
        "only the tunnel through HTTP uses it",
    ),
    refused("httpEnabled httpUpgradeEnabled useServlet", "a bridge speaks STOMP, not through HTTP", "false"),
    no_effect(
        "batchDelay tcpNoDelay tcpReceiveBufferSize tcpSendBufferSize writeBufferHighWaterMark writeBufferLowWaterMark",
        SOCKETS,
    ),
    no_effect(
        "nioRemotingThreads remotingThreads useEpoll useGlobalWorkerPool useInvm useKQueue useNio "
        "useNioGlobalWorkerPool",
        ONE_REACTOR,
    ),
    no_effect("forceSSLParameters keyStoreProvider sslContext sslProvider trustStoreProvider", JAVA_TLS),
    no_effect("handshake-timeout", "connect-timeout-millis includes CONNECTED"),
    refused("localAddress localPort", "the routes of the machine select the local address; remove it"),
    refused("socksEnabled", "connect directly, or to a relay on this machine", "false"),
    no_effect(
        "socksHost socksPassword socksPort socksRemoteDNS socksUsername socksVersion",
        "only socksEnabled uses it",
    ),
    refused("trustAll", "set trustStorePath to the CA of the remote broker", "false"),
    refused(
        "crlPath sslKrb5Config trustManagerFactoryPlugin",
        "set trustStorePath to the CA of the remote broker; remove it",
    ),
    refused("useDefaultSslContext", "without trustStorePath the CAs of the system count; remove it", "false"),
    refused("keyStoreAlias", "set keyStorePath to a PEM file with that certificate"),
    refused("passwordCodec activemq.passwordcodec", PASSWORDS),
    refused("activemq.usemaskedpassword", PASSWORDS, "false"),
    refused("host port scheme", "write scheme://host:port before the parameters"),
)
"""Of the connectors that a bridge names."""

OTHER_PROTOCOLS = Row(Support.NO_EFFECT, "this broker speaks STOMP only")
"""``protocols`` with others than STOMP."""

OTHER_SCHEMES: Mapping[str, str] = {"stomp+ssl": "the scheme of clients for ssl", "vm": "in-VM"}
"""Schemes of URLs that no listener here supports."""

IN_VM = "vm"
"""The scheme of acceptors for clients in the same Java machine."""

PROTOCOLS = frozenset({"AMQP", "CORE", "HORNETQ", "MQTT", "OPENWIRE", "STOMP"})
"""The values of ``protocols`` in Artemis."""


LDAP_OPTIONS = _table(
    no_effect("debug reload", "docs/logging.md shows how to log more"),
    no_effect("initialContextFactory", "the LDAP client is Python's ldap3, not Java's"),
    no_effect("ignorePartialResultException", "referrals in the result of a search are ignored"),
    no_effect("noCacheExceptions", "only successful logins are cached"),
    no_effect("passwordCodec", PASSWORDS),
    no_effect("saslLoginConfigScope", "only GSSAPI uses it"),
    {"referral": Row(Support.NO_EFFECT, "referrals are never followed", is_warning=True)},
)
"""Options of the LDAPLoginModule without effect here. The others are the rows of `LdapLogin`."""

_JNDI = Row(Support.NO_EFFECT, "only Java's LDAP client uses it", is_warning=True)

ENCODED = "is encoded, and the key is Artemis's; write a reference, ${file:PATH} or ${env:NAME}"


def ldap_login(values: Values, folder: Path) -> LdapLogin:
    """Return the settings of an LDAP directory. Relative paths start at ``folder``.

    Raises `ValueError` if the values contradict each other, or if a required one is missing.
    """
    password = values.get("connection_password")
    if password is not None:
        if revealed(password).startswith("ENC("):
            raise ValueError(f"the password {ENCODED}")
        values["connection_password"] = Secret(revealed(password))
    if values.get("authentication") is not LdapAuthentication.NONE:
        if not (password and values.get("connection_username")):
            raise ValueError(
                "user name and password of the connection are required, unless authentication is none"
            )
    if values.get("expand_roles") and not values.get("expand_roles_matching"):
        raise ValueError("the filter that finds the roles that contain a role is missing")
    if values.get("start_tls") and "ldaps:" in values["connection_url"].lower():
        raise ValueError("StartTLS is for ldap://; ldaps:// begins with TLS")
    path = values.get("trust_store_path")
    if path is not None:
        values["trust_store_path"] = str(folder / path)
    return LdapLogin(**values)


LOGIN_CONFIG, BOOTSTRAP = "login.config", "bootstrap.xml"
DEFAULT_DOMAIN = "activemq"
ARTEMIS_USERS, ARTEMIS_ROLES = "artemis-users.properties", "artemis-roles.properties"

_TOKEN = re.compile(
    r"""/\*.*?\*/|//[^\n]*|"((?:\\.|[^"\\])*)"|\'((?:\\.|[^\'\\])*)\'|([^\s"\'{};=]+)|([{};=])""", re.DOTALL
)
_JAAS = re.compile(r"<jaas-security\b[^>]*>")
_DOMAIN = re.compile(r"""\s(?P<certificate>certificate-)?domain\s*=\s*["'](?P<name>[^"']*)["']""")
_SECURITY_MANAGER = re.compile(r"""<security-manager\b[^>]*\sclass-name\s*=\s*["']([^"']*)["']""")
_MAX_BYTES = 1024 * 1024


class Logins(NamedTuple):
    """The files of users and the login modules of an Artemis instance.

    ``warnings``: texts about login modules that work differently here, or not at all. ``ignored``: options without
    effect of the supported login modules.
    """

    users: Path
    roles: Path
    guest: Guest | None = None
    warnings: tuple[str, ...] = ()
    certificate_users: Path | None = None
    modules: tuple[AnyLogin, ...] = ()
    ignored: tuple[IgnoredSetting, ...] = ()


@dataclass
class _Module:
    """One login module: its class, its control flag, and its options."""

    name: str
    flag: LoginFlag
    line: int
    options: dict[str, str] = field(default_factory=dict)

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]


def find_logins(directory: Path, resolve: Callable[[str], str] = str) -> Logins | None:
    """Return the logins of the Artemis instance whose broker.xml is in ``directory``; None if it defines no users.

    ``resolve`` resolves the references in options of an LDAPLoginModule. Raises `ConfigurationError` if
    ``login.config`` cannot be read, or if users can log in only with login modules that this broker does not support.
    """
    file = directory / LOGIN_CONFIG
    users, roles = directory / ARTEMIS_USERS, directory / ARTEMIS_ROLES
    warnings: list[str] = []
    bootstrap = ""
    if (directory / BOOTSTRAP).is_file():
        bootstrap = re.sub(r"<!--.*?-->", "", _text_of(directory / BOOTSTRAP), flags=re.DOTALL)
    manager = _SECURITY_MANAGER.search(bootstrap)
    if manager is not None or not file.is_file():
        if manager is not None:  # the security manager is not JAAS: login.config has no effect
            name = manager[1].rpartition(".")[2]
            warnings.append(
                f"{directory / BOOTSTRAP}: security-manager {name} is not supported: the users are those of "
                f"{ARTEMIS_USERS}, and others, as those added while Artemis ran, are unknown"
            )
        return Logins(users, roles, warnings=tuple(warnings)) if users.is_file() else None
    entries = _parse(_text_of(file), file)
    # names of the entries of login.config: for passwords (False), for client certificates (True)
    domains: dict[bool, str] = {}
    if element := _JAAS.search(bootstrap):
        domains = {bool(each["certificate"]): each["name"] for each in _DOMAIN.finditer(element[0])}
    domain = domains.get(False, DEFAULT_DOMAIN)
    if domain not in entries:
        raise ConfigurationError(
            f"there is no entry '{domain}', which {BOOTSTRAP} names; set <users-file> in broker.xml, or add the entry",
            str(file),
        )
    files: tuple[Path, Path] | None = None
    guest: Guest | None = None
    modules: list[AnyLogin] = []
    ignored: list[IgnoredSetting] = []
    for module in entries[domain]:
        if module.short_name == "PropertiesLoginModule" and files is None:
            base = directory / module.options.get("baseDir", "")
            files = (
                base / module.options.get("org.apache.activemq.jaas.properties.user", ARTEMIS_USERS),
                base / module.options.get("org.apache.activemq.jaas.properties.role", ARTEMIS_ROLES),
            )
            modules.append(LoginModule("properties", module.flag))
        elif module.short_name == "LDAPLoginModule":
            try:
                modules.append(_ldap_login(module, file, resolve, ignored))
            except ValueError as error:
                raise ConfigurationError(f"{module.short_name}: {error}", str(file), module.line) from None
        elif module.short_name == "GuestLoginModule" and guest is None:
            guest = Guest(
                module.options.get("org.apache.activemq.jaas.guest.user", "guest"),
                module.options.get("org.apache.activemq.jaas.guest.role", "guests"),
            )
            warnings.append(
                f"{file}:{module.line}: GuestLoginModule: STOMP clients without login and passcode are user "
                f"{guest.user} with role {guest.role}; wrong passwords are refused"
            )
        elif module.flag in (LoginFlag.REQUIRED, LoginFlag.REQUISITE):
            raise ConfigurationError(
                f"{module.short_name} is not supported and {module.flag.lower()}: nobody could log in; set "
                "<users-file> in broker.xml and add users with: stompring user add NAME",
                str(file),
                module.line,
            )
        else:
            warnings.append(
                f"{file}:{module.line}: {module.short_name} is not supported: it logs nobody in here"
            )
    if not modules and guest is None:
        raise ConfigurationError(
            "there is no PropertiesLoginModule and no LDAPLoginModule, and other login modules are not supported; set "
            "<users-file> in broker.xml and add users with: stompring user add NAME",
            str(file),
            entries[domain][0].line if entries[domain] else None,
        )
    users, roles = files or (users, roles)
    certificates: Path | None = None
    for module in entries.get(domains.get(True, ""), []):
        listed = module.options.get("org.apache.activemq.jaas.textfiledn.user")
        if module.short_name == "TextFileCertificateLoginModule" and listed is not None:
            base = directory / module.options.get("baseDir", "")
            certificates = base / listed
            other = module.options.get("org.apache.activemq.jaas.textfiledn.role")
            if other is not None and base / other != roles:  # this broker reads all roles from one file
                text = f"the roles in {other} are not read: add its lines to {roles.name}"
                warnings.append(f"{file}:{module.line}: {module.short_name}: {text}")
            break
    warnings += (f"{file}:{each.line}: {each.name}: {each.reason}" for each in ignored if each.is_warning)
    return Logins(users, roles, guest, tuple(warnings), certificates, tuple(modules), tuple(ignored))


def _ldap_login(
    module: _Module, file: Path, resolve: Callable[[str], str], ignored: list[IgnoredSetting]
) -> LdapLogin:
    """Return the settings of an LDAPLoginModule. An option with an empty value counts as missing, as in Artemis."""
    rows = {row.json_name.lower(): row for row in options_of(LdapLogin)}
    values: Values = {"flag": module.flag}
    for name, text in module.options.items():
        row = rows.get(name.lower())
        if row is None or row.name == "flag":
            known = LDAP_OPTIONS.get(name, _JNDI)
            if not (name == "referral" and text == "ignore"):
                shown = f"{name} of {module.short_name}"
                at = Line(module.line, str(file))
                ignored.append(IgnoredSetting(at, shown, known.reason, known.is_warning))
        elif text:
            try:
                values[row.name] = VALUE_TYPES[row.type].read(resolve(text))
            except ValueError as error:
                raise ValueError(f"{name} {error}") from None
    if "connection_url" not in values:
        raise ValueError("there is no connectionURL")
    return ldap_login(values, file.parent)


def _text_of(file: Path) -> str:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror or error}", str(file)) from error
    if len(content) > _MAX_BYTES:
        raise ConfigurationError(f"is longer than {_MAX_BYTES} bytes", str(file))
    return content.decode(errors="replace")


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    line, before = 1, 0
    for found in _TOKEN.finditer(text):
        line += text.count("\n", before, found.start())
        before = found.start()
        token = next((group for group in found.groups() if group is not None), None)
        if token is not None:
            yield token, line


def _parse(text: str, file: Path) -> dict[str, list[_Module]]:
    """Return the login modules by the name of their entry. ``text``: contents of a ``login.config`` (JAAS syntax)."""
    tokens = deque(_tokens(text))
    entries: dict[str, list[_Module]] = {}
    line = 1

    def take(what: str, exactly: str | None = None) -> str:
        nonlocal line
        if not tokens:
            raise ConfigurationError(f"the file ends where {what} should follow", str(file), line)
        token, line = tokens.popleft()
        if exactly is not None and token != exactly or exactly is None and token in ("{", "}", ";", "="):
            raise ConfigurationError(f"'{token}' stands where {what} should be", str(file), line)
        return token

    def ahead(token: str) -> bool:
        return bool(tokens) and tokens[0][0] == token

    while tokens:
        modules = entries.setdefault(take("the name of an entry"), [])
        take("'{'", "{")
        while not ahead("}"):
            name, at = take("a login module"), line
            flag = take("required, requisite, sufficient or optional").upper()
            if flag not in LoginFlag.__members__:
                raise ConfigurationError(f"'{flag.lower()}' is not a flag of a login module", str(file), line)
            module = _Module(name, LoginFlag(flag), at)
            while not ahead(";"):
                option = take("an option or ';'")
                take("'='", "=")
                module.options[option] = take("the value of an option")
            take("';'", ";")
            modules.append(module)
        take("'}'", "}")
        take("';'", ";")
    return entries
