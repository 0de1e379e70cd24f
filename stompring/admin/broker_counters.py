"""The counters of the broker as a whole."""

from __future__ import annotations

from .counters import COUNTER, GAUGE, Counter
from .limit_counters import OF_LIMITS
from .security_counters import OF_SECURITY
from .served import Served
from .store_counters import OF_STORE


def memory_percentage(served: Served) -> float:
    """How much of global-max-size is used, 0 where there is no limit."""
    memory = served.broker.memory
    return round(100 * memory.bytes / memory.max_bytes, 2) if memory.max_bytes > 0 else 0.0


BROKER: tuple[Counter[Served], ...] = (
    Counter(
        "uptime",
        "stompring_uptime_seconds",
        GAUGE,
        "Time since the broker started.",
        lambda s: s.broker.clock.steady.now - s.broker.begun,
        scale=0.001,
    ),
    Counter(
        "connectionCount",
        "stompring_connections",
        GAUGE,
        "STOMP connections that are open.",
        lambda s: len(s.connections),
    ),
    Counter(
        "totalConnectionCount",
        "stompring_connections_total",
        COUNTER,
        "STOMP connections opened since the start.",
        lambda s: s.connections.total,
    ),
    Counter(
        "addressCount",
        "stompring_addresses",
        GAUGE,
        "Addresses.",
        lambda s: len(s.broker.directory.addresses),
    ),
    Counter("queueCount", "stompring_queues", GAUGE, "Queues.", lambda s: len(s.broker.directory.queues)),
    Counter(
        "heldMessageCount",
        "stompring_messages",
        GAUGE,
        "Messages held; one in several queues counts once.",
        lambda s: s.broker.memory.messages,
    ),
    Counter(
        "addressMemoryUsage",
        "stompring_address_memory_usage_bytes",
        GAUGE,
        "Memory of all messages held; one in several queues counts once.",
        lambda s: s.broker.memory.bytes,
    ),
    Counter(
        "globalMaxSize",
        "stompring_address_memory_limit_bytes",
        GAUGE,
        "Memory that all messages together may take (global-max-size); -1 without a limit.",
        lambda s: s.broker.memory.max_bytes,
    ),
    Counter(
        "globalMaxMessages",
        "stompring_messages_limit",
        GAUGE,
        "Messages that may be held in all (global-max-messages); -1 without a limit.",
        lambda s: s.broker.memory.max_messages,
    ),
    *OF_LIMITS,
    *OF_STORE,
    *OF_SECURITY,
)
