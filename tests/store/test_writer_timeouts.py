"""journal-buffer-timeout and page-sync-timeout: how long what is told waits for company before it is written."""

from pathlib import Path

import pytest
from twisted.internet.task import Clock as Reactor

from stompring.broker.clock import Clock
from stompring.store.writer import Writer

from .disk import ManualDisk
from .memory_files import MemoryFiles

#: Seconds; binary fractions, so that sums are exact.
STEP, SHORT, LONG = 2**-10, 2**-8, 2**-6


class Told:
    """A writer with a journal and a page, and the times at which batches begin."""

    def __init__(self, delay, page_delay):
        self.reactor = Reactor()
        self.disk = ManualDisk()
        self.writer = Writer(self.disk, Clock(self.reactor), MemoryFiles(), delay, page_delay)
        self.journal = self.writer.open(Path("/d/journal/1"), journal=True)
        self.page = self.writer.open(Path("/d/paging/1"))

    def begins(self, patience=1.0):
        """Seconds until a batch is on its way to the disk."""
        began = self.reactor.seconds()
        self.reactor.advance(0)
        while not self.disk.jobs and self.reactor.seconds() - began < patience:
            self.reactor.advance(STEP)
        assert self.disk.jobs, "nothing is written"
        self.disk.finish()
        return self.reactor.seconds() - began


CASES = [
    # journal-buffer-timeout, page-sync-timeout, until the journal, the page, both, page then journal
    (0.0, None, 0.0, 0.0, 0.0),
    (LONG, None, LONG, LONG, LONG),
    (0.0, LONG, 0.0, LONG, 0.0),
    (SHORT, LONG, SHORT, LONG, SHORT),
    (LONG, 0.0, LONG, 0.0, 0.0),
    (LONG, SHORT, LONG, SHORT, SHORT),
]


@pytest.mark.parametrize("delay, page_delay, journal, page, both", CASES)
def test_appends_wait_for_their_sync_timeout(delay, page_delay, journal, page, both):
    told = Told(delay, page_delay)
    for _ in range(2):  # and the second time as the first
        told.journal.append(b"j")
        assert told.begins() == journal
        told.page.append(b"p")
        assert told.begins() == page
        told.page.append(b"p")
        told.journal.append(b"j")
        assert told.begins() == both
        told.reactor.advance(1)
        assert not told.disk.jobs


def test_appends_during_a_write_join_the_next_batch_immediately():
    told = Told(SHORT, LONG)
    told.journal.append(b"1")
    told.reactor.advance(0)
    told.reactor.advance(SHORT)
    assert len(told.disk.jobs) == 1
    told.page.append(b"2")
    told.reactor.advance(0.5)
    assert len(told.disk.jobs) == 1
    told.disk.step()
    assert len(told.disk.jobs) == 1, "it has waited long enough"


def test_a_receipt_for_a_page_waits_for_its_batch():
    told = Told(0.0, LONG)
    safe = []
    told.page.append(b"p")
    told.writer.when_synced(lambda: safe.append(told.reactor.seconds()))
    assert told.begins() == LONG and len(safe) == 1
