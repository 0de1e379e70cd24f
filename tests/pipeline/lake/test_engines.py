"""``lake sql`` by DuckDB and by Spark: the same rows, types and text."""

import json
import os
import subprocess
import sys
from datetime import date, datetime

import pytest

pytest.importorskip("deltalake")

import pyarrow.dataset as ds

from stompring.pipeline.lake.duckdb_query import QueryError, query

from .ingesting import run
from .lake_fixture import BEGIN, LakeFixture

SCHEMA = {
    "properties": {
        "n": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "l": {"type": "array", "items": {"properties": {"s": {"type": "string"}}}},
    }
}

#: Queries in both dialects.
QUERIES = (
    "select * from messages order by message_id",
    "select queue, count(*) as n, sum(message_id) as s, avg(priority) as a from messages group by 1 order by 1",
    "select headers['colour'] as colour, body, date, bucket, timestamp from messages order by message_id",
    "select min(timestamp) as t, max(timestamp) as u, cast(max(date) as date) as d from messages",
    "select date, count(*) as n from messages where date = date '2026-07-02' group by 1",
    "select * from events",
    "select count(*) as n from samples",
    "select * from typed order by message_id",
    "select n, l[1].s as s from kept where n is not null order by message_id",
    'select address, "user" as name, broker from messages order by message_id limit 1',
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("engines")
    made = LakeFixture(tmp_path / "lake")
    made.add(
        b'{"n": 1, "at": "2026-07-01T12:00:00Z", "l": [{"s": "a"}, {"s": "b"}]}', headers={"colour": "red"}
    )
    made.add(b"\xff\n", b"", address="a.\u00e9", user="anna", due=datetime(2026, 8, 1, 12))
    made.add(
        b'{"n": 2}', b'{"n": "x"}', headers={"colour": "blue", "empty": ""}, expires=datetime(2026, 8, 1)
    )
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    for words in (("typed",), ("kept", "--materialize")):
        more = ("--address", "#", "--header", "colour", "--json-schema", str(tmp_path / "schema.json"))
        result = run("view", words[0], "--lake", made.lake, *more, *words[1:])
        assert result.exit_code == 0, result.output
    return made


def sql(filled, text, *words):
    return run("sql", "--lake", filled.lake, text, *words)


@pytest.mark.spark
def test_both_engines_show_the_same(spark, filled):
    for number, text in enumerate(QUERIES):
        for format_ in {2: ("table", "csv"), 7: ("json", "table")}.get(number, ("json",)):
            words = ("--format", format_)
            by_spark = sql(filled, text.replace('"user"', "`user`").replace("l[1]", "l[0]"), *words)
            by_duckdb = sql(filled, text, *words, "--engine", "duckdb")
            assert by_spark.exit_code == by_duckdb.exit_code == 0, (text, by_spark.output, by_duckdb.output)
            if format_ == "json":
                told = [
                    [json.loads(line) for line in one.stdout.splitlines()] for one in (by_spark, by_duckdb)
                ]
                assert told[0] == told[1], text
                assert [list(row) for row in told[0]] == [list(row) for row in told[1]]
            else:
                assert by_spark.stdout == by_duckdb.stdout, text
    refused = sql(filled, "select nothing from messages")
    assert refused.exit_code == 1 and "nothing" in refused.output and "Traceback" not in refused.output


@pytest.mark.parametrize(
    "condition, expected",
    [
        ("address = 'orders'", [1, 4, 5]),
        ("\"user\" = 'anna'", [2, 3]),
        ('"user" is null', [1, 4, 5]),
        ("due is not null", [2, 3]),
        ("broker = 'main' and bucket >= 0", [1, 2, 3, 4, 5]),
        ("priority > 4", []),
        ("message_id = 3", [3]),
        ("message_id > 5", []),
        ("date = '2026-07-01'", [1, 2]),
        ("timestamp = '2026-07-01 23:59:59.25'", [2]),
        ("timestamp > '2026-07-02 00:00:00' and address like 'a.%'", [3]),
        ("headers['colour'] = 'red'", [1]),
        ("octet_length(body) = 0", [3]),
    ],
)
def test_condition_leaves_out_no_file_with_such_rows(filled, condition, expected):
    with query(filled.lake, f"select message_id from messages where {condition} order by 1") as result:
        assert [row[0] for row in result.rows()] == expected


def test_a_condition_on_any_column_finds_its_rows_with_other_readers(filled):
    """deltalake 1.6 takes a column without statistics, of a file that has some, for one without values."""
    rows = filled.lake.tables["messages"].open().to_pyarrow_dataset()
    every = rows.to_table()
    assert every.num_rows > 3
    for column in set(every.schema.names) - {"headers"}:
        values = every.column(column).to_pylist()
        for value in set(values):
            wanted = ds.field(column).is_null() if value is None else ds.field(column) == value
            assert rows.to_table(filter=wanted).num_rows == values.count(value), (column, value)


def test_condition_on_a_materialized_view(filled):
    for text, expected in [
        ("select n from kept where n is not null order by 1", [[1], [2]]),
        ("select n from kept where n is null", [[None]] * 3),
        ("select n from kept where colour = 'blue' order by 1 nulls last", [[2], [None]]),
        ("select n from kept where _bad is not null", [[None]] * 3),
    ]:
        with query(filled.lake, text) as result:
            assert list(result.rows()) == expected, text


def test_types_are_those_of_the_columns(filled):
    with query(filled.lake, "select * from messages order by message_id") as result:
        rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows()]
    first, third = rows[0], rows[2]
    assert (first["timestamp"], first["date"]) == (BEGIN.replace(tzinfo=None), date(2026, 7, 1))
    assert (first["headers"], first["durable"], first["due"]) == ({"colour": "red"}, True, None)
    assert (third["date"], third["due"]) == (date(2026, 7, 2), datetime(2026, 8, 1, 12))
    assert len(first) == 15 and {row["bucket"] for row in rows} <= {0, 1}
    types = "select column_name, column_type from (describe messages)"
    with query(filled.lake, types) as result:
        told = dict(map(tuple, result.rows()))
    assert told["headers"] == "MAP(VARCHAR, VARCHAR)" and told["body"] == "BLOB" and told["date"] == "DATE"


