"""Versions of a lake: reading and restoring them, and what an ingest does after a restore; changes by version."""

import json

import pytest

pytest.importorskip("deltalake")

import pyarrow as pa
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from stompring.pipeline.lake import ingest as ingest_module
from stompring.pipeline.lake.delta import LakeTable, commits
from stompring.pipeline.lake.lake import Lake
from stompring.pipeline.storage import Folder
from stompring.store.datadir import Position, read_ingested, record_ingested

from ..broker_files import broker_files, write_files, write_identified
from ..test_source_stream import write_segment
from .ingesting import COMMANDS, cut_anywhere, done, ingest, rows, run

pytestmark = pytest.mark.spark

TABLES = ("messages", "events", "samples")

ONE, TWO = bytes(range(16)), bytes(range(16, 32))


def numbers(lake, table="messages", broker="main", version=None):
    return sorted(row["message_id"] for row in rows(lake, table, version) if row["broker"] == broker)


def versions(lake):
    return {table: DeltaTable(str(lake / table)).version() for table in TABLES}


@pytest.fixture
def three(tmp_path):
    """A data directory and a lake of it, in three batches of two messages."""
    data, lake = write_identified(tmp_path / "data", {}, ONE), tmp_path / "lake"
    for number in (1, 2, 3):
        write_segment(data, number, [2 * number - 1, 2 * number])
        assert ingest(data, lake) == 1
    return data, lake


def test_history(three):
    _, lake = three
    lines = done("history", "--lake", lake).splitlines()
    assert [line.split()[1:2] + line.split()[3:] for line in lines] == [
        ["3", "ingest", "batch", "2", "of", "main,", "2", "rows"],
        ["2", "ingest", "batch", "1", "of", "main,", "2", "rows"],
        ["1", "ingest", "batch", "0", "of", "main,", "2", "rows"],
        ["0", "create"],
    ]
    done("compact", "--lake", lake)
    told = [
        json.loads(line) for line in done("history", "--lake", lake, "--table", "all", "--json").splitlines()
    ]
    assert {each["table"] for each in told} == set(TABLES)
    newest = next(each for each in told if each["table"] == "messages")
    assert newest["operation"] == "compact" and newest["version"] == 4
    assert len(done("history", "--lake", lake, "--limit", "2").splitlines()) == 2


def test_results_as_json(three):
    _, lake = three
    compacted = json.loads(run("compact", "--lake", lake, "--json").stdout)
    assert compacted["views"] == {} and compacted["tables"].keys() == set(TABLES)
    assert compacted["tables"]["messages"] == {"removed": 3, "added": 1}
    assert "messages: nothing to compact" in done("compact", "--lake", lake)
    words = ["--lake", lake, "--hours", "0", "--json"]
    assert "would be deleted" in done("vacuum", *words[:-1], "--dry-run")
    planned = json.loads(run("vacuum", *words, "--dry-run").stdout)
    assert planned["dryRun"] is True and len(planned["tables"]["messages"]) == 3
    restored = json.loads(run("restore", "--lake", lake, "--version", "2", "--json").stdout)
    assert restored["versions"]["messages"] == 2 and restored["versions"].keys() == set(TABLES)
    deleted = json.loads(run("vacuum", *words).stdout)
    assert deleted["dryRun"] is False and deleted["tables"]["messages"]


def test_commands_read_a_version(spark, three):
    data, lake = three
    times = {one.version: one.time for one in commits(Lake(str(lake)).tables["messages"]).values()}
    query = "select (select count(*) from messages) as m, (select count(*) from events) as e"
    for words in (["--version", "2"], ["--as-of", str(times[2])], ["--as-of", str(times[3] - 1)]):
        assert done("sql", query, "--lake", lake, *words).splitlines()[2].split() == ["4", "4"]
        assert "4 messages would be sent" in done("replay", "--lake", lake, "--dry-run", *words)
        assert "messages: 4 rows" in done("tables", "--lake", lake, *words)
    assert "6 messages would be sent" in done("replay", "--lake", lake, "--dry-run")
    planned = json.loads(run("replay", "--lake", lake, "--dry-run", "--json").stdout)
    assert planned["messages"] == 6 and planned["dryRun"] is True
    assert sum(each["messages"] for each in planned["addresses"]) == 6
    ingested = json.loads(run("ingest", "--data", data, "--lake", lake, "--json").stdout)
    assert (ingested["rows"], ingested["batches"], ingested["bytes"]) == ({}, 0, 0)
    report = lake.parent / "report.html"
    assert "wrote" in done("report", "--lake", lake, "--out", report, "--version", "0")
    assert (
        "the lake has no data for this selection"
        in run("report", "--lake", lake, "--out", report, "--version", "0").output
    )


