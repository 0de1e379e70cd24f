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


STORE = "it belongs to the store, which this version does not have; remove it"
ALWAYS_EXACT = "expiry here is exact, by timer; remove the element"
DELETED_AT_ONCE = "what is to be deleted here goes at its time, by timer; remove the element"
LAST_VALUE = "last-value queues are not built yet; a ring-size of 1 keeps the newest message of a whole queue"
ON_SIGHUP = "the file is read again on SIGHUP; remove the element"
HTTP_API = "management is by HTTP: give an http:// acceptor"
AUTO_CREATE = "use auto-create-queues and auto-create-addresses"
AUTO_DELETE = "use auto-delete-queues and auto-delete-addresses"
PORTABLE = "sockets are left to the operating system; remove it"
TLS = "TLS is not supported by this version"
WEBSOCKET = "WebSocket is not supported by this version"

CORE = _names(
    """
    amqp-use-core-subscription-naming async-connection-execution-enabled bridges broadcast-group-security
    broadcast-groups broker-connections broker-plugins check-for-active-server cluster-connections
    cluster-password cluster-user connection-routers connector-services connectors critical-analyzer
    critical-analyzer-check-period critical-analyzer-policy critical-analyzer-timeout discovery-groups diverts
    federations graceful-shutdown-enabled graceful-shutdown-timeout grouping-handler ha-policy id-cache-size
    internal-naming-prefix journal-lock-acquisition-timeout log-delegate-factory-class-name lock-coordinators
    management-message-rbac management-rbac-prefix mask-password max-saved-replicated-journals-size
    memory-measure-interval memory-warning-threshold message-counter-enabled message-counter-max-day-history
    message-counter-sample-period message-expiry-thread-priority mirror-ack-manager-page-attempts
    mirror-ack-manager-queue-attempts mirror-ack-manager-retry-delay mirror-page-transaction
    mirror-ack-manager-warn-unacked network-check-NIC network-check-URL-list network-check-list
    network-check-period network-check-ping-command network-check-ping6-command network-check-timeout
    password-codec persist-id-cache populate-validated-user reject-empty-validated-user
    remoting-incoming-interceptors remoting-interceptors remoting-outgoing-interceptors resolve-protocols
    resolveProtocols resource-limit-settings scheduled-thread-pool-max-size security-invalidation-interval
    server-dump-interval suppress-session-notifications system-property-prefix temporary-queue-namespace
    thread-pool-max-size transaction-timeout transaction-timeout-scan-period uuid-namespace
    view-permission-method-match-pattern authentication-cache-size authorization-cache-size
    global-max-messages
    """,
    dict.fromkeys(
        """
        bindings-directory create-bindings-dir create-journal-dir disk-scan-period journal-buffer-size
        journal-buffer-timeout journal-compact-min-files journal-compact-percentage journal-datasync
        journal-device-block-size journal-directory journal-file-open-timeout journal-file-size
        journal-max-atticfiles journal-max-io journal-min-files journal-pool-files journal-retention-directory
        journal-sync-non-transactional journal-sync-transactional journal-type large-messages-directory
        log-journal-write-rate max-disk-usage max-redelivery-records min-disk-free node-manager-lock-directory
        page-max-concurrent-io page-sync-timeout paging-directory persist-delivery-count-before-delivery
        purge-page-folders read-whole-page store literal-page-folders disk-full-policy
        """.split(),
        STORE,
    )
    | {
        "address-queue-scan-period": DELETED_AT_ONCE,
        "configuration-file-refresh-period": ON_SIGHUP,
        "global-max-size-percent-of-jvm-max-memory": "there is no JVM here; use global-max-size",
        "jmx-domain": HTTP_API,
        "jmx-management-enabled": HTTP_API,
        "jmx-use-broker-name": HTTP_API,
        "management-address": HTTP_API,
        "management-notification-address": HTTP_API,
        "message-expiry-scan-period": ALWAYS_EXACT,
        "metrics": "metrics are always on, at /metrics of an http:// acceptor; remove the element",
        "metrics-plugin": "metrics are always on, at /metrics of an http:// acceptor; remove the element",
        "queues": "write the queue into <addresses>, within <address><anycast> or <address><multicast>",
        "security-settings": "roles are not supported by this version; who may connect is in the users-file",
        "wild-card-routing-enabled": "use <wildcard-addresses><routing-enabled>",
        "connection-ttl-check-interval": "silent connections are closed exactly in time; remove the element",
    },
)

