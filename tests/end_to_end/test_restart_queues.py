"""Addresses, queues and subscriptions after a restart, and who may have the data directory."""

import pytest

from ..broker_document import anycast
from ..management import Answered
from .lasting import DURABLE
from .steps import make_queue, written
from .test_security import stompring

pytestmark = pytest.mark.in_memory


ATTRIBUTES = {
    "filter": "colour = 'red'",
    "ringSize": 17,
    "maxConsumers": 3,
    "exclusive": True,
    "purgeOnNoConsumers": False,
    "consumersBeforeDispatch": 1,
    "delayBeforeDispatch": 50,
    "user": "somebody",
}


def test_queues_that_management_made(lasting, how):
    management = lasting.start().management
    make_queue(management, "made", address="a", routingType="MULTICAST", **ATTRIBUTES)
    make_queue(management, "short", routingType="ANYCAST", durable=False)
    make_queue(management, "doomed", routingType="ANYCAST")
    management.ask("DELETE", "/queues/doomed")
    management = lasting.again(how).management
    made = management.queue("made")
    assert {name: made[name] for name in ATTRIBUTES} == ATTRIBUTES
    assert (made["address"], made["routingType"], made["durable"]) == ("a", "MULTICAST", True)
    management.gone("short")
    management.gone("doomed")


@pytest.mark.parametrize("in_memory", [-1, 0], ids=["memory", "pages"])
def test_each_change_that_was_answered_outlasts_a_kill(lasting, in_memory):
    """Killed at once after the answer, with nothing else under way that would have been synced."""
    ask = lasting.start(settings={"q": {"max-size-messages": in_memory}}).management.ask
    ask("POST", "/queues", {"name": "q", "routingType": "ANYCAST"})
    ask = lasting.again().management.ask
    ask("PATCH", "/queues/q", {"ringSize": 7})
    assert lasting.again().management.queue("q")["ringSize"] == 7
    lasting.management.ask("PATCH", "/queues/q", {"paused": True})
    assert lasting.again().management.queue("q")["paused"] is True
    lasting.management.ask("PATCH", "/queues/q", {"paused": False})
    assert lasting.again().management.queue("q")["paused"] is False
    lasting.connect().put("q", *"123", **DURABLE)
    assert lasting.management.ask("POST", "/queues/q/purge") == {"removed": 3}
    assert lasting.again().management.queue("q")["messageCount"] == 0
    lasting.connect().put("q", "4", **DURABLE)
    (message,) = lasting.management.messages("q")
    lasting.management.ask("DELETE", f"/queues/q/messages/{message['messageID']}")
    assert lasting.again().management.queue("q")["messageCount"] == 0
    lasting.connect().put("q", *"56", **DURABLE)
    lasting.management.ask("DELETE", "/queues/q")
    lasting.again().management.gone("q")
    make_queue(lasting.management, "q", routingType="ANYCAST")
    assert lasting.again().management.queue("q")["messageCount"] == 0
    lasting.management.ask("POST", "/addresses", {"name": "a", "routingTypes": ["MULTICAST"]})
    assert lasting.again().management.address("a")["routingTypes"] == ["MULTICAST"]
    lasting.management.ask("DELETE", "/addresses/a")
    lasting.again()
    with pytest.raises(Answered) as answered:
        lasting.management.address("a")
    assert answered.value.status == 404


def test_changes_of_queues(lasting):
    client = lasting.start().connect()
    client.put("q", "1", **DURABLE)
    lasting.management.update("q", ringSize=2, maxConsumers=5)
    client.put("q", "2", "3", **DURABLE)
    queue = lasting.again().management.queue("q")
    assert (queue["ringSize"], queue["maxConsumers"], queue["messageCount"]) == (2, 5, 2)


def test_what_broker_xml_says_wins(lasting):
    lasting.start(addresses=anycast("q", "ring-size='5' max-consumers='9'"))
    lasting.connect().put("q", *"123456", **DURABLE)
    lasting.again("kill", addresses=anycast("q", "ring-size='3' max-consumers='8'"))
    queue = lasting.management.queue("q")
    assert (queue["ringSize"], queue["maxConsumers"], queue["configured"]) == (3, 8, True)
    assert queue["messageCount"] == 5  # a smaller ring takes nothing away by itself
    lasting.connect().put("q", "7", **DURABLE)
    assert lasting.again().drain("q")[-1] == "7"


def test_durable_subscriptions(lasting, how):
    client = lasting.start().connect(client_id="c")
    client.subscribe("/topic/t", id="d", ack="client", durable_subscription_name="d", selector="n > 1")
    client.subscribe("/topic/t", id="passing", ack="client")
    client = lasting.again(how).connect(client_id="c")
    for n in range(4):
        client.put("/topic/t", str(n), n=n, **DURABLE)
    client = lasting.again(how).connect(client_id="c")
    assert [queue["name"] for queue in lasting.management.ask("GET", "/queues")["data"]] == ["c.d"]
    client.subscribe("/topic/t", id="d", ack="client", durable_subscription_name="d", selector="n > 1")
    client.messages("2", "3")
    client.ask("UNSUBSCRIBE", {"id": "d", "durable-subscription-name": "d"})
    lasting.again(how).management.gone("c.d")


def test_temporary_queues_go(lasting):
    client = lasting.start().connect()
    client.put("/temp-queue/answers", "x", **DURABLE)
    client.put("q", "y", **DURABLE)
    queues = lasting.again().management.ask("GET", "/queues")["data"]
    assert [queue["name"] for queue in queues] == ["q"]


@pytest.mark.parametrize("lock_file", ["there", "removed"])
def test_one_broker_for_a_data_directory(lasting, tmp_path, lock_file):
    lasting.start().connect().put("q", "1", **DURABLE)
    if lock_file == "removed":
        (lasting.data / "broker.lock").unlink()
    config = written(tmp_path, "second.xml")
    second = stompring("run", "--config", str(config), "--data", str(lasting.data))
    assert second.returncode != 0
    told = second.stdout + second.stderr
    assert str(lasting.data) in told and "Traceback" not in told
    assert lasting.drain("q") == ["1"]  # and the first has not noticed


def test_a_directory_of_a_later_format_is_left_alone(lasting, tmp_path):
    lasting.start().connect().put("q", "1", **DURABLE)
    lasting.stop()
    version = lasting.data / "schema-version"
    before = version.read_text()
    version.write_text("4711\n")
    config = tmp_path / "broker.xml"
    refused = stompring("run", "--config", str(config), "--data", str(lasting.data))
    told = refused.stdout + refused.stderr
    assert refused.returncode != 0 and "4711" in told and "Traceback" not in told
    version.write_text(before)
    assert lasting.start().drain("q") == ["1"]


def test_counters_begin_anew_and_contents_do_not(lasting):
    client = lasting.start().connect()
    client.put("q", *"12345", **DURABLE)
    client.subscribe("q")
    for message in client.messages(*"12345")[:2]:
        client.answer("ACK", message)
    queue = lasting.again().management.queue("q")
    assert (queue["messageCount"], queue["messagesAdded"], queue["messagesAcknowledged"]) == (3, 3, 0)


def test_many_restarts(lasting):
    lasting.start(core="<journal-file-size>4096</journal-file-size>")
    for life in range(6):
        lasting.connect().put("q", *(f"{life}.{n}" for n in range(20)), **DURABLE)
        lasting.again("stop" if life % 3 else "kill")
    assert lasting.drain("q") == [f"{life}.{n}" for life in range(6) for n in range(20)]
