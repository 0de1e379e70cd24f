"""Files over a replicated log: what is appended and when, and what follows from faults."""

import errno
import os
from threading import Thread
from unittest.mock import patch

import pytest

from stompring.broker.clock import Clock
from stompring.replication.files import MAX_WAITING_PURGES, NotActive
from stompring.replication.log import (
    CONTROL,
    MAX_ENTRY_DATA,
    FileChange,
    LogFull,
    LogUnavailable,
    NoRoom,
    Operation,
    UnsafeLog,
)
from stompring.store.writer import Writer

from ..store.disk import ImmediateDisk
from .directories import ActiveBroker, data_directory
from .memory_log import FULL, LOST, UNANSWERED, MemoryEngine, control_numbers


def changes(active):
    """The entries that change files: operation, path, position and data."""
    found = [entry.change for entry in active.engine.entries() if entry.change.operation < Operation.BEAT]
    return [(change.operation.name, change.path, change.at, bytes(change.data)) for change in found]


# ---- what is appended


def test_batch_is_one_append_and_neighbouring_writes_are_one_entry(active):
    active.files.begin_batch()
    active.write("paging/1/1.page", b"page")
    active.write("journal/1.journal", b"ab")
    active.write("journal/1.journal", b"cd", 2)
    active.write("journal/1.journal", b"x", 9)
    assert changes(active) == []
    assert active.contents == {}
    active.files.flush()
    assert changes(active) == [
        ("WRITE", "paging/1/1.page", 0, b"page"),
        ("WRITE", "journal/1.journal", 0, b"abcd"),
        ("WRITE", "journal/1.journal", 9, b"x"),
    ]
    assert active.files.appends == 1
    assert active.contents == {"paging/1/1.page": b"page", "journal/1.journal": b"abcd\0\0\0\0\0x"}


def test_large_write_is_cut_into_entries(active):
    data = os.urandom(2 * MAX_ENTRY_DATA + 3)
    active.files.begin_batch()
    active.write("journal/1.journal", data[:10])
    active.write("journal/1.journal", data[10:], 10)
    active.files.flush()
    assert [len(each[3]) for each in changes(active)] == [MAX_ENTRY_DATA, MAX_ENTRY_DATA, 3]
    assert active.contents == {"journal/1.journal": data}


def test_large_batch_is_appended_before_its_end(active):
    active.files.begin_batch()
    for place in range(80):
        active.write("journal/1.journal", bytes(MAX_ENTRY_DATA), place * MAX_ENTRY_DATA)
    assert active.engine.last >= 32
    active.files.flush()
    assert len(active.contents["journal/1.journal"]) == 80 * MAX_ENTRY_DATA


def test_buffer_that_is_changed_after_the_write_does_not_change_the_entry(active):
    data = bytearray(b"before")
    active.files.begin_batch()
    descriptor = active.files.open(active.root / "journal/1.journal")
    active.files.write(descriptor, memoryview(data), 0)
    data[:] = b"behind"
    active.files.flush()
    assert active.contents == {"journal/1.journal": b"before"}


def test_change_outside_a_batch_is_appended_at_once(active):
    active.replace("identity", b"abc\n")
    active.write("journal/1.journal", b"12345")
    active.files.truncate(active.root / "journal/1.journal", 2)
    active.remove("journal/9.journal")  # there is none
    assert changes(active) == [
        ("WHOLE", "identity", 0, b"abc\n"),
        ("WRITE", "journal/1.journal", 0, b""),
        ("WRITE", "journal/1.journal", 0, b"12345"),
        ("TRUNCATE", "journal/1.journal", 2, b""),
    ]
    assert active.contents == {"identity": b"abc\n", "journal/1.journal": b"12"}


def test_other_files_are_not_in_the_log(active, tmp_path):
    for name in ("broker.lock", "replicated-log", "retention/samples/1.samples"):
        active.replace(name, b"x")
        assert (active.root / name).read_bytes() == b"x"
    active.write("retention/samples/2.samples", b"x")
    active.files.replace(tmp_path / "elsewhere", b"x")
    assert changes(active) == []


