"""Starts on a journal that was torn, damaged, or written by somebody else."""

import logging
from zlib import crc32

import pytest

from stompring.errors import StoreError
from stompring.store.record import Kind
from stompring.store.segment import HEADER, JOURNAL, PAGE, SegmentScan, find_footer, pack_header

from ..broker.broker_fixture import ANYCAST
from .memory_files import MemoryFiles
from .stored_broker import JOURNAL as DIRECTORY
from .stored_broker import StoredBroker, held, reported

FIRST = DIRECTORY / "000000001.journal"


def rolled(count=30):
    """A journal of several sealed segments with one message a record."""
    world = StoredBroker(journal_file_size=1500, journal_compact_min_files=0)
    world.queue("q")
    world.turn()
    for number in range(count):
        world.keep("q", b"m%02d" % number)
    return world


def test_a_journal_cut_off_anywhere():
    world = rolled(4)
    (first,), everything = world.memory.data, held(world)
    data = world.memory.data[first]
    spans = list(SegmentScan(data))
    ends = [end for begin, end in spans if data[begin] == Kind.MESSAGE]
    for size in range(ends[0], ends[-1], 7):
        again = world.again(MemoryFiles({first: data[:size]}))
        whole = everything[: sum(end <= size for end in ends)]
        assert held(again) == whole and reported(again) == [], "no damage: it was not written completely"
        clean = data[: max(end for _, end in spans if end <= size)]
        assert again.memory.data == world.again(MemoryFiles({first: clean})).memory.data
        again.keep("q", b"goes on")
        assert held(again.again()) == [*whole, b"goes on"]


def test_a_changed_byte_in_the_header_loses_nothing():
    world = rolled(4)
    (first,) = world.memory.data
    for at in range(HEADER.size):
        damaged = bytearray(world.memory.data[first])
        damaged[at] ^= 0x21
        again = world.again(MemoryFiles({first: bytes(damaged)}))
        assert held(again) == held(world) and len(reported(again)) == 1
        again.pass_time(1000)
        aside = first.with_name(f"{first.name}.damaged")
        assert again.memory.data[aside] == bytes(damaged) and first not in again.memory.data
        assert held(again.again()) == held(world)


def test_damage_in_a_sealed_segment_costs_one_record(caplog):
    world = rolled()
    everything = held(world)
    second = sorted(world.memory.data)[1]
    data = world.memory.data[second]
    spans = [(begin, end) for begin, end in SegmentScan(data) if data[begin] == Kind.MESSAGE]
    assert len(spans) > 3
    begin, _ = spans[1]
    damaged = bytearray(data)
    damaged[begin + 60] ^= 1
    again = world.again(MemoryFiles(world.memory.data | {second: bytes(damaged)}))
    assert len(held(again)) == len(everything) - 1 and set(held(again)) < set(everything)
    assert again.store.lost_bytes > 0
    assert str(second) in reported(again)[0] and f"at byte {begin - 8}" in reported(again)[0]
    left = held(again)
    again.pass_time(2000)
    assert again.memory.data[second.with_name(second.name + ".damaged")] == bytes(damaged)
    assert second not in again.memory.data, "what could be read was written anew"
    third = again.again()
    assert held(third) == left and reported(third) == []


def test_a_queue_whose_description_is_lost_keeps_its_messages(caplog):
    world = rolled()
    contents = world.memory.data
    first = sorted(contents)[0]
    del contents[first]
    contents |= {first: pack_header(JOURNAL, 1, 1)[:-1] + b"\xff"}
    again = world.again(MemoryFiles(contents))
    assert len(held(again)) > 20
    queue = again.q
    assert queue.attributes.routing_type is ANYCAST and "q" in again.directory.addresses
    assert any("recreated with default attributes" in text for text in reported(again))
    again.pass_time(2000)
    third = again.again()
    assert held(third) == held(again) and third.q.number == queue.number


def test_deleted_queues_are_not_made_anew():
    world = rolled()
    world.directory.delete_queue("q")
    world.turn()
    contents = world.memory.data
    second = sorted(contents)[1]
    damaged = bytearray(contents[second])
    damaged[100] ^= 1
    again = world.again(MemoryFiles(contents | {second: bytes(damaged)}))
    assert again.directory.queues == {}


