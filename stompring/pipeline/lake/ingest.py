"""Ingest of a data directory into a lake, in batches. Each table gets each batch once, even after crashes.

A batch is the part of the broker's files between two positions. An ingest first writes both positions (`Intent`). Tasks
then write Parquet files, and one commit for each table adds the files with the number of the batch. A second commit of
the same batch does nothing. A run first completes the batch of an interrupted run. `ContinuousIngest` repeats ingests
until it is stopped. It runs maintenance between batches, and retries after failures.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from threading import Event
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from stompring.pipeline.arrays import ALL_ENDINGS, TABLES
from stompring.pipeline.backlog import DirectoryReplaced, Limit, MissingFiles, end_positions, ranges_between
from stompring.pipeline.files import DataFiles, Positions, dump_positions, task_ranges
from stompring.pipeline.options import OptionError
from stompring.pipeline.storage import Folder
from stompring.store.datadir import Busy, record_ingested

from .data_files import BatchJob, BatchProgress, TaskOutput, ingest_ranges, write_copies
from .delta import DEFAULT_BROKER, spark_url
from .lake import Intent, IntentLog, Lake, LakeNotFound, Maintenance

log = logging.getLogger(__name__)

#: The order of a batch's commits. ``messages`` is last for two reasons: its versions are the versions of the lake; and
#: a repeated batch looks up the originals of copies in ``messages``, where its own rows must not be yet.
_COMMIT_ORDER = ("events", "samples", "messages")

#: Bytes of the broker's files in one batch (limit) and in one task (minimum).
BATCH_BYTES, TASK_BYTES = 1 << 30, 64 << 20


class Batch(NamedTuple):
    """A committed batch. ``bytes``: bytes read from the broker's files. ``rows``: number of rows by table."""

    number: int
    bytes: int
    rows: dict[str, int]
    faults: list[tuple[str, int, str]]
    lost: int = 0  # files deleted before they were ingested
    latest: int = 0  # time of the newest row, epoch ms; 0: no rows


