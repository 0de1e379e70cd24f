"""How many messages per second Spark reads from a journal, and takes to a lake, beside a reader of one after the other.

    python -m benchmarks.pipeline [--messages 1000000] [--growth 10] [--rounds 3] [--headers distinct|same]
                                  [--only plain,read,grown,ingest]

Durable messages of 128 bytes with 142 bytes of headers, half of them acknowledged, in segments of 10 MB. One after the
other: a single process that takes record after record apart into tuples; Spark on two cores and on one, into a sink
that does nothing; the same with so many times the messages; and the ingest into a new lake. Each in processes of its
own, after a first run on little data. It needs stompring[spark], deltalake, and room: 430 bytes a message.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Any
from zlib import crc32

import click

from benchmarks.results import machine, markdown
from benchmarks.segments import make
from benchmarks.targets import verdict

#: What is to be reached, in rows or messages per second; the last is a ratio to the plain reader.
READ, INGEST, RATIO = 350_000, 80_000, 1.5

PARTS = ("plain", "read", "grown", "ingest")

#: Messages of the first run, which nobody counts.
LITTLE = 50_000


# ---- what is measured, each in a process of its own


def plain(data: Path) -> int:
    """All messages as tuples with a dict of headers, each record looked at alone; returns how many."""
    prefix, message, traits = Struct("<II"), Struct("<BBBBIQQQQQIIII"), Struct("<IIIII")
    count = 0
    for path in sorted((data / "journal").iterdir()):
        rows = list(_rows(path.read_bytes(), prefix, message, traits))
        count += len(rows)
    return count


def _rows(data: bytes, prefix: Struct, message: Struct, traits: Struct) -> Iterator[tuple[Any, ...]]:
    at, names = 32, {}
    while at + prefix.size < len(data):
        length, crc = prefix.unpack_from(data, at)
        begin = at + prefix.size
        at = begin + length
        if at > len(data) or crc32(data[begin:at]) != crc or data[begin] == 11:
            break
        if data[begin] == 10:
            names[data[begin + 1], int.from_bytes(data[begin + 4 : begin + 8], "little")] = data[
                begin + 8 : at
            ].decode()
        if data[begin] != 1:
            continue
        fixed = message.unpack_from(data, begin)
        _, flags, priority, deliveries, address, number, sent, expires, due, _, head, body, queues, _ = fixed
        block, *_ = traits.unpack_from(data, begin + message.size + 4 * queues)
        end = at - 2 - body
        lines = data[end - 1 - block : end - 1].decode().splitlines()
        headers = dict(line.split(":", 1) for line in lines)
        for place in range(begin + message.size, begin + message.size + 4 * queues, 4):
            queue = names[2, int.from_bytes(data[place : place + 4], "little")]
            times = sent, expires or None, due or None
            durable = bool(flags & 1)
            yield (
                *(names[1, address], queue, number, *times, priority, durable, deliveries, headers),
                *(data[end : at - 2], None),
            )


def read(spark: Any, data: Path) -> int:
    """All columns of all messages, into nothing."""
    spark.read.format("stompring").load(str(data)).write.format("noop").mode("overwrite").save()
    return 0  # nobody counts them


def ingest(spark: Any, data: Path) -> int:
    """Into a new lake; returns the messages."""
    from stompring.pipeline.files import DataFiles
    from stompring.pipeline.lake.ingest import Ingest
    from stompring.pipeline.lake.lake import Lake

    where = data.parent / "lake"
    lake = Lake(str(where))
    lake.create()
    try:
        batches = list(Ingest(spark, DataFiles(str(data)), lake, mark=False).batches())
        return sum(batch.rows["messages"] for batch in batches)
    finally:
        shutil.rmtree(where)


def work(part: str, cores: int, rounds: int, data: Path, little: Path) -> dict[str, Any]:
    """Seconds and messages of each round, and the most memory that was resident of the driver's Java, in MB."""
    if part == "plain":
        plain(little)
        return {**timed(lambda: plain(data), rounds), "java_mb": 0.0}
    from stompring.pipeline.session import spark_session

    spark = spark_session(f"local[{cores}]", settings={"spark.driver.memory": "1g"})
    do: Callable[[Any, Path], int] = ingest if part == "ingest" else read
    do(spark, little)
    found = timed(lambda: do(spark, data), rounds)
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    found["java_mb"] = peak_mb(java)
    spark.stop()
    return found


def timed(do: Callable[[], int], rounds: int) -> dict[str, Any]:
    """Seconds that something takes, and how many messages it says it was."""
    seconds, counts = [], []
    for _ in range(rounds):
        begun = time.perf_counter()
        counts.append(do())
        seconds.append(time.perf_counter() - begun)
    return {"seconds": seconds, "counts": counts}


