"""What ``retain`` says of an address: messages that no restart brings back are told exactly, or not at all."""

from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install 'stompring[spark]'")

from ..broker_document import anycast, multicast
from ..end_to_end.lasting import DURABLE, LastingBroker
from .broker_actions import CORE, expected_of, run_actions
from .spark_formats import table as rows_of_table
from .test_event_counts import counted

Table = list[dict[str, Any]]


@pytest.fixture
def broker(tmp_path):
    with ExitStack() as opened:
        lasting = LastingBroker(tmp_path, opened)
        opened.callback(lasting.stop)
        yield lasting


def test_with_all_the_events_of_passing_messages_are_what_the_clients_did(broker):
    with run_actions(broker, "ALL") as actions:
        broker.stop()
    messages, events = (
        rows_of_table(broker.data, table="messages"),
        rows_of_table(broker.data, table="events"),
    )
    assert {row["durable"] for row in messages} == {False}
    added = Counter((row["queue"], row["message_id"]) for row in events if row["event"] == "added")
    assert Counter((row["queue"], row["message_id"]) for row in messages) == added
    assert counted(events, messages) == expected_of(actions)
    broker.start()
    assert broker.management.queue("expired")["messageCount"] == 0, "they were not durable"


ADDRESSES = (
    "".join(map(anycast, ("q", "paged")))
    + anycast("ring", 'ring-size="2"')
    + multicast("topic", queue="lasting")
)
QUEUES = ("q", "paged", "ring", "lasting")
PAGED = {"max-size-messages": 3, "page-size-bytes": 4096}


def traffic(broker):
    """Durable messages and others, in durable queues and for a subscriber who is not."""
    client = broker.connect()
    subscriber = broker.connect()
    subscriber.subscribe("/topic/topic", id="s", ack="auto")
    for destination in ("q", "paged", "ring", "/topic/topic"):
        for number in range(10):
            for kind, headers in (("d", DURABLE), ("n", {})):
                client.put(destination, f"{destination}-{kind}{number} ".ljust(200, "x"), **headers)
    for _ in range(20):
        subscriber.message()


def test_with_durable_nothing_of_the_others_is_there(broker):
    broker.start(core=CORE, addresses=ADDRESSES, settings={"#": {"retain": "DURABLE"}, "paged": PAGED})
    traffic(broker)
    broker.drain("paged")
    broker.drain("q")
    broker.stop()
    messages, events = (
        rows_of_table(broker.data, table="messages"),
        rows_of_table(broker.data, table="events"),
    )
    different = {(row["queue"], row["body"]) for row in messages}  # compaction has copied some
    found = Counter((queue, body.decode().split("-")[1][0]) for queue, body in different)
    assert found == {(queue, "d"): 10 for queue in QUEUES}
    assert {row["message_id"] for row in events} == {row["message_id"] for row in messages}
    acknowledged = Counter(row["queue"] for row in events if row["event"] == "acknowledged")
    assert acknowledged == {"q": 10, "paged": 10}


def test_with_none_nothing_of_the_address_is_there_and_all_of_it_comes_back(broker):
    none = {"#": {"retain": "NONE"}, "paged": {**PAGED, "retain": "NONE"}, "ring": {"retain": "DURABLE"}}
    broker.start(core=CORE, addresses=ADDRESSES, settings=none)
    traffic(broker)
    reader = broker.connect()
    reader.subscribe("q", id="r", ack="client-individual", prefetch_count=1)
    for command in ("NACK", "ACK"):
        reader.answer(command, reader.message())
    broker.kill()
    broker.start()
    left = {queue: broker.management.queue(queue)["messageCount"] for queue in ("q", "paged", "lasting")}
    assert left == {"q": 9, "paged": 10, "lasting": 10}
    broker.drain("paged")
    broker.drain("q")
    broker.stop()
    for table in ("messages", "events"):
        assert {row["address"] for row in rows_of_table(broker.data, table=table)} == {"ring"}


def test_a_reload_changes_it_for_messages_that_come(broker):
    broker.start(core=CORE, addresses=ADDRESSES, settings={"q": {"retain": "NONE"}})
    client = broker.connect()
    client.put("q", "before", **DURABLE)
    broker.process.reload(broker.document(settings={"q": {"retain": "ALL"}}))
    client.put("q", "between")
    broker.process.reload(broker.document(settings={"q": {"retain": "DURABLE"}}))
    client.put("q", "after", **DURABLE)
    client.put("q", "passing")
    assert broker.drain("q") == ["before", "between", "after", "passing"]
    broker.stop()
    bodies = {row["message_id"]: row["body"].decode() for row in rows_of_table(broker.data, table="messages")}
    assert sorted(bodies.values()) == ["after", "between"]
    gone = [
        bodies[row["message_id"]]
        for row in rows_of_table(broker.data, table="events")
        if row["event"] == "acknowledged"
    ]
    assert sorted(gone) == ["after", "between"]


def test_after_a_kill_receipted_durable_ones_are_exact_and_others_a_part(broker):
    broker.start(
        core=CORE, addresses=ADDRESSES, settings={"#": {"retain": "ALL"}, "paged": {**PAGED, "retain": "ALL"}}
    )
    traffic(broker)
    reader = broker.connect()
    reader.subscribe("q", id="r", ack="auto")
    taken = {reader.message().body.decode().split()[0] for _ in range(20)}
    broker.again("kill")
    for queue in QUEUES:
        assert all("-d" in text for text in broker.drain(queue)), "nothing that is not durable comes back"
    broker.stop()
    messages, events = (
        rows_of_table(broker.data, table="messages"),
        rows_of_table(broker.data, table="events"),
    )
    marks = {row["message_id"]: row["body"].decode().split()[0] for row in messages}
    for queue in QUEUES:
        there = {marks[row["message_id"]] for row in messages if row["queue"] == queue}
        name = "/topic/topic" if queue == "lasting" else queue
        durable, every = ({f"{name}-{kind}{n}" for kind in kinds for n in range(10)} for kinds in ("d", "dn"))
        assert durable <= there <= every
    acknowledged = {marks[row["message_id"]] for row in events if row["event"] == "acknowledged"}
    assert {mark for mark in taken if "-d" in mark} <= acknowledged
