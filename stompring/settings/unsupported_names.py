"""Names that Artemis knows and this version does not, so that the error for them says exactly that.

A text beside a name says what to do instead. Read from Artemis's configuration reference, its schema and its
``TransportConstants`` (2.x).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def not_supported(what: str, instead: str) -> str:
    """The sentence about ``what``, known to Artemis alone. ``instead`` is the text beside its name below."""
    ending = f": {instead}" if instead else "; remove it"
    return f"{what} is known to Artemis, not supported by stompring{ending}"


def _names(listed: str, instead: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType({name: "" for name in listed.split()} | dict(instead))


AS_NEEDED = "journal files are made when they are needed and deleted when nothing in them lives; remove it"
MADE = "directories are made where they are missing; remove it"
ONE_WRITER = "one thread writes, all that came together in one piece; remove it"
COUNTS_KEPT = "the delivery count of a durable message is written when it comes back; remove it"
ALWAYS_EXACT = "expiry here is exact, by timer; remove the element"
DELETED_AT_ONCE = "what is to be deleted here goes at its time, by timer; remove the element"
LAST_VALUE = "last-value queues are not built yet; a ring-size of 1 keeps the newest message of a whole queue"
ON_SIGHUP = "the file is read again on SIGHUP; remove the element"
HTTP_API = "management is by HTTP: give an http:// acceptor"
AUTO_CREATE = "use auto-create-queues and auto-create-addresses"
AUTO_DELETE = "use auto-delete-queues and auto-delete-addresses"
PORTABLE = "sockets are left to the operating system; remove it"
OF_JAVA_TLS = "TLS is that of OpenSSL, with files in PEM; remove it"

CORE = _names(
    """
    amqp-use-core-subscription-naming async-connection-execution-enabled bridges broadcast-group-security
    broadcast-groups broker-connections check-for-active-server cluster-connections
    cluster-password cluster-user connection-routers connector-services connectors critical-analyzer
    critical-analyzer-check-period critical-analyzer-policy critical-analyzer-timeout discovery-groups diverts
    federations graceful-shutdown-enabled graceful-shutdown-timeout grouping-handler ha-policy
    internal-naming-prefix journal-lock-acquisition-timeout log-delegate-factory-class-name lock-coordinators
    management-message-rbac management-rbac-prefix mask-password max-saved-replicated-journals-size
    memory-measure-interval memory-warning-threshold message-counter-enabled message-counter-max-day-history
    message-counter-sample-period message-expiry-thread-priority mirror-ack-manager-page-attempts
    mirror-ack-manager-queue-attempts mirror-ack-manager-retry-delay mirror-page-transaction
    mirror-ack-manager-warn-unacked network-check-NIC network-check-URL-list network-check-list
    network-check-period network-check-ping-command network-check-ping6-command network-check-timeout
    password-codec populate-validated-user reject-empty-validated-user
    remoting-incoming-interceptors remoting-interceptors remoting-outgoing-interceptors resolve-protocols
    resolveProtocols scheduled-thread-pool-max-size
    server-dump-interval suppress-session-notifications system-property-prefix temporary-queue-namespace
    thread-pool-max-size transaction-timeout transaction-timeout-scan-period uuid-namespace
    view-permission-method-match-pattern authentication-cache-size authorization-cache-size
    """,
    dict.fromkeys("create-bindings-dir create-journal-dir".split(), MADE)
    | dict.fromkeys("journal-min-files journal-pool-files journal-max-atticfiles".split(), AS_NEEDED)
    | dict.fromkeys("journal-max-io journal-buffer-size journal-device-block-size".split(), ONE_WRITER)
    | dict.fromkeys("max-redelivery-records persist-delivery-count-before-delivery".split(), COUNTS_KEPT)
    | {
        "bindings-directory": "addresses and queues are kept in the journal; remove it",
        "large-messages-directory": "messages of every size are kept in the journal and in pages; remove it",
        "journal-datasync": "what is written is always synced; journal-sync-transactional and "
        "journal-sync-non-transactional say whether a receipt waits for it",
        "journal-file-open-timeout": "opening a file is not given up here; remove it",
        "journal-type": "there is one kind of journal: plain files, each batch synced; remove it",
        "literal-page-folders": "the name of a page folder's address is in its address.txt; remove it",
        "log-journal-write-rate": "the journal's rates are metrics, at /metrics; remove it",
        "node-manager-lock-directory": "the lock is the file broker.lock beside the journal directory; remove it",
        "page-max-concurrent-io": "pages are read by one thread of their own; remove it",
        "read-whole-page": "pages are read in blocks; use prefetch-page-bytes",
        "store": "messages are kept in files: use journal-directory and paging-directory",
        "address-queue-scan-period": DELETED_AT_ONCE,
        "configuration-file-refresh-period": ON_SIGHUP,
        "global-max-size-percent-of-jvm-max-memory": "there is no JVM here; use global-max-size, in bytes",
        "jmx-domain": HTTP_API,
        "jmx-management-enabled": HTTP_API,
        "jmx-use-broker-name": HTTP_API,
        "management-address": HTTP_API,
        "management-notification-address": HTTP_API,
        "message-expiry-scan-period": ALWAYS_EXACT,
        "metrics": "metrics are always on, at /metrics of an http:// acceptor; remove the element",
        "metrics-plugin": "metrics are always on, at /metrics of an http:// acceptor; remove the element",
        "queues": "write the queue into <addresses>, within <address><anycast> or <address><multicast>",
        "wild-card-routing-enabled": "use <wildcard-addresses><routing-enabled>",
        "connection-ttl-check-interval": "silent connections are closed exactly in time; remove the element",
    },
)

CONFIGURATION = _names("", {"jms": "write addresses and queues into <core><addresses>", "server": ""})

ADDRESS_SETTING = _names(
    """
    auto-delete-addresses-skip-usage-check config-delete-diverts default-consumer-window-size
    default-group-buckets default-group-first-key default-group-rebalance
    default-group-rebalance-pause-dispatch enable-ingress-timestamp initial-queue-buffer-size
    intermediate-message-buffer-initial-size management-message-attribute-size-limit
    message-counter-history-day-limit redistribution-delay retroactive-message-count
    """,
    dict.fromkeys("last-value-queue default-last-value-queue default-last-value-key".split(), LAST_VALUE)
    | dict.fromkeys("auto-create-jms-queues auto-create-jms-topics".split(), AUTO_CREATE)
    | dict.fromkeys("auto-delete-jms-queues auto-delete-jms-topics".split(), AUTO_DELETE)
    | {"max-size-bytes-reject-threshold": "a producer is made to wait, never refused; use max-size-bytes"},
)

QUEUE = _names(
    """
    group-buckets group-first-key group-rebalance group-rebalance-pause-dispatch
    """,
    dict.fromkeys("last-value last-value-key".split(), LAST_VALUE)
    | dict.fromkeys(
        "auto-delete auto-delete-delay auto-delete-message-count".split(),
        "set it for the address, as auto-delete-created-queues and its like in <address-setting>",
    ),
)

PLUGIN = _names("", {"class-name": "plugins are written in Python here: give its name (docs/plugins.md)"})

SECURITY_SETTINGS = _names(
    "",
    {
        "role-mapping": "name the roles of the roles-file themselves in <permission>",
        "security-setting-plugin": "write each <security-setting> into the file",
    },
)

WILDCARDS = _names("", {"enabled": "use routing-enabled"})

SECTIONS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "configuration": CONFIGURATION,
        "core": CORE,
        "address-setting": ADDRESS_SETTING,
        "queue": QUEUE,
        "wildcard-addresses": WILDCARDS,
        "broker-plugin": PLUGIN,
        "security-settings": SECURITY_SETTINGS,
    }
)
"""By the element in which the names stand."""

ACCEPTOR_PARAMETERS = _names(
    """
    activemqServerName amqpCredits amqpDuplicateDetection amqpIdleTimeout amqpLowCredits
    amqpMinLargeMessageSize amqpSendSettled amqpTreatRejectAsUnmodifiedDeliveryFailed auto-start autoStart
    clusterConnection connect-timeout-millis host httpClientIdleScanPeriod httpClientIdleTime httpEnabled
    httpRequiresSessionId httpResponseTime httpServerScanPeriod httpUpgradeEnabled httpUpgradeEndpoint
    maxInactivityDuration maxInactivityDurationInitalDelay nioRemotingThreads port quietPeriod
    redirect-to remotingThreads router securityDomain servletPath shutdownTimeout supportAdvisory
    suppressInternalManagementObjects useEpoll useGlobalWorkerPool useInvm useKQueue useNio
    useNioGlobalWorkerPool useServlet
    """,
    dict.fromkeys(
        """
        backlog batchDelay directDeliver localAddress localPort tcpNoDelay tcpReceiveBufferSize
        tcpSendBufferSize writeBufferHighWaterMark writeBufferLowWaterMark
        """.split(),
        PORTABLE,
    )
    | dict.fromkeys(
        """
        keyStoreProvider sslContext sslKrb5Config sslProvider trustManagerFactoryPlugin trustStoreProvider
        useDefaultSslContext forceSSLParameters
        """.split(),
        OF_JAVA_TLS,
    )
    | {
        "crlPath": "revoked certificates are not looked for: take their issuer out of trustStorePath, or use "
        "certificates that live shortly",
        "ocspResponderURL": "revoked certificates are not looked for; remove it",
        "keyStoreAlias": "a PEM file has one certificate: name that file in keyStorePath",
        "passwordCodec": "keyStorePassword is taken as it is; remove it",
        "sniHost": "keyStorePath may name several certificates, of which each client gets the one with the name "
        "that it asks for; remove it",
        "trustAll": "clients must be vouched for by trustStorePath; remove it",
        "trustStorePassword": "a PEM file of certificates has no password; remove it",
        "verifyHost": "clients are not known by their host's name; remove it",
    }
    | dict.fromkeys(
        "stompMinLargeMessageSize stomp-min-large-message-size".split(),
        "every message has the same kind of body here; its limit is maxBodyLength",
    ),
)

OTHER_SCHEMES: Mapping[str, str] = MappingProxyType(
    {
        "stomp+ssl": "a client's name for ssl",
        "vm": "in-VM",
    }
)
"""What a listener's URL may start with elsewhere and not here, and what that would be."""

PROTOCOLS = frozenset({"AMQP", "CORE", "HORNETQ", "MQTT", "OPENWIRE", "STOMP"})
"""What Artemis takes in ``protocols``."""
