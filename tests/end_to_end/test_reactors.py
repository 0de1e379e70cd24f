"""The broker on its own reactor and on Twisted's: the same behaviour over TCP, TLS and behind a proxy."""

import pytest

from ..broker_process import BrokerProcess
from ..stomp_client import StompClient
from .secured import PREFIXES, Secured
from .steps import say

URLS = {
    "stomp": f"tcp://127.0.0.1:0?{PREFIXES}",
    "tls": f"ssl://127.0.0.1:0?keyStorePath=broker.pem;{PREFIXES}",
    "proxy": f"tcp://127.0.0.1:0?proxyProtocolEnabled=true;{PREFIXES}",
    "http": "https://127.0.0.1:0?keyStorePath=broker.pem",
}

#: What the API calls the reactor of ``--reactor``.
NAMES = {"stompring": "stompring", "stock": "EPollReactor"}


@pytest.fixture(scope="module", params=NAMES)
def secured(request, tmp_path_factory):
    found = Secured(tmp_path_factory.mktemp("reactor"), URLS)
    found.broker = BrokerProcess(found.config, options=["--reactor", request.param])
    with found.broker:
        found.reactor = NAMES[request.param]
        yield found


def connected(secured, acceptor):
    if acceptor == "tls":
        client = secured.open("tls")
    else:
        before = b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 61613\r\n" if acceptor == "proxy" else b""
        client = StompClient(secured.broker.ports[acceptor], before=before)
    client.connect()
    return client


def test_the_log_and_the_api_name_the_reactor(secured):
    name = secured.reactor
    assert secured.get("/api/v1/broker")["reactor"] == name
    assert any(line.endswith(f"reactor: {name}") for line in secured.broker.log)


@pytest.mark.parametrize("acceptor", ["stomp", "tls", "proxy"])
def test_bursts_and_large_messages_arrive_in_order(secured, acceptor):
    client = connected(secured, acceptor)
    destination = f"/queue/{acceptor}"
    client.subscribe(destination, ack="auto")
    bodies = [str(number) for number in range(300)]
    client.put(destination, *bodies)
    assert [client.message().body.decode() for _ in bodies] == bodies
    large = bytes(range(256)) * 8192
    say(client, destination, large, content_length=len(large))
    assert client.message().body == large
    client.disconnect()


@pytest.mark.parametrize("acceptor", ["stomp", "tls", "proxy"])
def test_a_subscriber_that_does_not_read_gets_everything_once_it_does(secured, acceptor):
    reader, writer = connected(secured, acceptor), connected(secured, "stomp")
    destination = f"/queue/slow-{acceptor}"
    reader.subscribe(destination, ack="auto")
    body = b"x" * 100_000
    for number in range(100):
        say(writer, destination, body, number=number, content_length=len(body))
    writer.put(f"{destination}-end", b"")
    numbers = [int(reader.message()["number"]) for _ in range(100)]
    assert numbers == list(range(100))
    reader.disconnect()
    writer.disconnect()
