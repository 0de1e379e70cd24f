"""Lakes of version 1 are brought to this one: exact for every reader, at each point where that may be cut short."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from deltalake import DeltaTable

from stompring.cli.lake import lake as command
from stompring.pipeline.lake.delta import VERSION_1_BROKER, FileWriter, LakeTable
from stompring.pipeline.lake.lake import Lake
from stompring.pipeline.storage import Folder

from ..broker_files import broker_files, write_files
from .ingesting import cut_anywhere, ingest, run
from .version1_lake import TABLES, first_version, ordered, rows

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """A lake of version 1, and its rows."""
    root = tmp_path_factory.mktemp("earlier")
    lake = first_version(write_files(root / "data", broker_files(count=3)), root / "lake")
    found = {table: rows(lake, table) for table in TABLES}
    assert all(found.values()) and not any("broker" in row for row in found["messages"])
    return lake, found


def later(row):
    """What records of that time did not tell for sure."""
    doubtful = ("delivered", "redelivered", "scheduled", "moved", "dead-lettered")
    return {"certain": row["event"] not in doubtful} if "event" in row else {}


def same(lake, found):
    for table in TABLES:
        assert rows(lake, table) == ordered({**row, **later(row), "broker": "main"} for row in found[table])


def test_every_reader_finds_the_name_in_old_rows(spark, before, tmp_path):
    polars = pytest.importorskip("polars")
    lake, found = Path(shutil.copytree(before[0], tmp_path / "lake")), before[1]
    old = Lake(str(lake))
    assert old.brokers() == {"main": VERSION_1_BROKER}
    counts = {table: frame.where("broker = 'main'").count() for table, frame in old.frames(spark).items()}
    assert counts == {table: len(each) for table, each in found.items()}  # before it was migrated too
    old.migrate()
    same(lake, found)
    for table, each in found.items():
        frame = Lake(str(lake)).frames(spark, broker="main")[table]
        assert frame.count() == len(each)
        scanned = polars.scan_delta(str(lake / table)).filter(polars.col("broker") == "main").collect()
        assert len(scanned) == len(each)
    about = json.loads((lake / "_stompring" / "lake.json").read_text())
    assert about["version"] == 2 and about["id"] == "0123456789abcdef0123456789abcdef"
    versions = {table: DeltaTable(str(lake / table)).version() for table in TABLES}
    Lake(str(lake)).migrate()
    assert {table: DeltaTable(str(lake / table)).version() for table in TABLES} == versions
    # as it was before, by its version
    assert Lake(str(lake)).tables["messages"].frame(spark, version=1).where("broker = 'main'").count() == len(
        found["messages"]
    )


def test_cut_short_at_any_point(before):
    """Readers find the one or the other; the next one completes it."""
    lake, expected = before
    copies = 0
    writes = [(LakeTable, "put"), (FileWriter, "close"), (Folder, "write")]
    for copy in cut_anywhere(lake, writes, lambda copy: Lake(str(copy)).migrate()):
        for table in TABLES:
            now = rows(copy, table)
            for row in now:
                assert row.pop("broker", "main") == "main"
                row.pop("certain", None)
            assert ordered(now) == expected[table]
        Lake(str(copy)).migrate()
        same(copy, expected)
        assert Lake(str(copy)).brokers() == {"main": VERSION_1_BROKER}
        copies += 1
    assert copies >= 2 * 8  # three tables with their files, and lake.json


@pytest.mark.parametrize("committed", [("messages",), ("samples",), tuple(TABLES)])
def test_ingest_goes_on_where_version_1_was(tmp_path, committed):
    """A batch that was half done then is completed; what came since is there once."""
    every = broker_files()
    last = sorted(name for name in every if name.endswith(".journal"))[-1]
    data = write_files(tmp_path / "data", {name: data for name, data in every.items() if name != last})
    lake = first_version(data, tmp_path / "lake", committed)
    write_files(data, {last: every[last]})
    ingest(data, lake)
    other = tmp_path / "other"
    ingest(data, other)
    for table in TABLES:
        both = [rows(lake, table), rows(other, table)]
        for row in (row for each in both for row in each):
            row.pop("certain", None)  # the lake of version 1 did not have it
        assert ordered(both[0]) == ordered(both[1])


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({"version": 3, "id": "x"}, "has version 3, this stompring supports versions up to 2"),
        ({"version": 2}, "lake.json is damaged"),
        ([], "lake.json is damaged"),
    ],
)
def test_a_lake_of_a_newer_version_is_refused_by_every_command(tmp_path, about, text):
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
    for name, one in command.commands.items():
        if name != "view" and any(each.name == "lake" for each in one.params):
            result = run(name, "--lake", lake, *more.get(name, []))
            assert result.exit_code == 1 and text in result.output, (name, result.output)
            assert "Traceback" not in result.output
    assert sorted(str(path) for path in lake.rglob("*")) == before
