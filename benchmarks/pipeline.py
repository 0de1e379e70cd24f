"""Messages per second that Spark reads from a journal, ingests into a lake, scans there and sends again.

    python -m benchmarks.pipeline [--messages 1000000] [--growth 10] [--rounds 3] [--headers distinct|same]
                                  [--only plain,read,replay,grown]

The messages are durable, with bodies of 128 bytes and 142 bytes of headers, half of them acknowledged, in segments of
10 MB. The parts run one after the other, each in new processes, after a first run on little data:

- `plain`: one process that decodes record after record into tuples;
- `read`: Spark into a sink that does nothing, on one core and on two; and in the same session a source that returns
  prepared batches to Spark, an upper bound for every source that decodes;
- `replay`: a part of the messages from a lake to a broker; and the same load from `stompload`, a client in C:
  persistent messages with the same headers, duplicate ids and receipts;
- `grown`: `--growth` times the messages: read, ingested into a new lake by `Ingest`, and scanned there with bodies.

It needs stompring[spark], a C compiler for `replay`, and disk space: 430 bytes per message.
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
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks import load
from benchmarks.brokers import Stompring
from benchmarks.brokers.process import HOST
from benchmarks.results import machine, markdown
from benchmarks.segments import BLOCK, BODY, QUEUES, make
from benchmarks.targets import verdict
from stompring.pipeline.files import DataFiles, Range, read_files
from stompring.pipeline.lake.ingest import Ingest
from stompring.pipeline.lake.lake import Lake
from stompring.pipeline.lake.replay import Replay, ReplayPlan
from stompring.pipeline.lake.selection import MessageSelection
from stompring.pipeline.options import TableScan
from stompring.pipeline.stomp.connection import Endpoint
from stompring.pipeline.stomp.options import SinkOptions

#: Targets in rows or messages per second.
TARGETS = {"ingest": 500_000, "scan": 8_000_000, "replay": 60_000}

#: Targets for reading: ratios to prepared batches and to the plain reader.
READY, PLAIN = 0.75, 1.5

PARTS = ("plain", "read", "replay", "grown")

#: Number of messages of the first run, which does not count, and of a replay.
LITTLE, REPLAYED = 50_000, 200_000

#: Tasks of the source with prepared batches.
READY_TASKS = 8


# ---- the measurements, each in its own process


def plain(data: Path) -> int:
    """Decode all messages, one by one, into tuples with a dict of headers. Returns their number."""
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


class Ready(DataSource):
    """The source with prepared batches: the first batch of the first file, repeated up to the option ``rows``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "ready"

    def schema(self) -> str:
        """Return all columns of messages."""
        return TableScan().ddl

    def reader(self, schema: Any) -> ReadyReader:
        """Create the reader for the options ``path`` and ``rows``."""
        return ReadyReader(self.options["path"], int(self.options["rows"]))