CONFIGURATION = _names("", {"jms": "write addresses and queues into <core><addresses>", "server": ""})

ADDRESS_SETTING = _names(
    """
    auto-delete-addresses-skip-usage-check config-delete-diverts default-consumer-window-size
    default-group-buckets default-group-first-key default-group-rebalance
    default-group-rebalance-pause-dispatch enable-ingress-timestamp id-cache-size initial-queue-buffer-size
    intermediate-message-buffer-initial-size management-message-attribute-size-limit
    message-counter-history-day-limit redistribution-delay retroactive-message-count
    slow-consumer-check-period slow-consumer-policy slow-consumer-threshold
    slow-consumer-threshold-measurement-unit
    """,
    dict.fromkeys(
        """
        page-size-bytes page-max-cache-size page-limit-bytes page-limit-messages page-full-policy
        max-read-page-messages max-read-page-bytes prefetch-page-messages prefetch-page-bytes
        """.split(),
        STORE,
    )
    | dict.fromkeys("last-value-queue default-last-value-queue default-last-value-key".split(), LAST_VALUE)
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

WILDCARDS = _names("", {"enabled": "use routing-enabled"})

SECTIONS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "configuration": CONFIGURATION,
        "core": CORE,
        "address-setting": ADDRESS_SETTING,
        "queue": QUEUE,
        "wildcard-addresses": WILDCARDS,
    }
)
"""By the element in which the names stand."""

ACCEPTOR_PARAMETERS = _names(
    """
    activemqServerName amqpCredits amqpDuplicateDetection amqpIdleTimeout amqpLowCredits
    amqpMinLargeMessageSize amqpSendSettled amqpTreatRejectAsUnmodifiedDeliveryFailed auto-start autoStart
    clusterConnection connect-timeout-millis host httpClientIdleScanPeriod httpClientIdleTime httpEnabled
    httpRequiresSessionId httpResponseTime httpServerScanPeriod httpUpgradeEnabled httpUpgradeEndpoint
    maxInactivityDuration maxInactivityDurationInitalDelay nioRemotingThreads port proxyProtocolEnabled
    quietPeriod redirect-to remotingThreads router securityDomain servletPath shutdownTimeout supportAdvisory
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
        crlPath enabledCipherSuites enabledProtocols forceSSLParameters keyStoreAlias keyStorePassword
        keyStorePath keyStoreProvider keyStoreType needClientAuth ocspResponderURL passwordCodec sniHost
        sslAutoReload sslContext sslEnabled sslKrb5Config sslProvider trustAll trustManagerFactoryPlugin
        trustStorePassword trustStorePath trustStoreProvider trustStoreType useDefaultSslContext verifyHost
        wantClientAuth
        """.split(),
        TLS,
    )
    | dict.fromkeys(
        """
        stompMaxFramePayloadLength webSocketCompressionSupported webSocketEncoderType
        webSocketMaxFramePayloadLength
        """.split(),
        WEBSOCKET,
    )
    | dict.fromkeys(
        "stompMinLargeMessageSize stomp-min-large-message-size".split(),
        "every message has the same kind of body here; its limit is maxBodyLength",
    ),
)

SCHEMES: Mapping[str, str] = MappingProxyType(
    {
        "https": "TLS",
        "ssl": "TLS",
        "stomp+ssl": "TLS",
        "vm": "in-VM",
        "ws": "WebSocket",
        "wss": "WebSocket over TLS",
    }
)
"""What a listener's URL may start with elsewhere, and what that would be."""

PROTOCOLS = frozenset({"AMQP", "CORE", "HORNETQ", "MQTT", "OPENWIRE", "STOMP"})
"""What Artemis takes in ``protocols``."""
