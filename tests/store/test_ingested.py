"""``ingested.json``: what who ingests writes there, and what the broker makes of it when it deletes retained files."""

import json
import logging
import multiprocessing
import os
from pathlib import Path

import pytest

from stompring.broker.ports import Reason
from stompring.settings.model import Retention as Settings
from stompring.store.datadir import (
    INGESTED,
    INGESTED_LOCK,
    Busy,
    Lake,
    Position,
    ingesting,
    parse_ingested,
    read_ingested,
    record_ingested,
)
from stompring.store.segment import TRAILER, footer_offset

from .test_retention import KEPT, Paged, files, fill, sampled, world

# ---- the file


def positions(**folders):
    return {name: Position(*each) for name, each in folders.items()}


def test_recorded_positions_are_read(tmp_path):
    assert read_ingested(tmp_path) == {}
    first = {"journal": Position(12, 40960), "paging/000000007": Position(7, 4096)}
    record_ingested(tmp_path, "a", "file:///a", first, 5)
    record_ingested(tmp_path, "b", "file:///b", positions(samples=(3, 100)), 6)
    assert read_ingested(tmp_path) == {
        "a": Lake("a", "file:///a", 5, first),
        "b": Lake("b", "file:///b", 6, positions(samples=(3, 100))),
    }
    record_ingested(tmp_path, "a", "file:///c", positions(journal=(13, 0)), 7)
    assert read_ingested(tmp_path)["a"] == Lake("a", "file:///c", 7, positions(journal=(13, 0)))
    assert json.loads((tmp_path / INGESTED).read_bytes()) == {
        "version": 1,
        "lakes": {
            "a": {"name": "file:///c", "time": 7, "positions": {"journal": "13:0"}},
            "b": {"name": "file:///b", "time": 6, "positions": {"samples": "3:100"}},
        },
    }
    assert {path.name for path in tmp_path.iterdir()} == {INGESTED, INGESTED_LOCK}


def test_the_time_is_that_of_the_clock(tmp_path):
    record_ingested(tmp_path, "a", "a", {})
    modified = (tmp_path / INGESTED).stat().st_mtime_ns // 1_000_000
    assert abs(read_ingested(tmp_path)["a"].time - modified) < 60_000


@pytest.mark.parametrize("lake", ["", "a/b", "ä", "a" * 101, "../x"])
def test_ids_that_are_no_names_of_files(tmp_path, lake):
    with pytest.raises(ValueError, match="cannot be the id"):
        record_ingested(tmp_path, lake, "x", {})
    with pytest.raises(ValueError, match="cannot be the id"), ingesting(tmp_path, lake):
        pass
    assert list(tmp_path.iterdir()) == []


def lakes(**fields):
    lake = {"name": "x", "time": 1, "positions": {}, **fields}
    return json.dumps({"version": 1, "lakes": {"a": lake}}).encode()


DAMAGED = [
    b"",
    b"\xff",
    b"{",
    b"[" * 100_000,
    b"[]",
    b'{"version": 2, "lakes": {}}',
    b'{"version": 1}',
    b'{"version": 1, "lakes": {"a": 1}}',
    lakes(positions=[]),
    lakes(positions={"journal": "1"}),
    lakes(positions={"journal": 1}),
    lakes(positions={"journal": "1:-1"}),
    lakes(positions={"journal": "1:" + "9" * 50}),
    lakes(name=1),
    lakes(time="x"),
]


@pytest.mark.parametrize("data", DAMAGED, ids=lambda data: repr(data[:60]))
def test_damaged_ingested_file_raises_and_is_not_overwritten(tmp_path, data):
    with pytest.raises(ValueError):
        parse_ingested(data)
    (tmp_path / INGESTED).write_bytes(data)
    with pytest.raises(ValueError):
        record_ingested(tmp_path, "b", "b", {})
    assert (tmp_path / INGESTED).read_bytes() == data


def test_unknown_entries_are_accepted():
    found = parse_ingested(lakes(more=1, positions={"journal": "1:2", "other": "3:4"}))
    assert found["a"].positions == positions(journal=(1, 2), other=(3, 4))


