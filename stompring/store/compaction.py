"""Compaction: what still counts in the oldest segment is written once more, so that the segment can go.

It happens in small steps between other things, never far ahead of the disk, and only while little of the journal
counts (``journal-compact-min-files``, ``journal-compact-percentage``), so that what is written twice is a part of
what is written anyway. A segment that is damaged goes as soon as it is the oldest.
"""

from __future__ import annotations

import logging
from typing import Any

from stompring.broker.clock import Clock

from .journal import Journal

log = logging.getLogger(__name__)

#: What one step may write: about a millisecond of work.
STEP_RECORDS, STEP_BYTES = 200, 256 * 1024

#: Seconds between two steps, and until a disk that is behind is looked at again.
STEP_INTERVAL, BACKLOG_INTERVAL = 0.004, 0.1

#: Bytes that wait for the disk from which on it is behind.
BACKLOG_BYTES = 4 * 1024 * 1024


class Compaction:
    """Keeps one journal small. ``segments`` and ``rewritten`` count what it has done."""

    def __init__(self, journal: Journal, clock: Clock, min_files: int, percentage: int) -> None:
        self.segments = 0
        self.rewritten = 0  # bytes
        self.clock = clock
        self._journal = journal
        self._min_files = min_files
        self._percentage = percentage
        self._timer: Any = None
        self._at: object = None  # the segment that is being emptied
        self._last = 0  # the number of the newest segment when this pass over the journal began
        self._own = 0  # segments that were begun by compaction itself
        self._others = -1  # how many others there had been when this pass began
        journal.on_roll = self.consider

    @property
    def needed(self) -> bool:
        """Whether the oldest segment should go."""
        journal = self._journal
        segments = journal.segments
        if len(segments) < 2:
            return False
        if segments[0] is self._at or any(segment.damaged for segment in segments):
            return True
        if self._min_files <= 0 or len(segments) < self._min_files:
            return False
        if journal.live_bytes * 100 >= journal.bytes * self._percentage:
            return False
        return segments[0].number <= self._last or self._news > self._others

    @property
    def _news(self) -> int:
        """How many segments were begun for events of the broker.

        Without another one of these a new pass would find what the last one has written, and nothing else: where
        bindings alone are most of a small journal it would go on for ever.
        """
        return self._journal.segments[-1].number - self._own

    def consider(self) -> None:
        """The journal has grown, or something in it has ended."""
        if self._timer is None and self.needed:
            self._timer = self.clock.reactor.callLater(STEP_INTERVAL, self._step)

    def stop(self) -> None:
        """No timer is left behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _step(self) -> None:
        self._timer = None
        writer = self._journal.writer
        if writer.failing is not None or writer.waiting_bytes > BACKLOG_BYTES:
            self._timer = self.clock.reactor.callLater(BACKLOG_INTERVAL, self._step)
            return
        if not self.needed:
            self._at = None
            return
        segments = self._journal.segments
        oldest = self._at = segments[0]
        newest = segments[-1].number
        if oldest.number > self._last:
            self._last, self._others = newest, self._news
        self.rewritten += self._journal.compact_step(STEP_RECORDS, STEP_BYTES)
        self._own += segments[-1].number - newest
        if self._journal.segments[0] is not oldest:
            self._at = None
            self.segments += 1
            log.debug("compacted journal segment %d", oldest.number)
        self.consider()
