"""The code in docs/lake-engines.md, as it stands there."""

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from ...docs.pages import text_of
from .ingesting import run as lake_command
from .lake_fixture import LakeFixture

PAGE = text_of("docs/lake-engines.md")


def section(title, language="python"):
    text = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found, title
    return found


def run(title, known=None):
    """What the names of a section's code stand for in the end."""
    names = {} if known is None else known
    for block in section(title):
        exec(compile(block, f"docs/lake-engines.md, {title}", "exec"), names)
    return names


@pytest.fixture
def lake(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = LakeFixture(tmp_path / "lake")
    made.add(b"1.5", b"2.5", b"4", address="plant.pressure", headers={"sensor": "p"})
    made.add(b'{"id": 1, "price": 10.5}', b'{"id": 2, "price": 9}', b"broken", address="orders")
    return made


COUNTS = [("orders", 3), ("plant.pressure", 3)]


def test_duckdb(lake):
    pytest.importorskip("duckdb")
    assert run("DuckDB")["rows"] == [("orders", 3, None), ("plant.pressure", 3, "p")]
    (line,) = section("DuckDB", "sh")
    words = shlex.split(line)
    assert words[:2] == ["stompring", "lake"]
    result = lake_command(*words[2:], "--format", "csv")
    assert result.exit_code == 0 and result.stdout.split() == ["queue,n", "orders,3", "plant.pressure,3"]


def test_expressions_of_duckdb(lake):
    """Those of the table of dialects."""
    for text, expected in [
        ('select "user" from messages limit 1', 'user\n""\n'),
        ("select l[1] as x from (select [5, 6] as l)", "x\n5\n"),
        ("select decode(body) as x from messages where message_id = 1", "x\n1.5\n"),
        (
            "select json_extract_string(decode(body), '$.price') as x from messages where message_id = 4",
            "x\n10.5\n",
        ),
        (
            "select time_bucket(interval 10 minutes, timestamp) as x, count(*) n from messages group by 1 order by 1",
            "x,n\n2026-07-01 23:50:00,2\n2026-07-02 00:00:00,4\n",
        ),
        ("select approx_quantile(message_id, 0.5) as x from messages where message_id <= 3", "x\n2\n"),
        ("select count(*) from messages", "count_star()\n6\n"),
        ("select sum(message_id) as x from messages", "x\n21\n"),
    ]:
        result = lake_command("sql", "--lake", "lake", text, "--engine", "duckdb", "--format", "csv")
        assert (result.exit_code, result.stdout.replace("\r", "")) == (0, expected), (text, result.output)


def test_polars(lake):
    pytest.importorskip("polars")
    assert run("Polars")["queues"].rows() == [("plant.pressure", 3)]


def test_pandas(lake):
    pytest.importorskip("pandas")
    assert sorted(run("pandas and PyArrow")["bodies"]) == [1.5, 2.5, 4.0]


@pytest.mark.spark
def test_spark(spark, lake):
    names = {}
    for block in section("Spark"):
        exec(
            compile(block.replace("/srv/lake", str(Path("lake").absolute())), "docs/lake-engines.md", "exec"),
            names,
        )
    assert [tuple(row) for row in names["counts"]] == COUNTS
    assert [tuple(row) for row in names["expensive"]] == [(4, 1, 10.5)]
