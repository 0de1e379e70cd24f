"""``data import`` and ``data export`` of queues of every kind: what was imported is exported, also a second time.

A model says what a queue of each kind has of the messages of a file: the newest of each key, the newest of a ring.
"""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.broker.reference import QueueAttributes
from stompring.settings.model import RoutingType
from stompring.store.bindings import describe_attributes
from stompring.store.export import ExportWriter, PortableQueue

from ..broker_document import broker_xml
from ..cli.conftest import invoke
from .profile import examples

#: Options of the queues, by their names.
KINDS = {
    "plain": {},
    "ring": {"ringSize": 2},
    "last-value": {"lastValue": True, "lastValueKey": "key"},
    "last-value-by-name": {"lastValue": True},
    "last-value-ring": {"lastValue": True, "lastValueKey": "key", "ringSize": 2},
    "table": {"lastValue": True, "lastValueKey": "key", "nonDestructive": True},
    "topic": {"nonDestructive": True, "routingType": "MULTICAST"},
    "groups": {"groupBuckets": 4, "groupRebalance": True, "groupFirstKey": "first"},
    "exclusive": {"exclusive": True, "consumersBeforeDispatch": 2, "delayBeforeDispatch": 10},
    "paused": {"paused": True, "enabled": True},
    "selective": {"filter": "key = 'a'"},
}

#: In the year 2100.
LATE = 4102444800000

PAGING = broker_xml(settings={"#": {"max-size-messages": 3, "page-size-bytes": "10K"}})


@st.composite
def messages(draw):
    """Messages of a file: each in a few queues, with or without key, group and due time."""
    found = []
    for number in range(1, draw(st.integers(0, 14)) + 1):
        queues = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4, unique=True))
        headers = [["priority", "4"], ["persistent", "true"]]
        for name in ("key", "_AMQ_LVQ_NAME"):
            if value := draw(st.sampled_from([None, "a", "b"])):
                headers.append([name, value])
        group = draw(st.sampled_from([None, "g"]))
        if group is not None:
            headers.append(["JMSXGroupID", group])
        due = draw(st.sampled_from([None, None, None, LATE, LATE + 1]))
        count = 0 if due else draw(st.sampled_from([0, 0, 2]))
        places = [
            {
                "queue": queue,
                "deliveryCount": count,
                "failedAttempts": count,
                "dueTime": due,
                "recurrence": None,
            }
            for queue in queues
        ]
        found.append(
            {
                **{"number": number, "address": "a", "queues": places, "priority": 4, "durable": True},
                **{
                    "timestamp": 1000 + number,
                    "expires": draw(st.sampled_from([0, LATE])),
                    "routingType": None,
                },
                **{"destination": "a", "user": None, "origin": None, "group": group, "groupEnd": False},
                **{"headers": headers, "body": f"body {number}"},
            }
        )
    return found


def write(file, found):
    defaults = PortableQueue("q", "a", describe_attributes(QueueAttributes(RoutingType.ANYCAST))).fields()
    with ExportWriter(file, 0) as writer:
        for name, options in KINDS.items():
            writer.write("queue", {**defaults, "name": name, **options})
        for each in found:
            writer.write("message", each)


def round_trip(file, config, again):
    """Import a file into an empty directory and export that: its queues by name, and its messages."""
    for command in (("import", file), ("verify",), ("export", again)):
        result = invoke(*command, "--config", config)
        assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in again.read_text().splitlines()]
    queues = {line["queue"]["name"]: line["queue"] for line in lines if "queue" in line}
    found = [line["message"] for line in lines if "message" in line]
    return queues, [{name: value for name, value in each.items() if name != "number"} for each in found]


def key_of(options, message):
    """The key of a message in a last-value queue."""
    headers = dict(message["headers"])
    return headers.get(options.get("lastValueKey"), headers.get("_AMQ_LVQ_NAME"))


def expected(name, found):
    """The bodies that a queue has, by the model. Those that are due later replace nothing and are not replaced."""
    options, pending, later = KINDS[name], [], []
    for each in found:
        place = next((place for place in each["queues"] if place["queue"] == name), None)
        if place is None:
            continue
        if place["dueTime"]:
            later.append(each)
            continue
        if options.get("lastValue"):
            key = key_of(options, each)
            pending = [old for old in pending if key is None or key_of(options, old) != key]
        pending.append(each)
        ring = options.get("ringSize", -1)
        if ring > 0:
            pending = pending[-ring:]
    return sorted(each["body"] for each in [*pending, *later])


@pytest.mark.parametrize("document", [broker_xml(), PAGING], ids=["memory", "paging"])
@examples(15)
@given(found=messages())
def test_queues_of_every_kind_come_back(document, found):
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        files = [root / f"{number}.json" for number in range(3)]
        write(files[0], found)
        rounds = []
        for number in (1, 2):
            config = root / f"broker-{number}" / "broker.xml"
            config.parent.mkdir()
            config.write_text(document)
            rounds.append(round_trip(files[number - 1], config, files[number]))
        assert rounds[0] == rounds[1]
        queues, imported = rounds[0]
        for name, options in KINDS.items():
            assert {option: queues[name][option] for option in options} == options
            bodies = [
                each["body"] for each in imported if any(place["queue"] == name for place in each["queues"])
            ]
            if document is PAGING and "ringSize" in options:
                assert set(expected(name, found)) <= set(bodies)  # a ring does not count what is in pages
            else:
                assert sorted(bodies) == expected(name, found)
