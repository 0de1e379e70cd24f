"""Spark on the files of a real broker: while it works, and after it was killed."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

import pytest

from ..broker_document import anycast, multicast
from ..end_to_end.lasting import DURABLE
from ..end_to_end.test_retention import retention
from . import reference_decoder
from .broker_files import broker_files, write_files, write_identified

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PAGED = {"p": {"max-size-messages": 5, "page-size-bytes": 4096}}


def load(spark, data, **options):
    return spark.read.format("stompring").options(**options).load(str(data))


def start(lasting):
    lasting.start(
        core=retention(sample_period=100),
        addresses=anycast("q")
        + anycast("p")
        + multicast("news", queue="news.one", inside="<durable>true</durable>"),
        settings=PAGED,
    )


def test_while_it_works_and_after_it_was_killed(spark, lasting):
    start(lasting)
    client, consumer = lasting.connect(), lasting.connect()
    before = int(time.time() * 1000)
    consumer.subscribe("q", ack="auto")
    sent = {f"first {number}" for number in range(200)}
    for body in sorted(sent):
        client.put("q", body, colour="red", **DURABLE)
    client.put("p", *[f"paged {number:03d}" + "x" * 100 for number in range(200)], **DURABLE)
    client.put("/topic/news", "news", priority=7, **DURABLE)
    middle = int(time.time() * 1000) + 1
    time.sleep(0.01)
    ended = threading.Event()
    more: set[str] = set()

    def go_on():
        while not ended.is_set():
            body = f"later {len(more)}"
            client.put("q", body, **DURABLE)
            more.add(body)
            time.sleep(0.02)  # it is not about how much that is

    writing = threading.Thread(target=go_on)
    writing.start()
    try:
        known = sent | set(more)
        rows = load(spark, lasting.data, addresses="q").dropDuplicates(["message_id", "queue"]).collect()
        assert known <= {row.body.decode() for row in rows}
        assert {row.queue for row in rows} == {"q"}
        paged = load(spark, lasting.data, addresses="p", columns="body,queue").collect()
        assert len({bytes(row.body) for row in paged}) == 200 and set(paged[0].asDict()) == {"body", "queue"}
    finally:
        ended.set()
        writing.join()
    lasting.drain("p")
    lasting.kill()
    every = load(spark, lasting.data).dropDuplicates(["message_id", "queue"]).collect()
    assert {row.body.decode() for row in every if row.address == "q"} == sent | more
    assert sorted(row.body.decode()[:9] for row in every if row.address == "p") == [
        f"paged {number:03d}" for number in range(200)
    ]
    (news,) = (row for row in every if row.address == "news")
    assert (news.queue, news.body, news.priority, news.durable) == ("news.one", b"news", 7, True)
    assert (news.expires, news.due, news.user) == (None, None, None)
    assert all(row.headers["colour"] == "red" for row in every if row.body.startswith(b"first"))
    numbers = [row.message_id for row in every]
    assert len(set(numbers)) == len(numbers) == len(sent) + len(more) + 201
    options_of(spark, lasting.data, before, middle, sent, more)
    facts(spark, lasting.data, sent | more)


def options_of(spark, data, before, middle, sent, more):
    """Options leave out rows and columns."""
    kept = load(spark, data, since=str(before), until=str(middle), addresses="q, elsewhere.#")
    assert {row.body.decode() for row in kept.collect()} == sent
    moment = datetime.fromtimestamp(middle / 1000, UTC).isoformat()
    kept = load(spark, data, since=moment, columns="message_id,body")
    assert kept.columns == ["message_id", "body"]
    assert {row.body.decode() for row in kept.collect()} == more
    assert load(spark, data, until="2001-01-01").count() == 0
    own = spark.read.format("stompring").schema("queue STRING").load(f"file://{data}")
    assert {row.queue for row in own.distinct().collect()} == {"q", "p", "news.one"}


def facts(spark, data, bodies):
    """Events and samples tell what became of the messages."""
    events = load(spark, data, table="events").collect()
    done = {row.message_id for row in events if row.event == "acknowledged" and row.queue == "q"}
    assert len(bodies) - len(done) <= 1  # the last one was perhaps on its way
    places = {(row.page, row.index) for row in events if row.event == "acknowledged" and row.queue == "p"}
    assert len(places - {(None, None)}) > 150
    samples = load(spark, data, table="samples", columns="time,queue,added,messages", addresses="q").collect()
    assert len(samples) > 2 and {row.queue for row in samples} == {"q"}
    assert max(row.added for row in samples) >= 200


def test_errors_name_the_option(spark, tmp_path):
    with pytest.raises(Exception, match="option columns: messages has no column 'weight'"):
        load(spark, tmp_path, columns="weight")
    with pytest.raises(Exception, match="option path: .*none is not a directory"):
        load(spark, tmp_path / "none").count()
    with pytest.raises(Exception, match="option columns: queue is STRING, not IntegerType"):
        spark.read.format("stompring").schema("queue INT").load(str(tmp_path)).count()


def test_an_empty_directory(spark, tmp_path):
    assert load(spark, write_identified(tmp_path, {}, bytes(16))).collect() == []


def test_all_that_a_message_can_have(spark, tmp_path):
    files = broker_files()
    rows = [row.asDict() for row in load(spark, write_files(tmp_path, files)).collect()]
    expected = [row for data in files.values() for row in reference_decoder.rows(data)]
    assert sorted(map(plain, rows)) == sorted(map(plain, expected))


def plain(row):
    """A row as a text, times in UTC: Spark gives local ones."""
    shown = {**row, "headers": sorted(row["headers"].items()), "body": bytes(row["body"])}
    for name in ("timestamp", "expires", "due"):
        shown[name] = row[name] and row[name].astimezone(UTC).isoformat()
    return repr(sorted(shown.items()))
