"""What the journal says of pages, put together from its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import error

from .record import PAGE_CURSOR, PAGE_SETTLED, SECOND_PAGE_STATE, Kind, unpack_runs
from .replay import ReadSegment

QueueInPage = tuple[int, int]  # numbers of both


class PageFacts:
    """By queue and page: runs of what was settled, and the latest counts of what came back.

    ``segments`` has the oldest one with a record that no later one repeats. By page ``ends`` tells how many messages
    it must have had, ``reach`` of how many at most anything is said.
    """

    def __init__(self, records: Iterable[tuple[ReadSegment, bytes]]) -> None:
        self.settled: dict[QueueInPage, list[tuple[int, int]]] = {}  # first, count
        self.states: dict[QueueInPage, dict[int, tuple[int, int, int]]] = {}  # deliveries, attempts, due
        self.segments: dict[QueueInPage, ReadSegment] = {}
        self.ends: dict[int, int] = {}
        self.reach: dict[int, int] = {}
        self.strange = 0  # records that do not make sense
        for segment, payload in records:
            try:
                self._read(segment, payload)
            except error:
                self.strange += 1

    def _read(self, segment: ReadSegment, payload: bytes) -> None:
        kind = payload[0]
        if kind == Kind.PAGE_SETTLED:
            _, _, _, _, queue, page, _ = PAGE_SETTLED.unpack_from(payload)
            end = self._settle((queue, page), payload[PAGE_SETTLED.size :])
            self.ends[page] = max(self.ends.get(page, 0), end)
            self.segments.setdefault((queue, page), segment)
        elif kind == Kind.PAGE_CURSOR:
            _, _, _, _, queue, page = PAGE_CURSOR.unpack_from(payload)
            end = self._settle((queue, page), payload[PAGE_CURSOR.size :])
            self.segments[queue, page] = segment  # it repeats all that was told before
        else:
            # later formats say more behind this
            *_, queue, page, index, deliveries, attempts, due = SECOND_PAGE_STATE.unpack_from(payload)
            self.states.setdefault((queue, page), {})[index] = (deliveries, attempts, due)
            self.segments.setdefault((queue, page), segment)
            end = index + 1
            self.ends[page] = max(self.ends.get(page, 0), end)
        self.reach[page] = max(self.reach.get(page, 0), end)

    def _settle(self, key: QueueInPage, runs: bytes) -> int:
        """Take runs in, and tell where they end."""
        known = self.settled.setdefault(key, [])
        known += unpack_runs(runs)
        return sum(known[-1]) if runs else 0  # they ascend within a record

    def lost_with(self, page: int, shares: Mapping[int, int]) -> dict[int, int]:
        """What is left for each queue of a page that is lost, of which ``shares`` has how many it had there."""
        left = {
            queue: count - run_length(self.settled.get((queue, page), ())) for queue, count in shares.items()
        }
        return {queue: count for queue, count in left.items() if count > 0}

    @property
    def last_page(self) -> int:
        """The greatest number of a page that anything is said of."""
        return max((page for _, page in self.segments), default=0)


def run_length(runs: Iterable[tuple[int, int]]) -> int:
    """How many positions there are in runs that may overlap."""
    total = end = 0
    for first, count in sorted(runs):
        total += max(0, first + count - max(end, first))
        end = max(end, first + count)
    return total
