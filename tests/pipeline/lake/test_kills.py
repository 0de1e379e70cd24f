"""Spark's processes and the broker are killed; see `kills` for more of it."""

import re
import signal
import socket
import urllib.request
from collections import Counter
from contextlib import ExitStack

import pytest

from ..broker_files import broker_files, write_files
from .kill_campaign import LEAST, Command, Traffic, campaign, check_events

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("processes of Spark")]


@pytest.mark.long
def test_nothing_is_lost_and_nothing_is_there_twice(tmp_path):
    for library in ("pyspark", "deltalake", "duckdb"):
        pytest.importorskip(library, reason="not installed: pip install 'stompring[test]'")
    with ExitStack() as opened:
        found = campaign(tmp_path, opened, spark=1, broker=1, replays=1, seed=7)
    assert found.messages >= LEAST and found.events > 2 * LEAST  # three of each that has a consumer


def test_following_ends_in_good_order_when_it_is_told_to(tmp_path, monkeypatch):
    for library in ("pyspark", "deltalake"):
        pytest.importorskip(library, reason="not installed: pip install 'stompring[test]'")
    data = write_files(tmp_path / "data", broker_files())
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    words = ("--data", str(data), "--lake", str(tmp_path / "lake"))
    follow = Command("ingest", *words, "--follow", "--metrics-port", "0")
    follow.wait_for(r"batch 0: .* messages/s")
    assert manager.recv(1000) == b"READY=1\nSTATUS=ingesting"
    assert manager.recv(1000).startswith(b"STATUS=batch 0: ")
    (metrics,) = re.findall(r"serving metrics on (http://127\.0\.0\.1:\d+/metrics)", follow.output())
    with urllib.request.urlopen(metrics, timeout=30) as answer:
        assert re.search(rb'stompring_lake_rows_total{table="messages"} [1-9]', answer.read())
    other = Command("ingest", "--data", str(data), "--lake", str(tmp_path / "lake"))
    other.process.wait(60)
    assert "another process is ingesting" in other.output() and other.process.returncode == 1
    follow.process.send_signal(signal.SIGTERM)
    output = follow.finish()
    assert "stopping after this batch" in output and re.search(
        r"ingested .*\d+ messages, .* batches, .* MB; 0\.0 MB, 0 s left", output
    )


#: Messages 1 to 4, and what became of them: 1 came back once, 2 went out once more after a kill.
BODIES = {("q", 1): "q 1", ("q", 2): "q 2", ("r", 3): "r 3", ("t.two", 4): "/topic/t 4"}
EVENTS = {
    **{(queue, number, "added"): 1 for queue, number in BODIES},
    **{("q", 1, "delivered"): 2, ("q", 1, "redelivered"): 1, ("q", 1, "acknowledged"): 1},
    **{("q", 2, "delivered"): 2, ("q", 2, "acknowledged"): 1},
    ("r", 3, "replaced"): 1,
}


def traffic():
    """What the clients have seen of that."""
    found = Traffic(None)
    found.consumed.seen.update({("q", "q 1"): 2, ("q", "q 2"): 2})
    found.consumed.acknowledged.update([("q", "q 1"), ("q", "q 2")])
    found.consumed.refused["q", "q 1"] = 1
    found.consumed.lost["q"] = 1
    return found


def test_events_that_are_right_are_taken():
    check_events(Counter(EVENTS), BODIES, traffic())
    check_events(Counter({**EVENTS, ("q", 2, "delivered"): 1}), BODIES, traffic())  # nobody knows


@pytest.mark.parametrize(
    "key, count",
    [
        (("q", 1, "redelivered"), 0),
        (("q", 1, "redelivered"), 2),
        (("q", 1, "delivered"), 1),
        (("q", 1, "delivered"), 4),
        (("q", 2, "redelivered"), 1),
        (("q", 2, "acknowledged"), 0),
        (("q", 2, "killed"), 1),
        (("q", 2, "scheduled"), 1),
        (("r", 3, "delivered"), 1),
        (("t.two", 4, "redelivered"), 1),
    ],
)
def test_events_that_are_wrong_are_not(key, count):
    with pytest.raises(AssertionError):
        check_events(Counter({**EVENTS, key: count}), BODIES, traffic())


def test_more_that_was_out_than_kills_is_not_taken():
    out = {("q", 1, "delivered"): 3}
    with pytest.raises(AssertionError, match="'q', 2"):
        check_events(Counter({**EVENTS, **out}), BODIES, traffic())
