"""An ingest that goes on by itself: batches, upkeep between them, and again after what passes by.

What fails is tried again, later each time, as long as Spark is there: the batch that was begun is completed, or done
once more, and each row is in the lake once. After too many failures in a row the last one is raised.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

from stompring.pipeline.backlog import Replaced
from stompring.pipeline.lake.ingest import Batch, Ingest
from stompring.pipeline.lake.lake import NoLake
from stompring.pipeline.lake.metrics import IngestMetrics
from stompring.pipeline.lake.upkeep import Upkeep
from stompring.pipeline.options import OptionError
from stompring.store.ingested import Busy

log = logging.getLogger(__name__)

#: Seconds before the first of several attempts, and the most before any.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0

#: What no other attempt changes.
FINAL = (Replaced, NoLake, OptionError, Busy)


@dataclass(slots=True)
class Following:
    """See the module. ``stop`` ends it after the batch that is under way."""

    work: Ingest
    upkeep: Upkeep
    stop: Event
    interval: float  # seconds between two looks
    attempts: int  # in a row that may fail
    tell: Callable[[Batch, float], None]  # of each batch, and how long it took
    metrics: IngestMetrics = field(default_factory=IngestMetrics)
    lag: float = 0.0  # seconds, as of the last batch
    left: int = 0  # bytes, likewise
    first_pause: float = FIRST_PAUSE
    _failed: int = 0
    _told: Counter[tuple[str, str]] = field(default_factory=Counter)

    def run(self) -> None:
        """Go on until `stop`. Raises what the last attempt raised."""
        while not self.stop.is_set():
            try:
                self._catch_up()
                pause = self.interval
            except FINAL:
                raise
            except Exception as fault:
                pause = self._after(fault)
            self.stop.wait(pause)

    def _catch_up(self) -> None:
        before = time.monotonic()
        for batch in self.work.batches(until=self.stop.is_set):
            seconds = time.monotonic() - before
            self._measure(batch)
            self.metrics.batch(batch, seconds)
            self.tell(batch, seconds)
            self._keep_up()
            self._failed = 0
            before = time.monotonic()
        if not self.stop.is_set():
            self.lag, self.left = 0.0, 0
            self.metrics.lag(0.0, 0)
            self._keep_up()
        self._failed = 0

    def _measure(self, batch: Batch) -> None:
        self.left = self.work.left()
        behind = time.time() - batch.latest / 1000 if batch.latest else 0.0
        self.lag = max(behind, 0.0) if self.left else 0.0
        self.metrics.lag(self.lag, self.left)

    def _keep_up(self) -> None:
        """Upkeep that fails is left for the next time: it holds up no batch."""
        try:
            self.upkeep.between_batches()
        except Exception as fault:  # delta-rs has exceptions of many kinds, and none of them matters here
            log.warning(
                "upkeep of %s failed, it is tried again after the next batch: %s", self.work.lake, fault
            )
        done = self.upkeep.done
        for name, table in self.work.lake.tables.items():
            self.metrics.table(name, len(table.files()))
            compacted, vacuumed = done.compacted[name], done.vacuumed[name]
            self.metrics.upkeep(
                name, compacted - self._told[name, "compacted"], vacuumed - self._told[name, "vacuumed"]
            )
            self._told[name, "compacted"], self._told[name, "vacuumed"] = compacted, vacuumed

    def _after(self, fault: Exception) -> float:
        """Seconds until the next attempt. Raises where there is none."""
        self._failed += 1
        self.metrics.failed()
        if self._failed >= self.attempts or not self.work.has_spark():
            raise fault
        pause = min(self.first_pause * 2.0 ** (self._failed - 1), LONGEST_PAUSE)
        text = (str(fault).strip() or repr(fault)).splitlines()[0]
        log.warning(
            "attempt %d of %d failed, the next is in %.0f s: %s", self._failed, self.attempts, pause, text
        )
        return pause