@dataclass
class Ingest:
    """Ingest of one broker. Methods raise `OSError`, `DirectoryReplaced`, `Busy`, and Spark's exceptions.

    A lake has one writer at a time. If two ingests run by mistake, one of them ends with `Busy`. No message is ingested
    twice: only one process can start a batch (`IntentLog.write`), after all tables have the previous batch, and each
    table takes a batch once.
    """

    spark: Any
    files: DataFiles
    lake: Lake
    limit: Limit = Limit(bytes=BATCH_BYTES)  # noqa: RUF009 - a tuple is immutable
    task_bytes: int = TASK_BYTES
    mark: bool = True  # whether to record the ingested positions in the retention directory
    name: str = DEFAULT_BROKER  # name of the broker
    batch_progress: BatchProgress | None = None

    def __post_init__(self) -> None:
        self._broker = self.lake.admit(self.name, self.files)
        self._intents = IntentLog(self.lake.state_folder(self._broker))
        self._last_batch = -1  # number of the last batch of this run

    def batches(self, *, until: Callable[[], bool] = lambda: False) -> Iterator[Batch]:
        """Ingest all files in batches, and yield each batch. The first one may be the interrupted batch of an earlier
        run. Stop before the next batch if ``until`` returns True."""
        self.lake.check_lock()  # check even if there are no new files: a writer that has lost the lease must end
        last = self._intents.last()
        if last is not None and self._uncommitted(last):
            log.info("completing batch %d of an earlier run", last.number)
            yield self._run_batch(last)
        while not until():
            self._broker = self.lake.admit(self.name, self.files)  # the directory may have been replaced
            last = self._intents.last()
            if last is not None and last.number != self._last_batch and self._uncommitted(last):
                raise Busy(f"another process is ingesting: it started batch {last.number} of {self.lake}")
            start: Positions = {} if last is None else last.end
            end = end_positions(self.files, ALL_ENDINGS, start, self.limit)
            if end == start:
                return
            intent = Intent(0 if last is None else last.number + 1, start, end)
            self.lake.check_lock()
            self._intents.write(intent)
            yield self._run_batch(intent)

    def has_spark(self) -> bool:
        """Return whether Spark's JVM runs. Without it retries cannot succeed."""
        try:
            return not self.spark.sparkContext._jsc.sc().isStopped()
        except Exception:  # py4j raises exceptions of several types after the end of the JVM
            return False

    def left(self) -> int:
        """Return the number of bytes of the broker's files that are not in the lake."""
        last = self._intents.last()
        start = {} if last is None else last.end
        end = end_positions(self.files, ALL_ENDINGS, start)
        return sum(size for _, size in ranges_between(self.files, ALL_ENDINGS, start, end)[0])

    def _uncommitted(self, intent: Intent) -> tuple[str, ...]:
        """Return the tables that do not have the batch."""
        tables, writer = self.lake.tables.items(), self._broker.writer
        return tuple(name for name, table in tables if table.committed(writer) < intent.number)

    # ---- one batch

    def _run_batch(self, intent: Intent) -> Batch:
        job = BatchJob(
            self.files.root.where,
            self.files.retention.where,
            self.lake.folder.where,
            self.lake.tables["messages"].buckets,
            intent.number,
            self._uncommitted(intent),
            f"{self.lake.state_folder(self._broker)}/copies/{intent.number:09d}",
            self._broker.name,
            None if self._broker.identity is None else bytes.fromhex(self._broker.identity),
        )
        ranges, lost = ranges_between(self.files, ALL_ENDINGS, intent.start, intent.end)
        size, context = sum(size for _, size in ranges), self.spark.sparkContext
        # At most two tasks for each core: each task writes a file for each day and bucket, so more tasks would write
        # many small files.
        least = max(self.task_bytes, -(-size // (2 * int(context.defaultParallelism))))
        parts = task_ranges(ranges, least)
        Folder(job.copies).remove_all()  # remove the files of an interrupted run
        done = TaskOutput()
        self.batch_progress = BatchProgress(self.spark, intent.number, size)
        if parts:
            context.setJobDescription(f"stompring: batch {job.batch}")
            task = partial(ingest_ranges, job, self.batch_progress)
            for each in context.parallelize(parts, len(parts)).map(task).collect():
                done.add(each)
        if done.copied:
            done.add(self._originals(job, done))
        self._record_losses(intent, lost, done)
        end = json.dumps(dump_positions(intent.end))
        for name in sorted(job.tables, key=_COMMIT_ORDER.index):
            self.lake.check_lock()
            self.lake.tables[name].commit(
                done.files.get(name, []), self._broker.writer, intent.number, self._broker.name, end
            )
        Folder(job.copies).remove_all()
        self._last_batch = intent.number
        self._mark(intent)
        self.batch_progress = None
        files = sum(each.last - each.first + 1 for each in lost)
        return Batch(intent.number, done.read, done.rows, done.faults, files, _latest(done))

    def _originals(self, job: BatchJob, done: TaskOutput) -> TaskOutput:
        """Write the copies whose originals were never ingested: as rows of ``messages``, and as ``added`` events."""
        from pyspark.sql.functions import max as most
        from pyspark.sql.functions import min as least

        spark, key = self.spark, ["message_id", "queue"]
        # Name each file instead of the folder, so that reading fails if another process has removed a file.
        paths = [spark_url(f"{job.copies}/{name}") for name in done.copied]
        copies = spark.read.parquet(*paths).dropDuplicates(key)
        first, last = copies.agg(least("message_id"), most("message_id")).first()
        table = self.lake.tables["messages"]
        known = table.frame(spark)
        known = known.where((known.broker == job.broker) & known.message_id.between(first, last)).select(*key)
        if new := done.files.get("messages"):
            paths = [spark_url(f"{table.folder.where}/{file.path}") for file in new]
            known = known.unionByName(spark.read.parquet(*paths).select(*key))
        unknown = copies.join(known, key, "left_anti").select(*TABLES["messages"])
        result = TaskOutput()
        for row in unknown.mapInArrow(partial(write_copies, job), "done string").collect():
            result.add(TaskOutput.loaded(row.done))
        return result

    # ---- records of losses and positions

    def _record_losses(self, intent: Intent, lost: list[MissingFiles], done: TaskOutput) -> None:
        lines = [f"{each} deleted before it was ingested" for each in lost]
        lines += [f"{name} at {at}: {reason}" for name, at, reason in done.faults]
        for line in lines:
            log.warning("%s", line)
        if lines:
            self.lake.state_folder(self._broker).save(f"losses/{intent.number:09d}.json", lines)

    def _mark(self, intent: Intent) -> None:
        directory = self.files.retention.local
        if self.mark and directory is not None and directory.is_dir():
            try:
                record_ingested(directory, self.lake.id, str(self.lake), intent.end)
            except OSError as fault:
                log.warning("cannot record the ingested positions in the retention directory: %s", fault)


def _latest(done: TaskOutput) -> int:
    """Return the time of the newest row (epoch ms) by the statistics of the files, 0 without rows."""
    most = (json.loads(file.stats)["maxValues"] for files in done.files.values() for file in files)
    times = (each[name] for each in most for name in ("timestamp", "time") if name in each)
    return max((int(datetime.fromisoformat(time).timestamp() * 1000) for time in times), default=0)


class IngestMetrics:
    """Prometheus metrics of an ingest. The usual metrics of the process are not among them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        about: dict[str, Any] = {"namespace": "stompring", "subsystem": "lake", "registry": self.registry}
        gauge: Callable[..., Gauge] = partial(Gauge, **about)
        counter: Callable[..., Counter] = partial(Counter, **about)
        self._lag = gauge(
            "lag_seconds", "Age of the newest row of the last batch while files are left to ingest, else 0."
        )
        self._left = gauge("lag_bytes", "Bytes of broker files not yet ingested.")
        self._rows = counter("rows", "Rows added, including rows of copies.", ["table"])
        self._bytes = counter("read_bytes", "Bytes of broker files ingested.")
        self._faults = counter("faults", "Unreadable places in broker files.")
        self._lost = counter("lost_files", "Broker files deleted before they were ingested.")
        self._batches = counter("batches", "Batches committed.")
        self.failures = counter("failures", "Ingest attempts that failed and were retried.")
        self._seconds = gauge("last_batch_seconds", "Duration of the last batch.")
        self._at = gauge("last_batch_timestamp_seconds", "Time of the last commit.")
        self._files = gauge("table_files", "Data files of a table.", ["table"])
        self._compacted = counter("compacted_files", "Data files replaced by compaction.", ["table"])
        self._vacuumed = counter("vacuumed_files", "Unreferenced files deleted by vacuum.", ["table"])

    def serve(self, host: str, port: int) -> int:
        """Start an HTTP server for ``/metrics`` in a thread. Returns its port. Raises `OSError`."""
        server, _ = start_http_server(port, host, self.registry)
        return int(server.server_port)

    def batch(self, batch: Batch, seconds: float) -> None:
        """Count a committed batch."""
        for name, count in batch.rows.items():
            self._rows.labels(name).inc(count)
        self._bytes.inc(batch.bytes)
        self._faults.inc(len(batch.faults))
        self._lost.inc(batch.lost)
        self._batches.inc()
        self._seconds.set(seconds)
        self._at.set(time.time())

    def lag(self, seconds: float, left: int) -> None:
        """Set the age of the newest row in seconds, and the number of bytes not yet ingested."""
        self._lag.set(seconds)
        self._left.set(left)

    def upkeep(self, name: str, compacted: int, vacuumed: int, files: int = 0) -> None:
        """Set the number of files of a table, and count compacted and vacuumed files."""
        self._files.labels(name).set(files)
        self._compacted.labels(name).inc(compacted)
        self._vacuumed.labels(name).inc(vacuumed)


#: Seconds before the first retry, and maximum number of seconds before a retry.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0

#: Exceptions that a retry cannot prevent.
NOT_RETRIED = (DirectoryReplaced, LakeNotFound, OptionError, Busy)


@dataclass
class ContinuousIngest:
    """Ingest that repeats until ``stop`` is set (see the module). A batch in progress is completed."""

    work: Ingest
    upkeep: Maintenance
    stop: Event
    interval: float  # seconds between two checks for new files
    attempts: int  # consecutive failed attempts after which `run` raises
    on_batch: Callable[[Batch, float], None]  # called with each batch and its duration in seconds
    metrics: IngestMetrics = field(default_factory=IngestMetrics)
    lag: float = 0.0  # age of the newest row after the last batch, in seconds; 0: all files are ingested
    left: int = 0  # number of bytes that were not ingested after the last batch
    _failed: int = 0

    def run(self) -> None:
        """Ingest until ``stop`` is set. Raises the last exception if retries are exhausted or cannot help."""
        while not self.stop.is_set():
            try:
                self._ingest_batches()
                pause = self.interval
            except NOT_RETRIED:
                raise
            except Exception as fault:
                pause = self._after(fault)
            self.stop.wait(pause)

    def _ingest_batches(self) -> None:
        before = time.monotonic()
        for batch in self.work.batches(until=self.stop.is_set):
            seconds = time.monotonic() - before
            self.left = self.work.left()
            behind = time.time() - batch.latest / 1000
            self.lag = max(behind, 0.0) if self.left and batch.latest else 0.0
            self.metrics.lag(self.lag, self.left)
            self.metrics.batch(batch, seconds)
            self.on_batch(batch, seconds)
            self._maintain()
            self._failed = 0
            before = time.monotonic()
        if not self.stop.is_set():
            self.lag, self.left = 0.0, 0
            self.metrics.lag(0.0, 0)
            self._maintain()
        self._failed = 0

    def _maintain(self) -> None:
        """Run maintenance that is due. A failure is logged, and does not stop the ingest."""
        try:
            self.upkeep.run_due()
        except Exception as fault:  # delta-rs raises exceptions of many types; the tables stay consistent
            log.warning("maintenance of %s failed: %s; retrying after the next batch", self.work.lake, fault)
        done = self.upkeep.done
        for name, table in self.work.lake.tables.items():
            self.metrics.upkeep(name, done.compacted[name], done.vacuumed[name], len(table.files()))

    def _after(self, fault: Exception) -> float:
        """Return the seconds until the next attempt. Raises ``fault`` if no attempt is left."""
        self._failed += 1
        self.metrics.failures.inc()
        if self._failed >= self.attempts or not self.work.has_spark():
            raise fault
        pause = min(FIRST_PAUSE * 2.0 ** (self._failed - 1), LONGEST_PAUSE)
        text = (str(fault).strip() or repr(fault)).splitlines()[0]
        log.warning(
            "ingest attempt %d of %d failed: %s; retrying in %.0f s", self._failed, self.attempts, text, pause
        )
        return pause