@pytest.mark.parametrize(
    "words, text",
    [
        (["--version", "9"], "version 9 does not exist: versions are 0 to 3"),
        (["--as-of", "2001-01-01"], "no lake existed at 2001-01-01T00:00:00.000Z: its history begins at"),
        (["--as-of", "yesterday"], "must be a time as"),
        (["--as-of", "2001-01-01", "--version", "1"], "cannot be combined"),
    ],
)
def test_versions_that_are_not(three, words, text):
    _, lake = three
    for name in ("tables", "restore"):
        result = run(name, "--lake", lake, *words)
        assert result.exit_code == 2 and text in result.output, result.output
    assert numbers(lake) == [1, 2, 3, 4, 5, 6]


def test_a_version_whose_files_were_deleted(three):
    _, lake = three
    done("compact", "--lake", lake)
    done("vacuum", "--lake", lake, "--hours", "0")
    for name in ("tables", "restore"):
        result = run(name, "--lake", lake, "--version", "2")
        assert result.exit_code == 2, result.output
        assert (
            "version 2 of messages cannot be read: 'lake vacuum' deleted some of its files" in result.output
        )
    assert run("restore", "--lake", lake).exit_code == 2


def test_what_was_restored_away_is_ingested_again_once(three):
    data, lake = three
    before = {table: rows(lake, table) for table in TABLES}
    (data / "retention").mkdir()
    record_ingested(data / "retention", Lake(str(lake)).id, str(lake), {"journal": Position(9, 0)})
    for version in (1, 0, 2):
        if version == 2:
            done("compact", "--lake", lake)
        output = done("restore", "--lake", lake, "--version", version)
        assert f"messages: restored to version {version}" in output
        assert numbers(lake) == numbers(lake, "events") == list(range(1, 2 * version + 1))
        (marked,) = read_ingested(data / "retention").values()  # the broker is to keep the rest
        assert marked.positions.get("journal", Position(0, 0)).number in (version, version + 1) or not version
        ingest(data, lake)
        assert {table: rows(lake, table) for table in TABLES} == before
        assert ingest(data, lake) == 0
    write_segment(data, 4, [7])
    ingest(data, lake)
    assert numbers(lake) == numbers(lake, "events") == [1, 2, 3, 4, 5, 6, 7]
    # a version that itself came after a restore
    done("restore", "--lake", lake, "--version", versions(lake)["messages"] - 1)
    assert numbers(lake) == [1, 2, 3, 4, 5, 6]
    ingest(data, lake)
    assert numbers(lake) == numbers(lake, "events") == [1, 2, 3, 4, 5, 6, 7]


def test_a_broker_that_came_later_is_ingested_again_from_its_beginning(three, tmp_path):
    data, lake = three
    other = write_identified(tmp_path / "other", {}, TWO)
    write_segment(other, 1, [1, 2, 3])
    ingest(other, lake, "other")
    done("restore", "--lake", lake, "--version", "2")
    assert numbers(lake) == [1, 2, 3, 4] and numbers(lake, broker="other") == []
    for _ in range(2):
        ingest(other, lake, "other")
        ingest(data, lake)
    for table in ("messages", "events"):
        assert numbers(lake, table) == [1, 2, 3, 4, 5, 6] and numbers(lake, table, "other") == [1, 2, 3]


