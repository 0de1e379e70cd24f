"""Disks that fail, chores, deletions, reading back, and the end."""

import logging
from pathlib import Path

import pytest

from stompring.store.files import Files
from stompring.store.writer import MAX_PENDING_BYTES, SHUTDOWN_ATTEMPTS

from .memory_files import broken, out_of_space
from .writer_fixture import JOURNAL, PAGE, WriterFixture


@pytest.mark.parametrize("operation", ["open", "write", "sync"])
@pytest.mark.parametrize("make", [out_of_space, broken])
def test_a_failing_disk(operation, make, caplog):
    caplog.set_level(logging.INFO)
    desk = WriterFixture()
    desk.write(b"safe ")
    second = desk.writer.open(Path("/data/2.journal"), journal=True)

    desk.files.fail(operation, "2.journal", make)
    reported = []
    desk.writer.on_failure = reported.append
    second.append(b"not lost")
    desk.writer.when_synced(desk.hear("not lost"))
    desk.write()
    assert desk.writer.failing is not None and "2.journal" in desk.writer.failing
    assert desk.writer.write_limit.full and desk.writer.write_limit.fault == desk.writer.failing
    second.append(b", nor is this")
    desk.turn()
    assert not desk.hand.jobs, "what comes later does not overtake it"
    for _ in range(3):
        desk.retry()
    assert desk.heard == [] and desk.writer.failures == 4
    assert caplog.text.count("durable messages are blocked") == 1

    desk.files.heal()
    desk.retry()
    assert desk.heard == ["not lost"]
    assert desk.writer.failing is None and not desk.writer.write_limit.full
    desk.hand.step()
    assert desk.data(second.path) == b"not lost, nor is this"
    assert "is writable again" in caplog.text
    assert len(reported) == 2 and "2.journal" in (reported[0] or "") and reported[1] is None


def test_a_write_that_breaks_off_begins_again_where_the_batch_began(desk):
    desk.write(b"before ")
    desk.files.most_per_write = 2
    writes = [0]

    def full_after_two(operation, path):
        if operation == "write":
            writes[0] += 1
            if writes[0] > 2:
                raise out_of_space(path)

    desk.files.fault = full_after_two
    desk.write(b"0123456789")
    assert desk.data(JOURNAL) == b"before 0123"
    desk.files.heal()
    desk.retry()
    assert desk.data(JOURNAL) == b"before 0123456789"


def test_a_fault_of_our_own_loses_nothing_either(desk):

    desk.files.fail(make=lambda path: ZeroDivisionError("a bug"))
    desk.write(b"a")
    assert desk.writer.failing == "cannot write to the store: ZeroDivisionError: a bug"
    desk.files.heal()
    desk.retry()
    assert desk.data(JOURNAL) == b"a"


# ---- chores and deletions


def test_deletions_come_before_writes_and_while_the_disk_is_full(desk):
    old = desk.writer.open(Path("/data/old.page"))
    old.append(b"x" * 100)
    desk.write()

    def full(operation, path):
        if operation == "write" and old.path in desk.files.data:
            raise out_of_space(path)

    desk.files.fault = full
    desk.write(b"needs room")
    assert desk.writer.failing is not None
    old.delete()
    desk.retry()
    assert desk.writer.failing is None and old.path not in desk.files.data
    assert desk.data(JOURNAL) == b"needs room"


def test_pending_appends_to_a_deleted_file_are_dropped(desk):
    desk.page.append(b"1234")
    desk.turn()
    desk.page.append(b"5678")
    desk.page.delete()
    desk.page.delete()
    assert desk.writer.waiting_bytes == 4, "what is under way is on its way"
    desk.hand.step()
    desk.hand.step()
    assert PAGE not in desk.files.data and desk.files.open_files == 0
    assert desk.writer.waiting_bytes == 0 and desk.writer.idle


