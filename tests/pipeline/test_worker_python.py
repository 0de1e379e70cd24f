"""Python workers of Spark import what is installed, and not the archives that Spark puts first."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from stompring.pipeline.session import spark_session

pytestmark = pytest.mark.spark


class WhereaboutsStream(DataSourceStreamReader):
    """Its offsets say where the process that plans a stream has PySpark from."""

    def initialOffset(self):  # noqa: N802 - Spark's name
        return {"file": ""}

    def latestOffset(self):  # noqa: N802 - Spark's name
        return {"file": pyspark.__file__}

    def partitions(self, start, end):
        return [InputPartition(None)]

    def read(self, partition):
        return iter(())


class Whereabouts(DataSource):
    """A source of streams without rows."""

    @classmethod
    def name(cls):
        return "whereabouts"

    def schema(self):
        return "nothing int"

    def streamReader(self, schema):  # noqa: N802 - Spark's name
        return WhereaboutsStream()


def path_seen(python, *entries):
    """The search path from the environment, as a process that Spark starts has it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entries)}
    words = [python, "-c", "import json, os; print(json.dumps(os.environ['PYTHONPATH']))"]
    told = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return str(json.loads(told.stdout)).split(os.pathsep)


@pytest.fixture
def chosen(spark, monkeypatch):
    """The Python that a session would start its workers with."""

    def choose():
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        spark_session("local[2]", formats=False)
        return os.environ["PYSPARK_PYTHON"]

    return choose


def test_archives_are_taken_out_and_the_rest_stays(chosen):
    python = chosen()
    assert python != sys.executable
    lib = "/opt/a spark/python/lib"
    archives = (f"{lib}/pyspark.zip", f"{lib}/py4j-0.10.9.9-src.zip")
    assert path_seen(python, *archives, "/opt/core.jar", "/home/a b") == ["/opt/core.jar", "/home/a b"]
    assert path_seen(python, "/home/a b", "/opt/other.zip") == ["/home/a b", "/opt/other.zip"]


def test_without_an_executable_place_it_is_this_python(chosen, monkeypatch):
    real = os.access
    monkeypatch.setattr(
        os,
        "access",
        lambda path, mode: not (mode == os.X_OK and "stompring-spark-" in str(path)) and real(path, mode),
    )  # as on a file system mounted with noexec
    assert chosen() == sys.executable


def test_archive_that_holds_the_only_pyspark_stays(chosen, tmp_path, monkeypatch):
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "pyspark.zip" / "pyspark" / "__init__.py"))
    assert chosen() == sys.executable


def test_tasks_and_planners_of_streams_import_the_installed_pyspark(spark, tmp_path):
    def place(number):
        import pyspark

        return str(pyspark.__file__)

    assert spark.sparkContext.parallelize([0], 1).map(place).collect() == [pyspark.__file__]
    spark.dataSource.register(Whereabouts)
    writer = spark.readStream.format("whereabouts").load().writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(200)
    (source,) = query.lastProgress["sources"]
    assert json.loads(str(source["endOffset"]).replace("'", '"')) == {"file": pyspark.__file__}