@pytest.mark.parametrize(
    "position, number, end, lacks",
    [
        ((5, 100), 4, 999, False),
        ((5, 100), 5, 100, False),
        ((5, 100), 5, 101, True),
        ((5, 100), 6, 0, True),
        (None, 1, 0, True),
    ],
)
def test_lacks_compares_positions_with_file_ends(position, number, end, lacks):
    found = {} if position is None else positions(journal=position)
    assert Lake("a", "a", 0, found).lacks("journal", number, end) is lacks


def many(directory, lake):
    for number in range(30):
        record_ingested(Path(directory), lake, lake, positions(journal=(number, 0)))


def test_several_processes_lose_nothing_of_each_other(tmp_path):
    context = multiprocessing.get_context("spawn")
    running = [context.Process(target=many, args=(str(tmp_path), name)) for name in "abc"]
    for process in running:
        process.start()
    for process in running:
        process.join(60)
        assert process.exitcode == 0
    found = read_ingested(tmp_path)
    assert {name: lake.positions["journal"].number for name, lake in found.items()} == dict.fromkeys(
        "abc", 29
    )


def test_one_ingest_at_a_time_for_each_lake(tmp_path):
    with ingesting(tmp_path, "a"):
        with pytest.raises(Busy), ingesting(tmp_path, "a"):
            pass
        with ingesting(tmp_path, "b"):
            record_ingested(tmp_path, "a", "a", {})
    with ingesting(tmp_path, "a"):
        pass


def test_a_failed_write_leaves_the_old_one(tmp_path, monkeypatch):
    record_ingested(tmp_path, "a", "a", positions(journal=(1, 1)))

    def fails(descriptor):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError):
        record_ingested(tmp_path, "a", "a", positions(journal=(2, 2)))
    monkeypatch.undo()
    assert read_ingested(tmp_path)["a"].positions == positions(journal=(1, 1))
    record_ingested(tmp_path, "a", "a", positions(journal=(2, 2)))
    assert read_ingested(tmp_path)["a"].positions == positions(journal=(2, 2))


# ---- the broker


def put(one, **found):
    """An ``ingested.json`` with these lakes."""
    every = {name: {"name": f"lake-{name}", "time": 1, "positions": where} for name, where in found.items()}
    one.files.replace(KEPT / INGESTED, json.dumps({"version": 1, "lakes": every}).encode())


def count(one):
    """Deleted files, and those of them that were not ingested."""
    retention = one.store.retention
    return retention.deleted, retention.deleted_not_ingested


def warned(caplog):
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and record.name == "stompring.store.retention"
    ]


def filled(**limits):
    """Some retained segments that are there at the start of a broker, which is to have these limits."""
    one = world()
    fill(one, 60)
    kept = list(files(one, ".journal", kept=True))
    assert len(kept) > 4
    return world(one.memory.kill(), **limits, recover=False), kept


def begin(one):
    one.store.recover(one.broker)
    one.turn()


def footer_at(one, path):
    place = footer_offset(one.memory.data[path][-TRAILER.size :])
    assert place > 0
    return place


def test_without_the_file_nothing_is_counted(caplog):
    one, kept = filled(storage_limit=0)
    begin(one)
    assert count(one) == (len(kept), 0) and warned(caplog) == []


def test_deleting_fully_ingested_files_counts_no_loss(caplog):
    one, kept = filled(storage_limit=0)
    last = int(kept[-1].stem)
    put(one, a={"journal": f"{last}:{footer_at(one, kept[-1])}"}, b={"journal": f"{last + 1}:0"})
    begin(one)
    assert count(one) == (len(kept), 0) and warned(caplog) == []
    assert files(one, ".journal", kept=True) == {}


def test_deleted_files_not_ingested_are_counted_and_logged_once(caplog):
    one, kept = filled(storage_limit=0)
    at = footer_at(one, kept[2])
    put(one, a={"journal": f"{int(kept[2].stem)}:{at - 1}"}, b={"journal": f"{int(kept[-1].stem)}:999999"})
    begin(one)
    assert count(one) == (len(kept), len(kept) - 2)
    (text,) = warned(caplog)
    assert f"{len(kept) - 2} retained files" in text and "lake-a" in text and "lake-b" not in text
    assert str(kept[2]) in text and str(kept[-1]) in text and "storage-limit 0 exceeded" in text