class ReadyReader(DataSourceReader):
    """The reader that decodes one batch in each task, and returns slices of it."""

    def __init__(self, path: str, rows: int) -> None:
        self._path, self._rows = path, rows

    def partitions(self) -> list[InputPartition]:
        """Divide the rows evenly among the tasks."""
        return [InputPartition(self._rows // READY_TASKS)] * READY_TASKS

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield one batch repeatedly."""
        files = DataFiles(self._path)
        batch = next(read_files(files, [Range(files.every({".journal"})[0].name)], TableScan()))
        left = partition.value
        while left > 0:
            yield batch.slice(0, left)
            left -= len(batch)


def into_nothing(frame: Any) -> None:
    """Read all columns of all rows."""
    frame.write.format("noop").mode("overwrite").save()


class Read:
    """The part `read`: Spark reads all columns of all messages, then prepared batches."""

    def __init__(self, spark: Any, data: Path, messages: int) -> None:
        spark.dataSource.register(Ready)
        self._spark, self._data, self._messages = spark, str(data), messages

    def work(self) -> dict[str, float]:
        """Measure the seconds of both reads."""
        ours = self._spark.read.format("stompring").load(self._data)
        ready = self._spark.read.format("ready").option("rows", self._messages).load(self._data)
        return {"read": timed(lambda: into_nothing(ours)), "ready": timed(lambda: into_nothing(ready))}


class IntoLake:
    """The ingest into a new lake, and the scan of that lake."""

    def __init__(self, spark: Any, data: Path, messages: int) -> None:
        self._spark, self._data, self._messages = spark, data, messages

    def work(self) -> dict[str, float]:
        """Measure the seconds of the ingest and of the scan."""
        where = self._data.parent / "lake"
        lake = Lake(str(where))
        lake.create()
        try:
            found = {"ingest": timed(lambda: ingested(self._spark, self._data, lake))}
            messages = lake.tables["messages"]
            for name in ("warm", "scan"):  # only the second one counts
                found[name] = timed(lambda: self._scan(messages.frame(self._spark)))
            print(f"{messages.about()['files']} files of messages", file=sys.stderr)
            return found
        finally:
            shutil.rmtree(where)

    def _scan(self, frame: Any) -> None:
        rows, size = frame.selectExpr("count(1)", "sum(length(body))").first()
        if (rows, size) != (self._messages, self._messages * len(BODY)):
            raise click.ClickException(f"the lake has {rows} of {self._messages} messages, {size} bytes")


class Again:
    """The part `replay`: from a lake to a broker, and the same load from a client in C."""

    def __init__(self, spark: Any, data: Path, messages: int) -> None:
        self._spark, self._data, self._messages = spark, data, messages

    def work(self) -> dict[str, float]:
        """Measure seconds of each for the same number of messages."""
        where = self._data.parent / "lake"
        lake = Lake(str(where))
        lake.create()
        try:
            ingested(self._spark, self._data, lake)
            with Stompring() as broker:
                options = SinkOptions(Endpoint(HOST, broker.port), None)
                plan = ReplayPlan(MessageSelection(), f"{HOST}:{broker.port}", None, "", parts=QUEUES)
                replay = Replay(self._spark, lake, plan)
                seconds = timed(lambda: self._check(replay.run(options)))
                lines = [word for line in BLOCK.decode().splitlines() for word in ("-x", line)]
                sender = ["-m", "produce", "-c", "0", "-p", str(QUEUES), "-q", str(QUEUES), "-D", "1"]
                sender += ["-r", "1000", "-R", "4", "-X", "_AMQ_DUPL_ID", "-s", str(len(BODY)), *lines]
                done = load.run(broker, *sender, "-n", str(self._messages))
                return {"replay": seconds, "stompload": done["seconds"]}
        finally:
            shutil.rmtree(where)

    def _check(self, done: tuple[int, int]) -> None:
        if done != (self._messages, 0):
            raise click.ClickException(f"{done[0]} of {self._messages} messages were sent")


def ingested(spark: Any, data: Path, lake: Lake) -> None:
    """Ingest a data directory into a lake."""
    for _ in Ingest(spark, DataFiles(str(data)), lake, mark=False).batches():
        pass


WORK: dict[str, Any] = {"read": Read, "lake": IntoLake, "replay": Again}


def work(part: str, cores: int, rounds: int, data: Path, little: Path, messages: int) -> dict[str, Any]:
    """Measure a part: seconds in each round by name, and the maximum resident memory of the driver's Java in MB."""
    if part == "plain":
        plain(little)
        return {"seconds": {"plain": [timed(lambda: plain(data)) for _ in range(rounds)]}, "java_mb": 0.0}
    from stompring.pipeline.session import spark_session

    spark = spark_session(f"local[{cores}]", settings={"spark.driver.memory": "1g"})
    WORK[part](spark, little, LITTLE).work()
    every = WORK[part](spark, data, messages)
    found = [every.work() for _ in range(rounds)]
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    seconds = {name: [each[name] for each in found] for name in found[0] if name != "warm"}
    told = {"seconds": seconds, "java_mb": peak_mb(java)}
    spark.stop()
    return told


def timed(do: Callable[[], object]) -> float:
    """Measure the seconds of a call."""
    begun = time.perf_counter()
    do()
    return time.perf_counter() - begun


def peak_mb(process: int) -> float:
    """Return the maximum resident memory of a process in MB."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) / 1000 for line in status.splitlines() if line.startswith("VmHWM:"))


# ---- the table


def measured(part: str, cores: int, rounds: int, data: Path, little: Path, messages: int) -> dict[str, Any]:
    """Run `work` in a new process."""
    command = [sys.executable, "-m", "benchmarks.pipeline", "--work", part, "--cores", str(cores)]
    command += [
        "--rounds",
        str(rounds),
        "--data",
        str(data),
        "--little",
        str(little),
        "--messages",
        str(messages),
    ]
    before = os.getloadavg()[0]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{part} on {cores} ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "load": before}


@click.command()
@click.option("--messages", default=1_000_000, show_default=True, type=click.IntRange(1000))
@click.option("--growth", default=10, show_default=True, type=click.IntRange(2), help="For `grown`.")
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
    """Print rows per second, ratios, memory, and the verdicts on the targets."""
    if part is not None:
        assert data is not None and little is not None
        click.echo(json.dumps(work(part, cores, rounds, data, little, messages)))
        return
    unknown = set(only.split(",")).difference(PARTS)
    if unknown:
        raise click.BadParameter(f"there is no {', '.join(sorted(unknown))}", param_hint="--only")
    click.echo(json.dumps(machine()))
    with tempfile.TemporaryDirectory(prefix="stompring-pipeline-") as directory:
        show(Path(directory), messages, growth, rounds, headers == "distinct", only.split(","))


def show(root: Path, messages: int, growth: int, rounds: int, distinct: bool, only: list[str]) -> None:
    """Create the files, measure, and print."""
    made_of = {"little": LITTLE, "data": messages, "sent": min(messages, REPLAYED)}
    sizes = {name: make(root / name, count, distinct=distinct) for name, count in made_of.items()}
    click.echo(f"{messages:,} messages, {sizes['data'] / 1e6:,.0f} MB", err=True)
    rows: list[list[str]] = []
    rates: dict[str, float] = {}

    def add(part: str, cores: int, data: str, count: int, rounds: int = rounds) -> None:
        found = measured(part, cores, rounds, root / data, root / "little", count)
        for name, every in found["seconds"].items():
            seconds = statistics.median(every)
            named = f"{name}, {cores} cores" + (f", x{growth}" if data == "grown" else "")
            rates[named] = rates[name] = count / seconds
            java = f"{found['java_mb']:,.0f}" if found["java_mb"] else ""
            spread = f"{min(every):.1f}-{max(every):.1f}"
            told = [named, f"{count:,}", f"{seconds:.1f}", spread, f"{rates[named]:,.0f}", java]
            rows.append([*told, f"{found['load']:.1f}"])
            click.echo("  ".join(rows[-1]), err=True)

    if "plain" in only:
        add("plain", 1, "data", messages)
    if "read" in only:
        add("read", 1, "data", messages)
        add("read", 2, "data", messages)
    if "replay" in only:
        add("replay", 2, "sent", made_of["sent"], 1)
    if "grown" in only:
        shutil.rmtree(root / "data")
        make(root / "grown", messages * growth, distinct=distinct)
        add("read", 2, "grown", messages * growth, 1)
        add("lake", 2, "grown", messages * growth, 1)
    head = ["", "messages", "s (median)", "s (all)", "per s", "Java RSS MB", "load before"]
    click.echo("\n" + markdown(head, rows))
    for name, target in TARGETS.items():
        if name in rates:
            click.echo(f"{name} (at least {target:,} a second): {verdict(rates[name], target)}")
    for peer, target in (("ready", READY), ("plain", PLAIN)):
        two = "read, 2 cores"
        if two in rates and peer in rates:
            against = rates.get(f"{peer}, 2 cores", rates[peer])
            click.echo(f"{two}, beside {peer} (at least {target}): {verdict(rates[two] / against, target)}")
    if "replay" in rates:
        click.echo(f"replay, beside stompload: {rates['replay'] / rates['stompload']:.2f}")


if __name__ == "__main__":
    main()
