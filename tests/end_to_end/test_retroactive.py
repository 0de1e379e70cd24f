"""Retroactive addresses over sockets: subscribers of every kind, restart, reload, and what lists show."""

import pytest

from ..broker_document import broker_xml, multicast
from ..broker_process import BrokerProcess
from ..cli.conftest import invoke
from ..management import Answered
from .lasting import DURABLE
from .steps import begin, commit, connected, leave, receive, say

pytestmark = pytest.mark.in_memory


SETTINGS = {
    "n.#": {
        "retroactive-message-count": 3,
        "default-address-routing-type": "MULTICAST",
        "auto-delete-queues": "true",
        "auto-delete-addresses": "true",
    }
}


def received(client, destination, **headers):
    """What a new subscription gets at once."""
    client.subscribe(destination, ack="auto", id="look", **headers)
    client.waiting()
    got = [frame.body.decode() for frame in client.inbox]
    client.inbox.clear()
    leave(client, "look")
    return got


def test_new_subscribers_begin_with_the_last_messages(start_broker):
    client = connected(start_broker(settings=SETTINGS))
    for number in range(5):
        client.put("/topic/n.a", str(number), even=number % 2 == 0)
    client.put("/topic/n.b", "b")
    assert received(client, "/topic/n.a") == ["2", "3", "4"]
    assert received(client, "/topic/n.a", selector="even = 'True'") == ["2", "4"]
    assert received(client, "/topic/n.#") == ["2", "3", "4", "b"]
    assert received(client, "n.a::made", destination_type="ANYCAST") == []  # they were sent to a topic
    client.subscribe("/topic/n.a", ack="client-individual")
    first = client.message("2")
    assert (first["_AMQ_ORIG_REASON"], first["_AMQ_ORIG_ADDRESS"]) == ("retroactive", "n.a")
    client.messages("3", "4")
    client.put("/topic/n.a", "5")
    assert client.message("5").get("_AMQ_ORIG_REASON") is None
    client.close()


def test_a_transaction_counts_from_its_commit_on(start_broker):
    client = connected(start_broker(settings=SETTINGS))
    begin(client)
    client.put("/topic/n.a", "1", transaction="t")
    assert received(client, "/topic/n.a") == []
    commit(client)
    assert received(client, "/topic/n.a") == ["1"]
    client.close()


def test_lists_leave_internal_queues_out_and_clients_cannot_use_them(serve):
    broker, management, client = serve(settings=SETTINGS)
    client.put("/topic/n.a", "1", "2")
    management.expect_address("n.a", retroactiveMessages=2, messageCount=0)
    for path in ("/queues", "/addresses"):
        assert not [each for each in management.ask("GET", path)["data"] if each["name"].startswith("$")]
    shown = management.ask("GET", "/broker")
    assert (shown["queueCount"], shown["addressCount"]) == (0, 1)
    assert "$" not in management.text("/metrics")
    name = "$.artemis.internal.n.a.queue.multicast.retro"
    assert [message["body"] for message in management.messages(name)] == ["1", "2"]
    assert refused(management, "DELETE", f"/queues/{name}")
    management.ask("POST", f"/queues/{name}/purge")
    assert received(client, "/topic/n.a") == []
    client.send("SUBSCRIBE", {"destination": f"::{name}", "id": "x", "receipt": "r"})
    client.error("is internal", receipt="r")
    client = connected(broker)
    say(client, "$.artemis.internal.n.a.address.retro", b"x", receipt="r")
    client.error("is internal", receipt="r")


def refused(management, method, path, body=None):
    try:
        management.ask(method, path, body)
    except Answered as answer:
        return answer.status == 400
    return False


def test_durable_messages_survive_and_a_reload_resizes(lasting, how):
    client = lasting.start(settings=SETTINGS, addresses=multicast("n.kept")).connect()
    client.put("/topic/n.a", *"12345", **DURABLE)
    client.put("/topic/n.a", "gone")
    client.put("/topic/n.kept", "6", **DURABLE)
    client = lasting.again(how).connect()
    assert received(client, "/topic/n.a") == ["4", "5"]  # the third of the last three was not durable
    assert received(client, "/topic/n.#") == ["4", "5", "6"]
    client.put("/topic/n.a", "7", **DURABLE)
    smaller = {"n.#": {**SETTINGS["n.#"], "retroactive-message-count": 2}}
    lasting.running.reload(lasting.document(settings=smaller))
    assert received(client, "/topic/n.a") == ["5", "7"]
    lasting.running.reload(lasting.document(settings={"n.#": {"default-address-routing-type": "MULTICAST"}}))
    assert received(client, "/topic/n.a") == []
    client = lasting.again(how, settings=SETTINGS).connect()
    assert received(client, "/topic/n.a") == []
    client.put("/topic/n.a", "8", **DURABLE)
    assert received(client, "/topic/n.a") == ["8"]


def test_a_durable_subscription_gets_them_once(lasting):
    lasting.start(settings=SETTINGS)
    client = lasting.connect(client_id="c")
    client.put("/topic/n.a", "1", **DURABLE)
    receive(client, "/topic/n.a", "1", durable_subscription_name="d")
    client.disconnect()
    client = lasting.again().connect(client_id="c")
    client.subscribe("/topic/n.a", ack="auto", durable_subscription_name="d")
    client.nothing()


def test_what_is_kept_is_exported_and_imported(lasting, tmp_path):
    client = lasting.start(settings=SETTINGS).connect()
    client.put("/topic/n.a", *"12345", **DURABLE)
    lasting.stop()
    file, config = tmp_path / "export.jsonl", tmp_path / "other.xml"
    config.write_text(broker_xml(settings=SETTINGS))
    other = tmp_path / "elsewhere"
    assert invoke("export", file, "--data", lasting.data).exit_code == 0
    assert invoke("import", file, "--data", other).exit_code == 0
    with BrokerProcess(config, other) as broker:  # imported while it was stopped
        client = connected(broker)
        assert received(client, "/topic/n.a") == ["3", "4", "5"]
        client.close()
    with BrokerProcess(
        config, tmp_path / "running"
    ) as broker:  # over HTTP and STOMP: without the internal queues
        places = ("--broker", f"127.0.0.1:{broker.port}", "--server", f"http://127.0.0.1:{broker.http_port}")
        result = invoke("import", file, *places)
        assert result.exit_code == 0, result.output
        broker.management().expect_address("n.a", retroactiveMessages=0)