def test_rename_is_a_copy_and_a_removal(active):
    large = os.urandom(MAX_ENTRY_DATA + 1)
    active.write("journal/1.journal", b"small")
    active.write("journal/2.journal", large)
    before = active.engine.last
    active.files.rename(active.root / "journal/1.journal", active.root / "journal/1.journal.damaged")
    active.files.rename(active.root / "journal/2.journal", active.root / "journal/1.journal.damaged")
    assert [each[:3] for each in changes(active)][before - 1 :] == [
        ("WHOLE", "journal/1.journal.damaged", 0),
        ("REMOVE", "journal/1.journal", 1),
        ("TRUNCATE", "journal/1.journal.damaged", 0),
        ("WRITE", "journal/1.journal.damaged", 0),
        ("WRITE", "journal/1.journal.damaged", MAX_ENTRY_DATA),
        ("REMOVE", "journal/2.journal", 2),
    ]
    assert active.contents == {"journal/1.journal.damaged": large}


def test_thread_that_reads_pages_does_not_wait_for_the_batch(active):
    active.write("paging/1/1.page", b"confirmed")
    active.files.begin_batch()
    active.write("paging/1/1.page", b" pending", 9)
    found = []
    thread = Thread(target=lambda: found.append(active.files.read(active.root / "paging/1/1.page", 0, 9)))
    thread.start()
    thread.join()
    assert found == [b"confirmed"]
    assert active.engine.last == 3
    assert active.files.read(active.root / "paging/1/1.page") == b"confirmed pending"
    assert active.engine.last == 4


def test_control_entries_go_on_counting_with_the_next_active_broker(active, tmp_path):
    for number in range(3):
        active.write(f"journal/{number}.journal", b"x")
        active.remove(f"journal/{number}.journal")
    other = ActiveBroker(active.engine, tmp_path / "other")
    other.write("journal/7.journal", b"x")
    other.remove("journal/7.journal")
    assert control_numbers(active.engine) == [1, 2, 3, 4]


# ---- the log does not answer


@pytest.mark.parametrize("fault", [LOST, UNANSWERED, FULL])
def test_what_the_log_has_been_given_is_stored_once_before_anything_else(active, fault):
    active.log.faults.extend([None, fault])
    active.files.begin_batch()
    active.write("journal/1.journal", b"first")
    active.write("journal/2.journal", b"second")
    with pytest.raises(LogFull if fault == FULL else LogUnavailable) as caught:
        active.files.flush()
    assert caught.value.strerror is not None and "replicated log" in caught.value.strerror
    assert active.contents == {}
    active.files.begin_batch()
    active.write("journal/3.journal", b"third")
    active.files.flush()
    assert [each[1] for each in changes(active)] == [f"journal/{n}.journal" for n in (1, 2, 3)]
    assert active.contents == {
        "journal/1.journal": b"first",
        "journal/2.journal": b"second",
        "journal/3.journal": b"third",
    }


def test_changes_that_were_refused_before_the_log_had_them_are_given_again(active):
    append = active.log.append

    def refuse(given):
        raise NoRoom("the reserve")

    active.log.append = refuse
    active.files.begin_batch()
    active.write("journal/1.journal", b"first")
    with pytest.raises(LogFull):
        active.files.flush()
    active.log.append = append
    active.files.begin_batch()
    active.files.flush()
    assert active.contents == {"journal/1.journal": b"first"}
    assert active.rebuilt() == {"journal/1.journal": b"first"}


def test_a_log_that_forgets_what_it_was_given_is_fatal(active):
    active.log.faults.append(LOST)
    active.files.begin_batch()
    active.write("journal/1.journal", b"first")
    with pytest.raises(LogUnavailable):
        active.files.flush()
    active.log._waiting.clear()
    active.files.begin_batch()
    with pytest.raises(NotActive, match="has not stored 1 entries"):
        active.files.flush()
    assert len(active.lost) == 1


