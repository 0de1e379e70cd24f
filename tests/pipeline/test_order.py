"""Batches in the order of time: nothing that a watermark would drop, everything once, whatever the files look like."""

import shutil
from bisect import bisect_left
from collections import Counter
from itertools import accumulate

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st

from stompring.pipeline.backlog import Amount, FileSlice, Limit, plan_batch
from stompring.pipeline.files import START, Position
from stompring.settings.model import Retention

from ..broker.broker_fixture import join
from ..property.profile import examples
from ..store.paged_broker import SETTINGS, PagedBroker
from . import reference_decoder
from .broker_files import KEPT, write_files
from .spark_formats import stream
from .test_source_stream import batches

#: Bytes of a record of the layouts below.
RECORD = 10


class Rows:
    """The times of a file's rows, found without any of the code that is tested."""

    def __init__(self, times):
        latest = list(accumulate(times, max))
        rises = [place for place, time in enumerate(latest) if not place or time > latest[place - 1]]
        self.at = [RECORD * place for place in rises]
        self.latest = [latest[place] for place in rises]
        self.greatest = latest[-1] if latest else 0

    def cut(self, time):
        place = bisect_left(self.latest, time)
        return self.at[place] if place < len(self.at) else -1


def folders(layout, at, told):
    """What is not read yet. ``told``: how much later than its last row a file is said to end; -1: it is not said."""
    found = []
    for name, files in layout.items():
        begin = at.get(name, START)
        pieces = []
        for number, times in enumerate(files, 1):
            if number < begin.number:
                continue
            pieces.append(
                FileSlice(
                    f"{name}/{number}",
                    name,
                    number,
                    begin.offset if number == begin.number else 0,
                    Position(number + 1, 0),
                    RECORD * len(times),
                    begun=lambda times=times: min(times, default=0),
                    greatest=lambda times=times: None if told < 0 else max(times, default=0) + told,
                    times=lambda times=times: Rows(times),
                    rows=lambda times=times: len(times),
                )
            )
        if pieces:
            found.append(pieces)
    return found


def read(layout, before, after):
    """Folder, file, place and time of each row between two positions."""
    return [
        (name, number, place, time)
        for name, files in layout.items()
        for number, times in enumerate(files, 1)
        for place, time in enumerate(times)
        if before.get(name, START) <= Position(number, RECORD * place) < after.get(name, START)
    ]


@st.composite
def layouts(draw, disorder):
    """Up to five folders, whose files are short or long, quick or slow; rows late by up to ``disorder``."""
    layout = {}
    for folder in range(draw(st.integers(1, 5))):
        now = draw(st.integers(0, 500))
        files = []
        for _ in range(draw(st.integers(1, 5))):
            step = draw(st.sampled_from([0, 1, 7, 40, 300]))
            times = []
            for _ in range(draw(st.integers(0, 12))):
                now += draw(st.integers(0, step))
                times.append(max(0, now - draw(st.integers(0, disorder))))
            files.append(times)
        layout[f"folder {folder}"] = files
    return layout


limits = st.one_of(
    st.builds(Limit, st.integers(1, 200)),
    st.builds(Limit, st.none(), st.integers(1, 4)),
    st.builds(Limit, st.none(), st.none(), st.integers(1, 30)),
    st.builds(Limit, st.integers(1, 200), st.integers(1, 4), st.integers(1, 30)),
)


@examples(100)
@given(
    st.data(),
    limits,
    st.sampled_from([0, 5, 60]),
    st.sampled_from([-1, 0, 25]),
    st.just(0) | st.integers(0, 600),
)
def test_no_row_is_behind_the_watermark(data, limit, disorder, told, least):
    """The delay of the watermark is what rows of one file may be late by: nothing more is needed."""
    layout = data.draw(layouts(disorder))
    at = {}
    seen = Counter()
    watermark = 0
    while some := folders(layout, at, told):
        found = {piece.folder: end for piece, end in plan_batch(some, limit, least)}
        assert found, "a batch that takes nothing would be the last"
        after = {**at, **found}
        assert all(after[name] > at.get(name, START) for name in found)
        rows = read(layout, at, after)
        times = [time for *_, time in rows]
        assert all(time >= watermark for time in times), (times, watermark)
        if least and not at:
            assert sorted(times)[: sum(time < least - disorder for time in times)] == sorted(
                time for *_, time in everything(layout) if time < least - disorder
            )
        elif disorder == 0 and len(set(times)) > 1:
            assert within(limit, layout, at, after), "and more than one moment"
        seen.update(rows)
        watermark = max([watermark, *(time - disorder for time in times)])
        at = after
    assert seen == Counter(everything(layout))


def everything(layout):
    return read(layout, {}, {name: Position(len(files) + 1, 0) for name, files in layout.items()})


def within(limit, layout, before, after):
    """Whether a batch is no larger than its limit."""
    total = Amount()
    for (name, number), count in Counter((row[0], row[1]) for row in read(layout, before, after)).items():
        share = count / len(layout[name][number - 1])
        total = total.plus(Amount(RECORD * count, share, count))
    return limit.allows(total)


