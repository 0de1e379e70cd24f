"""A lake knows data directories by their identities: another one is refused, or is there under a name of its own."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from stompring.pipeline.backlog import DirectoryReplaced
from stompring.pipeline.files import DataFiles
from stompring.pipeline.lake.ingest import Ingest
from stompring.pipeline.lake.lake import Lake
from stompring.store.datadir import read_ingested

from ..broker_files import broker_files, write_files, write_identified
from ..test_source_stream import write_segment
from .ingesting import InProcess, ingest, rows, run
from .traffic import retained_messages

pytestmark = pytest.mark.spark

ONE, TWO, THREE = bytes(range(16)), bytes(range(16, 32)), bytes(range(32, 48))


def refused(result, *texts):
    assert result.exit_code in (1, 2), result.output
    assert "Traceback" not in result.output
    for text in texts:
        assert text in result.output, result.output


def by_broker(lake):
    """The messages that delta-rs reads."""
    found = {}
    for row in rows(lake, "messages"):
        found.setdefault(row["broker"], []).append((row["message_id"], row["queue"], row["body"]))
    return {name: sorted(each) for name, each in found.items()}


def on_disk(data):
    return sorted((row["message_id"], row["queue"], row["body"]) for row in retained_messages(data))


def numbered(data, identity, count):
    """A data directory with so many messages."""
    write_segment(write_identified(data, {}, identity), 1, [*range(1, count + 1)])
    (data / "retention").mkdir()
    return data


def test_two_brokers_and_one_that_was_wiped(spark, tmp_path):
    lake = tmp_path / "lake"
    north, south = numbered(tmp_path / "north", ONE, 20), numbered(tmp_path / "south", TWO, 30)
    assert run("ingest", "--data", north, "--lake", lake).exit_code == 0
    before = by_broker(lake)
    result = run("ingest", "--data", south, "--lake", lake)
    refused(result, ONE.hex(), TWO.hex(), str(north), str(south), "--as NAME")
    assert result.exit_code == 1 and by_broker(lake) == before == {"main": on_disk(north)}
    assert run("ingest", "--data", south, "--lake", lake, "--as", "south").exit_code == 0
    everything = {**before, "south": on_disk(south)}  # other messages under the same numbers
    assert by_broker(lake) == everything
    refused(run("ingest", "--data", north, "--lake", lake, "--as", "again"), ONE.hex(), "'main'", "--as main")
    # it is wiped, and grows again to more than it was
    shutil.rmtree(north)
    numbered(north, THREE, 60)
    result = run("ingest", "--data", north, "--lake", lake)
    refused(result, ONE.hex(), THREE.hex(), "was created anew", "--as NAME")
    assert by_broker(lake) == everything
    assert run("ingest", "--data", north, "--lake", lake, "--as", "north.2").exit_code == 0
    everything["north.2"] = on_disk(north)
    # one that was moved is the one it was
    moved = shutil.move(south, tmp_path / "elsewhere")
    assert run("ingest", "--data", moved, "--lake", lake, "--as", "south").exit_code == 0
    assert by_broker(lake) == everything
    known = Lake(str(lake)).brokers()
    assert (known["south"].data, known["south"].identity) == (str(moved), TWO.hex())
    assert [one.id for one in read_ingested(north / "retention").values()] == [Lake(str(lake)).id]
    several(lake, tmp_path)


def several(lake, directory):
    """The commands on a lake with several brokers."""
    result = run("sql", "select broker, count(*) from messages group by 1 order by 1", "--lake", lake)
    assert [line.split() for line in result.output.splitlines()[2:5]] == [
        ["main", "20"],
        ["north.2", "60"],
        ["south", "30"],
    ]
    page = directory / "page.html"
    refused(run("replay", "--lake", lake, "--dry-run"), "--broker", "main, north.2, south")
    for words in (["replay", "--lake", lake, "--dry-run"], ["report", "--lake", lake, "--out", page]):
        refused(run(*words, "--broker", "nowhere"), "has no broker 'nowhere'")
    result = run("replay", "--lake", lake, "--dry-run", "--broker", "north.2")
    assert "60 messages would be sent" in result.output
    refused(run("ingest", "--data", directory, "--lake", lake, "--as", "a/b"), "not a data directory")
    refused(
        run("ingest", "--data", directory / "north", "--lake", lake, "--as", "a/b"),
        "invalid broker name",
    )


# ---- directories made for it


def test_copies_are_looked_up_within_their_broker(spark, tmp_path):
    """What one broker has under a number says nothing of another's."""
    one, two = tmp_path / "one", tmp_path / "two"
    for data, numbers in ((one, [1, 2, 3]), (two, [-1, 4])):
        write_identified(data, {}, ONE if data is one else TWO)
        write_segment(data, 1, numbers)
    ingest(one, tmp_path / "lake", spark=spark)
    ingest(two, tmp_path / "lake", "two", spark)
    write_segment(one, 2, [-1, -3, 5])
    ingest(one, tmp_path / "lake", spark=spark)
    found = {name: [row[0] for row in each] for name, each in by_broker(tmp_path / "lake").items()}
    assert found == {"main": [1, 2, 3, 5], "two": [1, 4]}
    added = Counter(
        (row["broker"], row["message_id"])
        for row in rows(tmp_path / "lake", "events")
        if row["event"] == "added"
    )
    assert set(added.values()) == {1} and {key for key in added if key[0] == "two"} == {
        ("two", 1),
        ("two", 4),
    }