def peak_mb(process: int) -> float:
    """The most that was resident."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) / 1000 for line in status.splitlines() if line.startswith("VmHWM:"))


# ---- the table


def measured(part: str, cores: int, rounds: int, data: Path, little: Path) -> dict[str, Any]:
    """`work`, in a new process."""
    command = [sys.executable, "-m", "benchmarks.pipeline", "--work", part, "--cores", str(cores)]
    command += ["--rounds", str(rounds), "--data", str(data), "--little", str(little)]
    load = os.getloadavg()[0]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{part} on {cores} ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "load": load}


@click.command()
@click.option("--messages", default=1_000_000, show_default=True, type=click.IntRange(1000))
@click.option("--growth", default=10, show_default=True, type=click.IntRange(2), help="For the last reading.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="The median counts.")
@click.option("--headers", default="distinct", show_default=True, type=click.Choice(["distinct", "same"]))
@click.option("--only", default=",".join(PARTS), show_default=True, help="Of these.")
@click.option("--work", "part", hidden=True)
@click.option("--cores", default=2, hidden=True)
@click.option("--data", type=click.Path(path_type=Path), hidden=True)
@click.option("--little", type=click.Path(path_type=Path), hidden=True)
def main(
    messages: int,
    growth: int,
    rounds: int,
    headers: str,
    only: str,
    part: str | None,
    cores: int,
    data: Path | None,
    little: Path | None,
) -> None:
    """Prints rows per second, ratios and memory."""
    if part is not None:
        assert data is not None and little is not None
        click.echo(json.dumps(work(part, cores, rounds, data, little)))
        return
    unknown = set(only.split(",")).difference(PARTS)
    if unknown:
        raise click.BadParameter(f"there is no {', '.join(sorted(unknown))}", param_hint="--only")
    click.echo(json.dumps(machine()))
    with tempfile.TemporaryDirectory(prefix="stompring-pipeline-") as directory:
        show(Path(directory), messages, growth, rounds, headers == "distinct", only.split(","))


def show(root: Path, messages: int, growth: int, rounds: int, distinct: bool, only: list[str]) -> None:
    """Make the files, measure, and print."""
    make(root / "little", LITTLE, distinct=distinct)
    size = make(root / "data", messages, distinct=distinct)
    click.echo(f"{messages:,} messages, {size / 1e6:,.0f} MB", err=True)
    rows: list[list[str]] = []
    rates: dict[str, float] = {}

    def add(name: str, part: str, cores: int, count: int, data: str, rounds: int = rounds) -> None:
        found = measured(part, cores, rounds, root / data, root / "little")
        if not set(found["counts"]) <= {0, count}:
            raise click.ClickException(f"{name} had {found['counts']} of {count} messages")
        seconds = statistics.median(found["seconds"])
        rates[name] = count / seconds
        ratio = f"{rates[name] / rates['plain']:.2f}" if "plain" in rates else ""
        spread = f"{min(found['seconds']):.1f}-{max(found['seconds']):.1f}"
        java = f"{found['java_mb']:,.0f}" if found["java_mb"] else ""
        told = [name, f"{count:,}", f"{seconds:.1f}", spread, f"{rates[name]:,.0f}", ratio, java]
        rows.append([*told, f"{found['load']:.1f}"])
        click.echo("  ".join(rows[-1]), err=True)

    if "plain" in only:
        add("plain", "plain", 1, messages, "data")
    if "read" in only:
        add("Spark, 1 core", "read", 1, messages, "data")
        add("Spark, 2 cores", "read", 2, messages, "data")
    if "ingest" in only:
        add("ingest, 2 cores", "ingest", 2, messages, "data")
    if "grown" in only:
        shutil.rmtree(root / "data")
        make(root / "grown", messages * growth, distinct=distinct)
        add(f"Spark, 2 cores, x{growth}", "read", 2, messages * growth, "grown", 1)
    head = ["", "messages", "s (median)", "s (all)", "per s", "x plain", "Java RSS MB", "load before"]
    click.echo("\n" + markdown(head, rows))
    for name, target in ((f"Spark, 2 cores, x{growth}", READ), ("ingest, 2 cores", INGEST)):
        if name in rates:
            click.echo(f"{name} (at least {target:,} per s): {verdict(rates[name], target)}")
    if "plain" in rates and "Spark, 2 cores" in rates:
        reached = rates["Spark, 2 cores"] / rates["plain"]
        click.echo(f"Spark, 2 cores, x plain (at least {RATIO}): {verdict(reached, RATIO)}")


if __name__ == "__main__":
    main()
