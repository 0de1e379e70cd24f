"""An instance of an earlier version, whose broker was killed, goes on with this one: configuration, users, messages.

The archives are of `old_instance`.
"""

import json
import tarfile
from pathlib import Path

import pytest

from stompring.errors import ConfigurationError
from stompring.policy.load import PluginSources, load
from stompring.settings.broker_xml import read_broker_xml

from ..broker_process import BrokerProcess
from ..cli.conftest import invoke
from ..end_to_end.test_permissions import http
from .old_instance import connect, management, told

ARCHIVES = sorted(Path(__file__).with_name("instances").glob("*.tar.gz"))

#: Fields of a queue that are of the process, not of the data directory, or that change with time.
OF_PROCESS = {
    "deliveringCount",
    "consumerCount",
    "messagesAdded",
    "messagesAcknowledged",
    "messagesExpired",
    "messagesKilled",
    "messagesReplaced",
    "persistentSize",
    "oldestMessageAge",
    "pagedCount",
}


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def instance(request, tmp_path):
    """The instance, as the earlier version left it."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    yield tmp_path


def start(instance):
    return BrokerProcess(instance / "etc" / "broker.xml", instance / "data")


def comparable(shown, like):
    """Queues with their messages, with the fields that the earlier version showed too."""
    return {
        name: {
            "queue": {
                key: value
                for key, value in shown[name]["queue"].items()
                if key in like[name]["queue"] and key not in OF_PROCESS
            },
            "messages": [
                {key: value for key, value in message.items() if key in before and key != "size"}
                for message, before in zip(shown[name]["messages"], like[name]["messages"], strict=True)
            ],
        }
        for name in shown
    }


def test_queues_and_messages_are_those_of_the_earlier_version(instance):
    expected = json.loads((instance / "expected.json").read_text())
    for kill in (True, False):
        broker = start(instance).__enter__()
        assert comparable(told(broker), expected) == comparable(expected, expected)
        warnings = [line for line in broker.log if "ERROR" in line or "WARN" in line]
        assert [line for line in warnings if "paged.later is full" not in line] == []
        broker.kill() if kill else broker.stop()
    verified = invoke("verify", "--data", instance / "data")
    assert (verified.exit_code, verified.stdout) == (0, "")


def test_clients_go_on_where_they_were(instance):
    with start(instance) as broker:
        client = connect(broker, client_id="desk")
        # deliveries in order, over pages; selectors and rings
        for queue, first, last in (("paged.orders", 30, 39), ("plain", 7, 39), ("ring.prices", 36, 39)):
            client.subscribe(queue, id=queue, ack="client-individual")
            for number in range(first, last + 1):
                client.answer("ACK", client.message(f"{number} ".ljust(150, "x")))
            client.ask("UNSUBSCRIBE", {"id": queue})
            client.inbox.clear()
        client.subscribe("/topic/news", id="n", durable_subscription_name="desk-news")
        assert client.message().body == b"second"
        # duplicates are known, the ring goes on, scheduled messages wait
        client.put("unique", *(f"{number}" for number in range(3)), persistent="true", _AMQ_DUPL_ID="id-4")
        client.put("ring.prices", *"abcdef", persistent="true")
        queue = management(broker).queue
        assert queue("unique")["messageCount"] == 5 and queue("ring.prices")["messageCount"] == 4
        scheduled = {name: queue(name)["scheduledCount"] for name in ("later", "paged.later", "redelivered")}
        assert scheduled == {"later": 2, "paged.later": 40, "redelivered": 1}
        client.disconnect()


def test_users_keep_their_passwords_and_permissions(instance):
    with start(instance) as broker:
        for name, status in (("ada", 200), ("mona", 200), ("carl", 403)):
            assert http(broker, "GET", "/metrics", f"{name}:{name}'s password")[0] == status
        assert http(broker, "GET", "/metrics", "ada:wrong")[0] == 401


def test_every_configuration_of_the_earlier_version_is_valid(instance):
    """Its examples, with its plugins."""
    files = sorted((instance / "config").glob("*.xml"))
    assert len(files) >= 10
    faults = []
    for file in files:
        try:
            load(read_broker_xml(file), PluginSources(str(file)))
        except ConfigurationError as error:
            faults.append(str(error))
    assert faults == []
