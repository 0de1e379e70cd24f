"""The disk: the threads that wait for it, its limits, and the drain before a stop.

The disk: the threads that wait for it, and the monitor that reports it full.

One thread writes and one reads pages, so that reads never wait for a sync. Results travel through a queue of the
pool's own, and one wake-up of the reactor takes all that are there: a broker that stops can wait for them without a
running reactor. Each thread has an eventfd(2) that the reactor polls like a socket: results are delivered in the round
of the wake-up, and their writes go out with it. ``callFromThread`` would take another iteration and another waker.

The monitor measures the disks of journal and pages every ``disk-scan-period``. A disk that fills up to its last byte
could not take acknowledgements either, which free space. Beyond ``max-disk-usage``, or with less than
``min-disk-free``, durable messages therefore wait, are dropped or fail, by the ``disk-full-policy`` of their address;
everything else goes on. Artemis: its ``FileStoreMonitor``.

Drain: the broker refuses new STOMP connections and reports not ready, while existing clients continue.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from twisted.internet.interfaces import IReadDescriptor
from twisted.python import log as twisted_log
from zope.interface import implementer

from stompring.broker.broker import Broker
from stompring.broker.clock import cancel
from stompring.settings.model import BrokerConfiguration
from stompring.store.files import Disk

from .protocol import Connections

#: Seconds after which a thread that comes back from the disk gets the interpreter from the reactor when that is busy.
#: Python's own 5 ms are as long as many a sync, and each batch would wait for them twice: with many producers this
#: alone is a third more durable messages a second (docs/performance.md).
SWITCH_INTERVAL = 0.0005

Job = Callable[[], Any]
Done = Callable[[Any], None]


@implementer(IReadDescriptor)
class Wakeup:
    """An eventfd(2) in the reactor's poll: calls ``call`` in the reactor's thread after `ring` in any other."""

    def __init__(self, reactor: Any, name: str, call: Callable[[], None]) -> None:
        """Raises `OSError`."""
        self._reactor = reactor
        self._name = name
        self._call = call
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        reactor.addReader(self)

    def ring(self) -> None:
        """Thread-safe."""
        os.eventfd_write(self._descriptor, 1)

    def close(self) -> None:
        """Nobody will ring any more."""
        self._reactor.removeReader(self)
        os.close(self._descriptor)
        self._descriptor = -1

    # ---- see IReadDescriptor

    def fileno(self) -> int:
        return self._descriptor

    def logPrefix(self) -> str:
        return self._name

    def doRead(self) -> None:
        try:
            os.eventfd_read(self._descriptor)
        except BlockingIOError:
            return
        self._call()

    def connectionLost(self, reason: object) -> None:
        pass


class DiskThread:
    """One thread; see `Disk` of the store. It starts with the first job.

    ``reactor`` is an IReactorFromThreads; with ``addReader`` (IReactorFDSet) it is faster.
    """

    _wakeup: Wakeup | None = None
    _outstanding = 0  # jobs whose `done` was not called
    _thread: threading.Thread | None = None

    def __init__(self, reactor: Any, name: str) -> None:
        self._reactor = reactor
        self._name = name
        self._jobs: SimpleQueue[tuple[Job, Done] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Done, Any]] = SimpleQueue()
        self._scheduled = threading.Event()  # a call in the reactor's thread is scheduled

    def run(self, job: Job, done: Done) -> None:
        """See `Disk.run`."""
        if self._thread is None:
            if hasattr(self._reactor, "addReader") and hasattr(os, "eventfd"):
                self._wakeup = Wakeup(self._reactor, self._name, self._deliver_results)
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._outstanding += 1
        self._jobs.put((job, done))

    def finish(self) -> None:
        """See `Disk.finish`."""
        while self._outstanding:
            self._deliver(*self._results.get())

    def stop(self) -> None:
        """Finish, and end the thread."""
        self.finish()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        if self._wakeup is not None:
            self._wakeup.close()
            self._wakeup = None

    # ---- in the thread

    def _work(self) -> None:
        wakeup = self._wakeup
        while (task := self._jobs.get()) is not None:
            job, done = task
            try:
                result = job()
            except BaseException as fault:  # it is for `done` to deal with
                result = fault
            self._results.put((done, result))
            if not self._scheduled.is_set():
                self._scheduled.set()
                if wakeup is not None:
                    wakeup.ring()
                else:
                    self._reactor.callFromThread(self._deliver_results)

    # ---- on the reactor

    def _deliver_results(self) -> None:
        self._scheduled.clear()  # cleared first: a result that comes later schedules another call
        while True:
            try:
                done, result = self._results.get_nowait()
            except Empty:
                return
            self._deliver(done, result)

    def _deliver(self, done: Done, result: Any) -> None:
        self._outstanding -= 1
        try:
            done(result)
        except Exception:
            twisted_log.err(None, f"thread {self._name}: a result could not be processed")


class DiskThreads:
    """Both threads."""

    def __init__(self, reactor: Any) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL)
        self.writing = DiskThread(reactor, "store writer")
        self.reading = DiskThread(reactor, "page reader")

    def stop(self) -> None:
        """Finish both, and end them."""
        self.reading.stop()
        self.writing.stop()


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """How full one disk is, in bytes. ``free`` is what this process may use."""

    path: Path
    total: int
    free: int

    @property
    def usage(self) -> float:
        """The share that is in use, from 0 to 1. Space reserved for root counts as used, as in Artemis."""
        return 1 - self.free / self.total if self.total else 0.0


def disk_usage(path: Path) -> DiskUsage:
    """How full the disk is that ``path`` is on, or will be. Raises `OSError`."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    found = os.statvfs(there)
    return DiskUsage(path, found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def disk_full_reason(reading: DiskUsage, configuration: BrokerConfiguration) -> str | None:
    """Why a disk counts as full, None where it does not."""
    least, most = configuration.min_disk_free, configuration.max_disk_usage
    if least >= 0:
        if reading.free < least:
            return f"the disk of {reading.path} is full: {reading.free} bytes free, min-disk-free {least}"
    elif most >= 0 and reading.usage * 100 >= most:
        return (
            f"the disk of {reading.path} is full: usage {reading.usage * 100:.1f} %, max-disk-usage {most} %"
        )
    return None


class LogUsage(NamedTuple):
    """How full a replicated log is, in bytes. ``limit`` 0 or less: it has no limit."""

    used: int
    limit: int

    @property
    def usage(self) -> float:
        """The share that is in use, from 0."""
        return self.used / self.limit if self.limit > 0 else 0.0


#: Percent below ``max-disk-usage`` to which a full log must shrink: removals and messages would take turns else.
LOG_MARGIN = 2


def log_full_reason(
    usage: LogUsage, configuration: BrokerConfiguration, was_full: bool = False
) -> str | None:
    """Why a replicated log counts as full, None where it does not: the rest is for acknowledgements and removals."""
    most = configuration.max_disk_usage
    if usage.limit <= 0 or most < 0 or usage.usage * 100 < most - (LOG_MARGIN if was_full else 0):
        return None
    return (
        f"the replicated log is full: {usage.used} of {usage.limit} bytes ({usage.usage * 100:.1f} %), "
        f"max-disk-usage {most} %"
    )


@dataclass(eq=False, repr=False)
class DiskMonitor:
    """Shuts and opens ``broker.disk``. ``reading`` is that of the fuller disk, None until the first was made."""

    broker: Broker
    disk: Disk
    paths: Collection[Path]
    read: Callable[[Path], DiskUsage] = disk_usage
    log_usage: Callable[[], LogUsage] | None = None
    #: called with each measurement while a disk or the log is full: what can go should go now
    free: Callable[[], object] = bool
    reading: DiskUsage | None = None
    _disk_fault: str | None = None
    _log_full = False
    _timer: Any = None
    _measuring = _stopped = False
    _silent: str | None = None  # the last fault of a measurement, logged once

    def start(self) -> None:
        """Measure at once, before the first message, and then every ``disk-scan-period``."""
        self._evaluate(self._measure())
        self._wait()

    def stop(self) -> None:
        """Cancel the timer; a measurement under way has no effect."""
        self._stopped = True
        cancel(self._timer)

    def measure_now(self) -> None:
        """Measure at once, with new limits and a new period."""
        if not self._stopped:
            cancel(self._timer)
            self._begin()

    # ---- measuring

    def _wait(self) -> None:
        cancel(self._timer)
        self._timer = self.broker.clock.reactor.callLater(
            self.broker.configuration.disk_scan_period / 1000, self._begin
        )

    def _begin(self) -> None:
        """In a thread: a disk in trouble may take long to answer."""
        if not self._measuring:
            self._measuring = True
            self.disk.run(self._measure, self._done)

    def _measure(self) -> list[DiskUsage] | OSError:
        try:
            return [self.read(path) for path in self.paths]
        except OSError as fault:
            return fault

    def _done(self, outcome: Any) -> None:
        self._measuring = False
        if not self._stopped:
            self._evaluate(outcome)
            self._wait()

    # ---- evaluating

    def _evaluate(self, outcome: Any) -> None:
        if isinstance(outcome, BaseException):
            # the last state stays in force: a disk that cannot be measured is not empty
            if str(outcome) != self._silent:
                self._silent = str(outcome)
                log.error("cannot read disk usage: %s", outcome)
            return
        self._silent = None
        readings: list[DiskUsage] = outcome
        self.reading = max(readings, key=lambda reading: reading.usage)
        faults = (disk_full_reason(reading, self.broker.configuration) for reading in readings)
        self._disk_fault = next(filter(None, faults), None)
        self._set_fault()
        if self.broker.disk.fault is not None:
            self.free()

    def check_log(self, free: bool = False) -> None:
        """Compare the replicated log with its limit, which takes no look at a disk. ``free``: call `free` too."""
        if not self._stopped and self.reading is not None:
            self._set_fault()
            if free and self._log_full:
                self.free()

    def _set_fault(self) -> None:
        assert self.reading is not None
        broker = self.broker
        usage = LogUsage(0, 0) if self.log_usage is None else self.log_usage()
        log_fault = log_full_reason(usage, broker.configuration, self._log_full)
        self._log_full = log_fault is not None
        fault = self._disk_fault or log_fault
        was = broker.disk.fault
        if fault is not None and was is None:
            log.error("%s: durable and paged messages follow the disk-full-policy of their address", fault)
            broker.notifications.notify("DISK_FULL", fault)
        elif fault is None and was is not None:
            text = f"disk no longer full: usage {self.reading.usage * 100:.1f} %"
            if usage.limit > 0:
                text += f", replicated log {usage.usage * 100:.1f} %"
            log.info("%s", text)
            broker.notifications.notify("DISK_NOT_FULL", text)
        broker.disk.set_fault(fault)


REASON = "The broker is draining and refuses new connections: connect to another broker, or try again later"


@dataclass(eq=False, repr=False)
class Drain:
    """Whether the broker drains, and since when."""

    broker: Broker
    connections: Connections
    since: int | None = None  # epoch ms; None: it does not

    def begin(self) -> bool:
        """Refuse new connections from now on. False if that was so already."""
        if self.since is not None:
            return False
        self.since = self.broker.clock.now
        self.connections.refused_because = REASON
        text = f"draining: refusing new connections, {len(self.connections)} are open"
        log.warning("%s", text)
        self.broker.notifications.notify("DRAIN", text)
        return True

    def end(self) -> bool:
        """Accept connections again. False if that was so already."""
        if self.since is None:
            return False
        self.since = None
        self.connections.refused_because = None
        log.warning("drain ended: accepting new connections")
        self.broker.notifications.notify("UNDRAIN", "drain ended: accepting new connections")
        return True
