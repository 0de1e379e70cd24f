"""The tables and plots of docs/performance.md, and the results that they are made from."""

from __future__ import annotations

import re

from benchmarks import document, scaling
from benchmarks.results import Results, Run
from benchmarks.variants import VARIANTS

MACHINE: dict[str, str | int] = {
    "cpu": "a processor",
    "cores": 2,
    "memory_bytes": 8 * 2**30,
    "kernel": "6.1",
    "load_average": "0.10",
}


def numbers(**found):
    return {
        "msgs_per_s": 1000.0,
        "broker_cpu_s": 0.5,
        "sent": 1000.0,
        "received": 1000.0,
        "ready_seconds": 0.1,
    } | found


def bench_results():
    results = Results(machine=dict(MACHINE), taken="2026-01-02T03:04:05+00:00")
    results.setup = {"rounds": 1, "seconds": 2, "took_seconds": 90}
    results.versions = {"stompring": "1.0", "pure Python": "1.0", "artemis": "2.0"}
    results.skipped = {"rabbitmq": "not installed"}
    for broker, rate in (("stompring", 9000.0), ("pure Python", 3000.0), ("artemis", 1000.0)):
        results.runs.append(Run("auto", broker, 1, numbers(msgs_per_s=rate)))
        latency = {"p50_us": 50, "p99_us": 400, "p999_us": 500, "max_us": 600}
        results.runs.append(Run("latency", broker, 1, numbers(**latency)))
    trip = {"disk_us": 100, "round_trip_us": 150, "disk_ratio": 1.5}
    results.runs.append(Run("durable-one", "stompring", 1, numbers(**trip)))
    results.runs.append(Run("start", "stompring", 1, failure="not ready"))
    return results


def scaling_results():
    results = Results(
        machine=dict(MACHINE), versions={"stompring": "1.0", "rabbitmq": "3"}, taken="2026-01-02"
    )
    results.setup = {"rounds": 1, "seconds": 2, "took_seconds": 90}
    for axis in scaling.AXES.values():
        for point in axis.points[:3]:
            results.runs.append(Run(scaling.case_name(axis, point), "stompring", 1, numbers()))
    results.runs.append(Run("queues:10000", "rabbitmq", 1, failure="not subscribed after 40 s\nmore"))
    return results


def test_the_page_is_what_the_committed_results_give():
    page = document.PAGE.read_text()
    assert document.render(page) == page, "run `make bench-docs`"


def test_the_page_has_every_block_once():
    found = [match[2] for match in document.BLOCK.finditer(document.PAGE.read_text())]
    assert sorted(found) == sorted(document.BLOCKS)


def test_every_image_of_the_results_is_there():
    images = re.findall(r"\]\((images/performance-[\w-]+\.svg)\)", document.PAGE.read_text())
    assert [image for image in images if not (document.PAGE.parent / image).exists()] == []


def test_goals_are_reached_missed_or_have_a_reason():
    rows = [line.strip("| ").split("|") for line in document.goals(bench_results()).splitlines()]
    found = {row[0].strip(): (row[1].strip(), row[2].strip()) for row in rows if len(row) == 3}
    assert found["auto (rate): at least 10 times artemis"] == ("9.00", "**missed**")
    assert found["latency (p50): at most 50 µs"] == ("50.00", "reached")
    assert found["durable-one (round trip / disk): at most 1.6"] == ("1.50", "reached")
    assert found["persistent (rate): at least 3 times rabbitmq"][1].startswith("not measured: ")
    assert found["start (start): at most 2 s"] == ("", "not measured: start on stompring failed: not ready")


def test_builds_are_compared_with_the_first():
    assert "| auto " in document.variants(bench_results())
    assert "3,000 (0.33)" in document.variants(bench_results())
    assert set(VARIANTS) == {"stompring", "pure Python", "stock reactor", "pure Python, stock reactor"}


def test_a_busy_machine_is_mentioned():
    results = bench_results()
    assert "busy" not in document.provenance(results)
    assert "rabbitmq was skipped: not installed." in document.provenance(results)
    results.machine["load_average"] = "3.00"
    assert "busy" in document.provenance(results)


def test_page_and_plots_are_written_from_the_results(tmp_path, monkeypatch):
    page, bench, measured = (tmp_path / name for name in ("page.md", "bench.json", "scaling.json"))
    bench_results().save(bench)
    scaling_results().save(measured)
    page.write_text(
        "".join(
            f"<!-- results: {name}; written by `make bench-docs` -->\nold\n<!-- end -->\n"
            for name in document.BLOCKS
        )
    )
    files = {document.BENCH: bench, document.SCALING: measured}
    blocks = {name: (files[path], made) for name, (path, made) in document.BLOCKS.items()}
    changed = {"PAGE": page, "IMAGES": tmp_path, "BENCH": bench, "SCALING": measured, "BLOCKS": blocks}
    for name, value in changed.items():
        monkeypatch.setattr(document, name, value)
    written = list(document.write())
    assert sorted(path.name for path in written) == ["page.md"] + sorted(
        f"performance-{name}.svg" for name in ("rates", *scaling.AXES)
    )
    assert "old" not in page.read_text()
    assert "- rabbitmq, 10000 queues: not subscribed after 40 s\n" in page.read_text()
    first = {path: path.read_bytes() for path in written}
    assert {path: path.read_bytes() for path in document.write()} == first


def test_a_page_keeps_blocks_without_results(tmp_path, monkeypatch):
    monkeypatch.setattr(document, "BLOCKS", {"goals": (tmp_path / "absent.json", document.goals)})
    page = "a\n<!-- results: goals; written by `make bench-docs` -->\nkept\n<!-- end -->\nb\n"
    assert document.render(page) == page


def test_every_point_of_an_axis_has_its_options():
    of = scaling.AXES
    assert of["connections"].options(1000)[:6] == ["-p", "500", "-c", "500", "-q", "500"]
    assert of["bodies"].options(1_000_000) == ["-s", "1000000", "-W", "64"]
    assert of["subscribers"].options(1000) == ["-t", "1", "-c", "1000", "-W", "20"]
    assert of["queues"].options(10)[:2] == ["-Q", "10"]


def test_a_point_is_left_out_after_a_failure_or_if_subscribing_would_take_too_long():
    axis = scaling.AXES["queues"]
    results = Results(
        runs=[
            Run("queues:1000", "rabbitmq", 1, failure="lost"),
            Run("queues:1000", "artemis", 1, numbers(ready_seconds=20)),
            Run("queues:1000", "stompring", 1, numbers(ready_seconds=1)),
        ]
    )
    assert scaling.obstacle(results, axis, 10_000, "rabbitmq") == "left out: 1,000 queues had failed"
    assert (
        scaling.obstacle(results, axis, 10_000, "artemis") == "left out: subscribing would take about 200 s"
    )
    assert scaling.obstacle(results, axis, 10_000, "stompring") is None
    assert scaling.obstacle(results, axis, 100, "rabbitmq") is None


def test_rates_of_bodies_are_in_megabytes():
    results = Results(
        versions={"stompring": "1"}, runs=[Run("bodies:100000", "stompring", 1, numbers(msgs_per_s=300))]
    )
    row = next(
        line for line in scaling.table(results, scaling.AXES["bodies"]).splitlines() if "| 100,000 " in line
    )
    assert row.split("|")[2].strip() == "30"
