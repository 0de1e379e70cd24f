"""The disk: its threads, the monitor that reports a full disk, and the drain before a stop.

One thread writes and another one reads pages, so that reads never wait for a sync. Each thread puts its results into a
queue, and one wake-up of the reactor processes all of them. A stopping broker waits for the queue without a running
reactor. Each thread has an eventfd(2) that the reactor polls like a socket: the round of the wake-up processes the
results and sends the resulting data. ``callFromThread`` would need one more iteration of the reactor.

The monitor measures the disks of journal and pages every ``disk-scan-period``. A disk without a free byte could not
store the acknowledgements that free space. Above ``max-disk-usage``, or below ``min-disk-free``, durable messages
therefore wait, are dropped or fail, as the ``disk-full-policy`` of their address says. All other work continues.
Artemis: ``FileStoreMonitor``.

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
from stompring.settings.model import BrokerConfiguration, frozen
from stompring.store.files import Disk

from .protocol import Connections

#: Seconds after which a busy reactor yields the interpreter to a thread whose disk operation has ended. Python's
#: default of 5 ms is as long as a sync, and each batch would wait that long twice. With many producers the short
#: interval gives a third more durable messages per second.
SWITCH_INTERVAL = 0.0005

Job = Callable[[], Any]
Done = Callable[[Any], None]


@implementer(IReadDescriptor)
class Wakeup:
    """An eventfd(2) in the reactor's poll: `ring` in any thread makes the reactor's thread call ``call``."""

    def __init__(self, reactor: Any, name: str, call: Callable[[], None]) -> None:
        """Create the eventfd and add it to the reactor. Raises `OSError`."""
        self._reactor = reactor
        self._name = name
        self._call = call
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        reactor.addReader(self)

    def ring(self) -> None:
        """Wake up the reactor. Thread-safe."""
        os.eventfd_write(self._descriptor, 1)

    def close(self) -> None:
        """Remove the eventfd from the reactor, and close it. The caller ensures that no thread calls `ring` later."""
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
    """One thread that runs the jobs of a `Disk`. It starts with the first job.

    ``reactor`` is an IReactorFromThreads. Results arrive faster if it also has ``addReader`` (IReactorFDSet).
    """

    _wakeup: Wakeup | None = None
    _outstanding = 0  # number of jobs whose `done` was not called yet
    _thread: threading.Thread | None = None

    def __init__(self, reactor: Any, name: str) -> None:
        self._reactor = reactor
        self._name = name
        self._jobs: SimpleQueue[tuple[Job, Done] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Done, Any]] = SimpleQueue()
        self._scheduled = threading.Event()  # whether a call of `_deliver_results` is scheduled

    def run(self, job: Job, done: Done) -> None:
        if self._thread is None:
            if hasattr(self._reactor, "addReader") and hasattr(os, "eventfd"):
                self._wakeup = Wakeup(self._reactor, self._name, self._deliver_results)
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._outstanding += 1
        self._jobs.put((job, done))

    def finish(self) -> None:
        while self._outstanding:
            self._deliver(*self._results.get())

    def stop(self) -> None:
        """Finish all jobs, and end the thread."""
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
            except BaseException as fault:  # `done` gets the exception as the result
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
        self._scheduled.clear()  # first, so that a result that arrives later schedules another call
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
    """The writing and the reading thread of a broker."""

    def __init__(self, reactor: Any) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL)
        self.writing = DiskThread(reactor, "store writer")
        self.reading = DiskThread(reactor, "page reader")

    def stop(self) -> None:
        """Finish all jobs, and end both threads."""
        self.reading.stop()
        self.writing.stop()


log = logging.getLogger(__name__)


@frozen
class DiskUsage:
    """The usage of one disk. ``total``: size in bytes. ``free``: free bytes that this process may use."""

    path: Path
    total: int
    free: int

    @property
    def usage(self) -> float:
        """The used share, from 0 to 1. Space reserved for root counts as used, as in Artemis."""
        return 1 - self.free / self.total if self.total else 0.0


def disk_usage(path: Path) -> DiskUsage:
    """Measure the disk of ``path``. If ``path`` does not exist, measure its nearest parent folder. Raises `OSError`."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    found = os.statvfs(there)
    return DiskUsage(path, found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def disk_full_reason(reading: DiskUsage, configuration: BrokerConfiguration) -> str | None:
    """Return the reason why a disk counts as full, None if it does not."""
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
    """Usage of a replicated log in bytes. ``limit`` 0 or less: no limit."""

    used: int
    limit: int

    @property
    def usage(self) -> float:
        """The used share of the limit: above 1 if the log exceeds its limit, 0 without a limit."""
        return self.used / self.limit if self.limit > 0 else 0.0


#: A full log counts as full until its usage is this number of percentage points below ``max-disk-usage``. Without this
#: margin the log would alternate between full and not full.
LOG_MARGIN = 2


def log_full_reason(
    usage: LogUsage, configuration: BrokerConfiguration, was_full: bool = False
) -> str | None:
    """Return the reason why a replicated log counts as full, None if it does not.

    The space above ``max-disk-usage`` is reserved for acknowledgements and removals.
    """
    most = configuration.max_disk_usage
    if usage.limit <= 0 or most < 0 or usage.usage * 100 < most - (LOG_MARGIN if was_full else 0):
        return None
    return (
        f"the replicated log is full: {usage.used} of {usage.limit} bytes ({usage.usage * 100:.1f} %), "
        f"max-disk-usage {most} %"
    )


@dataclass(eq=False, repr=False)
class DiskMonitor:
    """The monitor that sets and clears ``broker.disk.fault``. ``reading``: last measurement of the fullest disk."""

    broker: Broker
    disk: Disk
    paths: Collection[Path]
    read: Callable[[Path], DiskUsage] = disk_usage
    log_usage: Callable[[], LogUsage] | None = None
    #: a function that frees space; called after each measurement that finds a disk or the log full
    free: Callable[[], object] = bool
    reading: DiskUsage | None = None
    _disk_fault: str | None = None
    _log_full = False
    _timer: Any = None
    _measuring = _stopped = False
    _silent: str | None = None  # text of the last failed measurement, which is logged once

    def start(self) -> None:
        """Measure now, before the first message, and then every ``disk-scan-period``."""
        self._evaluate(self._measure())
        self._wait()

    def stop(self) -> None:
        """Cancel the timer. The result of a running measurement is ignored."""
        self._stopped = True
        cancel(self._timer)

    def measure_now(self) -> None:
        """Measure now, with new limits and a new period."""
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
        # measure in a thread, because a faulty disk may take long to answer
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
            # keep the last state: a failed measurement does not mean that the disk has space
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
        """Compare the replicated log with its limit; measure no disk. ``free``: free space if the log is full."""
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
    """The drain: the broker refuses new connections while it lasts."""

    broker: Broker
    connections: Connections
    since: int | None = None  # epoch ms; None: the broker does not drain

    def begin(self) -> bool:
        """Refuse new connections from now on. False if the broker already drains."""
        if self.since is not None:
            return False
        self.since = self.broker.clock.now
        self.connections.refused_because = REASON
        text = f"draining: refusing new connections, {len(self.connections)} are open"
        log.warning("%s", text)
        self.broker.notifications.notify("DRAIN", text)
        return True

    def end(self) -> bool:
        """Accept connections again. False if the broker does not drain."""
        if self.since is None:
            return False
        self.since = None
        self.connections.refused_because = None
        log.warning("drain ended: accepting new connections")
        self.broker.notifications.notify("UNDRAIN", "drain ended: accepting new connections")
        return True
