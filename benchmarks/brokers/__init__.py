"""The brokers under test. Each one runs in a new directory, on its own loopback ports."""

from __future__ import annotations

from benchmarks.brokers.activemq import ActiveMQ
from benchmarks.brokers.artemis import Artemis
from benchmarks.brokers.nats import Nats
from benchmarks.brokers.process import Broker, BrokerDied
from benchmarks.brokers.rabbitmq import RabbitMQ
from benchmarks.brokers.relay import Relay
from benchmarks.brokers.stompring import Stompring

BROKERS: dict[str, type[Broker]] = {kind.name: kind for kind in (Stompring, RabbitMQ, ActiveMQ, Artemis)}
# servers that do not speak STOMP: only some cases run on them
FLOORS: dict[str, type[Broker]] = {kind.name: kind for kind in (Relay, Nats)}

__all__ = [
    "BROKERS",
    "FLOORS",
    "ActiveMQ",
    "Artemis",
    "Broker",
    "BrokerDied",
    "Nats",
    "RabbitMQ",
    "Relay",
    "Stompring",
]
