"""``stompring bench`` as a process, against a real broker: that what it reports is what the broker did."""

import json
import signal
import socket
from collections import Counter

import pytest

from stompring.cli.bench import milliseconds, parse_size, percentiles, rounded

from ..broker_document import broker_xml
from ..broker_process import PATIENCE, BrokerProcess
from ..waiting import LONGEST
from .command import pipe, run, start


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    config = tmp_path_factory.mktemp("bench") / "broker.xml"
    config.write_text(broker_xml())
    with BrokerProcess(config) as process:
        yield process


def test_the_rows_are_what_the_broker_has_counted(management, to):
    done = pipe(
        "bench --count 500 --warmup 0 --producers 1,2 --ack auto,client,client-individual"
        f" --destination /queue/counted --json {to}",
    )
    rows = json.loads(done.stdout)
    assert [(row["producers"], row["ack"]) for row in rows] == [
        (producers, mode) for producers in (1, 2) for mode in ("auto", "client", "client-individual")
    ]
    for row in rows:
        assert row["sent"] == row["received"] == 500 * row["producers"]
        assert row["missing"] == 0
        latency = row["latency"]
        assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]
        assert row["receivedPerSecond"] > 0
    queue = management.expect("counted", messageCount=0)
    assert queue["messagesAdded"] == 3 * 500 + 3 * 1000 + 9  # and one at the end of each producer


def test_receipts_persistence_and_sizes(to):
    done = pipe(
        f"bench --count 60 --warmup 0 --receipts 0,1 --window 1,20 --persistent yes --size 1k --json {to}"
    )
    rows = json.loads(done.stdout)
    assert [(row["receipts"], row["window"]) for row in rows] == [(0, 1), (1, 1), (1, 20)]
    assert rows[0]["receiptTime"] is None
    assert all(row["receiptTime"]["p50"] > 0 for row in rows[1:])
    assert all(row["size"] == 1024 and row["persistent"] and row["received"] == 60 for row in rows)


def test_each_consumer_of_a_topic_receives_every_message(to):
    done = pipe(f"bench --count 200 --warmup 0 --consumers 3 --destination /topic/all --json {to}")
    (row,) = json.loads(done.stdout)
    assert (row["sent"], row["received"], row["missing"]) == (200, 600, 0)


def test_a_rate_and_a_duration_hold(to):
    done = pipe(f"bench --rate 200 --duration 1 --warmup 100ms --json {to}")
    (row,) = json.loads(done.stdout)
    assert 150 <= row["sent"] <= 200
    assert row["missing"] == 0
    assert abs(row["received"] - row["sent"]) <= 20  # of the warm-up, or after the end


def test_messages_of_others_are_not_counted(to):
    run(f"send /queue/shared 'from another program, long enough' --count 50 {to}")
    done = pipe(f"bench --count 10 --warmup 0 --destination /queue/shared --json {to}")
    (row,) = json.loads(done.stdout)
    assert (row["sent"], row["received"]) == (10, 10)


def test_the_table_has_a_line_for_each_run(to):
    done = pipe(f"bench --count 20 --warmup 0 --size 16,100 {to}")
    title, *rows = done.stdout.decode().splitlines()
    assert title.split()[:4] == ["PROD", "CONS", "BYTES", "ACK"]
    assert [row.split()[2] for row in rows] == ["16", "100"]


def test_the_ceiling_of_the_driver_needs_no_broker():
    (row,) = json.loads(pipe("bench --ceiling --duration 300ms --json").stdout)
    assert row["size"] == 100
    assert row["sendPerSecond"] > 1000 and row["receivePerSecond"] > 1000


def test_nobody_listens():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        done = pipe(f"bench --broker 127.0.0.1:{reserved.getsockname()[1]}", code=5)
    assert b"cannot be reached: Connection refused" in done.stderr


@pytest.mark.parametrize(
    "options, text",
    [
        ("--size 8", "sizes from 16 bytes"),
        ("--ack none", "must be auto, client, client-individual"),
        ("--producers x", "must be numbers from 0 on"),
        ("--producers 0 --consumers 0", "1 to 256 together"),
        ("--producers 300", "1 to 256 together"),
        ("--producers 0 --count 1", "messages per producer"),
        ("--persistent maybe", "must be no, yes"),
    ],
)
def test_bad_options_are_named(options, text):
    assert text in run(f"bench {options}", code=2).stderr.decode()


def test_ctrl_c_reports_the_complete_runs_and_leaves_no_client(management, to):
    running = start(f"bench --rate 100 --duration 1h --warmup 0 {to}")
    management.until(lambda: management.ask("GET", "/connections")["count"] >= 2)
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=LONGEST * PATIENCE)
    assert running.returncode == 130
    assert b"interrupted: 0 of 1 runs are complete" in stderr
    management.until(lambda: not management.ask("GET", "/connections")["count"])


def test_percentiles_of_known_times():
    times = Counter({1_000_000: 50, 2_000_000: 45, 3_000_000: 4, 9_000_000: 1})
    assert percentiles(times) == {"p50": 1.0, "p95": 2.0, "p99": 3.0, "max": 9.0}
    assert percentiles({}) is None


def test_times_are_rounded_by_less_than_two_percent():
    for value in (0, 1, 127, 128, 1000, 123_456_789):
        ((shown, number),) = rounded([value]).items()
        assert number == 1 and value * 0.98 <= shown <= value


@pytest.mark.parametrize("text, size", [("16", 16), ("1k", 1024), ("64KiB", 65536), ("2M", 2 * 1024**2)])
def test_sizes(text, size):
    assert parse_size(text) == size


def test_milliseconds_have_three_digits():
    assert [milliseconds(each) for each in (None, 0.123, 12.34, 1234.5)] == ["-", "0.12", "12.3", "1,234"]
