"""Queues of every kind in an export: a broker goes on with them, and a running broker creates them."""

import pytest

from ..broker_document import broker_xml
from ..broker_process import BrokerProcess
from ..management import Management
from ..property.test_export_import import KINDS, write
from ..stomp_client import StompClient
from .conftest import invoke
from .test_data_import import places


def message(number, queue, **headers):
    place = {"queue": queue, "deliveryCount": 0, "failedAttempts": 0, "dueTime": None, "recurrence": None}
    pairs = [["priority", "4"], ["persistent", "true"], *([name, value] for name, value in headers.items())]
    return {
        **{"number": number, "address": "a", "queues": [place], "priority": 4, "durable": True, "expires": 0},
        **{"timestamp": 1000 + number, "routingType": None, "destination": "a", "user": None, "origin": None},
        **{"group": headers.get("JMSXGroupID"), "groupEnd": False, "headers": pairs, "body": f"{number}"},
    }


MESSAGES = [
    message(1, "last-value", key="a"),
    message(2, "last-value", key="b"),
    message(3, "table", key="a"),
    message(4, "ring"),
    message(5, "ring"),
    message(6, "groups", JMSXGroupID="g"),
    message(7, "groups", JMSXGroupID="g"),
    message(8, "topic"),
]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("kinds") / "all.json"
    write(path, MESSAGES)
    return path


@pytest.fixture(scope="module", params=["offline", "online"])
def broker(request, file, tmp_path_factory):
    root = tmp_path_factory.mktemp("broker")
    config = root / "broker.xml"
    config.write_text(broker_xml())
    if request.param == "offline":
        invoke(f"import {file} --config {config} --data", root / "data")
    with BrokerProcess(config, root / "data") as process:
        if request.param == "online":
            invoke(f"import {file} {places(process)}")
        yield process


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_options_of_the_queue_are_in_the_broker(broker, kind):
    queue = Management(broker.http_port).queue(kind)
    assert {name: queue[name] for name in KINDS[kind]} == KINDS[kind]


def received(broker, queue, number):
    client = StompClient(broker.port)
    client.connect()
    client.subscribe(f"::{queue}", ack="auto")
    frames = [client.message() for _ in range(number)]
    client.nothing()
    client.ask("DISCONNECT")
    return [{"body": frame.body.decode(), "first": frame.get("first")} for frame in frames]


def test_next_message_replaces_the_imported_one_of_its_key(broker):
    client = StompClient(broker.port)
    client.connect()
    for queue in ("last-value", "table"):
        client.put(f"::{queue}", "new", persistent="true", key="a")
    assert [each["body"] for each in received(broker, "last-value", 2)] == ["2", "new"]
    assert [each["body"] for each in received(broker, "table", 1)] == ["new"]


def test_groups_go_to_one_consumer_with_a_header_on_the_first(broker):
    found = received(broker, "groups", 2)
    assert [each["body"] for each in found] == ["6", "7"]
    assert found[0]["first"] == "true" and found[1]["first"] is None


def test_non_destructive_queue_has_its_messages_for_every_consumer(broker):
    assert [received(broker, "topic", 1)[0]["body"] for _ in range(2)] == ["8", "8"]
