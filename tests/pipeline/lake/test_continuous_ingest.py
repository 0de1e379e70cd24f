"""An ingest that runs itself: upkeep by rule, attempts after failures, what it shows and what it counts."""

import json
import logging
import re
import urllib.request
from datetime import datetime
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("deltalake")

from stompring.cli.output import Progress
from stompring.pipeline.backlog import DirectoryReplaced
from stompring.pipeline.lake.ingest import LONGEST_PAUSE, Batch, ContinuousIngest, IngestMetrics
from stompring.pipeline.lake.lake import VACUUM_INTERVAL, LeaseLost, Maintenance, days_to_compact

from ...docs.pages import text_of
from .lake_fixture import LakeFixture

DAYS = ("2026-07-01", "2026-07-02")


def fill(filled, batches, days=DAYS):
    """A row for each day and batch, a file each."""
    for _ in range(batches):
        for day in days:
            filled.add(b"x", timestamp=datetime.fromisoformat(f"{day}T12:00:00Z"))


@pytest.fixture
def filled(tmp_path):
    return LakeFixture(tmp_path / "lake")


@pytest.fixture
def lake(filled):
    return filled.lake


# ---- upkeep


def test_a_day_with_many_small_files_is_compacted_and_no_other(lake, filled):
    fill(filled, 4)
    fill(filled, 2, DAYS[1:])
    upkeep = Maintenance(lake, small_files=5, hours=None)
    assert days_to_compact(lake.tables["messages"], 5) == [DAYS[1]]
    upkeep.run_due()
    files = lake.tables["messages"].files()
    assert [sum(day in name for name in files) for day in DAYS] == [4, 1]
    assert upkeep.done.compacted == {"messages": 6}
    assert lake.tables["messages"].about()["rows"] == 10
    before = lake.tables["messages"].open().version()
    upkeep.run_due()
    assert lake.tables["messages"].open().version() == before


def test_switched_off(lake, filled):
    fill(filled, 4)
    Maintenance(lake, small_files=None, hours=None).run_due()
    assert len(lake.tables["messages"].files()) == 8


def parquet(lake):
    return len([*lake.tables["messages"].folder.local.rglob("*.parquet")])


def test_files_of_no_use_are_deleted_once_an_hour(lake, filled):
    now = [0.0]
    upkeep = Maintenance(lake, small_files=2, hours=0, now=lambda: now[0])
    fill(filled, 3)
    upkeep.run_due()
    assert parquet(lake) == 2 and upkeep.done.vacuumed["messages"] == 6
    fill(filled, 3)
    upkeep.run_due()
    assert parquet(lake) == 2 + 6 + 2  # compacted, and left for now
    now[0] += VACUUM_INTERVAL
    upkeep.run_due()
    assert parquet(lake) == 2


@pytest.mark.parametrize("complete", [False, True])
def test_what_a_replay_reads_stays_until_it_is_complete(lake, filled, complete):
    fill(filled, 3)
    version = lake.tables["messages"].open().version()
    lake.state.write("replays/abc/plan.json", json.dumps({"tableVersion": version}).encode())
    if complete:
        lake.state.write("replays/abc/complete.json", b'{"sent": 6}')
    Maintenance(lake, small_files=2, hours=0).run_due()
    old = [Path(name.removeprefix("file://")).exists() for name in lake.tables["messages"].files(version)]
    assert set(old) == {not complete} and len(old) == 6


# ---- attempts


class Work:
    """An ingest of which each look gives the next of some steps: batches, or what it raises."""

    def __init__(self, lake, *steps, spark=True):
        self.lake = lake
        self.steps = list(steps)
        self.spark = spark
        self.stop = Event()

    def batches(self, *, until):
        if not self.steps:
            self.stop.set()
            return
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        yield step

    def left(self):
        return 1000 * len(self.steps)

    def has_spark(self):
        return self.spark


def following(work, attempts=3, upkeep=None):
    """It, and the pauses that it makes."""
    pauses = []

    class Stop(Event):
        def wait(self, timeout=None):
            pauses.append(timeout or 0)
            return self.is_set()

    work.stop = Stop()
    upkeep = upkeep or Maintenance(work.lake, None, None)
    return ContinuousIngest(work, upkeep, work.stop, 10.0, attempts, lambda batch, seconds: None), pauses


BATCH = Batch(3, 500, {"messages": 7, "events": 2}, [("journal/1", 5, "x")], 2, 1_000)