def test_a_directory_that_is_begun_anew_under_an_ingest_that_goes_on(tmp_path):
    data, lake = (
        write_identified(tmp_path / "data", broker_files(identity=ONE, count=3), ONE),
        Lake(str(tmp_path / "lake")),
    )
    lake.create(4)
    work = Ingest(InProcess(), DataFiles(str(data)), lake)
    assert len(list(work.batches())) == 1
    before = by_broker(Path(str(lake)))
    shutil.rmtree(data)
    write_identified(data, broker_files(identity=TWO), TWO)  # it is longer than the other one was
    with pytest.raises(DirectoryReplaced, match=f"{TWO.hex()}.*{ONE.hex()}"):
        list(work.batches())
    assert by_broker(Path(str(lake))) == before


def test_a_directory_of_format_1_goes_on_when_it_has_an_identity(tmp_path):
    """And no other one goes on in its place, as far as positions tell."""
    lake = tmp_path / "lake"
    data = write_files(tmp_path / "data", broker_files(count=3))
    ingest(data, lake)
    assert Lake(str(lake)).brokers()["main"].identity is None
    other = write_identified(tmp_path / "other", broker_files(identity=TWO, count=2), TWO)
    with pytest.raises(DirectoryReplaced, match="messages that are missing in .*broker 'main'.*--as NAME"):
        ingest(other, lake)
    write_files(data, broker_files(count=3))
    (data / "identity").write_text(f"{ONE.hex()}\n")
    assert ingest(data, lake) == 0
    assert Lake(str(lake)).brokers()["main"].identity == ONE.hex()
    refused(run("ingest", "--data", other, "--lake", lake), ONE.hex(), TWO.hex())


def test_a_file_of_another_directory_is_told_and_left_out(tmp_path):
    files, foreign = broker_files(identity=ONE, count=4), broker_files(identity=TWO, count=4)
    name = sorted(each for each in files if each.endswith(".journal"))[1]
    data = write_identified(tmp_path / "data", {**files, name: foreign[name]}, ONE)
    clean = write_files(
        tmp_path / "clean", {each: content for each, content in files.items() if each != name}
    )
    ingest(data, tmp_path / "lake")
    assert by_broker(tmp_path / "lake")["main"] == on_disk(clean)
    told = Lake(str(tmp_path / "lake")).losses()
    assert any(name in line and f"belongs to the data directory {TWO.hex()}" in line for line in told), told


def test_retained_files_of_another_directory_are_refused(tmp_path):
    data = write_identified(tmp_path / "data", broker_files(identity=ONE, count=2), ONE)
    (data / "retention").mkdir(exist_ok=True)
    (data / "retention" / "identity").write_text(f"{TWO.hex()}\n")
    refused(run("ingest", "--data", data, "--lake", tmp_path / "lake"), ONE.hex(), TWO.hex(), "retention")
    (data / "retention" / "identity").write_text("nothing of the kind\n")
    refused(run("ingest", "--data", data, "--lake", tmp_path / "lake"), "is not a data directory identity")


def test_without_its_file_the_newest_segment_tells_the_identity(tmp_path):
    data = write_identified(tmp_path / "data", broker_files(identity=ONE, count=2), ONE)
    (data / "identity").unlink()
    assert DataFiles(str(data)).identity() == ONE
    assert DataFiles(str(write_files(tmp_path / "old", broker_files(count=1)))).identity() is None


# ---- what is no data directory


def test_what_is_no_data_directory_is_refused(spark, tmp_path):
    nothing = tmp_path / "logs"
    (nothing / "journal" / "0123").mkdir(parents=True)  # as of a system's own journal
    (nothing / "syslog").write_text("no broker wrote this")
    lake = tmp_path / "lake"
    text = "is not a data directory of a broker (looked for schema-version, identity, and files as journal/000000001"
    result = run("ingest", "--data", nothing, "--lake", lake)
    refused(result, str(nothing), text)
    assert result.exit_code == 2 and not lake.exists()
    refused(run("ingest", "--data", tmp_path / "none", "--lake", lake), "is not a directory")
    result = run("ingest", "--data", nothing, "--retention", nothing, "--lake", lake)
    refused(result, text)


def test_an_empty_data_directory_and_retained_files_alone(tmp_path):
    empty = write_identified(tmp_path / "empty", {}, ONE)
    assert ingest(empty, tmp_path / "lake") == 0
    refused(
        run("ingest", "--data", empty, "--retention", tmp_path / "none", "--lake", tmp_path / "lake"),
        "--retention",
        "has no retained files of a broker",
    )
    alone = write_files(tmp_path / "alone", broker_files(identity=TWO, count=3))
    (alone / "identity").write_text(f"{TWO.hex()}\n")
    ingest(alone, tmp_path / "other")
    assert by_broker(tmp_path / "other")["main"] == on_disk(alone)
    about = json.loads((tmp_path / "other" / "_stompring" / "lake.json").read_text())
    assert about["brokers"]["main"]["identity"] == TWO.hex()