def of_format(number):
    """A header that another version writes."""
    header = bytearray(pack_header(JOURNAL, 1, 1))
    header[8:16] = bytes([number, header[9], *header[10:12], 0, 0, 0, 0])
    header[12:16] = crc32(header).to_bytes(4, "little")
    return bytes(header)


@pytest.mark.parametrize("header, words", [(pack_header(PAGE, 1, 1), "kind 2"), (of_format(9), "format 9")])
def test_newer_format_is_not_modified(header, words):
    with pytest.raises(StoreError, match=words) as caught:
        StoredBroker(MemoryFiles({FIRST: header}))
    assert "newer version" in str(caught.value) and str(FIRST) in str(caught.value)


def test_older_format_is_not_modified():
    with pytest.raises(
        StoreError, match="format 2 is of an earlier version .* 'stompring data export'"
    ) as caught:
        StoredBroker(MemoryFiles({FIRST: of_format(2)}))
    assert str(FIRST) in str(caught.value)


def test_other_files_in_the_journal_directory_are_ignored():
    others = {
        DIRECTORY / name: b"x"
        for name in ("notes.txt", "1.journal", "000000009.journal.damaged", "x.journal")
    }
    world = StoredBroker(MemoryFiles(others))
    world.queue("q")
    world.turn()
    assert others.items() <= world.memory.data.items()


def test_unreadable_directory_raises_with_path_and_reason():
    files = MemoryFiles({FIRST: pack_header(JOURNAL, 1, 1)})

    files.fail("read", make=lambda path: PermissionError(13, "Permission denied", str(path)))
    with pytest.raises(StoreError, match=r"000000001.journal.*Permission denied"):
        StoredBroker(files)


# ---- going on


def test_restart_seals_a_full_last_segment():
    world = rolled()
    last = world.journal.segments[-1]
    again = world.again(journal_file_size=100)
    again.keep("q")
    assert again.journal.segments[-1].number == last.number + 1
    assert find_footer(again.memory.data[last.path]) is not None
    third = again.again()
    assert len(held(third)) == 31 and reported(third) == []


def test_restart_does_not_append_to_a_sealed_segment():
    world = rolled()
    *sealed, last = world.journal.segments
    contents = world.memory.data
    del contents[last.path]
    again = world.again(MemoryFiles(contents))
    assert again.journal.segments[-1].number == last.number + 1
    assert any(f"segment {last.number} of" in text and "is missing" in text for text in reported(again))
    again.turn()
    assert find_footer(again.memory.data[sealed[-1].path]) is not None


def test_segment_truncated_between_records_is_reported():
    world = rolled()
    everything = held(world)
    second = sorted(world.memory.data)[1]
    data = world.memory.data[second]
    spans = [(begin, end) for begin, end in SegmentScan(data) if data[begin] == Kind.MESSAGE]
    cut = data[: spans[-1][0] - 8]
    again = world.again(MemoryFiles(world.memory.data | {second: cut}))
    assert len(held(again)) == len(everything) - 1
    (told,) = reported(again)
    assert str(second) in told and "footer missing" in told


def test_progress_of_a_long_recovery_is_logged(caplog):
    caplog.set_level(logging.INFO)
    world = rolled()

    class SlowFiles(MemoryFiles):
        def read(self, path, start=0, stop=-1):
            slow.clock.rightNow += 1.5
            return super().read(path, start, stop)

    slow = StoredBroker(SlowFiles(world.memory.data), recover=False)
    slow.store.recover(slow.broker)
    assert "recovering the journal" in caplog.text and "recovering the journal: read " in caplog.text
    assert "30 messages" in caplog.text


def test_restart_appends_to_the_last_segment():
    world = StoredBroker()
    world.queue("q")
    for number in range(5):
        world.keep("q", b"%d" % number)
        world = world.again()
        assert [segment.number for segment in world.journal.segments] == [1]
        world.turn()
    assert held(world) == [b"0", b"1", b"2", b"3", b"4"]
