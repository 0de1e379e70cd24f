"""A lake beside the files that it was made of: everything once, in any steps, whatever was deleted or damaged."""

from collections import Counter

import pytest

from .traffic import event_counts, produce, retained_messages, start

pytest.importorskip("deltalake")

from stompring.pipeline.lake.delta import LakeTable
from stompring.pipeline.lake.lake import Lake, LakeNotFound
from stompring.pipeline.storage import Folder
from stompring.store.datadir import read_ingested
from stompring.store.segment import find_footer

from ..broker_files import broker_files, write_files
from .ingesting import cut_anywhere, events, ingest, messages

pytestmark = pytest.mark.spark


def test_a_broker_at_work_in_steps_and_over_a_kill(spark, lasting, tmp_path):
    lake = Lake(str(tmp_path / "lake"))
    start(lasting)
    produce(lasting, "first")
    assert ingest(lasting.data, lake, spark=spark, files=16) > 2
    once = messages(lake)
    assert ingest(lasting.data, lake, spark=spark) <= 2  # samples may have come
    assert messages(lake) == once
    produce(lasting, "second")
    lasting.again("kill")
    lasting.drain("p")
    lasting.drain("r")
    ingest(lasting.data, lake, spark=spark)
    found = messages(lake)
    assert found == retained_messages(lasting.data)
    told = lake.frames(spark)["events"].collect()
    assert all(row.time is not None and row.address is not None for row in told)
    added = Counter((row.message_id, row.queue) for row in told if row.event == "added")
    assert added == Counter((row["message_id"], row["queue"]) for row in found)
    assert {(row.message_id, row.queue) for row in told} == {*added}
    counts = event_counts(told)
    assert [counts[name]["added"] for name in "qprde"] == [120, 120, 120, 6, 2]
    assert counts["q"]["acknowledged"] == counts["p"]["acknowledged"] == 120
    assert (counts["d"]["dead-lettered"], counts["e"]["moved"]) == (6, 2) and counts["r"]["replaced"] > 80
    marked = read_ingested(lasting.data / "retention")
    assert [one.name for one in marked.values()] == [str(lake)]
    rows = lake.tables["messages"].open().to_pyarrow_table(columns=["queue", "bucket"]).to_pylist()
    assert len({(row["queue"], row["bucket"]) for row in rows}) == len({row["queue"] for row in rows})


def test_files_that_are_gone_or_damaged_are_told_and_the_rest_is_there(tmp_path):
    data = write_files(tmp_path / "data", broker_files(count=8, journal_file_size=1500))
    sealed = [
        path
        for path in sorted(data.rglob("*.journal"))
        if find_footer(path.read_bytes()) is not None and path.stem != "000000001"
    ]
    whole = retained_messages(data)
    damaged = sealed[0]
    broken = bytearray(damaged.read_bytes())
    broken[len(broken) // 4] ^= 1
    damaged.write_bytes(broken)
    gone = sealed[-1]
    gone.unlink()
    lake = Lake(str(tmp_path / "lake"))
    ingest(data, lake)
    left = messages(lake)
    assert 0 < len(left) < len(whole) and all(row in whole for row in left)
    told = lake.losses()
    assert any(f"file {int(gone.stem)} of journal deleted" in line for line in told), told
    assert any(damaged.name in line and " at " in line for line in told), told


def test_a_batch_that_was_cut_short_is_completed(tmp_path):
    """Killed before or after anything that it writes."""
    data = write_files(tmp_path / "data", broker_files(count=3))
    Lake(str(tmp_path / "lake")).create(4)
    want = retained_messages(data)
    # those of address "all" are retained, durable or not
    entered = {(row["message_id"], row["queue"]) for row in want if row["durable"] or row["address"] == "all"}
    writes = [
        (LakeTable, "commit"),
        *((Folder, name) for name in ("write", "create", "remove", "remove_all")),
    ]
    copies = 0
    for copy in cut_anywhere(tmp_path / "lake", writes, lambda copy: ingest(data, copy)):
        ingest(data, copy)
        lake = Lake(str(copy))
        assert messages(lake) == want and ingest(data, copy) == 0
        added = [(row["message_id"], row["queue"]) for row in events(lake) if row["event"] == "added"]
        assert sorted(added) == sorted(entered)
        copies += 1
    assert copies > 2 * 5  # three tables, what is begun, and which broker it is


def test_nothing_and_no_lake(spark, tmp_path):
    lake = Lake(str(tmp_path / "lake"))
    with pytest.raises(LakeNotFound, match="is not a lake .*: create one with 'stompring lake ingest'"):
        lake.frames(spark)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "schema-version").write_text("2\n")
    assert ingest(tmp_path / "data", lake) == 0
    assert {name: frame.count() for name, frame in lake.frames(spark).items()} == {
        "messages": 0,
        "events": 0,
        "samples": 0,
    }