def test_what_fails_is_tried_again_later_each_time(lake, caplog):
    gone = OSError("the object store is away")
    found, pauses = following(Work(lake, gone, gone, BATCH, gone, BATCH))
    with caplog.at_level(logging.WARNING):
        found.run()
    assert pauses == [1.0, 2.0, 10.0, 1.0, 10.0, 10.0]
    assert "attempt 2 of 3 failed: the object store is away; retrying in 2 s" in caplog.text
    numbers = scraped(found.metrics)
    assert numbers["stompring_lake_failures_total"] == 3 and numbers["stompring_lake_batches_total"] == 2
    found, pauses = following(Work(lake, *[gone] * 9), attempts=10)
    found.run()
    assert pauses[5:9] == [32.0, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]


def test_too_many_failures_and_those_that_stay_end_it(lake):
    with pytest.raises(OSError, match="away"):
        following(Work(lake, *[OSError("away")] * 5))[0].run()
    for final in (DirectoryReplaced("another directory"), LeaseLost("another process is ingesting now")):
        work = Work(lake, final, BATCH)
        with pytest.raises(type(final)):
            following(work)[0].run()
        assert len(work.steps) == 1
    work = Work(lake, OSError("Connection refused"), BATCH, spark=False)
    with pytest.raises(OSError, match="refused"):
        following(work)[0].run()
    assert len(work.steps) == 1


def test_upkeep_that_fails_holds_up_nothing(lake, caplog):
    class Failing(Maintenance):
        def run_due(self):
            raise OSError("no space")

    found, _ = following(Work(lake, BATCH, BATCH), upkeep=Failing(lake, None, None))
    found.run()
    assert scraped(found.metrics)["stompring_lake_batches_total"] == 2
    assert "failed: no space; retrying after the next batch" in caplog.text


# ---- metrics


def scraped(metrics):
    from prometheus_client import generate_latest
    from prometheus_client.parser import text_string_to_metric_families

    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_metrics_over_http(lake, filled):
    found, _ = following(Work(lake, BATCH, BATCH._replace(number=4)))
    fill(filled, 2)
    port = found.metrics.serve("127.0.0.1", 0)
    seen = []
    found.on_batch = lambda batch, seconds: seen.append(scraped(found.metrics)["stompring_lake_lag_bytes"])
    found.run()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'stompring_lake_rows_total{table="messages"} 14.0' in text
    numbers = scraped(found.metrics)
    assert numbers["stompring_lake_read_bytes_total"] == 1000 and numbers["stompring_lake_faults_total"] == 2
    assert numbers["stompring_lake_lost_files_total"] == 4
    assert numbers["stompring_lake_table_files messages"] == 4
    assert seen == [1000, 0]
    assert numbers["stompring_lake_lag_seconds"] == numbers["stompring_lake_lag_bytes"] == 0


def test_the_document_has_all_metrics_and_no_other():
    from prometheus_client import generate_latest

    metrics = IngestMetrics()
    metrics.upkeep("messages", 0, 0)
    known = set(re.findall(r"^# TYPE (\S+) (\S+)$", generate_latest(metrics.registry).decode(), re.M))
    known = {(name, kind) for name, kind in known if not name.endswith("_created")}
    text = text_of("docs/lake.md")
    assert set(re.findall(r"^\| `(stompring_lake_\w+)` \| (\w+) \|", text, re.M)) == known


# ---- what is shown


def test_a_terminal_has_one_line_that_is_drawn_again(capsys):
    line = Progress(terminal=True)
    line.look(lambda: "batch 1: 10.0 of 20.0 MB")
    line.look(lambda: "batch 1: done")
    line.show("batch 1: 20 MB in 3 s")
    line.look(lambda: None)
    text = capsys.readouterr().err
    assert text.count("\n") == 1 and text.endswith("\rbatch 1: 20 MB in 3 s\n")
    assert "\rbatch 1: done           " in text


def test_elsewhere_it_is_a_line_now_and_then(capsys):
    line = Progress(terminal=False, pause=0.01)
    looked = Event()

    def ask():
        looked.set()
        return "batch 1: 10.0 of 20.0 MB"

    with line.watching(ask):
        assert looked.wait(10)
    line.look(lambda: None)
    assert set(capsys.readouterr().err.splitlines()) == {"batch 1: 10.0 of 20.0 MB"}
