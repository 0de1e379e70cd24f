"""Numbers of an ingest that goes on, as Prometheus reads them (docs/lake.md has the table)."""

from __future__ import annotations

import time
from typing import Any

import prometheus_client

from stompring.pipeline.lake.ingest import Batch


class IngestMetrics:
    """One registry of its own: nothing of the process is in it."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self._lag = self._gauge(
            "lag_seconds", "Time since the newest row of the last batch, while something is left; 0 for none."
        )
        self._left = self._gauge("lag_bytes", "Bytes of the broker's files that are not in the lake.")
        self._rows = self._counter("rows", "Rows added, by table; rows of copies too.", "table")
        self._bytes = self._counter("read_bytes", "Bytes of the broker's files that were ingested.")
        self._faults = self._counter("faults", "Places of files that could not be read.")
        self._lost = self._counter("lost_files", "Files that the broker deleted before they were ingested.")
        self._batches = self._counter("batches", "Batches that were committed.")
        self._failures = self._counter("failures", "Attempts that failed and were made again.")
        self._seconds = self._gauge("last_batch_seconds", "How long the last batch took.")
        self._at = self._gauge("last_batch_timestamp_seconds", "When the last batch was committed.")
        self._files = self._gauge("table_files", "Files of a table.", "table")
        self._compacted = self._counter("compacted_files", "Files that compaction replaced.", "table")
        self._vacuumed = self._counter("vacuumed_files", "Files of no use that were deleted.", "table")

    def _gauge(self, name: str, text: str, *labels: str) -> Any:
        return prometheus_client.Gauge(f"stompring_lake_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Any:
        return prometheus_client.Counter(f"stompring_lake_{name}", text, labels, registry=self.registry)

    def serve(self, host: str, port: int) -> int:
        """Answer ``GET /metrics`` from now on, in a thread; the port. Raises `OSError`."""
        server, _ = prometheus_client.start_http_server(port, host, self.registry)
        return int(server.server_port)

    def batch(self, batch: Batch, seconds: float) -> None:
        """A batch was committed."""
        for name, count in batch.rows.items():
            self._rows.labels(name).inc(count)
        self._bytes.inc(batch.bytes)
        self._faults.inc(len(batch.faults))
        self._lost.inc(batch.lost)
        self._batches.inc()
        self._seconds.set(seconds)
        self._at.set(time.time())

    def lag(self, seconds: float, left: int) -> None:
        """What is not in the lake yet."""
        self._lag.set(seconds)
        self._left.set(left)

    def failed(self) -> None:
        """An attempt came to nothing."""
        self._failures.inc()

    def table(self, name: str, files: int) -> None:
        """How many files a table has."""
        self._files.labels(name).set(files)

    def upkeep(self, name: str, compacted: int, vacuumed: int) -> None:
        """So many files more were put together, and deleted."""
        self._compacted.labels(name).inc(compacted)
        self._vacuumed.labels(name).inc(vacuumed)
