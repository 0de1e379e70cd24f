"""The events of real traffic, counted beside what the clients did and got."""

import re
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from ..end_to_end.lasting import LastingBroker
from .broker_actions import expected_of, run_actions

pytest.importorskip("pyspark", reason="not installed: pip install 'stompring[spark]'")

from .spark_formats import table


def counted(events, messages):
    """By queue: the mark of a message, what became of it, and how often."""
    marks = {row["message_id"]: row["body"].decode().partition(" ")[0] for row in messages}
    found = {}
    for row in events:
        found.setdefault(row["queue"], Counter())[marks[row["message_id"]], row["event"]] += 1
    return found


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    root = tmp_path_factory.mktemp("lived")
    began = datetime.now(UTC)
    with ExitStack() as opened:
        broker = LastingBroker(root, opened)
        opened.callback(broker.stop)
        with run_actions(broker) as actions:
            broker.stop()
    found = {name: table(broker.data, table=name) for name in ("messages", "events")}
    return SimpleNamespace(data=broker.data, expected=expected_of(actions), began=began, **found)


def test_events_are_what_the_clients_did(lived):
    found = counted(lived.events, lived.messages)
    for queue, expected in lived.expected.items():
        assert found.pop(queue) == expected, queue
    assert not found


def test_the_document_has_the_figures_of_its_example(lived):
    text = (Path(__file__).resolve().parents[2] / "docs" / "pipeline.md").read_text()
    (example,) = re.findall(r"where queue = 'orders'.*?```text\n(.*?)```", text, re.DOTALL)
    documented = {event: int(count) for event, count in re.findall(r"^(\S+) +(\d+)$", example, re.MULTILINE)}
    assert documented == Counter(row["event"] for row in lived.events if row["queue"] == "orders")
    described = re.findall(r"^\| `([a-z-]+)` \| (?:a |the time|the same)", text, re.MULTILINE)
    assert {row["event"] for row in lived.events} == set(described)


def test_all_of_them_have_a_time(lived):
    assert lived.began < min(row["time"] for row in lived.events)
    assert max(row["time"] for row in lived.events) < datetime.now(UTC)


@pytest.mark.spark
def test_spark_reads_the_same(lived, spark):
    frame = spark.read.format("stompring").option("table", "events").option("columns", "queue,event")
    counted = frame.load(str(lived.data)).groupBy("queue", "event").count().collect()
    expected = Counter((row["queue"], row["event"]) for row in lived.events)
    assert {(row["queue"], row["event"]): row["count"] for row in counted} == expected


def test_messages_were_written_once_more(lived):
    """Compaction was at work on what waited: else nothing there could have been taken for an event."""
    numbers = [row["message_id"] for row in lived.messages if row["queue"] == "waiting"]
    assert len(numbers) > 2 * len(set(numbers))
