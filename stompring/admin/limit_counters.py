"""The counters of what is limited, and of clients that are too slow."""

from __future__ import annotations

from stompring.session.subscription import AcknowledgedSubscription

from .counters import COUNTER, GAUGE, Counter
from .served import Served


def consumers_without_credit(served: Served) -> int:
    """Consumers that get nothing more until they acknowledge something."""
    return sum(
        isinstance(subscription, AcknowledgedSubscription) and subscription.exhausted
        for session in served.connections
        for subscription in session.subscriptions.values()
    )


OF_LIMITS: tuple[Counter[Served], ...] = (
    Counter(
        "globalMaxConnections",
        "stompring_connections_limit",
        GAUGE,
        "STOMP connections that there may be (global-max-connections); -1 without a limit.",
        lambda s: s.connections.threshold.limit,
    ),
    Counter(
        "globalMaxAddresses",
        "stompring_addresses_limit",
        GAUGE,
        "Addresses that there may be (global-max-addresses); -1 without a limit.",
        lambda s: s.broker.configuration.global_max_addresses,
    ),
    Counter(
        "globalMaxQueues",
        "stompring_queues_limit",
        GAUGE,
        "Queues that there may be (global-max-queues); -1 without a limit.",
        lambda s: s.broker.configuration.global_max_queues,
    ),
    Counter(
        "transactionSize",
        "stompring_transactions_bytes",
        GAUGE,
        "Memory of the messages in open transactions, which no queue has yet.",
        lambda s: s.broker.held.bytes,
    ),
    Counter(
        "globalMaxTransactionSize",
        "stompring_transactions_limit_bytes",
        GAUGE,
        "Memory that they may take together (global-max-transaction-size); -1 without a limit.",
        lambda s: s.broker.held.limit,
    ),
    Counter(
        "slowConnections",
        "stompring_slow_connections",
        GAUGE,
        "Connections whose socket has taken nothing of a full outbox for 10 seconds.",
        lambda s: s.outgoing.slow.count,
    ),
    Counter(
        "exhaustedConsumers",
        "stompring_exhausted_consumers",
        GAUGE,
        "Consumers that get nothing more until they acknowledge something.",
        consumers_without_credit,
    ),
    Counter(
        "slowConsumers",
        "stompring_slow_consumers",
        GAUGE,
        "Consumers below the slow-consumer-threshold of their address when they were last looked at.",
        lambda s: s.broker.slow_consumers.slow,
    ),
    Counter(
        "slowConsumersNotified",
        "stompring_slow_consumers_notified_total",
        COUNTER,
        "Times that a consumer was found to be slow and left alone (slow-consumer-policy NOTIFY).",
        lambda s: s.broker.slow_consumers.notified,
    ),
    Counter(
        "slowConsumersKilled",
        "stompring_slow_consumers_killed_total",
        COUNTER,
        "Slow consumers whose connection was closed (slow-consumer-policy KILL).",
        lambda s: s.broker.slow_consumers.killed,
    ),
)
