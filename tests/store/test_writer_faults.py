"""Disks that fail, chores, deletions, reading back, and the end."""

from __future__ import annotations

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
    desk.journal.append(b"safe ")
    desk.turn()
    desk.hand.step()
    second = desk.writer.open(Path("/data/2.journal"), journal=True)

    def fault(doing, path):
        if doing == operation and path.name == "2.journal":
            raise make(path)

    desk.files.fault = fault
    reported: list[str | None] = []
    desk.writer.on_failure = reported.append
    second.append(b"not lost")
    desk.writer.when_synced(desk.hear("not lost"))
    desk.turn()
    desk.hand.step()
    assert desk.writer.failing is not None and "2.journal" in desk.writer.failing
    assert desk.writer.write_limit.full and desk.writer.write_limit.fault == desk.writer.failing
    second.append(b", nor is this")
    desk.turn()
    assert not desk.hand.jobs, "what comes later does not overtake it"
    for _ in range(3):
        desk.turn(Files.retry_interval)
        desk.hand.step()
    assert desk.heard == [] and desk.writer.failures == 4
    assert caplog.text.count("durable messages are blocked") == 1

    desk.files.fault = lambda doing, path: None
    desk.turn(Files.retry_interval)
    desk.hand.step()
    assert desk.heard == ["not lost"]
    assert desk.writer.failing is None and not desk.writer.write_limit.full
    desk.hand.step()
    assert desk.data(second.path) == b"not lost, nor is this"
    assert "is writable again" in caplog.text
    assert len(reported) == 2 and "2.journal" in (reported[0] or "") and reported[1] is None


def test_a_write_that_breaks_off_begins_again_where_the_batch_began():
    desk = WriterFixture()
    desk.journal.append(b"before ")
    desk.turn()
    desk.hand.step()
    desk.files.most_per_write = 2
    writes = [0]

    def full_after_two(operation, path):
        if operation == "write":
            writes[0] += 1
            if writes[0] > 2:
                raise out_of_space(path)

    desk.files.fault = full_after_two
    desk.journal.append(b"0123456789")
    desk.turn()
    desk.hand.step()
    assert desk.data(JOURNAL) == b"before 0123"
    desk.files.fault = lambda operation, path: None
    desk.turn(Files.retry_interval)
    desk.hand.step()
    assert desk.data(JOURNAL) == b"before 0123456789"


def test_a_fault_of_our_own_loses_nothing_either():
    desk = WriterFixture()

    def bug(operation, path):
        raise ZeroDivisionError("a bug")

    desk.files.fault = bug
    desk.journal.append(b"a")
    desk.turn()
    desk.hand.step()
    assert desk.writer.failing == "cannot write to the store: ZeroDivisionError: a bug"
    desk.files.fault = lambda operation, path: None
    desk.turn(Files.retry_interval)
    desk.hand.step()
    assert desk.data(JOURNAL) == b"a"


# ---- chores and deletions


def test_deletions_come_before_writes_and_while_the_disk_is_full():
    desk = WriterFixture()
    old = desk.writer.open(Path("/data/old.page"))
    old.append(b"x" * 100)
    desk.turn()
    desk.hand.step()

    def full(operation, path):
        if operation == "write" and old.path in desk.files.data:
            raise out_of_space(path)

    desk.files.fault = full
    desk.journal.append(b"needs room")
    desk.turn()
    desk.hand.step()
    assert desk.writer.failing is not None
    old.delete()
    desk.turn(Files.retry_interval)
    desk.hand.step()
    assert desk.writer.failing is None and old.path not in desk.files.data
    assert desk.data(JOURNAL) == b"needs room"


def test_pending_appends_to_a_deleted_file_are_dropped():
    desk = WriterFixture()
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


