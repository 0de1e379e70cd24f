"""Duration of ``write_report`` for a lake of many messages, in a process with little memory.

    python -m benchmarks.report [--messages 10000000] [--queues 60] [--directory DIR] [--memory 1g]

The lake is a directory of Parquet files: messages with bodies; three events for each message, and the events of rings,
redeliveries and dead letters; samples of each queue. It stays in its directory, and the next run with the same numbers
uses it again. The output has the wall clock of each part of the work, and the maximum memory of Spark's process and of
this one.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import gettempdir
from typing import Any

#: Time of the first message in epoch seconds, and hours from the first to the last one.
START, HOURS = 1_782_864_000, 24


def session(memory: str) -> Any:
    """Create a Spark session like that of ``stompring lake``."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def make(spark: Any, directory: Path, messages: int, queues: int) -> None:
    """Write the lake."""
    from pyspark.sql import functions as F

    span = HOURS * 3600
    rows = (
        spark.range(messages)
        .withColumn("number", F.expr(f"pmod(hash(id), {queues})"))
        .withColumn("queue", F.expr("concat('orders.', lpad(cast(number as string), 3, '0'))"))
        # more by day than by night
        .withColumn(
            "second", F.expr(f"{START} + {span} * (id / {messages} + 0.05 * sin(12.57 * id / {messages}))")
        )
        # a ring of 100 messages, which a consumer empties every ten minutes; until then newer messages replace older
        .withColumn("left", F.expr(f"600 - pmod(second - {START}, 600)"))
        .withColumn(
            "full", F.expr(f"100 * {span * queues / messages} * (1 + 0.6285 * cos(12.57 * id / {messages}))")
        )
        .withColumn("ring", F.expr("number % 7 = 0 and left > full"))
        .withColumn(
            "wait",
            F.expr(
                "if(number % 7 = 0, least(left, full), "
                "0.002 * (1 + number) * exp(2 * (pmod(hash(id, 1), 1000) / 1000.0 * 4 - 2)))"
            ),
        )
        .withColumn("again", F.expr("number % 5 = 1 and pmod(hash(id, 3), 40) = 0"))
        .withColumn("dead", F.expr("again and pmod(hash(id, 4), 10) = 0"))
        .withColumn("bucket", F.expr("pmod(hash(queue), 4)"))
        .withColumn("date", F.expr("to_date(timestamp_seconds(second))"))
    )
    when = "timestamp_millis(cast(1000 * ({}) as bigint))"
    rows.selectExpr(
        "queue as address",
        "queue",
        "id as message_id",
        f"{when.format('second')} as timestamp",
        "cast(null as timestamp) as expires",
        "cast(null as timestamp) as due",
        "4 as priority",
        "true as durable",
        "0 as deliveries",
        "map('destination', queue, 'id', cast(id as string)) as headers",
        "cast(repeat(cast(id as string), 16) as binary) as body",
        "cast(null as string) as user",
        "date",
        "bucket",
    ).write.partitionBy("date", "bucket").parquet(str(directory / "messages"))
    facts = """explode(filter(array(
        named_struct('event', 'added', 'at', second, 'deliveries', 0),
        if(ring, null, named_struct('event', 'delivered', 'at', second + wait / 2, 'deliveries', 1)),
        if(again, named_struct('event', 'redelivered', 'at', second + wait * 0.75, 'deliveries', 2), null),
        if(dead, named_struct('event', 'dead-lettered', 'at', second + wait, 'deliveries', 2), null),
        named_struct('event', if(ring, 'replaced', if(dead, 'killed', 'acknowledged')), 'at', second + wait,
            'deliveries', 0)), x -> x is not null)) as fact"""
    rows.selectExpr("queue", "id", "date", "bucket", facts).selectExpr(
        f"{when.format('fact.at')} as time",
        "fact.event as event",
        "queue as address",
        "queue",
        "id as message_id",
        "cast(null as bigint) as page",
        "cast(null as int) as index",
        "cast(fact.deliveries as int) as deliveries",
        "cast(null as timestamp) as due",
        "'consumer' as consumer",
        "date",
        "bucket",
    ).write.partitionBy("date", "bucket").parquet(str(directory / "events"))
    each = messages / queues
    lost = max(0.0, 1 - 100 * 6 * HOURS / each)
    (
        spark.range(span // 10)
        .crossJoin(spark.range(queues).toDF("number"))
        .withColumn("queue", F.expr("concat('orders.', lpad(cast(number as string), 3, '0'))"))
        .withColumn("x", F.expr(f"id * 10 / {span}"))
        .withColumn("came", F.expr(f"cast({each} * x as bigint)"))
        .withColumn(
            "depth",
            F.expr(
                "cast(exp(number % 9) * (1.2 + sin(x * 25 + number)) + pmod(hash(id, number), 5) as bigint)"
            ),
        )
        .withColumn("paged", F.expr("if(number % 11 = 3, greatest(0, depth - 100), 0)"))
        .selectExpr(
            f"timestamp_seconds({START} + id * 10) as time",
            "queue as address",
            "queue",
            "if(number % 7 = 0, 100, 0L) as ring_size",
            "depth as messages",
            "0L as delivering",
            "0L as scheduled",
            "cast(paged as bigint) as paged",
            "1L as consumers",
            "came as added",
            f"cast(came * if(number % 7 = 0, {1 - lost}, 1) as bigint) as acknowledged",
            "0L as expired",
            "0L as killed",
            f"if(number % 7 = 0, cast(came * {lost} as bigint), 0L) as replaced",
            "(depth - paged) * 700 as size",
            f"to_date(timestamp_seconds({START} + id * 10)) as date",
            "cast(0 as int) as bucket",
        )
        .write.partitionBy("date", "bucket")
        .parquet(str(directory / "samples"))
    )
    (directory / "done").touch()


def report(spark: Any, directory: Path, out: Path) -> None:
    """Write the report, and print the duration of each part."""
    from stompring.pipeline.report import Lake, write_report

    began = time.monotonic()
    java = spark.sparkContext._gateway.proc.pid
    stages: list[tuple[str, float]] = []
    write_report(
        Lake(*(spark.read.parquet(str(directory / name)) for name in ("messages", "events", "samples"))),
        out,
        progress=lambda stage: stages.append((stage, time.monotonic())),
    )
    ends = [at for _, at in stages[1:]] + [time.monotonic()]
    for (stage, at), end in zip(stages, ends, strict=True):
        print(f"{end - at:7.1f} s  {stage}")
    print(f"{time.monotonic() - began:7.1f} s  in all; {out.stat().st_size / 1024:.0f} KiB: {out}")
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status = Path(f"/proc/{java}/status")
    most = status.read_text().split("VmHWM:")[1].split()[0] if status.exists() else "0"
    ticks = (
        Path(f"/proc/{java}/stat").read_text().rpartition(")")[2].split()[11:13] if status.exists() else []
    )
    print(f"processor time of Java: {sum(map(int, ticks)) / os.sysconf('SC_CLK_TCK'):.0f} s")
    print(f"most memory: Java {int(most) / 1024:.0f} MB, Python {own / 1024:.0f} MB")


def main() -> None:
    """Create the lake in a separate process if it does not exist, then write the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--queues", type=int, default=60)
    parser.add_argument("--directory", type=Path, default=Path(gettempdir()) / "stompring-report")
    parser.add_argument("--memory", default="1g", help="of the driver, for the report")
    parser.add_argument("--make", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    directory = given.directory / f"{given.messages}-{given.queues}"
    if given.make:
        spark = session("3g")
        make(spark, directory, given.messages, given.queues)
        spark.stop()
        return
    if not (directory / "done").exists():
        subprocess.run([sys.executable, "-m", "benchmarks.report", "--make", *sys.argv[1:]], check=True)
    spark = session(given.memory)
    report(spark, directory, directory / "report.html")
    spark.stop()


if __name__ == "__main__":
    main()
