"""Streams of what a broker writes: Spark beside a real one, and what Spark asks of the source without Spark."""

import shutil
from itertools import chain

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles, ReadMaxRows

from stompring.pipeline.backlog import DataLoss, DirectoryReplaced
from stompring.store.record import ADDRESS, COPY, MESSAGE, NAME, QUEUE, TRAITS, Kind, framed
from stompring.store.segment import JOURNAL, pack_header

from ..broker_document import anycast
from ..end_to_end.lasting import DURABLE
from ..end_to_end.test_retention import retention
from .broker_files import broker_files, write_files, write_identified
from .spark_formats import rows_of, stream

FILES = broker_files()

ONE, TWO = bytes(range(16)), bytes(range(16, 32))


def rows(source, start, end):
    """What the batch between two offsets has."""
    return rows_of(source, source.partitions(start, end))


def batches(source, start=None):
    """All that there is, as Spark would ask for it."""
    limit = source.getDefaultReadLimit()
    at, found = start or source.initialOffset(), []
    while (end := source.latestOffset(at, limit)) != at:
        found.append(rows(source, at, end))
        at = end
    return found


# ---- what Spark asks for


@pytest.mark.parametrize(
    "options, limit",
    [
        ({}, ReadAllAvailable()),
        ({"maxRowsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"maxRowsPerTrigger": "7", "maxFilesPerTrigger": "2"}, ReadMaxFiles(2)),
        ({"maxBytesPerTrigger": "9", "maxFilesPerTrigger": "2"}, ReadMaxBytes(9)),
    ],
)
def test_limits(tmp_path, options, limit):
    source = stream(write_files(tmp_path, FILES), **options)
    assert source.getDefaultReadLimit() == limit
    every = batches(stream(tmp_path))
    found = batches(source)
    assert len(every) == 1 and (len(found) > 1) == bool(options)
    assert sorted(map(repr, chain(*found))) == sorted(map(repr, every[0]))
    begin = source.initialOffset()
    assert (
        rows(source, begin, source.latestOffset(begin, ReadAllAvailable())) == every[0]
    )  # as triggers may ask
    assert source.reportLatestOffset() == source.latestOffset(begin, ReadAllAvailable())


def test_beginning_with_what_comes(tmp_path):
    write_files(tmp_path, FILES)
    source = stream(tmp_path, startingOffsets="LATEST")
    begin = source.initialOffset()
    assert source.latestOffset(begin, ReadAllAvailable()) == begin
    write_segment(tmp_path, next_segment(tmp_path), [1000, 1001])
    assert [[row["message_id"] for row in batch] for batch in batches(source, begin)] == [[1000, 1001]]


def test_up_to_what_was_there(tmp_path):
    source = stream(write_files(tmp_path, FILES), maxFilesPerTrigger="4")
    source.prepareForTriggerAvailableNow()
    expected = [row for batch in batches(stream(tmp_path)) for row in batch]
    write_segment(tmp_path, next_segment(tmp_path), [1000])
    found = batches(source)
    assert len(found) > 2 and len([row for batch in found for row in batch]) == len(expected)
    assert len([row for batch in batches(stream(tmp_path)) for row in batch]) == len(expected) + 1


def test_other_options(tmp_path):
    write_files(tmp_path, FILES)
    (every,) = batches(stream(tmp_path))
    middle = sorted(row["timestamp"] for row in every)[len(every) // 2]
    (found,) = batches(stream(tmp_path, since=middle.isoformat(), columns="body", addresses="news"))
    news = [row for row in every if row["timestamp"] >= middle and row["address"] == "news"]
    assert found == [{"body": row["body"]} for row in news] != []
    for table in ("events", "samples"):
        (found,) = batches(stream(tmp_path, table=table))
        assert len(found) > 10 and ("event" in found[0]) == (table == "events")


def test_an_empty_directory(tmp_path):
    source = stream(write_identified(tmp_path, {}, ONE))
    assert source.initialOffset() == {"identity": ONE.hex()}
    (tmp_path / "identity").unlink()
    assert source.initialOffset() == {} and batches(source) == []
    write_segment(tmp_path, 1, [1])
    assert len(batches(source, {})[0]) == 1


# ---- which directory it is


def test_another_directory_is_refused_though_positions_fit(tmp_path):
    """One that was wiped and has grown to more than it was, another one in its place, and none at all."""
    data = write_identified(tmp_path / "data", broker_files(identity=ONE, count=3), ONE)
    source = stream(data)
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    assert start["identity"] == end["identity"] == ONE.hex()
    first = rows(source, start, end)
    moved = shutil.move(data, tmp_path / "moved")
    assert rows(stream(moved), start, end) == first
    write_identified(data, broker_files(identity=TWO), TWO)
    other = stream(data)
    sentence = f"{data} has identity {TWO.hex()}, but the checkpoint of the query has identity {ONE.hex()}"
    for asked in (
        lambda: other.latestOffset(end, ReadAllAvailable()),
        lambda: other.partitions(start, end),
        lambda: source.latestOffset(end, ReadAllAvailable()),
    ):
        with pytest.raises(DirectoryReplaced, match=f"{sentence}.*was recreated"):
            asked()
    shutil.rmtree(data)
    write_files(data, broker_files())
    with pytest.raises(
        DirectoryReplaced, match="has no identity, but the checkpoint of the query has identity"
    ):
        other.latestOffset(end, ReadAllAvailable())


def test_a_checkpoint_of_an_earlier_version_goes_on(tmp_path):
    """Its offsets had positions alone."""
    data = write_identified(tmp_path, broker_files(identity=ONE, count=3), ONE)
    source = stream(data)
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    earlier = [
        {folder: text for folder, text in each.items() if folder != "identity"} for each in (start, end)
    ]
    assert rows(stream(data), *earlier) == rows(source, start, end) != []
    assert source.partitions(end, end) == []
    assert stream(data).latestOffset(earlier[1], ReadAllAvailable()) == end


def test_a_file_of_another_directory_is_left_out(tmp_path, caplog):
    files, foreign = broker_files(identity=ONE), broker_files(identity=TWO)
    name = sorted(each for each in files if each.endswith(".journal"))[1]
    clean = write_files(tmp_path / "clean", {each: data for each, data in files.items() if each != name})
    data = write_identified(tmp_path / "data", {**files, name: foreign[name]}, ONE)
    (found,) = batches(stream(data))
    (expected,) = batches(stream(clean, failOnDataLoss="false"))
    assert found == expected and f"{name}: it belongs to the data directory {TWO.hex()}" in caplog.text


# ---- messages that the broker has written once more


def next_segment(root):
    return 1 + max(int(path.stem) for path in (root / "journal").iterdir())


def write_segment(root, number, messages):
    """Messages by their numbers, copies as negative ones; the end of a segment that is there, or a new one."""
    path = root / "journal" / f"{number:09d}.journal"
    path.parent.mkdir(exist_ok=True)
    parts = []
    if not path.exists():
        new = [each for each in messages if each > 0]
        parts = [pack_header(JOURNAL, min(new, default=max(map(abs, messages)) + 1), 1)]
        parts += [framed(NAME.pack(Kind.NAME, what, 0, 1) + b"q") for what in (ADDRESS, QUEUE)]
    for each in messages:
        fixed = (Kind.MESSAGE, COPY * (each < 0) | 1, 4, 0, 1, abs(each), 1000, 0, 0, 0, 5, 1, 1, TRAITS.size)
        text = b"\x01\0\0\0" + TRAITS.pack(0, 0, 0, 0, 0) + b"%03d\n\n" % (abs(each) % 1000) + b"x\0\n"
        parts.append(framed(MESSAGE.pack(*fixed) + text))
    with open(path, "ab") as file:
        file.write(b"".join(parts))


@pytest.mark.parametrize(
    "first, options, expected",
    [
        (1, {}, [1, 2, 3, 4, 5]),  # nothing was deleted: the originals are all there
        (1, {"copies": "true"}, [1, 2, 1, 3, 4, 2, 5]),
        (1, {"copies": "false"}, [1, 2, 3, 4, 5]),
        (2, {}, [1, 3, 4, 5]),  # 1 is there as a copy alone; 2 was copied after the query had begun
        (2, {"copies": "true"}, [1, 3, 4, 2, 5]),
        (2, {"copies": "false"}, [3, 4, 5]),
        (2, {"startingOffsets": "latest"}, [4, 5]),
    ],
)
def test_copies(tmp_path, first, options, expected):
    if first == 1:
        write_segment(tmp_path, 1, [1, 2])
    write_segment(tmp_path, 2, [-1, 3])
    source = stream(tmp_path, **options)
    begin = source.initialOffset()
    write_segment(tmp_path, 2, [4, -2])
    write_segment(tmp_path, 3, [5])
    found = [row["message_id"] for batch in batches(source, begin) for row in batch]
    assert found == expected
    batch = [row["message_id"] for row in rows(source, begin, source.latestOffset(begin, ReadAllAvailable()))]
    assert batch == expected


# ---- what was deleted


def test_data_loss(tmp_path, caplog):
    for number in (1, 2, 3):
        write_segment(tmp_path, number, [number])
    source = stream(tmp_path)
    begin = source.initialOffset()
    (tmp_path / "journal" / "000000002.journal").unlink()
    end = source.latestOffset(begin, ReadAllAvailable())
    with pytest.raises(DataLoss, match="file 2 of journal deleted.*option failOnDataLoss"):
        source.partitions(begin, end)
    careless = stream(tmp_path, failOnDataLoss="false")
    assert [row["message_id"] for row in rows(careless, begin, end)] == [1, 3]
    assert "file 2 of journal deleted before it was read" in caplog.text
    parts = careless.partitions(begin, end)
    (tmp_path / "journal" / "000000003.journal").unlink()
    with pytest.raises(DataLoss, match=r"000000003.journal deleted"):
        list(source.read(parts[0]))
    assert sum(batch.num_rows for batch in careless.read(parts[0])) == 1


# ---- with Spark


def start(spark, data, directory, **options):
    """A query that writes Parquet."""
    frame = spark.readStream.format("stompring").options(**options).load(str(data))
    sink = frame.writeStream.format("parquet").option("path", str(directory / "out"))
    return sink.option("checkpointLocation", str(directory / "checkpoint"))


@pytest.mark.spark
def test_beside_a_broker(spark, lasting, tmp_path):
    """Started again, with a broker that is at work, and was killed meanwhile: each message is there once."""
    lasting.start(core=retention(), addresses=anycast("q"))
    sent = []

    def query():
        writer = start(spark, lasting.data, tmp_path, columns="message_id,body", maxFilesPerTrigger="2")
        return writer.trigger(availableNow=True).start()

    for how in ("kill", "stop", "kill"):
        client, consumer = lasting.connect(), lasting.connect()
        consumer.subscribe("q", ack="auto")
        bodies = [f"message {len(sent) + number}" for number in range(200)]
        sent += bodies
        client.put("q", *bodies[:100], **DURABLE)
        running = query()
        client.put("q", *bodies[100:], **DURABLE)
        running.awaitTermination()
        lasting.again(how)
    query().awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(bytes(row.body).decode() for row in found) == sorted(sent)
    assert len({row.message_id for row in found}) == len(found)