def test_without_java_and_in_utc_wherever_it_runs(filled):
    environment = {**os.environ, "PATH": "/nowhere", "TZ": "America/New_York"}
    environment.pop("JAVA_HOME", None)
    words = ["--engine", "duckdb", "--format", "json", "--limit", "1"]
    text = "select timestamp, date_trunc('day', timestamp) as day from messages order by message_id"
    told = subprocess.run(
        [sys.executable, "-m", "stompring", "lake", "sql", "--lake", str(filled.lake), text, *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )
    assert told.returncode == 0 and told.stderr == "", told.stderr
    assert json.loads(told.stdout) == {
        "timestamp": "2026-07-01T23:59:58.250Z",
        "day": "2026-07-01T00:00:00.000Z",
    }


@pytest.mark.parametrize(
    "text, reason",
    [
        ("selec 1", "Parser Error: syntax error"),
        ("select x from messages", 'Binder Error: Referenced column "x" not found'),
        ("select * from nothing", "Catalog Error: Table with name nothing does not exist"),
        ("select cast('x' as int)", "Conversion Error: Could not convert string 'x' to INT32"),
        ("select cast(address as int) from messages", "Conversion Error: Could not convert string"),
    ],
)
def test_bad_query_is_refused(filled, text, reason):
    result = sql(filled, text, "--engine", "duckdb")
    assert result.exit_code == 1 and f"Error: {reason}" in result.output, (result.output, result.exception)


def test_options_of_spark_are_refused(filled, tmp_path):
    result = sql(filled, "select 1", "--engine", "duckdb", "--conf", "a=b")
    assert result.exit_code == 2 and "require --engine spark" in result.output
    result = run("sql", "--lake", tmp_path, "select 1", "--engine", "duckdb")
    assert result.exit_code == 1 and "is not a lake" in result.output


def test_long_result_is_not_in_memory(filled):
    """Its first rows come at once, and the rest only as it is asked for."""
    import tracemalloc

    text = "select repeat('x', 10000) as x, range as n from range(2000000)"  # 20 GB
    with query(filled.lake, text) as result:
        tracemalloc.start()
        rows = result.rows()
        assert [next(rows)[1] for _ in range(20_000)] == list(range(20_000))
        assert tracemalloc.get_traced_memory()[1] < 400 << 20
        tracemalloc.stop()
        rows.close()
    with pytest.raises(QueryError), query(filled.lake, "select 1 from") as result:
        pass
