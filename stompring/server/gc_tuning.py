"""How Python's cyclic garbage collector runs beside many messages, without a pause that anybody notices.

What the broker closes leaves no cycles, and messages and references form none, so there is little to collect: a
traceback now and then, a function of a library that refers to itself. A pause takes 0.2 µs for each object that is
looked at. So

- every object is looked at three times, after 700, 2,800 and 8,400 allocations that stayed (`THRESHOLDS`);
- what is left then in a broker that holds much is set aside for good (`gc.freeze`), messages and their lists too;
- all of it is looked at once more when there has been more for some seconds than messages, connections, addresses,
  queues and transactions account for: then something leaks after all. What is counted are the blocks of Python's
  allocator, which takes 3 ms for a million messages; to count what was set aside takes 80.

Nothing here lists the objects that there are (`gc.get_objects`): a tuple that another thread is just making must not be
referred to by anybody else, or making it fails with a SystemError.

``STOMPRING_GC=default`` in the environment leaves Python's own settings, for measuring.
"""

from __future__ import annotations

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

#: Seconds between measurements of the growth.
INTERVAL = 1.0

#: Allocations that stay before young objects are looked at, young collections before what survived them is, and how
#: often that happens before all is that was not set aside. Each begins when its number is exceeded.
THRESHOLDS = (700, 2, 1)

#: The most objects that may be new since what is old was set aside or looked at last.
WINDOW = (THRESHOLDS[0] + 1) * (THRESHOLDS[1] + 2) * (THRESHOLDS[2] + 2)

#: Objects and messages from which on what is old is set aside: a list is looked at entry by entry.
FREEZE_THRESHOLD = 20_000

#: Blocks of memory by which all there is may have grown without being explained: 20 to 40 MB.
MAX_UNEXPLAINED_BLOCKS = 300_000

#: Blocks of an address, a queue or a connection with all that it refers to, of a step of an open transaction, of a
#: message in a queue, of 1 KB of messages that are held (9 are usual): at the least, for what has gone, or at most.
BLOCKS_PER_OBJECT = ((10, 600), (2, 30), (1, 3), (2.5, 16))

#: Looks in a row that must find more than is explained: a COMMIT or a burst is over by then, a leak is not.
SUSPICIOUS_CHECKS = 10


@dataclass(eq=False, repr=False)
class GcTuning:
    """Collects by itself, from `start` to `stop`."""

    broker: Broker
    connections: Sized
    _before: tuple[int, int, int] | None = None  # thresholds, once it has begun
    _messages = 0  # in memory when old objects were frozen last
    _old = 0  # at most so many objects were left by collections since
    _suspected = 0  # measurements in a row that found more than can be explained
    _blocks = 0  # when all were looked at, as the next
    _amounts: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        self._timer = LoopingCall(self.measure)

    def freeze(self) -> None:
        """What exists now stays: a million messages that were recovered need not be looked at even once."""
        if os.environ.get("STOMPRING_GC") != "default":
            gc.freeze()

    def start(self) -> None:
        """Set everything aside that was made so far, and take over."""
        if os.environ.get("STOMPRING_GC") == "default":
            return
        self._collect_all()
        self._before = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collected)
        self._timer.clock = self.broker.clock.reactor  # type: ignore[assignment]
        self._timer.start(INTERVAL, now=False)

    def stop(self) -> None:
        """Leave no timer behind, and Python's settings as they were."""
        if self._timer.running:
            self._timer.stop()
        if self._before is not None:
            gc.callbacks.remove(self._collected)
            gc.set_threshold(*self._before)
            self._before = None

    def measure(self) -> None:
        """Lists of messages that have grown are set aside before they are long; what leaks is looked for."""
        messages = self.broker.memory.messages
        self._messages = min(self._messages, messages)
        if messages - self._messages > FREEZE_THRESHOLD // 2:
            gc.collect()  # and set aside what is left
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
        """By how many blocks memory may have grown since all was looked at; less than 0 where it must have shrunk."""
        grown = [now - then for now, then in zip(self._count(), self._amounts, strict=True)]
        return sum(amount * rates[amount > 0] for amount, rates in zip(grown, BLOCKS_PER_OBJECT, strict=True))

    def _count(self) -> tuple[float, ...]:
        """Of what `EXPLAINED` has the blocks."""
        broker, directory = self.broker, self.broker.directory
        return (
            len(self.connections) + len(directory.addresses) + len(directory.queues),
            broker.transaction_bytes.bytes // STEP_OVERHEAD,
            sum(queue.count + queue.delivering + len(queue.scheduled) for queue in directory.queues.values()),
            broker.memory.bytes / 1024,
        )

    def _collect_all(self) -> int:
        """Collect, set aside what is left, and count it; returns how many objects were garbage."""
        found = gc.collect()
        gc.freeze()
        gc.collect()  # of nothing: CPython looks at old objects when they have grown by a quarter of what it saw last
        self._suspected, self._messages = 0, self.broker.memory.messages
        self._blocks, self._amounts = sys.getallocatedblocks(), self._count()
        return found

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        """A collection begins or has ended; in whatever thread it came over."""
        if phase == "stop" and info["generation"] == 2:
            self._old += WINDOW
            messages = self.broker.memory.messages
            if self._old + messages > FREEZE_THRESHOLD:
                gc.freeze()
                self._old, self._messages = 0, messages
