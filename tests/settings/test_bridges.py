"""``<bridges>`` and ``<connectors>``: what is read, and how bad ones are refused."""

import pytest

from stompring.errors import ConfigurationError
from stompring.settings.broker_xml import parse_broker_xml
from stompring.settings.model import BridgeConfiguration, ComponentRoutingType, Connector, ConnectorTls
from stompring.settings.urls import parse_connector

REFERENCE = "<static-connectors><connector-ref>c</connector-ref></static-connectors>"


def read(bridge, connectors="<connector name='c'>tcp://far:61613</connector>"):
    """A file whose bridge is on line 3, connectors on line 2."""
    elements = f"<connectors>{connectors}</connectors>\n<bridges>{bridge}</bridges>"
    text = f"<configuration><core>\n{elements}</core></configuration>"
    return parse_broker_xml(text.encode(), "/etc/broker.xml")


def faults(bridge, connectors="<connector name='c'>tcp://far:61613</connector>"):
    with pytest.raises(ConfigurationError) as caught:
        read(bridge, connectors)
    return str(caught.value).splitlines()


def test_a_bridge_with_everything():
    (bridge,) = read(
        "<bridge name='b'><queue-name>q</queue-name><forwarding-address>/queue/r</forwarding-address>"
        "<filter string=\"a = '1'\"/><routing-type>strip</routing-type><concurrency>2</concurrency>"
        "<user>u</user><password>secret</password><client-id>me</client-id>"
        "<use-duplicate-detection>false</use-duplicate-detection>"
        "<confirmation-window-size>10K</confirmation-window-size><producer-window-size>-1</producer-window-size>"
        "<retry-interval>10</retry-interval><retry-interval-multiplier>1.5</retry-interval-multiplier>"
        "<max-retry-interval>20</max-retry-interval><initial-connect-attempts>3</initial-connect-attempts>"
        "<reconnect-attempts>0</reconnect-attempts><check-period>-1</check-period><connection-ttl>100</connection-ttl>"
        f"<pending-ack-timeout>7</pending-ack-timeout>{REFERENCE}</bridge>"
    ).bridges
    assert bridge == BridgeConfiguration(
        "b", (Connector("c", "far", 61613),), "q", "/queue/r", "a = '1'", ComponentRoutingType.STRIP, 2, "u", "secret",
        "me", False, 10240, -1, 10, 1.5, 20, 3, 0, -1, 100, 7,
    )  # fmt: skip
    assert "secret" not in repr(bridge)


def test_connectors_that_no_bridge_names_are_not_looked_at():
    unused = "<connector name='in-vm'>vm://0</connector><connector name='c'>tcp://far:1</connector>"
    (bridge,) = read(f"<bridge name='b'><queue-name>q</queue-name>{REFERENCE}</bridge>", unused).bridges
    assert [connector.name for connector in bridge.connectors] == ["c"]


