"""When Python's cyclic garbage collector may run.

Messages and references are acyclic and freed by their counts, but a full collection walks all of them: with half a
million messages held it stands still for a good part of a second (docs/performance.md has what was measured). So the
collector looks at young objects only, and at everything only when little is held, or after an hour.

``STOMPRING_GC=default`` in the environment leaves Python's own settings, for measuring.
"""

from __future__ import annotations

import gc
import os

from twisted.internet.task import LoopingCall

from stompring.broker.broker import Broker

#: Seconds between looks at whether everything may be collected.
INTERVAL = 60.0

#: Messages that may be held while everything is collected: a pause of about 10 ms.
FEW = 20_000

#: Looks after which everything is collected whatever is held: what leaks in an hour stays small.
LONGEST = 60

#: Allocations before young objects are looked at (about 1.5 ms), and "never" for all others: a collection of the
#: middle generation would walk what survived many young ones, up to half a second of it (measured).
THRESHOLDS = (2_000, 1_000_000_000, 1_000_000_000)


class Garbage:
    """Collects by itself, from `start` to the end of the process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._skipped = 0
        self._looking = LoopingCall(self.look)

    def set_aside(self) -> None:
        """What exists now stays: a million messages that were recovered need not be looked at even once."""
        if os.environ.get("STOMPRING_GC") != "default":
            gc.freeze()

    def start(self) -> None:
        """Take everything made so far out of the collector's sight, and take over from it."""
        if os.environ.get("STOMPRING_GC") == "default":
            return
        gc.collect()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        self._looking.clock = self._broker.clock.reactor  # type: ignore[assignment]
        self._looking.start(INTERVAL, now=False)

    def look(self) -> None:
        """Collect everything if that is quick, or overdue."""
        self._skipped += 1
        if self._broker.memory.messages <= FEW or self._skipped >= LONGEST:
            self._skipped = 0
            gc.collect()

    def stop(self) -> None:
        """Leave no timer behind."""
        if self._looking.running:
            self._looking.stop()
