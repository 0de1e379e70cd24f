"""What a user of Spark reads first when something is wrong that is no mistake of ours: our sentence."""

import click
import pytest

pytest.importorskip("pyspark")

from click.testing import CliRunner
from pyspark.errors import PySparkException

from stompring.cli.main import main
from stompring.errors import StoreError

from .broker_files import broker_files, write_identified
from .spark_formats import reader, rows_of, schema
from .test_source_stream import start

pytestmark = pytest.mark.spark

ONE, TWO = bytes(range(16)), bytes(range(16, 32))


def shown(what):
    """All of an exception, as Spark has it."""
    with pytest.raises(Exception) as fault:  # noqa: PT011 - Spark's classes are of no matter
        what()
    return str(fault.value)


def test_the_sentence_is_in_the_first_line(spark, tmp_path):
    def load(schema="body BINARY", **options):
        reader = spark.read.format("stompring").schema(schema).options(**options)
        return reader.load(str(tmp_path)).count()

    for what, expected in (
        (load, f"stompring: option path: {tmp_path} is not a data directory of a broker (looked for"),
        (
            lambda: load(table="x"),
            "stompring: option table: must be one of messages, events, samples, not 'x'",
        ),
        (lambda: load(columns="weight"), "stompring: option columns: messages has no column 'weight'"),
        (
            lambda: load(maxFilesPerTrigger=1),
            "stompring: option maxFilesPerTrigger: is an option of spark.readStream only",
        ),
        (lambda: load("queue INT"), "stompring: option columns: queue is STRING, not IntegerType"),
    ):
        text = shown(what)
        assert expected in text.splitlines()[0], text
        assert "Traceback" not in text


def test_in_a_stream_and_in_its_tasks(spark, tmp_path):
    data = write_identified(tmp_path / "data", broker_files(identity=ONE, count=2), ONE)
    query = start(spark, data, tmp_path).trigger(availableNow=True).start()
    query.awaitTermination()
    (data / "identity").write_text(f"{TWO.hex()}\n")
    query = start(spark, data, tmp_path).start()
    text = shown(query.awaitTermination)
    expected = f"stompring: data directory {data} has identity {TWO.hex()}, but the checkpoint of the query"
    assert expected in text.splitlines()[0], text
    assert expected in str(query.exception()).splitlines()[0]
    with pytest.raises(
        Exception, match="stompring: option startingOffsets: must be earliest or latest, not '7'"
    ):
        start(spark, data, tmp_path, startingOffsets="7").start().awaitTermination()
    # a file that cannot be read: a task finds that
    frame = spark.read.format("stompring").load(str(data))
    frame.count()
    file = sorted(data.glob("journal/*.journal"))[0]
    file.unlink()
    file.mkdir()
    lines = shown(frame.count).splitlines()
    assert lines[0] == "An exception was thrown from the Python worker:"
    assert lines[1] == f"stompring: {file} at 0: Is a directory"


def test_outside_of_workers_exceptions_are_what_they_were(tmp_path):
    with pytest.raises(ValueError, match="^option table: must be one of"):
        schema(table="x")
    data = write_identified(tmp_path / "data", broker_files(identity=ONE, count=2), ONE)
    source = reader(data)
    parts = source.partitions()
    file = sorted(data.glob("journal/*.journal"))[0]
    file.unlink()
    file.mkdir()
    with pytest.raises(StoreError, match="Is a directory"):
        rows_of(source, parts)


@pytest.mark.parametrize(
    "text, found",
    [
        (
            "[PYTHON_DATA_SOURCE_ERROR] Failed to do it: stompring: it is wrong\n SQLSTATE: 38000",
            "it is wrong",
        ),
        ("An exception was thrown from the Python worker:\nstompring: it: is wrong", "it: is wrong"),
        ("stompring: it is wrong", "it is wrong"),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] `stompring` cannot be found\n",
            "[TABLE_OR_VIEW_NOT_FOUND] `stompring` cannot be found",
        ),
    ],
)
def test_the_commands_tell_the_sentence_within_what_spark_shows(text, found):
    def fail():
        raise PySparkException(text)

    lake = main.get_command(click.Context(main), "lake")
    commands = type(lake)("lake", commands={"fail": click.Command("fail", callback=fail)})
    assert CliRunner().invoke(commands, ["fail"]).output == f"Error: {found}\n"
