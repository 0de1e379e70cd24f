"""The examples of Artemis that do not start, in docs/artemis.md."""

import re

#: Directories of examples by the reason. An example with several brokers may have several.
TEXT = """
high availability:
    features/ha/colocated-failover features/ha/colocated-failover-scale-down features/ha/ha-policy-autobackup
    features/ha/replicated-failback features/ha/replicated-failback-static
    features/ha/replicated-multiple-failover features/ha/replicated-transaction-failover
    features/ha/scale-down features/ha/transaction-failover features/ha/zookeeper-single-pair-failback
cluster:
    features/clustered/clustered-grouping features/clustered/clustered-static-discovery
    features/clustered/clustered-static-oneway features/ha/replicated-failback-static
    features/ha/zookeeper-single-pair-failback
federation:
    features/federation/federated-address features/federation/federated-address-divert
    features/federation/federated-address-downstream features/federation/federated-address-downstream-upstream
    features/federation/federated-queue features/federation/federated-queue-downstream
    features/federation/federated-queue-downstream-upstream
AMQP connections to other brokers:
    features/broker-connection/amqp-bridge features/broker-connection/amqp-federation
    features/broker-connection/amqp-federation-multicast-fanout
    features/broker-connection/amqp-federation-multicast-hub-spoke
    features/broker-connection/amqp-federation-multicast-ring
    features/broker-connection/amqp-federation-over-ssl
    features/broker-connection/amqp-federation-queue-dual-federation
    features/broker-connection/amqp-federation-queue-multiple-brokers
    features/broker-connection/amqp-federation-queue-priority
    features/broker-connection/amqp-federation-queue-pull-messages
    features/broker-connection/amqp-receiving-messages features/broker-connection/amqp-sending-messages
    features/broker-connection/amqp-sending-messages-multicast features/broker-connection/amqp-sending-overssl
    features/broker-connection/disaster-recovery
routing of clients to other brokers:
    features/connection-router/evenly-redirect features/connection-router/symmetric-redirect
    features/connection-router/symmetric-simple
no acceptor speaks STOMP:
    features/broker-connection/amqp-sending-overssl features/standard/interceptor-mqtt
    features/standard/spring-boot-integration protocols/amqp/proton-ruby protocols/amqp/sasl-scram
Java plugin, interceptor or transformer:
    features/standard/broker-msg-auth-plugin features/standard/broker-plugin features/standard/core-bridge
    features/standard/divert features/standard/interceptor features/standard/interceptor-amqp
    features/standard/opentelemetry protocols/stomp/stomp-embedded-interceptor
login module:
    features/standard/security-keycloak features/standard/security-ldap
a keystore with an invalid certificate:
    features/standard/netty-openssl
"""


def by_reason():
    """The names of the examples by reason."""
    return {
        reason: names.split() for reason, names in re.findall(r"^(\S.*):\n((?: .*\n)+)", TEXT, re.MULTILINE)
    }


def table():
    """The table, in Markdown."""
    rows = (f"| {reason} | `{'`, `'.join(names)}` |\n" for reason, names in by_reason().items())
    return "| reason | examples |\n|---|---|\n" + "".join(rows)