def test_nothing_of_a_batch_is_tried_while_the_log_does_not_answer(active):
    active.log.connected = False
    active.files.begin_batch()
    active.write("journal/1.journal", b"first")
    with pytest.raises(LogUnavailable):
        active.files.flush()
    calls = []
    append = active.log.append
    active.log.append = lambda given: calls.append(1) or append(given)
    active.files.begin_batch()
    for _ in range(5):
        with pytest.raises(LogUnavailable):
            active.write("journal/2.journal", b"second")
    with pytest.raises(LogUnavailable):
        active.files.flush()
    assert len(calls) == 1  # each may last for seconds


@pytest.mark.parametrize("fault", [LOST, UNANSWERED, FULL])
def test_a_large_change_that_is_taken_is_not_reported_as_failed(active, fault):
    """Tasks of the store that have failed are tried again: a file that was renamed is not there any more."""
    active.write("journal/1.journal", b"x")
    path, target = active.root / "journal/1.journal", active.root / "journal/1.journal.damaged"
    with patch("stompring.replication.files.MAX_APPEND", 1):
        active.files.begin_batch()
        active.log.faults.append(fault)
        active.files.rename(path, target)
        with pytest.raises((LogUnavailable, LogFull)):
            active.files.remove(target)
        with pytest.raises((LogUnavailable, LogFull)):
            active.files.flush()
        active.files.begin_batch()
        active.files.flush()
    assert active.contents == {"journal/1.journal.damaged": b"x"}


def test_change_during_start_waits_for_the_log(tmp_path):
    active = ActiveBroker(MemoryEngine(), tmp_path / "active")
    active.files._patience = 60
    active.log.faults.extend([LOST, UNANSWERED, LOST])
    active.replace("identity", b"abc\n")
    assert active.contents == {"identity": b"abc\n"}


# ---- this broker must not write any more


def test_fenced_broker_confirms_nothing_and_reports_once(active, tmp_path):
    ActiveBroker(active.engine, tmp_path / "other")
    for _ in range(2):
        active.files.begin_batch()
        with pytest.raises(OSError):
            active.write("journal/1.journal", b"x")
            active.files.flush()
        with pytest.raises(NotActive):
            active.files.flush()
    for change in (
        lambda: active.remove("identity"),
        lambda: active.replace("identity", b"x"),
        lambda: active.files.open(active.root / "journal/2.journal"),
    ):
        with pytest.raises(NotActive, match="of another broker"):
            change()
    assert len(active.lost) == 1
    assert active.contents == {}


def test_log_that_was_made_anew_ends_the_broker(active):
    active.write("journal/1.journal", b"x")
    active.engine.recreate()
    with pytest.raises(NotActive):
        active.write("journal/1.journal", b"y")
    assert active.lost == ["the log was made anew"]


def test_full_local_disk_after_a_confirmed_append_ends_the_broker(active, monkeypatch):
    active.write("journal/1.journal", b"x")
    pwrite = os.pwrite

    def full(descriptor, data, at):
        if at >= 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data[:4], at)

    monkeypatch.setattr(os, "pwrite", full)
    active.files.begin_batch()
    active.write("journal/1.journal", b"confirmed")
    with pytest.raises(NotActive, match="No space left"):
        active.files.flush()
    monkeypatch.undo()
    assert len(active.lost) == 1 and "local copy" in active.lost[0]
    assert active.contents == {"journal/1.journal": b"conf"}
    # the log has it: the copy goes on behind what its marker says
    again = ActiveBroker(active.engine, active.root)
    assert again.contents == {"journal/1.journal": b"confirmed"}


def test_unknown_fault_of_the_log_ends_the_broker(active):
    def fail(given):
        raise ZeroDivisionError("a bug")

    active.log.append = fail
    with pytest.raises(NotActive, match="ZeroDivisionError"):
        active.write("journal/1.journal", b"x")
    assert len(active.lost) == 1


