"""The shipped policies in a broker as people run it: the shipped example, a disk, restarts."""

import json
import shutil

import pytest

from ..service import Service
from . import ROOT

SHIPPED = ROOT / "config" / "policies.xml"
DURABLE = {"persistent": "true"}


@pytest.fixture
def example(tmp_path):
    """Starts the shipped example with its policies; ``changes`` are of values of properties."""
    (tmp_path / "plugins").symlink_to(ROOT / "plugins")
    shutil.copy(ROOT / "config" / "order.schema.json", tmp_path)
    service = Service(tmp_path, tmp_path / "data")

    def start(changes):
        document = SHIPPED.read_text()
        for old, new in changes.items():
            assert old in document
            document = document.replace(old, new)
        return service.start(document)

    yield start
    assert service.management().ask("GET", "/broker")["policyErrors"] == [], "a policy has failed"
    service.stop()


def connected(broker):
    client = broker.client()
    client.connect()
    return client


def bodies(broker, queue):
    return [message["body"] for message in broker.management().messages(queue)]


def order(number, count=1):
    return json.dumps({"id": str(number), "lines": [{"article": "a", "count": count}]})


def test_the_example_as_it_is_shipped(example):
    broker = example({})
    management, client = broker.management(), connected(broker)
    for body in ("gold 1", "tin 1", "gold 2", "gold 3"):
        client.put(
            "prices.metal", body, symbol=body.split()[0], **{"sent-from": "nowhere", "sent-by": "root"}
        )
    client.subscribe("prices.metal", ack="auto")
    stamped, _ = client.messages("tin 1", "gold 3")
    assert stamped["sent-from"] == client.wire.name and stamped.get("sent-by") is None
    management.expect("prices.metal", messagesReplaced=2, messageCount=0)

    client.put("alarms.fire", *(f"note {n}" for n in range(1000)), priority=1)
    client.put("alarms.fire", "alarm 1", "alarm 2", priority=9)
    management.expect("alarms.fire", messageCount=1000, messagesReplaced=2)

    client.put("measurements.heat", *(str(n) for n in range(5020)), sensor="loud")
    client.put("measurements.heat", "quiet", sensor="quiet")
    management.expect("measurements.heat", messageCount=5003)
    management.expect_address("measurements.heat", droppedMessageCount=18)

    client.put("positions.ships", *(str(n) for n in range(5010)))
    management.expect("positions.ships", messageCount=5000, messagesReplaced=10)

    began = broker.world.seconds()
    client.put("orders.fast", *map(order, range(60)))
    assert broker.world.seconds() - began >= 0.49, "50 beyond the burst, at 100 a second"
    assert bodies(broker, "orders.fast") == list(map(order, range(60)))
    client.put("orders.test", "no order")
    client.put("payments.card", *map(str, range(201)))
    assert bodies(broker, "seen.payments") == ["0", "100", "200"]
    client.send("SEND", {"destination": "orders.new"}, order(1, count=0).encode())
    client.error("$.lines[0].count violates minimum: 1", "policy order-schema of address orders.new")


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_rate_holds_over_a_restart(example, how):
    rate = '<property key="messages-per-second" value="0.01"/><property key="burst" value="3"/>'
    each = '<property key="messages-per-second-per-connection" value="100"/>'
    burst = '<property key="burst-per-connection" value="10"/>'
    broker = example({each: f'{rate}<property key="when-exceeded" value="drop"/>', burst: ""})
    connected(broker).put("orders.test", "1", "2", **DURABLE)
    getattr(broker, how)()
    broker.start()
    broker.world.sleep(1)  # a killed broker had written a second ahead
    connected(broker).put("orders.test", "3", "4", "5", **DURABLE)
    assert bodies(broker, "orders.test") == ["1", "2", "3"]
    getattr(broker, how)()
    broker.start()
    broker.world.sleep(101)
    connected(broker).put("orders.test", "6", "7", **DURABLE)
    assert bodies(broker, "orders.test") == ["1", "2", "3", "6"]


def taken(client, queue, count):
    client.subscribe(queue, ack="client", id=queue)
    messages = [client.message() for _ in range(count)]
    client.answer("ACK", messages[-1])
    return [int(message.body) for message in messages]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_tiers_on_disk_over_a_restart(example, how):
    broker = example({"size>1000<": "size>10<", "size>100000<": "size>50<"})
    connected(broker).put("log", *map(str, range(100)), **DURABLE)
    getattr(broker, how)()
    client = connected(broker.start())
    client.put("log", "100", "101", **DURABLE)
    broker.management().expect("log", messageCount=10)
    broker.management().expect("log-of-yesterday", messageCount=50)
    assert taken(client, "log", 10) == list(range(92, 102))
    assert taken(client, "log-of-yesterday", 50) == list(range(42, 92))
    client.nothing()


def test_the_age_of_a_message_counts_over_a_restart(example):
    broker = example({})
    connected(broker).put("positions.a", "1", "2", **DURABLE, priority=9)
    broker.kill()
    broker.world.sleep(298)
    broker.start()
    assert bodies(broker, "positions.a") == ["1", "2"]
    broker.world.sleep(2.1)
    broker.management().expect("positions.a", messageCount=0, messagesReplaced=2)
    connected(broker).put("positions.a", "3", **DURABLE)
    broker.stop()
    broker.world.sleep(300)
    broker.start().management().expect("positions.a", messageCount=0, messagesReplaced=1)


def test_keys_are_known_again_after_a_restart_and_a_reload(example):
    broker = example({})
    for body in ("a 1", "b 1"):
        connected(broker).put("prices.x", body, symbol=body[0], **DURABLE)
    broker.stop()
    client = connected(broker.start())
    client.put("prices.x", "a 2", symbol="a", **DURABLE)
    assert bodies(broker, "prices.x") == ["b 1", "a 2"]
    symbol = 'key="key" value="symbol"/>'
    document = broker.config.read_text()
    assert "cannot" not in broker.reload(
        document.replace(symbol, f'{symbol}<property key="keep" value="2"/>')
    )
    for body in ("a 3", "a 4", "b 2"):
        client.put("prices.x", body, symbol=body[0], **DURABLE)
    assert bodies(broker, "prices.x") == ["b 1", "a 3", "a 4", "b 2"]
