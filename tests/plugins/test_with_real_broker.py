"""The shipped policies in a broker as people run it: sockets, a disk, restarts, and the shipped example."""

import json
import shutil
import signal
import time
from contextlib import ExitStack

import pytest

from ..broker_document import broker_xml
from ..broker_process import PATIENCE, BrokerProcess
from ..management import Management
from ..stomp_client import StompClient
from . import ROOT

SHIPPED = ROOT / "config" / "policies.xml"
DURABLE = {"persistent": "true"}


def install(folder, **changes):
    """The shipped example with its policies in a folder, on free ports; ``changes`` are of values of properties."""
    (folder / "plugins").symlink_to(ROOT / "plugins")
    shutil.copy(ROOT / "config" / "order.schema.json", folder)
    document = SHIPPED.read_text(encoding="utf-8").replace(":61613?", ":0?").replace(":8161<", ":0<")
    for old, new in changes.items():
        changed = document.replace(old, new)
        assert changed != document
        document = changed
    config = folder / "broker.xml"
    config.write_text(document, encoding="utf-8")
    return config


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    with BrokerProcess(install(tmp_path_factory.mktemp("policies"))) as broker:
        yield broker


@pytest.fixture
def client(shipped):
    dialogue = StompClient(shipped.port)
    dialogue.connect()
    yield dialogue
    dialogue.close()


@pytest.fixture
def management(shipped):
    found = Management(shipped.http_port)
    yield found
    assert found.ask("GET", "/broker")["policyErrors"] == [], "a policy has failed"


def bodies(management, queue):
    return [message["body"] for message in management.messages(queue)]


# ---- the example as it is shipped


def test_prices(client, management):
    for body in ("gold 1", "tin 1", "gold 2", "gold 3"):
        client.put("prices.metal", body, symbol=body.split()[0])
    client.subscribe("prices.metal", ack="auto")
    client.messages("tin 1", "gold 3")
    management.expect("prices.metal", messagesReplaced=2, messageCount=0)


def test_orders_that_are_none(client):
    client.put("orders.test", "no order")
    client.put("orders.new", json.dumps({"id": "1", "lines": [{"article": "a", "count": 1}]}))
    wrong = json.dumps({"id": "2", "lines": [{"article": "a", "count": 0}]}).encode()
    client.send("SEND", {"destination": "orders.new"}, wrong)
    client.error("$.lines[0].count violates minimum: 1", "policy order-schema of address orders.new")


def test_a_client_that_is_too_fast_is_slowed_down_and_loses_nothing(client, management):
    orders = [json.dumps({"id": str(n), "lines": [{"article": "a", "count": 1}]}) for n in range(60)]
    began = time.monotonic()
    client.put("orders.fast", *orders)
    took = time.monotonic() - began
    assert took >= 0.49  # 50 beyond the burst, at 100 a second
    assert took < 0.49 + PATIENCE
    assert bodies(management, "orders.fast") == orders


def test_stamps(client):
    client.subscribe("somewhere", ack="auto")
    client.put("somewhere", "x", **{"sent-from": "nowhere", "sent-by": "root"})
    message = client.message("x")
    host, port = client.socket.getsockname()
    assert message["sent-from"] == f"{host}:{port}"
    assert message.get("sent-by") is None


def test_alarms_push_notes_out(client, management):
    client.put("alarms.fire", *(f"note {n}" for n in range(1000)), priority=1)
    client.put("alarms.fire", "alarm 1", "alarm 2", priority=9)
    management.expect("alarms.fire", messageCount=1000, messagesReplaced=2)
    client.subscribe("alarms.fire", prefetch_count=3)
    client.messages("alarm 1", "alarm 2", "note 2")


def test_the_second_tier_of_the_log(client, management):
    client.put("log", *(str(n) for n in range(1003)))
    management.expect("log", messageCount=1000, messagesReplaced=3)
    management.expect("log-of-yesterday", messageCount=3)
    client.subscribe("log-of-yesterday", ack="auto")
    assert client.messages("0", "1", "2")[0]["_AMQ_ORIG_ADDRESS"] == "log"


def test_measurements(client, management):
    client.put("measurements.heat", *(str(n) for n in range(5000)), sensor="loud")
    client.put("measurements.heat", *(str(n) for n in range(20)), sensor="loud")
    client.put("measurements.heat", "quiet", sensor="quiet")
    management.expect("measurements.heat", messageCount=5003)
    management.expect_address("measurements.heat", droppedMessageCount=18)


def test_positions(client, management):
    client.put("positions.ships", *(str(n) for n in range(5010)))
    management.expect("positions.ships", messageCount=5000, messagesReplaced=10)


# ---- with the disk, and over a restart


class Lasting:
    """A data directory and the brokers that run on it one after the other."""

    def __init__(self, config, opened):
        self.config = config
        self._opened = opened
        self.start()

    def start(self):
        self.broker = BrokerProcess(self.config).__enter__()
        self.management = Management(self.broker.http_port)

    def stop(self):
        self.broker.stop()

    def kill(self):
        self.broker.terminate(signal.SIGKILL)
        self.broker._process.wait(PATIENCE)

    def connect(self):
        dialogue = StompClient(self.broker.port)
        self._opened.callback(dialogue.close)
        dialogue.connect()
        return dialogue


