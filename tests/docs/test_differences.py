"""docs/artemis.md: the right column of rows that no other test is about."""

import pytest

from ..broker_document import broker_xml
from ..management import Answered
from ..service import Service

SETTINGS = {"#": {"auto-delete-queues": "false", "default-address-routing-type": "ANYCAST"}}


def test_a_smaller_ring_and_a_paused_queue_over_a_restart(tmp_path):
    broker = Service(tmp_path, tmp_path / "data").start(broker_xml(settings=SETTINGS))
    management, client = broker.management(), broker.client()
    client.connect()
    management.ask("POST", "/queues", {"name": "ring", "ringSize": 10})
    client.put("/queue/ring", *"01234567", persistent="true")
    client.put("/queue/paused", "x", persistent="true")
    client.disconnect()
    management.update("ring", ringSize=3)
    management.update("paused", paused=True)
    assert management.queue("ring")["messageCount"] == 8
    with pytest.raises(Answered) as refused:
        management.update("ring", ringSize=0)
    assert refused.value.status == 400
    broker.stop()
    broker.start()
    management, client = broker.management(), broker.client()
    assert management.queue("ring")["messageCount"] == 3
    assert management.queue("paused")["paused"] is True
    client.connect()
    client.subscribe("/queue/paused")
    client.nothing()
    client.subscribe("/queue/ring", id="2")
    client.messages("5", "6", "7")
    broker.stop()


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
def test_names_of_jms_in_selectors(connect, name, selector):
    client = connect()
    more = {"type": "t", "correlation-id": "c", "reply-to": "/queue/r"}
    client.put(f"/queue/{name}", selector, priority="7", JMSXGroupID="g", **more)
    client.subscribe(f"/queue/{name}", selector=selector)
    client.message(selector)


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_a_queue_of_another_address(connect, name, command):
    client = connect()
    client.put(f"/queue/{name}", "x")
    client.send(command, {"destination": f"other::{name}", "id": "1"})
    client.error(f"Queue {name} is bound to address {name}, not to other")
