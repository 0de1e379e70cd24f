"""Looks at the disks of journal and pages every ``disk-scan-period``, so that what must be written stops in time.

A disk that fills up to its last byte could not take acknowledgements either, which are what makes room. So beyond
``max-disk-usage``, or with less than ``min-disk-free``, messages that must be written wait, are dropped or fail, by
the ``disk-full-policy`` of their address; everything else goes on. Artemis: its ``FileStoreMonitor``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stompring.broker.broker import Broker
from stompring.settings.model import BrokerConfiguration
from stompring.store.disk import Disk

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reading:
    """How full one disk is, in bytes. ``free`` is what this process may use."""

    path: Path
    total: int
    free: int

    @property
    def usage(self) -> float:
        """The share that is in use, from 0 to 1. What is kept back for others counts as used, as in Artemis."""
        return 1 - self.free / self.total if self.total else 0.0


def read_disk(path: Path) -> Reading:
    """How full the disk is that ``path`` is on, or will be. Raises `OSError`."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    found = os.statvfs(there)
    return Reading(path, found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def fault_of(reading: Reading, configuration: BrokerConfiguration) -> str | None:
    """Why a disk counts as full, None where it does not."""
    least, most = configuration.min_disk_free, configuration.max_disk_usage
    if least >= 0:
        if reading.free < least:
            return (
                f"the disk of {reading.path} is full: {reading.free} bytes are free, min-disk-free is {least}"
            )
    elif most >= 0 and reading.usage * 100 >= most:
        return f"the disk of {reading.path} is full: {reading.usage * 100:.1f} % are used, max-disk-usage is {most}"
    return None


class DiskMonitor:
    """Shuts and opens ``broker.disk``. ``reading`` is that of the fuller disk, None until the first was made."""

    def __init__(
        self,
        broker: Broker,
        disk: Disk,
        paths: Iterable[Path],
        read: Callable[[Path], Reading] = read_disk,
    ) -> None:
        self.reading: Reading | None = None
        self._broker = broker
        self._disk = disk
        self._paths = tuple(paths)
        self._read = read
        self._timer: Any = None
        self._looking = self._stopped = False
        self._silent: str | None = None  # the fault of the last look that failed, said once

    def start(self) -> None:
        """Look at once, before the first message comes, and then again and again."""
        self._judge(self._look())
        self._wait()

    def stop(self) -> None:
        """No timer is left behind, and a look under way has no consequence."""
        self._stopped = True
        self._cancel()

    def look_now(self) -> None:
        """The limits have changed: what counts is how full the disk is now, and the new period."""
        if not self._stopped:
            self._cancel()
            self._begin()

    # ---- looking

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        if not self._stopped and self._timer is None:
            period = self._broker.configuration.disk_scan_period / 1000
            self._timer = self._broker.clock.reactor.callLater(period, self._due)

    def _due(self) -> None:
        self._timer = None
        self._begin()

    def _begin(self) -> None:
        """In a thread: a disk in trouble may take long to answer."""
        if not self._looking:
            self._looking = True
            self._disk.run(self._look, self._done)

    def _look(self) -> list[Reading] | OSError:
        try:
            return [self._read(path) for path in self._paths]
        except OSError as fault:
            return fault

    def _done(self, outcome: Any) -> None:
        self._looking = False
        if not self._stopped:
            self._judge(outcome)
            self._wait()

    # ---- judging

    def _judge(self, outcome: Any) -> None:
        if isinstance(outcome, BaseException):
            self._say_blind(outcome)
            return
        self._silent = None
        readings: list[Reading] = outcome
        configuration = self._broker.configuration
        self.reading = max(readings, key=lambda reading: reading.usage)
        faults = [fault_of(reading, configuration) for reading in readings]
        fault = next((text for text in faults if text is not None), None)
        was, room = self._broker.disk.fault, self._broker.disk
        if fault is not None and was is None:
            log.error(
                "%s; durable messages, and those for pages, wait or go by the disk-full-policy of their address",
                fault,
            )
        elif fault is None and was is not None:
            log.info("the disk has room again: %.1f %% are used", self.reading.usage * 100)
        room.shut(fault)

    def _say_blind(self, fault: BaseException) -> None:
        """What was known stays in force: a disk that cannot be asked is no emptier for that."""
        if str(fault) != self._silent:
            self._silent = str(fault)
            log.error("cannot see how full the disk is: %s", fault)