def test_a_lake_that_knows_a_folder_not_at_all_lacks_it(caplog):
    one, kept = filled(storage_limit=0)
    put(one, a={"samples": "9:9"})
    begin(one)
    assert count(one) == (len(kept), len(kept)) and len(warned(caplog)) == 1


def test_warning_names_one_file_and_the_reason(caplog):
    one, kept = filled(period=1)
    put(one, a={"journal": f"{int(kept[-2].stem)}:999999"})
    begin(one)
    (text,) = warned(caplog)
    assert count(one) == (len(kept), 1)
    assert (
        text
        == f"deleted {kept[-1]} before it was ingested into lake-a: older than the retention period of 1 ms"
    )


def test_warning_is_logged_once_a_minute(caplog):
    one = world(storage_limit=3000)
    put(one, a={})
    fill(one, 60)
    before = count(one)[1]
    fill(one, 60)
    lost = count(one)[1]
    assert lost > before + 1 > 1 and len(warned(caplog)) == 1
    one.pass_time(60_000)
    _, second = warned(caplog)
    assert f"{lost - before} retained files" in second
    one.pass_time(120_000)
    assert len(warned(caplog)) == 2
    fill(one, 30)
    assert count(one)[1] > lost and len(warned(caplog)) == 3
    fill(one, 30)
    assert len(warned(caplog)) == 3
    one.store.close()
    assert len(warned(caplog)) == 4, "at the end all of it is told"
    assert not [call for call in one.clock.calls if "_rung" in repr(call) or "Losses" in repr(call)]


@pytest.mark.parametrize("fault", ["damaged", "unreadable"])
def test_unreadable_ingested_file_is_logged_once_and_deletion_continues(caplog, fault):
    one = world(storage_limit=3000)
    one.files.replace(KEPT / INGESTED, b"{")
    if fault == "unreadable":
        put(one, a={})
        one.memory.fail("read", INGESTED)
    fill(one, 60)
    deleted, lost = count(one)
    assert deleted > 3 and lost == 0
    (text,) = warned(caplog)
    assert str(KEPT / INGESTED) in text
    one.memory.heal()
    put(one, a={"journal": "9999:0"})
    fill(one, 30)
    assert len(warned(caplog)) == 1
    one.files.replace(KEPT / INGESTED, b"{")
    fill(one, 30)
    assert len(warned(caplog)) == 2, "it was in order meanwhile"


def test_a_deletion_that_fails_is_tried_again_and_counted_once(caplog):
    one, kept = filled(storage_limit=0)
    put(one, a={})
    one.memory.fail("remove", str(kept[2]))
    begin(one)
    one.pass_time(3000)
    assert list(files(one, ".journal", kept=True)) == kept[2:]
    assert count(one) == (len(kept), 2)
    one.memory.heal()
    one.pass_time(3000)
    assert files(one, ".journal", kept=True) == {}
    assert count(one) == (len(kept), len(kept))


def test_pages_and_samples_have_folders_of_their_own():
    one = Paged()
    (queue,) = one.queues("q")
    for _ in range(20):
        one.page([queue], b"x" * 200)
    list(one.pages.cursor(queue).purge(Reason.KILLED))
    one.close_pages()
    sampled(one).stop()
    one.turn()
    one.turn()
    kept = list(files(one, ".page"))
    (sample,) = files(one, ".samples")
    assert len(kept) > 3
    folder = kept[0].parent.relative_to(KEPT).as_posix()
    assert folder.startswith("paging/")
    put(one, a={folder: f"{int(kept[-2].stem)}:999999", "samples": f"{int(sample.stem)}:999999"})
    retention = one.store.retention
    assert retention.files == len(kept) + 1
    retention.settings = Settings(str(KEPT), storage_limit=0)
    retention.enforce()
    one.turn()
    assert retention.deleted_not_ingested == 1 and retention.files == 0
    assert [path for path in one.memory.data if path.is_relative_to(KEPT)] == [KEPT / INGESTED]
