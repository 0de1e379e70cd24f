"""Settings of Python's cyclic garbage collector that avoid long pauses in a broker with many messages.

Messages, references and closed connections form no cycles. A collection therefore frees little: some tracebacks, and
functions of libraries that refer to themselves. It takes 0.2 µs for each object that it traverses. Therefore

- the collector traverses each object three times, after 700, 2,800 and 8,400 net allocations (`THRESHOLDS`);
- a broker with many objects then freezes the survivors (`gc.freeze`), including messages and their lists: later
  collections skip them;
- the broker collects frozen objects only if memory has grown for some seconds by more than messages, connections,
  addresses, queues and transactions explain: then some objects leak. The measure is the number of blocks of Python's
  allocator. To count them takes 3 ms with a million messages; to count the frozen objects would take 80 ms.

This module does not call `gc.get_objects`: if it referred to a tuple that another thread is building, that thread would
fail with a SystemError.

`tune_malloc` sets the limits of glibc's malloc. By default it maps and unmaps the memory of each body of a megabyte,
which takes longer than to pass the body on.

``STOMPRING_GC=default`` in the environment keeps Python's default settings, for measurements.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
import time
from collections.abc import Sized
from dataclasses import dataclass

from twisted.internet.task import LoopingCall

from stompring.broker.broker import Broker
from stompring.broker.publish import STEP_OVERHEAD

log = logging.getLogger(__name__)

#: Seconds between two measurements of the growth of memory.
INTERVAL = 1.0

#: The three thresholds of `gc.set_threshold`: for generation 0 net allocations, for generations 1 and 2 collections of
#: the generation before. A collection begins above its threshold.
THRESHOLDS = (700, 2, 1)

#: Maximum number of objects that become old between two collections of generation 2.
WINDOW = (THRESHOLDS[0] + 1) * (THRESHOLDS[1] + 2) * (THRESHOLDS[2] + 2)

#: Number of old objects plus messages above which the old objects are frozen. Messages are added because a collection
#: traverses their lists item by item.
FREEZE_THRESHOLD = 20_000

#: Tolerated growth of memory without an explanation, in blocks of memory: 20 to 40 MB.
MAX_UNEXPLAINED_BLOCKS = 300_000

#: Minimum and maximum number of memory blocks of one object with all objects that it refers to: an address, a queue or
#: a connection; a step of an open transaction; a message in a queue; 1 KB of messages in memory (usual: 9). If the
#: number of objects has fallen, the minimum counts; if it has risen, the maximum.
BLOCKS_PER_OBJECT = ((10, 600), (2, 30), (1, 3), (2.5, 16))

#: Number of consecutive measurements with unexplained growth that indicate a leak: a COMMIT or a burst ends earlier.
SUSPICIOUS_CHECKS = 10

#: Parameters of mallopt(3) and their values in bytes: M_TRIM_THRESHOLD (free memory that stays at the end of the heap),
#: M_TOP_PAD (memory that is requested in addition) and M_MMAP_THRESHOLD (minimum size of memory that is mapped).
MALLOC = ((-1, 64 << 20), (-2, 16 << 20), (-3, 32 << 20))


def tune_malloc() -> None:
    """Keep the memory of large bodies in the heap. It has no effect without glibc, or beside settings in MALLOC_*."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not any(name.startswith("MALLOC_") for name in os.environ):
        for parameter, value in MALLOC:
            mallopt(parameter, value)


@dataclass(eq=False, repr=False)
class GcTuning:
    """The settings and measurements of the garbage collector, from `start` to `stop`."""

    broker: Broker
    connections: Sized
    _before: tuple[int, int, int] | None = None  # Python's thresholds before `start`
    _messages = 0  # messages in memory when old objects were last frozen
    _old = 0  # maximum number of objects that became old since old objects were last frozen
    _suspected = 0  # consecutive measurements with unexplained growth
    _blocks = 0  # allocated blocks at the last collection of all objects
    _amounts: tuple[float, ...] = ()  # result of `_count` at the last collection of all objects

    def __post_init__(self) -> None:
        self._timer = LoopingCall(self.measure)

    def freeze(self) -> None:
        """Freeze all objects, so that no collection traverses the messages that the broker has just recovered."""
        if os.environ.get("STOMPRING_GC") != "default":
            gc.freeze()

    def start(self) -> None:
        """Collect and freeze all objects, set `THRESHOLDS`, and begin to measure."""
        if os.environ.get("STOMPRING_GC") == "default":
            return
        self._collect_all()
        self._before = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collected)
        self._timer.clock = self.broker.clock.reactor  # type: ignore[assignment]
        self._timer.start(INTERVAL, now=False)

    def stop(self) -> None:
        """Stop the timer, and restore Python's thresholds."""
        if self._timer.running:
            self._timer.stop()
        if self._before is not None:
            gc.callbacks.remove(self._collected)
            gc.set_threshold(*self._before)
            self._before = None

    def measure(self) -> None:
        """Collect after many new messages, to freeze their lists early. Collect all objects if some seem to leak."""
        messages = self.broker.memory.messages
        self._messages = min(self._messages, messages)
        if messages - self._messages > FREEZE_THRESHOLD // 2:
            gc.collect()  # `_collected` freezes the survivors
        if sys.getallocatedblocks() - self._blocks - self._explained() <= MAX_UNEXPLAINED_BLOCKS:
            self._suspected = 0
            return
        self._suspected += 1
        if self._suspected >= SUSPICIOUS_CHECKS:
            begun = time.perf_counter()
            gc.unfreeze()
            found = self._collect_all()
            log.info(
                "garbage collection of all objects: %d freed, %d in use, %.0f ms",
                found,
                gc.get_freeze_count(),
                1000 * (time.perf_counter() - begun),
            )

    def _explained(self) -> float:
        """Return the growth of memory, in blocks, that `_count` explains since all objects were collected. A negative
        result means that memory must have shrunk.
        """
        grown = [now - then for now, then in zip(self._count(), self._amounts, strict=True)]
        return sum(amount * rates[amount > 0] for amount, rates in zip(grown, BLOCKS_PER_OBJECT, strict=True))

    def _count(self) -> tuple[float, ...]:
        """Count the objects of each row of `BLOCKS_PER_OBJECT`."""
        broker, directory = self.broker, self.broker.directory
        return (
            len(self.connections) + len(directory.addresses) + len(directory.queues),
            broker.transaction_bytes.bytes // STEP_OVERHEAD,
            sum(queue.count + queue.delivering + len(queue.scheduled) for queue in directory.queues.values()),
            broker.memory.bytes / 1024,
        )

    def _collect_all(self) -> int:
        """Collect all objects, freeze the survivors, and count blocks. Returns the number of unreachable objects."""
        found = gc.collect()
        gc.freeze()
        # collect again, without objects: CPython collects old objects only when their number has grown by a quarter of
        # the survivors of the last collection, which are now 0
        gc.collect()
        self._suspected, self._messages = 0, self.broker.memory.messages
        self._blocks, self._amounts = sys.getallocatedblocks(), self._count()
        return found

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        """Freeze survivors after a collection of generation 2. Python calls it in the thread that collected."""
        if phase == "stop" and info["generation"] == 2:
            self._old += WINDOW
            messages = self.broker.memory.messages
            if self._old + messages > FREEZE_THRESHOLD:
                gc.freeze()
                self._old, self._messages = 0, messages