# ---- with files of a broker

STEPS, PACE = 300, 200  # milliseconds

#: How many messages each queue gets.
SENT = {"q": 300, "stays": 15, "a.one": 100, "b.one": 18, "c.one": 99}


def mixed(root, **more):
    """A minute of a broker: a journal of small segments, of which some messages stay and are written once more; an
    address that pages all the time, one that does so now and then, and a third that begins late."""
    world = PagedBroker(
        journal_file_size=6000, journal_retention_directory=Retention(str(KEPT)), settings=SETTINGS, **more
    )
    consumer = join(world.queue("q"))
    world.queue("stays")
    queues = {name: world.queue(f"{name}.one", name) for name in ("a", "b", "c")}
    for name in queues:
        world.address(name).pages = world.paging.open(world.address(name))
    world.turn()

    def page(name, number):
        pages = world.address(name).pages
        pages.append(world.message(name, b"%d" % number, durable=True), [queues[name]])

    for step in range(STEPS):
        world.durable("q", b"%d" % step)
        if step % 20 == 0:
            world.durable("stays", b"%d" % step)
        if step % 3 == 0:
            page("a", step)
        if step % 17 == 0:
            page("b", step)
        if step > 200:
            page("c", step)
        if step % 5 == 2:  # what comes back does not say when
            consumer.nack(consumer.unsettled[-1])
        if step % 5 == 4:
            consumer.ack()
        world.turn()
        world.pass_time(PACE)
    world.stop()
    files = {
        str(path.relative_to("/data")): data
        for path, data in world.memory.data.items()
        if path.suffix in (".journal", ".page")
    }
    return write_files(root, files)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return mixed(tmp_path_factory.mktemp("mixed"))


def late(found, column):
    """How many milliseconds rows are older than the newest of the batches before theirs, at most."""
    newest, most = None, 0
    for rows in found:
        if newest is not None:
            most = max([most, *(round((newest - row[column]).total_seconds() * 1000) for row in rows)])
        newest = max([row[column] for row in rows] + ([newest] if newest is not None else []), default=None)
    return most


@pytest.mark.parametrize(
    "table, limit",
    [
        ("messages", {"maxFilesPerTrigger": "2"}),
        ("messages", {"maxBytesPerTrigger": "5000"}),
        ("messages", {"maxRowsPerTrigger": "30"}),
        ("events", {"maxBytesPerTrigger": "5000"}),
    ],
)
def test_a_backlog_of_journal_and_pages_is_read_by_time(data, table, limit):
    def of(**options):
        return batches(stream(data, table=table, **options))

    (whole,) = of()
    found = of(**limit)
    assert len(found) > 10
    assert late(found, "timestamp" if table == "messages" else "time") == 0
    assert Counter(map(repr, (row for rows in found for row in rows))) == Counter(map(repr, whole))


@pytest.mark.parametrize("missing", [4, 8])
def test_copies_that_are_all_that_is_left_come_first(data, tmp_path, missing):
    """With what the pages have of that time, and each message once though its original is there too."""
    shutil.copytree(data, tmp_path, dirs_exist_ok=True)
    files = sorted(tmp_path.rglob("*.journal"), key=lambda path: path.name)
    for path in files[:missing]:
        path.unlink()
    expected = {
        (row["message_id"], row["queue"])
        for path in [*tmp_path.rglob("*.journal"), *tmp_path.rglob("*.page")]
        for row in reference_decoder.rows(path.read_bytes())
    }
    found = batches(stream(tmp_path, maxFilesPerTrigger="2"))
    rows = [(row["message_id"], row["queue"]) for batch in found for row in batch]
    assert len(found) > 5 and sorted(rows) == sorted(expected)
    assert sum(row["queue"] == "stays" for row in found[0]) > 1
    assert late(found, "timestamp") == 0


@pytest.mark.spark
def test_a_windowed_count_with_a_watermark_is_exact(spark, data, tmp_path):
    """Spark drops rows that are older than the newest of the batches before, less two seconds."""
    from pyspark.sql.functions import col, window

    options = {"maxBytesPerTrigger": "30000", "columns": "timestamp,queue"}
    counts = {}

    def keep(rows, _):
        counts.update({(row.window.start, row.queue): row["count"] for row in rows.collect()})

    rows = spark.readStream.format("stompring").options(**options).load(str(data))
    counted = rows.withWatermark("timestamp", "2 seconds").groupBy(
        window("timestamp", "5 seconds"), col("queue")
    )
    query = (
        counted.count()
        .writeStream.outputMode("update")
        .foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(query.recentProgress) > 3
    dropped = [
        state.numRowsDroppedByWatermark for each in query.recentProgress for state in each.stateOperators
    ]
    assert set(dropped) == {0}
    assert sum(counts.values()) == sum(SENT.values())
    assert {
        name: sum(count for (_, queue), count in counts.items() if queue == name) for name in SENT
    } == SENT
