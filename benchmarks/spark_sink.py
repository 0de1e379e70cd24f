"""Rate of a task of Spark's format `stomp` that sends rows of 128 bytes with 3 headers, with receipts, to stompring.

python -m benchmarks.spark_sink [--rows 200000] [--tasks 2] [--rounds 3]

`transaction` sends one STOMP transaction per task, `ids` also duplicate ids, `again` the same ids a second time (which
the broker drops), `groups` no transaction. `stream` is the source: from the broker into the spool.
Needs `stompring[spark]` and a Java.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from benchmarks.brokers import Broker, Stompring
from benchmarks.brokers.process import HOST
from benchmarks.results import markdown
from stompring.pipeline import register
from stompring.pipeline.session import find_java
from stompring.pipeline.stomp.options import SourceOptions
from stompring.pipeline.stomp.source import Receiver, Spool

BODY = 128

#: Headers of a row.
HEADERS = "map('colour', 'red', 'number', cast(id as string), 'origin', 'benchmark')"

#: Settings for the number of ids that `again` needs.
IDS = {"id-cache-size": "1000000"}


@contextmanager
def session(tasks: int) -> Iterator[Any]:
    """Context manager: yield a SparkSession with one core per task."""
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as directory:
        os.environ["JAVA_HOME"] = str(find_java(Path(directory) / "java"))
        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder: Any = SparkSession.builder.master(f"local[{tasks}]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
        register(spark)
        yield spark
        spark.stop()


def send(spark: Any, broker: Broker, rows: int, tasks: int, **options: object) -> float:
    """Send rows in a job, and return its duration in seconds."""
    frame = spark.range(0, rows * tasks, 1, tasks)
    frame = frame.selectExpr(f"repeat('x', {BODY}) as body", f"{HEADERS} as headers")
    writer = frame.write.format("stomp").mode("append").options(url=f"{HOST}:{broker.port}", **options)
    begun = time.perf_counter()
    writer.save()
    return time.perf_counter() - begun


def receive(broker: Broker, queue: str, rows: int) -> float:
    """Measure the seconds until ``rows`` messages are in a spool and acknowledged."""
    with tempfile.TemporaryDirectory() as directory:
        options = SourceOptions.of({"url": f"{HOST}:{broker.port}", "destination": queue, "spool": directory})
        with Spool(Path(directory)) as spool:
            receiver = Receiver(options, spool)
            begun = time.perf_counter()
            receiver.start()
            receiver.wait_until_idle(1.0, 600.0)
            seconds = time.perf_counter() - begun - 1.0
            receiver.stop()
            receiver.check()
            return seconds


@click.command()
@click.option("--rows", default=200_000, show_default=True, type=click.IntRange(1), help="Of a task.")
@click.option("--tasks", default=2, show_default=True, type=click.IntRange(1), help="At the same time.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often.")
def main(rows: int, tasks: int, rounds: int) -> None:
    """Print rows per second and task, medians over the rounds."""
    found: dict[str, list[float]] = {}
    with Stompring(addresses=IDS) as broker, session(tasks) as spark:
        send(spark, broker, 1000, tasks, destination="warm")
        for number in range(rounds):
            ids = {"destination": f"ids.{number}", "jobId": f"job-{number}"}
            cases: dict[str, dict[str, object]] = {
                "transaction": {"destination": f"plain.{number}"},
                "ids": ids,
                "again": ids,
                "groups": {"destination": f"groups.{number}", "transaction": "false"},
            }
            for name, options in cases.items():
                found.setdefault(name, []).append(rows / send(spark, broker, rows, tasks, **options))
            rate = rows * tasks / receive(broker, f"plain.{number}", rows * tasks)
            found.setdefault("stream", []).append(rate)
    lines = [[name, f"{statistics.median(rates):,.0f}"] for name, rates in found.items()]
    click.echo(markdown(["case", "rows/s and task"], lines))


if __name__ == "__main__":
    main()
