"""What a query reads of a lake's files: the columns that it asks for, with each engine."""

import re
from datetime import timedelta

import pytest

pytest.importorskip("deltalake")

import pyarrow.parquet as pq

from stompring.pipeline.lake.duckdb_query import QueryError, query
from stompring.pipeline.lake.views import ViewDefinition

from .lake_fixture import BEGIN, LakeFixture

FIELDS = ({"name": "n", "type": "long", "required": True, "null": False},)

#: Queries that ask for headers, and that do not.
WITH = ("select headers['colour'] as colour from messages", "select colour from coloured")
WITHOUT = (
    "select count(*), sum(octet_length(body)) from messages where address = 'orders'",
    "select queue, max(timestamp) from messages where message_id > 1 group by queue",
    "select sum(n) from plain",
)


@pytest.fixture
def without_headers(tmp_path):
    """A lake whose columns of headers no reader can take apart."""
    filled = LakeFixture(tmp_path / "lake")
    for number in range(3):
        filled.add(*(b'{"n": %d}' % n for n in range(100)), headers={"colour": f"red {number}"})
    views = filled.lake.views
    views.create(ViewDefinition("plain", ("#",), fields=FIELDS))
    views.create(ViewDefinition("coloured", ("#",), headers=(("colour", "string"),), fields=FIELDS))
    for path in (tmp_path / "lake" / "messages").rglob("*.parquet"):
        _damage(path, "headers")
    return filled.lake


def _damage(path, column):
    """Overwrite the pages of a column."""
    about = pq.ParquetFile(path).metadata
    data = bytearray(path.read_bytes())
    for at in range(about.num_row_groups):
        for place in range(about.num_columns):
            chunk = about.row_group(at).column(place)
            if chunk.path_in_schema.split(".")[0] == column:
                start = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)))
                data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(data)


@pytest.mark.spark
def test_headers_are_read_only_where_asked_by_spark(spark, without_headers):
    without_headers.register(spark)
    for text in WITHOUT:
        frame = spark.sql(text)
        assert frame.collect(), text
        plan = frame._jdf.queryExecution().executedPlan().toString()
        read = re.findall(r"ReadSchema: (struct<.*>)", plan)
        assert read and not any("headers" in each for each in read), plan
    for text in WITH:
        with pytest.raises(Exception, match="(?i)parquet"):
            spark.sql(text).collect()


def test_headers_are_read_only_where_asked_by_duckdb(without_headers):
    expected = (
        [300, 300 * 8 + 270],
        ["orders", (BEGIN + timedelta(seconds=299)).replace(tzinfo=None)],
        [3 * 4950],
    )
    for text, row in zip(WITHOUT, expected, strict=True):
        with query(without_headers, text) as result:
            assert list(result.rows()) == [row], text
    for text in WITH:
        with pytest.raises((QueryError, OSError)), query(without_headers, text) as result:
            list(result.rows())


@pytest.mark.spark
def test_files_are_looked_up_without_a_job_of_spark(spark, tmp_path):
    filled = LakeFixture(tmp_path / "lake")
    for number in range(40):  # from 33 on Spark looks them up in tasks, unless it is told otherwise
        filled.add(b"%d" % number)
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    before = set(jobs())
    frame = filled.lake.tables["messages"].frame(spark)
    assert set(jobs()) == before
    assert frame.count() == 40
    assert set(jobs()) > before


@pytest.mark.parametrize("name", ["it's", "a [1] lake", "env=prod", "date=2026-01-01", "what?", "*", "ü"])
def test_duckdb_reads_a_lake_wherever_it_is(tmp_path, name):
    filled = LakeFixture(tmp_path / name / "lake")
    filled.add(b"one", b"two")
    filled.add(b"three", address="a.b")
    text = "select cast(date as text), broker, body from messages order by message_id"
    with query(filled.lake, text) as result:
        first, second, third = result.rows()
    assert [first, second] == [["2026-07-01", "main", b"one"], ["2026-07-01", "main", b"two"]]
    with query(filled.lake, text.replace("order", "where date = date '2026-07-02' order")) as result:
        assert list(result.rows()) == [third] == [["2026-07-02", "main", b"three"]]