@pytest.mark.parametrize(
    "bridge, fault",
    [
        (f"<bridge name='b'>{REFERENCE}</bridge>", "3: bridge 'b' has no <queue-name>"),
        (f"<bridge>{REFERENCE}</bridge>", "3: <bridge> has no attribute 'name'"),
        (
            "<bridge name='b'><queue-name>$.artemis.internal.a.queue.anycast.retro</queue-name>"
            f"{REFERENCE}</bridge>",
            "3: bridge 'b': queue '$.artemis.internal.a.queue.anycast.retro' is internal",
        ),
        (
            "<bridge name='b'><queue-name>q</queue-name></bridge>",
            "3: bridge 'b' has no connector; write <static-",
        ),
        (
            "<bridge name='b'><queue-name>q</queue-name><static-connectors><connector-ref>d</connector-ref>"
            "</static-connectors></bridge>",
            "3: <connector-ref> is 'd': no <connector> has that name; known: c",
        ),
        (
            "<bridge name='b'><queue-name>q</queue-name><discovery-group-ref discovery-group-name='g'/>"
            f"{REFERENCE}</bridge>",
            "3: <discovery-group-ref> in <bridge> is an Artemis setting without support in stompring: there is no",
        ),
        (
            f"<bridge name='b'><queue-name>q</queue-name><ha>true</ha>{REFERENCE}</bridge>",
            "3: <ha> in <bridge> is an Artemis setting without support in stompring: a remote broker does not",
        ),
        (
            f"<bridge name='b'><queue-name>q</queue-name><transformer-class-name>X</transformer-class-name>{REFERENCE}"
            "</bridge>",
            "3: <transformer-class-name> in <bridge> is an Artemis setting without support",
        ),
        (
            f"<bridge name='b'><queue-name>q</queue-name><user>u</user><password>ENC(1a2b)</password>{REFERENCE}"
            "</bridge>",
            "3: <password> is encoded, and the key is Artemis's; write a reference",
        ),
        (
            f"<bridge name='b'><queue-name>q</queue-name><password>p</password>{REFERENCE}</bridge>",
            "3: bridge 'b' has a <password> and no <user>",
        ),
        (
            f"<bridge name='b'><queue-name>q</queue-name><retry-intervall>1</retry-intervall>{REFERENCE}</bridge>",
            "3: unknown element <retry-intervall> in <bridge>; did you mean 'retry-interval'?",
        ),
        (
            f"<bridge name='b'><queue-name>q</queue-name><filter string='a ='/>{REFERENCE}</bridge>",
            "3: string of <filter> is 'a ='",
        ),
        (
            f"<bridge name='b'><queue-name>q</queue-name><confirmation-window-size>0</confirmation-window-size>"
            f"{REFERENCE}</bridge>",
            "3: <confirmation-window-size> is '0': must be at least 1",
        ),
        (
            f"<bridge name='b'><queue-name>q</queue-name>{REFERENCE}</bridge>" * 2,
            "3: bridge 'b' is already defined at line 3",
        ),
    ],
)
def test_faults_of_bridges(bridge, fault):
    (found,) = faults(bridge)
    assert found.startswith(f"/etc/broker.xml:{fault}"), found


@pytest.mark.parametrize(
    "url, fault",
    [
        ("ws://far:1", "ws:// is not supported for a connector; use tcp:// or ssl://"),
        ("tcp://far", "the URL has no port: write tcp://far:61613"),
        ("tcp://far:0", "the port of a connector must be from 1 to 65535"),
        ("tcp://far:1?virtualhost=/", "unknown parameter 'virtualhost'; did you mean 'virtualHost'?"),
        (
            "tcp://far:1?trustStorePath=ca.pem",
            "trustStorePath has no effect without TLS: use ssl://, or set sslEnabled",
        ),
        ("ssl://far:1?sslEnabled=false", "sslEnabled=false contradicts the URL: use tcp:// without TLS"),
        ("ssl://far:1?keyPath=a.key", "keyPath requires keyStorePath, the certificate of that key"),
        ("ssl://far:1?keyStorePath=a.pem,b.pem", "keyStorePath of a connector is one file"),
        (
            "tcp://far:1?connect-timeout-millis=0",
            "parameter 'connect-timeout-millis' is '0': must be at least 1",
        ),
    ],
)
def test_faults_of_connectors(url, fault):
    bridge = f"<bridge name='b'><queue-name>q</queue-name>{REFERENCE}</bridge>"
    (found,) = faults(bridge, f"<connector name='c'>{url}</connector>")
    assert found.startswith(f"/etc/broker.xml:2: connector 'c': {fault}"), found


def test_a_connector_with_tls():
    found = parse_connector(
        "c",
        "tcp://[::1]:61612?sslEnabled=true;trustStorePath=ca.pem;verifyHost=false;sniHost=x;virtualHost=/",
    )
    assert found == Connector(
        "c",
        "::1",
        61612,
        virtual_host="/",
        tls=ConnectorTls(trust_store_path="ca.pem", verify_host=False, sni_host="x"),
    )
    assert found.remote == "[::1]:61612"
