"""Small batches are written and synced in the reactor's thread while the disk is fast and nothing else waits."""

from pathlib import Path

import pytest

from stompring.store import writer
from stompring.store.writer import (
    BUSY_BATCHES,
    FAST_SYNC,
    MAX_REACTOR_BATCH,
    MAX_WAIT,
    SLOW_DISK_INTERVAL,
    SLOW_SYNC,
    ReactorSync,
    WriteBatch,
)

from .writer_fixture import JOURNAL, PAGE, WriterFixture


class Fixture(WriterFixture):
    """One on a fast disk, beside a reactor that is idle."""

    def __init__(self):
        super().__init__()
        self.idle = True
        self.at_round_end = []
        self.writer._round_end = self.at_round_end.append
        self.here = ReactorSync(self.writer.clock, lambda: self.idle)
        self.writer.reactor_sync = self.here
        self.send(b"first")  # opens the file
        self.hand.step()
        self.here.seconds = FAST_SYNC / 2

    def turn(self, seconds=0):
        """One round of a reactor."""
        super().turn(seconds)
        calls = self.at_round_end[:]
        self.at_round_end.clear()
        for call in calls:
            call()

    def send(self, data):
        """One turn of the reactor in which something is appended."""
        self.journal.append(data)
        self.turn()

    def in_thread(self):
        """Whether the disk thread has been given something to do, which is done then."""
        given = bool(self.hand.jobs)
        self.hand.finish()
        return given


@pytest.fixture
def desk():
    return Fixture()


@pytest.fixture(autouse=True)
def now(monkeypatch):
    """The time that writes and waits are measured with: it stands still, however busy the machine is."""
    now = [100.0]
    monkeypatch.setattr(writer, "perf_counter", lambda: now[0])
    return now


def test_a_small_batch_is_safe_at_the_end_of_its_turn(desk):
    desk.journal.append(b" second")
    desk.writer.when_synced(desk.hear("safe"))
    desk.turn()
    assert desk.heard == ["safe"] and not desk.hand.jobs and desk.writer.idle
    assert desk.files.crash_free(JOURNAL) == b"first second"
    assert (desk.here.count, desk.journal.written, desk.writer.waiting_bytes) == (1, 12, 0)


def test_what_others_send_meanwhile_becomes_part_of_the_batch(desk):
    desk.idle = False
    for part in (b" a", b" b", b" c"):
        desk.send(part)
        assert desk.data(JOURNAL) == b"first" and not desk.hand.jobs
    desk.idle = True
    desk.writer.when_synced(desk.hear("safe"))
    desk.turn()
    assert desk.files.crash_free(JOURNAL) == b"first a b c" and desk.heard == ["safe"]
    assert desk.here.count == 1 and not desk.hand.jobs


def test_the_disk_thread_writes_where_the_reactor_does_not_become_idle(desk, now):
    desk.idle = False
    desk.send(b"a")
    desk.turn()
    assert not desk.in_thread()
    now[0] += MAX_WAIT * 1.01
    desk.turn()
    assert desk.in_thread() and desk.data(JOURNAL) == b"firsta"
    for number in range(BUSY_BATCHES):
        desk.send(b"x")
        assert desk.in_thread(), number
    desk.idle = True
    desk.send(b"b")
    assert not desk.in_thread()


def test_a_batch_that_waits_for_an_idle_reactor_is_written_at_the_end(desk):
    desk.idle = False
    desk.send(b" second")
    assert desk.writer.drain() and desk.files.crash_free(JOURNAL) == b"first second"


def test_the_disk_thread_writes_until_syncs_are_known_to_be_fast(desk):
    desk.here.seconds = SLOW_SYNC
    turns = 0
    while desk.here.count == 0:
        desk.send(b"x")
        assert turns < 100
        turns += desk.in_thread()
    assert turns > 5


def test_a_slow_sync_gives_the_disk_back_to_the_thread_for_a_while(desk):
    desk.here.observe(SLOW_SYNC)
    desk.here.seconds = 0.0
    desk.send(b"a")
    assert desk.in_thread()
    desk.turn(SLOW_DISK_INTERVAL / 1000)
    desk.send(b"b")
    assert not desk.in_thread()


def test_slower_syncs_on_average_give_the_disk_back_to_the_thread(desk):
    for _ in range(20):
        desk.here.observe(FAST_SYNC * 1.5)
    desk.send(b"a")
    assert desk.in_thread()


def test_what_is_more_than_a_short_write_is_for_the_thread(desk):
    desk.send(b"x" * (MAX_REACTOR_BATCH + 1))
    assert desk.in_thread(), "large"
    desk.page.append(b"page")
    desk.send(b"a")
    assert desk.in_thread(), "a page"
    desk.writer.run_task(lambda files: files.remove(PAGE))
    desk.send(b"b")
    assert desk.in_thread(), "a file task"
    desk.writer.open(Path("/data/2.journal"), journal=True).append(b"header")
    desk.turn()
    assert desk.in_thread(), "a file that is not open"
    desk.journal.prefill_from, desk.journal.prefill_until = 1, 1 << 30
    desk.send(b"c")
    assert desk.in_thread(), "zeros"
    desk.send(b"d")
    assert not desk.in_thread(), "behind which there are zeros"
    desk.journal.close()
    desk.turn()
    assert desk.in_thread(), "the end of a file"


def test_a_batch_in_flight_is_waited_for(desk):
    desk.here.seconds = SLOW_SYNC
    desk.send(b"a")
    desk.here.seconds = 0.0
    desk.send(b"b")
    assert len(desk.hand.jobs) == 1 and desk.data(JOURNAL) == b"first"
    desk.hand.step()
    desk.turn()
    assert not desk.in_thread() and desk.data(JOURNAL) == b"firstab"


def test_a_failed_batch_is_retried_by_the_thread(desk):

    desk.files.fail()
    desk.journal.append(b" second")
    desk.writer.when_synced(desk.hear("safe"))
    desk.turn()
    assert desk.heard == [] and desk.writer.failing is not None and not desk.hand.jobs
    desk.files.heal()
    desk.turn(1)
    assert desk.in_thread() and desk.heard == ["safe"] and desk.data(JOURNAL) == b"first second"


def test_a_batch_that_is_delayed_is_for_the_thread(desk):
    desk.writer._delay = 0.004
    desk.send(b"a")
    desk.turn(0.004)
    assert desk.in_thread()


def test_a_slow_write_in_the_reactor_is_the_last_one(desk, monkeypatch):
    write = WriteBatch.write
    monkeypatch.setattr(
        WriteBatch, "write", lambda *arguments: write(*arguments)._replace(seconds=SLOW_SYNC * 2)
    )
    desk.send(b"a")
    assert desk.here.count == 1
    for _ in range(5):
        desk.send(b"b")
        assert desk.in_thread()
