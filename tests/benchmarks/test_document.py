"""The tables and plots of docs/dev/performance.md, and the results that they are made from."""

import re

from benchmarks import document, scaling
from benchmarks.results import Results, Run

from ..docs.source import ROOT


def measured(*runs, **more):
    machine = {
        "cpu": "a processor",
        "cores": 2,
        "memory_bytes": 8 * 2**30,
        "kernel": "6.1",
        "load_average": "0.10",
    }
    setup = {"rounds": 1, "seconds": 2, "took_seconds": 90, "generator_per_s": 4.2e6}
    return Results(machine=machine, taken="2026-01-02", setup=setup, runs=[Run(*run) for run in runs], **more)


def numbers(**found):
    return {"msgs_per_s": 1000.0, "broker_cpu_s": 0.5, "sent": 1000.0, "received": 1000.0} | found


def test_the_page_has_every_block_once():
    page = (ROOT / "docs/dev/performance.md").read_text()
    found = re.findall(r"^<!-- generated: performance_results\.block (\S+) -->$", page, re.MULTILINE)
    assert sorted(found) == sorted([*document.BLOCKS, *document.OTHER_BLOCKS])


def test_a_busy_machine_is_mentioned():
    results = measured(skipped={"rabbitmq": "not installed"})
    assert "busy" not in document.provenance(results, "make bench")
    told = document.provenance(results, "make bench")
    assert "without a broker: 4.2 million messages a second. rabbitmq was skipped: not installed." in told
    results.machine["load_average"] = "3.00"
    assert "busy" in document.provenance(results, "make bench")


def test_tables_and_plots_are_made_from_the_results(tmp_path, monkeypatch):
    bench, scaled = tmp_path / "bench.json", tmp_path / "scaling.json"
    measured(
        *(("auto", broker, 1, numbers()) for broker in ("stompring", "artemis")),
        versions={"stompring": "1.0", "artemis": "2.0"},
    ).save(bench)
    names = [scaling.case_name(axis, point) for axis in scaling.AXES.values() for point in axis.points[:3]]
    measured(
        *((name, "stompring", 1, numbers(ready_seconds=0.1)) for name in names),
        ("queues:10000", "rabbitmq", 1, {}, "not subscribed after 40 s\nmore"),
        versions={"stompring": "1.0", "rabbitmq": "3"},
    ).save(scaled)
    files = {document.BENCH: bench, document.SCALING: scaled}
    blocks = {name: (files[path], made) for name, (path, made) in document.BLOCKS.items()}
    changed = {"IMAGES": tmp_path, "BENCH": bench, "SCALING": scaled, "BLOCKS": blocks}
    for name, value in changed.items():
        monkeypatch.setattr(document, name, value)
    written = list(document.write())
    assert sorted(path.name for path in written) == sorted(
        f"performance-{name}.svg" for name in ("rates", *scaling.AXES)
    )
    assert "- rabbitmq, 10000 queues: not subscribed after 40 s\n" in document.block("scaling-queues")
    assert "| auto (rate): at least 10 times artemis" in document.block("goals")
    first = {path: path.read_bytes() for path in written}
    assert {path: path.read_bytes() for path in document.write()} == first


def test_every_point_of_an_axis_has_its_options():
    of = scaling.AXES
    assert of["connections"].options(1000)[:6] == ["-p", "500", "-c", "500", "-q", "500"]
    assert of["bodies"].options(1_000_000) == ["-s", "1000000", "-W", "64"]
    assert of["subscribers"].options(1000) == ["-t", "1", "-c", "1000", "-W", "20"]
    assert of["queues"].options(10)[:2] == ["-Q", "10"]


def test_a_point_is_left_out_after_a_failure_or_if_subscribing_would_take_too_long():
    axis = scaling.AXES["queues"]
    results = measured(
        ("queues:1000", "rabbitmq", 1, {}, "lost"),
        ("queues:1000", "artemis", 1, numbers(ready_seconds=20)),
        ("queues:1000", "stompring", 1, numbers(ready_seconds=1)),
    )
    assert scaling.obstacle(results, axis, 10_000, "rabbitmq") == "left out: 1,000 queues had failed"
    assert (
        scaling.obstacle(results, axis, 10_000, "artemis") == "left out: subscribing would take about 200 s"
    )
    assert scaling.obstacle(results, axis, 10_000, "stompring") is None
    assert scaling.obstacle(results, axis, 100, "rabbitmq") is None