def test_failed_tasks_retry_in_order_and_do_not_block_writes(desk, caplog):
    done = []
    stuck = [True]

    def first(files):
        if stuck[0]:
            raise broken(Path("/data/stuck"))
        done.append("first")

    desk.writer.run_task(first)
    desk.writer.run_task(lambda files: done.append("second"))
    desk.write(b"a")
    assert (done, desk.data(JOURNAL), desk.writer.failing) == ([], b"a", None)
    assert not desk.writer.write_limit.full
    desk.retry()
    assert caplog.text.count("/data/stuck") == 1
    stuck[0] = False
    desk.retry()
    assert done == ["first", "second"] and desk.writer.idle
    desk.writer.stop()
    assert not desk.reactor.getDelayedCalls()


def test_a_file_that_is_closed_is_sealed(desk):
    desk.page.append(b"contents")
    desk.page.close(lambda read, size: b"<%d>" % len(read(0, size)))
    desk.write()
    assert desk.files.crash_free(PAGE) == b"contents<8>" and desk.files.open_files == 0


def test_a_seal_that_could_not_be_written_is_written_once(desk):
    desk.page.append(b"contents")
    desk.write()
    desk.page.close(lambda read, size: b"<%d>" % len(read(0, size)))
    desk.files.fail("write")
    desk.write()
    assert desk.writer.failing is not None
    desk.files.heal()
    desk.retry()
    assert desk.data(PAGE) == b"contents<8>"


def test_open_files_are_limited(desk):
    streams = [desk.writer.open(Path(f"/data/{number}.page")) for number in range(200)]
    for _ in range(2):
        for stream in streams:
            stream.append(b"x")
        desk.write()
    assert desk.files.open_files <= 64
    assert all(desk.data(stream.path) == b"xx" for stream in streams)


# ---- room


def test_producers_wait_while_much_is_to_be_written(desk):
    limit = desk.writer.write_limit
    desk.journal.append(bytes(MAX_PENDING_BYTES - 1))
    assert not limit.full
    desk.journal.append(b"x")
    assert limit.full

    def go_on():
        desk.heard.append("go on")
        limit.resumed()

    limit.waiting.append(go_on)
    desk.write()
    assert desk.heard == ["go on"] and not limit.full


# ---- reading back


def test_unwritten_bytes_are_readable(desk):
    desk.page.append(b"0123")
    desk.write()
    desk.page.append(b"4567")
    desk.turn()  # under way
    desk.page.append(b"89")
    desk.page.append(b"ab")
    everything = b"0123456789ab"
    for start in range(4, 13):
        for stop in range(start, 13):
            assert desk.page.read(start, stop) == everything[start:stop]
    desk.page.append(b"cd")
    assert desk.page.read(7, 14) == b"789abcd"
    desk.hand.step()
    assert desk.page.written == 8 and desk.page.read(8, 14) == b"89abcd"
    desk.hand.step()
    assert desk.data(PAGE) == everything + b"cd"


# ---- the end


def test_drain_writes_everything_and_waits_for_it(desk):
    desk.journal.append(b"a")
    desk.turn()
    desk.journal.append(b"b")
    desk.page.append(b"c", sync=False)
    desk.writer.when_synced(desk.hear("safe"))
    assert desk.writer.drain()
    assert (desk.files.crash_free(JOURNAL), desk.files.crash_free(PAGE)) == (b"ab", b"c")
    assert desk.heard == ["safe"]


def test_drain_ends_on_a_disk_that_fails(desk, caplog):
    desk.files.fail("sync")
    desk.journal.append(b"abc")
    assert not desk.writer.drain()
    assert "3 bytes not written" in caplog.text and desk.writer.failures >= SHUTDOWN_ATTEMPTS
    desk.writer.stop()
    assert not desk.reactor.getDelayedCalls() or all(
        call.getTime() <= desk.reactor.seconds() for call in desk.reactor.getDelayedCalls()
    )


def test_drain_after_a_fault_that_is_over(desk):
    desk.files.fail()
    desk.write(b"abc")
    desk.files.heal()
    assert desk.writer.drain()
    assert desk.files.crash_free(JOURNAL) == b"abc"
    desk.turn(Files.retry_interval)  # the try that was under way finds nothing to do
    assert desk.writer.idle
