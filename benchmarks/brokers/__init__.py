"""The brokers that can be measured, each started in a fresh directory on loopback ports of its own."""

from __future__ import annotations

from benchmarks.brokers.activemq import ActiveMQ
from benchmarks.brokers.artemis import Artemis
from benchmarks.brokers.nats import Nats
from benchmarks.brokers.process import Broker, BrokerDied
from benchmarks.brokers.rabbitmq import RabbitMQ
from benchmarks.brokers.relay import Relay
from benchmarks.brokers.stompring import Stompring

BROKERS: dict[str, type[Broker]] = {kind.name: kind for kind in (Stompring, RabbitMQ, ActiveMQ, Artemis)}
# what is no STOMP broker: only some cases can be run on these
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
