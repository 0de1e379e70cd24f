"""Which share of the messages that came to queues the lake has: the rest is known to counters alone.

A message that is not retained (docs/report.md) has no row and no event. The counters of queues, in samples, count it
all the same: what they counted and what events tell is compared, for the same queues and the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stompring.pipeline.report.traffic import QueueTraffic


@dataclass(frozen=True, slots=True)
class QueueCoverage:
    """One queue: how many messages came after the first sample of the period and up to the last, and of how many of
    them there is an event.

    Counters may have fewer than there are events: what came between a sample and a crash, or to a queue that was
    deleted before the next sample, nobody counted. Then events count.
    """

    address: str
    queue: str
    came: int
    covered: int

    @property
    def missing(self) -> int:
        """Messages that only counters know."""
        return self.came - self.covered


@dataclass(frozen=True, slots=True)
class Coverage:
    """All queues; a queue to which nothing came is not among them."""

    queues: Sequence[QueueCoverage]

    @property
    def came(self) -> int:
        """Messages that came to queues."""
        return sum(one.came for one in self.queues)

    @property
    def missing(self) -> int:
        """Those that only counters know."""
        return sum(one.missing for one in self.queues)

    @property
    def share(self) -> float:
        """The share of messages that the lake does not have, 0 to 1; 0 where none came."""
        return self.missing / self.came if self.came else 0.0


def coverage(
    traffic: Sequence[QueueTraffic], counted: Mapping[str, int], addresses: Mapping[str, str]
) -> Coverage:
    """``counted`` has the events of the same time as `QueueTraffic.counted`, by queue."""
    known = {one.queue: one for one in traffic}
    found = []
    for queue in sorted({*known, *counted}):
        covered = counted.get(queue, 0)
        came = max(known[queue].counted if queue in known else 0, covered)
        if came:
            found.append(QueueCoverage(addresses.get(queue, ""), queue, came, covered))
    return Coverage(found)