def test_a_batch_that_was_half_done_before_a_restore(three):
    data, lake = three
    write_segment(data, 4, [7, 8])
    for copy in cut_anywhere(lake, [(LakeTable, "commit")], lambda copy: ingest(data, copy)):
        done("restore", "--lake", copy, "--version", "2")
        assert numbers(copy) == numbers(copy, "events") == [1, 2, 3, 4]
        ingest(data, copy)
        assert numbers(copy) == numbers(copy, "events") == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_restore_that_is_cut_short_is_completed(three):
    """Killed before or after anything that it writes: the next ingest finds the lake as it was, or as it was to be."""
    data, lake = three
    writes = [(LakeTable, "restore"), *((Folder, name) for name in ("write", "create", "remove"))]
    copies = 0
    for copy in cut_anywhere(lake, writes, lambda copy: Lake(str(copy)).restore(dict.fromkeys(TABLES, 1))):
        ingest(data, copy)
        assert numbers(copy) == numbers(copy, "events") == [1, 2, 3, 4, 5, 6]
        assert not (copy / "_stompring" / "restore.json").exists()
        copies += 1
    assert copies == 2 * 7  # what is to be done, three tables, one broker, and that it is done


# ---- changes


def changes(lake, since, table="messages"):
    """As docs/lake.md shows it."""
    found = pa.table(DeltaTable(str(lake / table)).load_cdf(starting_version=since).read_all()).to_pylist()
    return sorted((row["_commit_version"], row["_change_type"], row["message_id"]) for row in found)


def test_changes_by_version(three):
    data, lake = three
    assert "messages: compacted 3 files into 1" in done("compact", "--lake", lake)
    write_segment(data, 4, [7])
    ingest(data, lake)
    assert changes(lake, 2) == [
        *((2, "insert", 3), (2, "insert", 4)),
        *((3, "insert", 5), (3, "insert", 6)),
        (5, "insert", 7),  # and nothing of version 4, which put files together
    ]
    assert changes(lake, 5, "events") == [(5, "insert", 7)]


# ---- what is there


def test_tables_shows_what_the_delta_log_says(three):
    data, lake = three
    DeltaTable(str(lake / "samples")).alter.add_columns([Field("temperature", PrimitiveType("double"))])
    output = done("tables", "--lake", lake)
    assert "  temperature  DOUBLE" in output and "  headers  MAP<STRING,STRING>" in output
    assert (
        "  broker  STRING" in output and f"broker main: identity {ONE.hex()}, data directory {data}" in output
    )
    told = json.loads(done("tables", "--lake", lake, "--json"))
    assert told["brokers"] == {"main": {"identity": ONE.hex(), "data": str(data)}}
    assert told["tables"]["samples"]["columns"]["temperature"] == "DOUBLE"
    assert told["tables"]["messages"]["columns"]["message_id"] == "BIGINT"


def test_messages_are_committed_last():
    """Copies are looked up in that table, and a version of it is one of the lake."""
    assert ingest_module._COMMIT_ORDER[-1] == "messages" and set(ingest_module._COMMIT_ORDER) == set(TABLES)


@pytest.mark.parametrize(
    "about, text",
    [
        (
            {"version": 4, "id": "x"},
            "has version 4, this stompring supports version 3: use a newer stompring",
        ),
        (
            {"version": 2, "id": "x"},
            "supports version 3: export it with the version of stompring that wrote it",
        ),
        ({"version": 3}, "lake.json is damaged"),
        ([], "lake.json is damaged"),
    ],
)
def test_a_lake_of_another_version_is_refused_by_every_command(tmp_path, about, text):
    data = write_files(tmp_path / "data", broker_files(count=1))
    lake = tmp_path / "lake"
    Lake(str(lake)).create()
    (lake / "_stompring" / "lake.json").write_text(json.dumps(about))
    before = sorted(str(path) for path in lake.rglob("*"))
    more = {
        "ingest": ["--data", str(data)],
        "sql": ["select 1"],
        "report": ["--out", str(tmp_path / "o.html")],
    }
    more |= {"replay": ["--dry-run"], "restore": ["--version", "0"]}
    for name, one in COMMANDS.items():
        if name != "view" and any(each.name == "lake" for each in one.params):
            result = run(name, "--lake", lake, *more.get(name, []))
            assert result.exit_code == 1 and text in result.output, (name, result.output)
            assert "Traceback" not in result.output
    assert sorted(str(path) for path in lake.rglob("*")) == before