@pytest.fixture
def opened():
    with ExitStack() as stack:
        yield stack


def taken(client, queue, count):
    client.subscribe(queue, ack="client", id=queue)
    messages = [client.message() for _ in range(count)]
    client.answer("ACK", messages[-1])
    return [int(message.body) for message in messages]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_tiers_on_disk_over_a_restart(tmp_path, opened, how):
    tiers = {
        "<default-ring-size>1000</default-ring-size>": "<default-ring-size>10</default-ring-size>",
        "<default-ring-size>100000</default-ring-size>": "<default-ring-size>50</default-ring-size>",
    }
    lasting = Lasting(install(tmp_path, **tiers), opened)
    client = lasting.connect()
    client.put("log", *map(str, range(100)), **DURABLE)
    lasting.management.expect("log", messageCount=10)
    lasting.management.expect("log-of-yesterday", messageCount=50)
    getattr(lasting, how)()
    lasting.start()
    client = lasting.connect()
    client.put("log", "100", "101", **DURABLE)
    lasting.management.expect("log", messageCount=10)
    lasting.management.expect("log-of-yesterday", messageCount=50)
    assert taken(client, "log", 10) == list(range(92, 102))
    assert taken(client, "log-of-yesterday", 50) == list(range(42, 92))
    client.nothing()
    lasting.stop()


def test_the_age_of_a_message_counts_over_a_restart(tmp_path, opened):
    lasting = Lasting(install(tmp_path, **{'value="300000"': 'value="4000"'}), opened)
    client = lasting.connect()
    began = time.monotonic()
    client.put("positions.a", "1", "2", **DURABLE, priority=9)
    lasting.kill()
    time.sleep(2)
    lasting.start()
    ready = time.monotonic()
    lasting.management.expect("positions.a", messageCount=0, messagesReplaced=2)
    gone = time.monotonic()
    assert gone - began >= 4, "they were young enough"
    assert gone - ready < 4, "their age did not begin anew with the restart, however long that took"
    lasting.connect().put("positions.a", "3", **DURABLE)
    sent = time.monotonic()
    assert bodies(lasting.management, "positions.a") == ["3"]
    lasting.stop()
    time.sleep(max(0.0, sent + 4 - time.monotonic()))
    lasting.start()
    lasting.management.expect("positions.a", messageCount=0, messagesReplaced=1)
    lasting.stop()


def test_keys_are_known_again_after_a_restart_and_a_reload(tmp_path, opened):
    lasting = Lasting(install(tmp_path), opened)
    client = lasting.connect()
    for body in ("a 1", "b 1"):
        client.put("prices.x", body, symbol=body[0], **DURABLE)
    lasting.stop()
    lasting.start()
    client = lasting.connect()
    client.put("prices.x", "a 2", symbol="a", **DURABLE)
    assert bodies(lasting.management, "prices.x") == ["b 1", "a 2"]
    document = lasting.config.read_text(encoding="utf-8")
    document = document.replace(
        'key="key" value="symbol"/>', 'key="key" value="symbol"/><property key="keep" value="2"/>'
    )
    assert "is not" not in lasting.broker.reload(document)
    for body in ("a 3", "a 4", "b 2"):
        client.put("prices.x", body, symbol=body[0], **DURABLE)
    assert bodies(lasting.management, "prices.x") == ["b 1", "a 3", "a 4", "b 2"]
    lasting.stop()


# ---- rate-limit at an address that is full


LIMITED = """
<address-policy name="rate-limit">
<property key="messages-per-second" value="0.01"/><property key="burst" value="20"/>
<property key="when-exceeded" value="{}"/>
</address-policy>"""


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """An address for each way of ``when-exceeded``, which BLOCKs at three messages. A token takes 100 seconds."""
    folder = tmp_path_factory.mktemp("limited")
    (folder / "plugins").symlink_to(ROOT / "plugins")
    settings = {
        f"limited.{way}": {
            "max-size-messages": 3,
            "address-full-policy": "BLOCK",
            "address-policy": LIMITED.format(way),
        }
        for way in ("delay", "refuse", "drop")
    }
    config = folder / "broker.xml"
    config.write_text(
        broker_xml(
            settings=settings, core='<broker-plugins><broker-plugin name="rate-limit"/></broker-plugins>'
        )
    )
    with BrokerProcess(config) as broker:
        yield broker


@pytest.mark.parametrize("way", ["delay", "refuse", "drop"])
def test_blocked_burst_loses_no_message_and_is_not_delayed(limited, way):
    """Each of the 20 messages of a burst waits again and again while a consumer acknowledges one by one."""
    bodies = [str(number) for number in range(20)]
    producer, consumer = StompClient(limited.port), StompClient(limited.port)
    producer.connect()
    consumer.connect()
    for place, body in enumerate(bodies):
        producer.send("SEND", {"destination": f"/queue/limited.{way}", "receipt": place}, body.encode())
    consumer.subscribe(f"/queue/limited.{way}")
    for body in bodies:
        message = consumer.message(body)
        consumer.answer("ACK", message)
    for place in range(20):
        producer.expect("RECEIPT", receipt_id=str(place))
    management = Management(limited.http_port)
    assert management.address(f"limited.{way}")["droppedMessageCount"] == 0
    assert management.ask("GET", "/broker")["policyErrors"] == []
    producer.close()
    consumer.close()
