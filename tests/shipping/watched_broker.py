"""A broker with every family of metrics, and clients that change all of them. User and password are ``anna``."""

import socket
from contextlib import ExitStack, contextmanager, suppress

from ..broker_document import EVERYBODY, PREFIXES, anycast, broker_xml
from ..broker_process import PATIENCE, BrokerProcess
from ..certificates import Authority
from ..end_to_end.test_permissions import add
from ..end_to_end.test_promtool import POLICY
from ..stomp_client import StompClient

CORE = """
<journal-retention-directory>data/retention</journal-retention-directory>
<global-max-size>64MB</global-max-size>
<dispatch-memory>1MB</dispatch-memory>
<global-max-messages>100000</global-max-messages>
<global-max-connections>20</global-max-connections>
<broker-plugins><broker-plugin name="slow"/></broker-plugins>
"""


@contextmanager
def watched_broker(directory):
    """A broker with security, TLS, the PROXY protocol, all limits, paging, retention, rings and a policy."""
    Authority(directory).issue("broker.pem")
    (directory / "plugins").mkdir()
    (directory / "plugins" / "slow.py").write_text(POLICY)
    config = directory / "broker.xml"
    config.write_text(
        broker_xml(
            secure=True,
            core=CORE,
            acceptors=f'<acceptor name="tls">ssl://127.0.0.1:0?keyStorePath=broker.pem;{PREFIXES}</acceptor>'
            f'<acceptor name="proxy">tcp://127.0.0.1:0?proxyProtocolEnabled=true;{PREFIXES}</acceptor>',
            settings={
                "watched": {"address-policy": '<address-policy name="slow"/>'},
                "paged": {"max-size-messages": 5},
                "blocked": {"max-size-messages": 1, "address-full-policy": "BLOCK"},
                "ring": {"default-ring-size": 3},
            },
            addresses="".join(map(anycast, ("watched", "paged", "blocked", "ring", "work"))),
        ),
    )
    add(config, "anna", EVERYBODY)
    add(config, "otto")
    with BrokerProcess(config) as broker:
        broker.may_fault = True
        yield broker


def client(broker, user="anna", passcode=None):
    opened = StompClient(broker.port)
    headers = {"accept-version": "1.2", "host": "localhost", "login": user, "passcode": passcode or user}
    opened.send("CONNECT", headers)
    return opened


def refuse(broker):
    """A wrong password, a missing permission, a request and a TLS connection that are refused."""
    client(broker, "anna", "wrong").error()
    denied = client(broker, "otto")
    denied.expect("CONNECTED")
    denied.send("SEND", {"destination": "work", "receipt": "r"}, b"m")
    denied.error(receipt="r")
    for port, request in (
        (broker.http_port, b"GET / HTTP/1.1\r\nx: " + b"x" * 20_000 + b"\r\n\r\n"),
        (broker.ports["tls"], b"CONNECT\n\n\0" * 10),
        (broker.ports["proxy"], b"CONNECT\n\n\0" * 10),
    ):
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection, suppress(OSError):
            connection.sendall(request)
            while connection.recv(65536):
                pass


@contextmanager
def traffic(broker):
    """Changes every counter; the clients stay connected within the context."""
    with ExitStack() as open_clients:

        def connected():
            opened = client(broker)
            open_clients.callback(opened.close)
            opened.expect("CONNECTED")
            return opened

        producer = connected()
        numbers = [str(number) for number in range(40)]
        producer.put("ring", *numbers)
        producer.put("paged", *["x" * 100_000] * 20, persistent="true")
        producer.put("work", *numbers, persistent="true")
        producer.put("work", "later", AMQ_SCHEDULED_DELAY=3_600_000)
        producer.put("unconsumed", "1")
        producer.put("watched", "slow")
        failing = connected()
        failing.send("SEND", {"destination": "watched", "fail": "1", "receipt": "r"}, b"m")
        failing.error(receipt="r")
        consumer = connected()
        consumer.subscribe("work", id="1")
        for number in numbers[:20]:
            consumer.answer("ACK", consumer.message(number))
        blocked = connected()
        for number in numbers:
            blocked.send("SEND", {"destination": "blocked"}, number.encode())
        refuse(broker)
        yield