def test_file_of_no_data_directory_in_the_log_is_refused(active):
    active.log.append([FileChange(Operation.WRITE, "journal/../../x", 0, b"x")])
    with pytest.raises(UnsafeLog, match="no data directory has"):
        active.rebuilt()


# ---- what is not needed any more


def test_entries_of_removed_files_are_purged_and_control_entries_stay(active):
    for number in (1, 2):
        active.write(f"journal/{number}.journal", b"x")
        active.write(f"paging/{number}/1.page", b"x")
    active.remove("journal/1.journal")
    active.files.move(active.root / "paging/1/1.page", active.root / "retention/paging/1/1.page")
    assert not active.files.trim()
    assert active.engine.under("journal/1.journal") == active.engine.under("paging/1/1.page") == []
    assert len(active.engine.under(CONTROL)) == 2
    expected = {"journal/2.journal": b"x", "paging/2/1.page": b"x"}
    assert active.rebuilt() == expected
    assert not (active.root.parent / "rebuilt/retention/paging/1/1.page").exists()


def test_purge_spares_a_file_that_is_made_again(active):
    active.write("paging/1/address", b"old")
    active.files.begin_batch()
    active.remove("paging/1/address")
    active.write("paging/1/address", b"new")
    active.files.flush()
    active.files.trim()
    assert active.rebuilt() == {"paging/1/address": b"new"}


def test_busy_broker_purges_with_its_batches(active):
    for number in range(MAX_WAITING_PURGES + 20):
        active.files.begin_batch()
        active.write(f"journal/{number}.journal", b"x")
        active.remove(f"journal/{number}.journal")
        active.files.flush()
    assert len(active.copy.removals) <= MAX_WAITING_PURGES
    assert active.engine.purged


def test_purges_that_fail_are_tried_again(active):
    active.write("journal/1.journal", b"x")
    active.remove("journal/1.journal")
    active.log.connected = False
    active.files.trim()
    assert active.engine.under("journal/1.journal")
    active.log.connected = True
    active.files.trim()
    assert not active.engine.under("journal/1.journal")


def test_next_active_broker_purges_what_the_one_before_has_not(active, tmp_path):
    active.write("journal/1.journal", b"x")
    active.remove("journal/1.journal")
    ActiveBroker(active.engine, tmp_path / "other").files.trim()
    assert not active.engine.under("journal/1.journal")


def test_restarted_broker_purges_what_it_had_not(active):
    active.write("journal/1.journal", b"x")
    active.remove("journal/1.journal")
    active.copy.close()
    ActiveBroker(active.engine, active.root).files.trim()
    assert not active.engine.under("journal/1.journal")


def test_old_control_entries_are_purged(active, monkeypatch):
    monkeypatch.setattr("stompring.replication.copy.CHECKPOINT_INTERVAL", 2)
    monkeypatch.setattr("stompring.replication.files.KEPT_CONTROLS", 6)
    for number in range(20):
        active.write(f"journal/{number}.journal", b"x")
        active.remove(f"journal/{number}.journal")
        active.files.trim()
    assert control_numbers(active.engine) == [15, 16, 17, 18, 19, 20]
    active.beat()
    assert active.rebuilt() == {}


# ---- the writer


def test_writer_retries_soon_and_prefills_nothing(active):
    from twisted.internet.task import Clock as Reactor

    reactor = Reactor()
    writer = Writer(ImmediateDisk(reactor), Clock(reactor), active.files)
    stream = writer.open(active.root / "journal/1.journal", journal=True)
    active.log.faults.append(LOST)
    stream.append(b"record")
    reactor.advance(0)
    reactor.advance(0)
    assert writer.failing is not None and "no answer from the replicated log" in writer.failing
    reactor.advance(active.files.retry_interval)
    reactor.advance(0)
    assert writer.failing is None
    assert active.contents == {"journal/1.journal": b"record"}
    assert data_directory(active.root).journal.joinpath("1.journal").stat().st_size == 6
