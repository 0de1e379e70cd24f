"""Settings of Artemis without support here, each with the advice of its configuration error.

Read from Artemis's configuration reference, its schema and its
``TransportConstants`` (2.x).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def not_supported(what: str, instead: str) -> str:
    """The error for ``what``. ``instead`` is the advice in the tables below; without one: remove it."""
    ending = f": {instead}" if instead else "; remove it"
    return f"{what} is an Artemis setting without support in stompring{ending}"


def _names(listed: str, instead: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType({name: "" for name in listed.split()} | dict(instead))


FILES_ON_DEMAND = (
    "journal files are created on demand and deleted when all their records are consumed; remove it"
)
DIRECTORIES_CREATED = "missing directories are always created; remove it"
ONE_WRITER = "one thread writes the journal, in batches; remove it"
COUNT_ON_REQUEUE = "the delivery count of a durable message is written when it is requeued; remove it"
EXACT_EXPIRY = "expiry is exact, by timer; remove the element"
EXACT_DELETION = "deletion is exact, by timer; remove the element"
LAST_VALUE = "last-value queues are not supported; ring-size 1 retains the newest message of a queue"
ON_SIGHUP = "send SIGHUP to reload the file; remove the element"
HTTP_API = "management is over HTTP: add an http:// acceptor"
AUTO_CREATE = "use auto-create-queues and auto-create-addresses"
AUTO_DELETE = "use auto-delete-queues and auto-delete-addresses"
SOCKET_DEFAULTS = "sockets use the defaults of the operating system; remove it"
JAVA_TLS = "TLS is by OpenSSL, with PEM files; remove it"

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
    dict.fromkeys("create-bindings-dir create-journal-dir".split(), DIRECTORIES_CREATED)
    | dict.fromkeys("journal-min-files journal-pool-files journal-max-atticfiles".split(), FILES_ON_DEMAND)
    | dict.fromkeys("journal-max-io journal-buffer-size journal-device-block-size".split(), ONE_WRITER)
    | dict.fromkeys("max-redelivery-records persist-delivery-count-before-delivery".split(), COUNT_ON_REQUEUE)
    | {
        "bindings-directory": "addresses and queues are stored in the journal; remove it",
        "large-messages-directory": "messages of any size are stored in the journal and in pages; remove it",
        "journal-datasync": "every write is synced; journal-sync-transactional and journal-sync-non-transactional set "
        "whether a RECEIPT waits for it",
        "journal-file-open-timeout": "there is no timeout for opening files; remove it",
        "journal-type": "the only journal type is plain files with one sync per batch; remove it",
        "literal-page-folders": "address.txt in a page folder has the name of its address; remove it",
        "log-journal-write-rate": "the write rate is a metric, at /metrics; remove it",
        "node-manager-lock-directory": "the lock is the file broker.lock beside the journal directory; remove it",
        "page-max-concurrent-io": "one thread reads all pages; remove it",
        "read-whole-page": "pages are read in blocks; use prefetch-page-bytes",
        "store": "the store is files only: use journal-directory and paging-directory",
        "address-queue-scan-period": EXACT_DELETION,
        "configuration-file-refresh-period": ON_SIGHUP,
        "global-max-size-percent-of-jvm-max-memory": "there is no JVM; use global-max-size, in bytes",
        "jmx-domain": HTTP_API,
        "jmx-management-enabled": HTTP_API,
        "jmx-use-broker-name": HTTP_API,
        "management-address": HTTP_API,
        "management-notification-address": HTTP_API,
        "message-expiry-scan-period": EXACT_EXPIRY,
        "metrics": "metrics are always on, at /metrics of an http:// acceptor; remove the element",
        "metrics-plugin": "metrics are always on, at /metrics of an http:// acceptor; remove the element",
        "queues": "declare the queue in <addresses>, in <address><anycast> or <address><multicast>",
        "wild-card-routing-enabled": "use <wildcard-addresses><routing-enabled>",
        "connection-ttl-check-interval": "the connection TTL is exact, by timer; remove the element",
    },
)

CONFIGURATION = _names("", {"jms": "declare addresses and queues in <core><addresses>", "server": ""})

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
    | {"max-size-bytes-reject-threshold": "BLOCK never rejects a producer; use max-size-bytes"},
)

QUEUE = _names(
    """
    group-buckets group-first-key group-rebalance group-rebalance-pause-dispatch
    """,
    dict.fromkeys("last-value last-value-key".split(), LAST_VALUE)
    | dict.fromkeys(
        "auto-delete auto-delete-delay auto-delete-message-count".split(),
        "set auto-delete-created-queues and auto-delete-queues-… in <address-setting>",
    ),
)

PLUGIN = _names("", {"class-name": "plugins are Python modules: set name and policy (docs/plugins.md)"})

SECURITY_SETTINGS = _names(
    "",
    {
        "role-mapping": "use the role names of the roles-file in <permission>",
        "security-setting-plugin": "write every <security-setting> in broker.xml",
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
"""By the parent element of the names."""

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
        SOCKET_DEFAULTS,
    )
    | dict.fromkeys(
        """
        keyStoreProvider sslContext sslKrb5Config sslProvider trustManagerFactoryPlugin trustStoreProvider
        useDefaultSslContext forceSSLParameters
        """.split(),
        JAVA_TLS,
    )
    | {
        "crlPath": "revocation lists are not supported: remove the issuer from trustStorePath, or use short-lived "
        "certificates",
        "ocspResponderURL": "revocation checks are not supported; remove it",
        "keyStoreAlias": "a PEM file has one certificate: set keyStorePath to that file",
        "passwordCodec": "keyStorePassword is not encoded; remove it",
        "sniHost": "keyStorePath may list several certificates; each client gets the one for its requested name; "
        "remove it",
        "trustAll": "client certificates must be signed by a CA in trustStorePath; remove it",
        "trustStorePassword": "a PEM file of certificates has no password; remove it",
        "verifyHost": "host names of clients are not verified; remove it",
    }
    | dict.fromkeys(
        "stompMinLargeMessageSize stomp-min-large-message-size".split(),
        "large messages need no setting; maxBodyLength limits the body",
    ),
)

OTHER_SCHEMES: Mapping[str, str] = MappingProxyType(
    {
        "stomp+ssl": "the scheme of clients for ssl",
        "vm": "in-VM",
    }
)
"""Schemes of URLs that no listener here supports."""

PROTOCOLS = frozenset({"AMQP", "CORE", "HORNETQ", "MQTT", "OPENWIRE", "STOMP"})
"""The values of ``protocols`` in Artemis."""