def test_failed_tasks_retry_in_order_and_do_not_block_writes(caplog):
    desk = WriterFixture()
    done: list[str] = []
    stuck = [True]

    def first(files):
        if stuck[0]:
            raise broken(Path("/data/stuck"))
        done.append("first")

    desk.writer.run_task(first)
    desk.writer.run_task(lambda files: done.append("second"))
    desk.journal.append(b"a")
    desk.turn()
    desk.hand.step()
    assert (done, desk.data(JOURNAL), desk.writer.failing) == ([], b"a", None)
    assert not desk.writer.write_limit.full
    desk.turn(Files.retry_interval)
    desk.hand.step()
    assert caplog.text.count("/data/stuck") == 1
    stuck[0] = False
    desk.turn(Files.retry_interval)
    desk.hand.step()
    assert done == ["first", "second"] and desk.writer.idle
    desk.writer.stop()
    assert not desk.reactor.getDelayedCalls()


def test_a_file_that_is_closed_is_sealed():
    desk = WriterFixture()
    desk.page.append(b"contents")
    desk.page.close(lambda read, size: b"<%d>" % len(read(0, size)))
    desk.turn()
    desk.hand.step()
    assert desk.files.crash_free(PAGE) == b"contents<8>" and desk.files.open_files == 0


def test_a_seal_that_could_not_be_written_is_written_once():
    desk = WriterFixture()
    desk.page.append(b"contents")
    desk.turn()
    desk.hand.step()
    desk.page.close(lambda read, size: b"<%d>" % len(read(0, size)))
    desk.files.fault = lambda operation, path: (
        (_ for _ in ()).throw(broken(path)) if operation == "write" else None
    )
    desk.turn()
    desk.hand.step()
    assert desk.writer.failing is not None
    desk.files.fault = lambda operation, path: None
    desk.turn(Files.retry_interval)
    desk.hand.step()
    assert desk.data(PAGE) == b"contents<8>"


def test_open_files_are_limited():
    desk = WriterFixture()
    streams = [desk.writer.open(Path(f"/data/{number}.page")) for number in range(200)]
    for _ in range(2):
        for stream in streams:
            stream.append(b"x")
        desk.turn()
        desk.hand.step()
    assert desk.files.open_files <= 64
    assert all(desk.data(stream.path) == b"xx" for stream in streams)


# ---- room


def test_producers_wait_while_much_is_to_be_written():
    desk = WriterFixture()
    limit = desk.writer.write_limit
    desk.journal.append(bytes(MAX_PENDING_BYTES - 1))
    assert not limit.full
    desk.journal.append(b"x")
    assert limit.full

    def go_on():
        desk.heard.append("go on")
        limit.resumed()

    limit.waiting.append(go_on)
    desk.turn()
    desk.hand.step()
    assert desk.heard == ["go on"] and not limit.full


# ---- reading back


def test_unwritten_bytes_are_readable():
    desk = WriterFixture()
    desk.page.append(b"0123")
    desk.turn()
    desk.hand.step()
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


def test_drain_writes_everything_and_waits_for_it():
    desk = WriterFixture()
    desk.journal.append(b"a")
    desk.turn()
    desk.journal.append(b"b")
    desk.page.append(b"c", sync=False)
    desk.writer.when_synced(desk.hear("safe"))
    assert desk.writer.drain()
    assert (desk.files.crash_free(JOURNAL), desk.files.crash_free(PAGE)) == (b"ab", b"c")
    assert desk.heard == ["safe"]


def test_drain_ends_on_a_disk_that_fails(caplog):
    desk = WriterFixture()
    tries: list[str] = []

    def fault(operation, path):
        if operation == "sync":
            tries.append(operation)
            raise broken(path)

    desk.files.fault = fault
    desk.journal.append(b"abc")
    assert not desk.writer.drain()
    assert "3 bytes not written" in caplog.text and len(tries) >= SHUTDOWN_ATTEMPTS
    desk.writer.stop()
    assert not desk.reactor.getDelayedCalls() or all(
        call.getTime() <= desk.reactor.seconds() for call in desk.reactor.getDelayedCalls()
    )


def test_drain_after_a_fault_that_is_over():
    desk = WriterFixture()
    desk.files.fault = lambda operation, path: (_ for _ in ()).throw(broken(path))
    desk.journal.append(b"abc")
    desk.turn()
    desk.hand.step()
    desk.files.fault = lambda operation, path: None
    assert desk.writer.drain()
    assert desk.files.crash_free(JOURNAL) == b"abc"
    desk.turn(Files.retry_interval)  # the try that was under way finds nothing to do
    assert desk.writer.idle
