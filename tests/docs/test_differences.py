"""docs/artemis.md: the right column of rows that no other test is about, on a real broker."""

import pytest

from ..broker_document import broker_xml
from ..broker_process import BrokerProcess
from ..management import Answered, Management
from ..stomp_client import StompClient

SETTINGS = {
    "#": {
        "auto-delete-queues": "false",
        "auto-delete-addresses": "false",
        "default-address-routing-type": "ANYCAST",
    },
    "paged": {"max-size-messages": "5", "address-full-policy": "PAGE", "page-size-bytes": "1K"},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    config = tmp_path_factory.mktemp("differences") / "broker.xml"
    config.write_text(broker_xml(settings=SETTINGS), encoding="utf-8")
    return config


def client_of(broker, **headers):
    client = StompClient(broker.port)
    client.connect({name.replace("_", "-"): value for name, value in headers.items()})
    return client


def test_a_smaller_ring_and_a_paused_queue_over_a_restart(home):
    with BrokerProcess(home) as broker:
        management = Management(broker.http_port)
        management.ask("POST", "/queues", {"name": "ring", "ringSize": 10})
        client = client_of(broker)
        client.put("/queue/ring", *(str(n) for n in range(8)), persistent="true")
        client.put("/queue/paused", "x", persistent="true")
        client.disconnect()
        management.update("ring", ringSize=3)
        management.update("paused", paused=True)
        assert management.queue("ring")["messageCount"] == 8
        with pytest.raises(Answered) as refused:
            management.update("ring", ringSize=0)
        assert refused.value.status == 400
    with BrokerProcess(home) as broker:
        management = Management(broker.http_port)
        assert management.queue("ring")["messageCount"] == 3
        assert management.queue("paused")["paused"] is True
        client = client_of(broker)
        client.subscribe("/queue/paused")
        client.nothing()
        client.subscribe("/queue/ring", id="2")
        client.messages("5", "6", "7")


@pytest.fixture(scope="module")
def broker(home):
    with BrokerProcess(home, home.with_name("other-data")) as broker:
        yield broker


def test_the_destination_of_a_message_is_as_subscribed(broker):
    client = client_of(broker)
    client.put("/queue/as", "x")
    client.subscribe("as")
    assert client.message("x")["destination"] == "as"


def test_a_durable_subscription_with_a_new_selector(broker):
    for colour in ("red", "blue"):
        client = client_of(broker, client_id="c")
        client.ask(
            "SUBSCRIBE",
            {
                "destination": "/topic/t",
                "id": "1",
                "durable-subscription-name": "d",
                "selector": f"colour = '{colour}'",
            },
        )
        sender = client_of(broker)
        for each in ("red", "blue"):
            sender.put("/topic/t", each, colour=each)
        client.message(colour)
        client.nothing()
        client.disconnect()


@pytest.mark.parametrize(
    "selector",
    [
        "JMSPriority = 7 AND AMQPriority = 7",
        "JMSTimestamp > 0",
        "JMSExpiration = 0",
        "JMSDeliveryMode = 'NON_PERSISTENT'",
        "JMSXGroupID = 'g'",
        "JMSType = 't' AND type = 't'",
        "JMSCorrelationID = 'c'",
        "JMSReplyTo = '/queue/r'",
    ],
)
def test_names_of_jms_in_selectors(broker, selector):
    client = client_of(broker)
    headers = {
        "priority": "7",
        "JMSXGroupID": "g",
        "type": "t",
        "correlation-id": "c",
        "reply-to": "/queue/r",
    }
    client.put("/queue/jms", selector, **headers)
    client.ask("SUBSCRIBE", {"destination": "/queue/jms", "id": "1", "selector": selector})
    client.message(selector)
    client.disconnect()


def test_priorities_are_strict_while_paging(broker):
    client = client_of(broker)
    for priority in (1, 5, 9, 0, 4):
        for number in range(20):
            client.put("/queue/paged", f"{priority} {number}", priority=priority)
    assert Management(broker.http_port).address("paged")["paging"] is True
    reader = client_of(broker)
    reader.subscribe("/queue/paged", ack="client-individual")
    for priority in (9, 5, 4, 1, 0):
        for number in range(20):
            reader.answer("ACK", reader.message(f"{priority} {number}"))


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_a_queue_of_another_address(broker, command):
    client = client_of(broker)
    client.put("/queue/mine", "x")
    told = {"destination": "other::mine", **({"id": "1"} if command == "SUBSCRIBE" else {})}
    client.send(command, told)
    client.error("Queue mine is bound to address mine, not to other")
