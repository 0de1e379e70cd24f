"""Rates of one core for a lake, in processor time, and the sizes of its files: the base of docs/lake.md, "Sizing".

    python -m benchmarks.lake_sizing [--messages 500000]

Three processes, without Spark, measure the tasks of an ingest, the writing of two kinds of rows to files of three
sizes, and a compaction. Processor time does not depend on the load of the machine. It does not include Java's part of
an ingest, which starts tasks and lists files.
"""

from __future__ import annotations

import json
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click

from benchmarks.results import machine, markdown
from benchmarks.segments import make

#: Addresses and buckets.
ADDRESSES = BUCKETS = 8

#: Bytes of a body.
BODY = 128

#: The first timestamp, in microseconds.
BEGIN = 1_790_000_000_000_000


def reading(number: int, chance: random.Random) -> bytes:
    """Create the JSON body of a sensor's message."""
    told = {"sensor": f"plant.{number % 40}", "value": round(chance.gauss(1013, 5), 2), "unit": "hPa"}
    told |= {"at": BEGIN // 1000 + number * 3, "serial": f"{chance.getrandbits(48):012x}"}
    return json.dumps(told).encode().ljust(BODY)


def noise(number: int, chance: random.Random) -> bytes:
    """Create an incompressible body."""
    return chance.randbytes(BODY)


def rows(first: int, count: int, body: Callable[[int, random.Random], bytes]) -> Any:
    """Create messages as a record batch."""
    import pyarrow as pa

    from stompring.pipeline.arrays import TABLES, TYPES

    chance, numbers = random.Random(first), range(first, first + count)
    address = [f"plant.{number % ADDRESSES}" for number in numbers]
    columns: dict[str, list[Any]] = {
        "address": address,
        "queue": address,
        "message_id": list(numbers),
        "timestamp": [BEGIN + number * 3000 for number in numbers],
        "priority": [4] * count,
        "durable": [True] * count,
        "deliveries": [0] * count,
        "headers": [
            [("order", f"{number:09d}"), ("trace", f"{chance.getrandbits(24):06x}"), ("source", "shop-01")]
            for number in numbers
        ],
        "body": [body(number, chance) for number in numbers],
    }
    types = {name: TYPES[type_] for name, type_ in TABLES["messages"].items()}
    arrays = [pa.array(columns.get(name, [None] * count), type_) for name, type_ in types.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


# ---- the measurements, each in its own process


def tasks(root: Path, messages: int) -> list[list[str]]:
    """Measure the tasks of an ingest."""
    from stompring.pipeline.arrays import ALL_ENDINGS
    from stompring.pipeline.backlog import end_positions, ranges_between
    from stompring.pipeline.files import DataFiles, task_ranges
    from stompring.pipeline.lake.data_files import BatchJob, ingest_ranges
    from stompring.pipeline.lake.delta import DEFAULT_BROKER
    from stompring.pipeline.lake.ingest import TASK_BYTES
    from stompring.pipeline.lake.lake import Lake

    size = make(root / "data", messages)
    lake = Lake(str(root / "lake"))
    lake.create(BUCKETS)
    files = DataFiles(str(root / "data"))
    ranges, _ = ranges_between(files, ALL_ENDINGS, {}, end_positions(files, ALL_ENDINGS, {}))
    tables = ("messages", "events", "samples")
    job = BatchJob(
        str(root / "data"), None, str(lake), BUCKETS, 0, tables, str(root / "copies"), DEFAULT_BROKER
    )
    packs = task_ranges(ranges, TASK_BYTES)
    begun = time.process_time()
    done = [ingest_ranges(job, None, pack) for pack in packs]
    seconds = time.process_time() - begun
    assert sum(each.rows["messages"] for each in done) == messages
    made = sum(len(some) for each in done for some in each.files.values())
    events = sum(file.size for each in done for file in each.files["events"])
    count = sum(each.rows["events"] for each in done)
    return [
        ["ingest: messages a second of one core", f"{messages / seconds:,.0f}"],
        ["ingest: MB of the broker's files a second of one core", f"{size / 1e6 / seconds:.0f}"],
        ["ingest: bytes of a message in the broker's files", f"{size / messages:.0f}"],
        [f"ingest: files of {len(packs)} tasks", f"{made}"],
        ["ingest: bytes of an event in the lake", f"{events / count:.1f}"],
        ["ingest: most MB resident in Python", f"{peak():.0f}"],
    ]


def sizes(root: Path, messages: int) -> list[list[str]]:
    """Measure the writing of rows, with numbers of tasks that give large and small files."""
    from stompring.pipeline.lake.data_files import TableWriter
    from stompring.pipeline.lake.delta import DEFAULT_BROKER
    from stompring.pipeline.storage import Folder

    found = []
    count = min(messages, 200_000)
    for name, body in (("readings", reading), ("noise", noise)):
        batch = rows(0, count, body)
        for parts in (1, 20, 200):
            files = []
            begun = time.process_time()
            for part in range(parts):
                some = TableWriter(
                    Folder(str(root / f"{name}{parts}")), "messages", BUCKETS, f"{part:06d}", DEFAULT_BROKER
                )
                some.add(batch.slice(part * count // parts, count // parts))
                files += some.close()
            seconds = time.process_time() - begun
            size = sum(file.size for file in files)
            about = f"{name}, {count // len(files):,} rows in a file of {size / len(files) / 1e3:,.0f} KB"
            found.append([f"{about}: bytes of a row", f"{size / count:.0f}"])
            found.append([f"{about}: ms of one core for a file", f"{seconds * 1e3 / len(files):.1f}"])
    return found


def compaction(root: Path, messages: int) -> list[list[str]]:
    """Measure the compaction of the files of twenty tasks."""
    from stompring.pipeline.lake.data_files import TableWriter
    from stompring.pipeline.lake.delta import DEFAULT_BROKER
    from stompring.pipeline.lake.lake import Lake

    lake = Lake(str(root / "lake"))
    lake.create(BUCKETS)
    table = lake.tables["messages"]
    count, size = messages // 20, 0
    for batch in range(20):
        part = TableWriter(table.folder, "messages", BUCKETS, f"{batch:06d}", DEFAULT_BROKER)
        part.add(rows(batch * count, count, noise))
        files = part.close()
        size += sum(file.size for file in files)
        table.commit(files, "benchmark", batch, DEFAULT_BROKER)
    before, begun = peak(), time.process_time()
    made, gone = table.compact(128 << 20)
    seconds = time.process_time() - begun
    return [
        [f"compaction of {gone} files to {made}: rows a second of one core", f"{20 * count / seconds:,.0f}"],
        ["compaction: MB of the lake's files a second of one core", f"{size / 1e6 / seconds:.0f}"],
        [
            f"compaction of {size / 1e6:.0f} MB: most MB resident, beside what was before",
            f"{peak() - before:.0f}",
        ],
    ]


def peak() -> float:
    """Return the maximum resident memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def measured(messages: int) -> Iterator[list[str]]:
    """Yield the lines of each part."""
    for part in (tasks, sizes, compaction):
        with tempfile.TemporaryDirectory(prefix="stompring-sizing-") as directory:
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                yield from pool.submit(part, Path(directory), messages).result()


@click.command()
@click.option("--messages", default=500_000, show_default=True, type=click.IntRange(1000))
def main(messages: int) -> None:
    """Print rates of one core, sizes and memory."""
    click.echo(json.dumps(machine()))
    click.echo(markdown(["", ""], list(measured(messages))))


if __name__ == "__main__":
    main()
