"""The threads that wait for the disk: one that writes, one that reads pages, so that reads never wait for a sync.

Results travel through a queue of the pool's own, and one call into the reactor's thread takes all that are there:
many results cost one wake-up, and a broker that stops can wait for them without a reactor that turns.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from twisted.python import log as twisted_log

#: Seconds after which a thread that comes back from the disk gets the interpreter from the reactor when that is busy.
#: Python's own 5 ms are as long as many a sync, and each batch would wait for them twice: with many producers this
#: alone is a third more durable messages a second (docs/performance.md).
SWITCH_INTERVAL = 0.0005

Job = Callable[[], Any]
Done = Callable[[Any], None]


class FromThread(Protocol):
    """The part of Twisted's IReactorFromThreads that is needed here."""

    def callFromThread(self, call: Callable[..., object], /, *args: Any) -> object: ...


class DiskThread:
    """One thread; `store.disk.Disk` says what it does. It starts with the first job."""

    def __init__(self, reactor: FromThread, name: str) -> None:
        self._reactor = reactor
        self._name = name
        self._jobs: SimpleQueue[tuple[Job, Done] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Done, Any]] = SimpleQueue()
        self._outstanding = 0  # jobs whose `done` was not called
        self._told = threading.Event()  # the reactor will come and take results
        self._thread: threading.Thread | None = None

    def run(self, job: Job, done: Done) -> None:
        """See `Disk.run`."""
        if self._thread is None:
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

    # ---- in the thread

    def _work(self) -> None:
        while (task := self._jobs.get()) is not None:
            job, done = task
            try:
                result = job()
            except BaseException as fault:  # it is for `done` to deal with
                result = fault
            self._results.put((done, result))
            if not self._told.is_set():
                self._told.set()
                self._reactor.callFromThread(self._take)

    # ---- on the reactor

    def _take(self) -> None:
        self._told.clear()  # before looking: what comes after the look calls again
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
            twisted_log.err(None, f"a result of thread {self._name} could not be dealt with")


class DiskPool:
    """Both threads."""

    def __init__(self, reactor: FromThread) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL)
        self.writing = DiskThread(reactor, "store writer")
        self.reading = DiskThread(reactor, "page reader")

    def stop(self) -> None:
        """Finish both, and end them."""
        self.reading.stop()
        self.writing.stop()
