"""``stompring data print``: its counts are those of the broker that filled the directory."""

import json

from .conftest import invoke, told

#: Counters that mean the same on disk and in a broker, for durable messages.
SAME = (
    "scheduledCount",
    "durable",
    "paused",
    "filter",
    "ringSize",
    "maxConsumers",
    "user",
    "routingType",
    "address",
)


def test_it_tells_what_the_broker_had(stopped):
    shown = json.loads(invoke(f"print --json --data {stopped.filled.data}").stdout)
    assert shown["running"] is False and shown["setAside"] == []
    queues = {each["name"]: each for each in shown["queues"]}
    assert queues.keys() == stopped.queues.keys()
    for name, queue in queues.items():
        broker = stopped.queues[name]
        assert {field: queue[field] for field in SAME} == {field: broker[field] for field in SAME}
        assert queue["messageCount"] == len(stopped.filled.of(name))
        assert queue["deliveredCount"] == sum(each.deliveries > 0 for each in stopped.filled.of(name))
    assert {each["name"] for each in shown["addresses"]} == stopped.addresses.keys()


def test_every_attribute_of_a_queue_is_there(stopped):
    queues = told(f"print --json --data {stopped.filled.data}")["queues"]
    counters = {"messageCount", "pagedCount", "scheduledCount", "deliveredCount", "messageBytes"}
    for queue in queues:
        broker = stopped.queues[queue["name"]]
        attributes = queue.keys() - counters - {"noLocal", "asConfigured"}
        assert {field: queue[field] for field in attributes} == {field: broker[field] for field in attributes}


def test_pages_and_segments(stopped):
    data = stopped.filled.data
    shown = told(f"print --json --data {data}")
    (pages,) = shown["paging"]
    files = list((data / "paging" / pages["folder"]).glob("*.page"))
    assert pages["address"] == "pages.a"
    assert (pages["pages"], pages["bytes"]) == (len(files), sum(file.stat().st_size for file in files))
    assert pages["liveMessages"] == next(q for q in shown["queues"] if q["name"] == "pages.a")["pagedCount"]
    assert 0 < pages["volatileMessages"] < pages["messages"] - pages["liveMessages"]
    segments = {file.name: file.stat().st_size for file in (data / "journal").glob("*.journal")}
    assert {each["file"]: each["bytes"] for each in shown["journal"]} == segments
    assert all(each["liveBytes"] < each["bytes"] for each in shown["journal"])
    assert shown["messages"] == pages["liveMessages"] + sum(each["liveMessages"] for each in shown["journal"])


def test_duplicate_ids(stopped):
    shown = told(f"print --json --data {stopped.filled.data}")
    assert shown["duplicateIds"] == [{"address": "plain", "count": 3}]
    lines = invoke(f"print --data {stopped.filled.data}").stdout.splitlines()
    table = lines.index("address  duplicate ids")
    assert lines[table + 1].split() == ["plain", "3"]


def test_for_people(stopped):
    text = invoke(f"print --data {stopped.filled.data}").stdout
    plain = [line.split() for line in text.splitlines() if line.startswith("plain ")]
    assert [
        "plain",
        "plain",
        str(len(stopped.filled.of("plain"))),
        "0",
        "0",
        "0",
        "ANYCAST",
        "autoCreated",
    ] in plain
    ring = next(line for line in text.splitlines() if line.startswith("ring ") and "ringSize=5" in line)
    assert "maxConsumers=3" in ring and "paused" in ring and 'user="anna"' in ring
    assert "running" not in text


def test_while_the_broker_runs(stopped):
    assert "a broker is running" in stopped.live["print",].stdout
    live = json.loads(stopped.live["print", "--json"].stdout)
    assert live["running"] is True
    counts = {each["name"]: each["messageCount"] for each in live["queues"]}
    assert counts == {name: len(stopped.filled.of(name)) for name in stopped.queues}


def test_damage_is_passed_over(filled):
    newest = max((filled.data / "journal").glob("*.journal"))
    newest.write_bytes(newest.read_bytes()[:-5])
    invoke(f"print --data {filled.data}")


def test_the_directory_of_a_broker_xml(stopped, tmp_path):
    config = tmp_path / "broker.xml"
    config.write_text(stopped.filled.config.read_text())
    (tmp_path / "data").symlink_to(stopped.filled.data)
    shown = told(f"print --json --config {config}")
    assert shown["directory"] == str(tmp_path / "data") and shown["messages"] > 0


def test_what_is_no_data_directory(tmp_path):
    for command in ("print", "verify"):
        result = invoke(command, "--data", tmp_path, code=1)
        assert str(tmp_path) in result.stderr and "not a stompring data directory" in result.stderr
