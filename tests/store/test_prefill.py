"""Zeros are written ahead of the records of a journal segment, and go with its end or with the next start."""

from random import Random

import pytest

from stompring.store.segment import SegmentScan, find_footer
from stompring.store.writer import MAX_PREFILL, MAX_PREFILLED_WRITE, PREFILL_BLOCK

from .memory_files import MemoryFiles, out_of_space
from .stored_broker import JOURNAL, StoredBroker, held, reported
from .writer_fixture import JOURNAL as FILE

FIRST = JOURNAL / "000000001.journal"


@pytest.fixture
def desk(desk):
    """One that prefills its journal."""
    desk.journal.prefill_from, desk.journal.prefill_until = 100, 1 << 30
    return desk


def write(desk, data, sync=True):
    """Append, and write it; the operations that it took."""
    before = len(desk.files.operations)
    desk.journal.append(data, sync)
    desk.write()
    return [operation for operation, _ in desk.files.operations[before:] if operation != "open"]


def test_writes_into_zeros_leave_the_size_of_the_file(desk):
    assert write(desk, b"a" * 50) == ["write", "sync"], "a small file stays small"
    assert write(desk, b"b" * 50) == ["write", "write", "sync"]
    size = len(desk.data(FILE))
    assert size % PREFILL_BLOCK == 0 and size > 100
    while desk.journal.size + 50 <= size:
        assert write(desk, b"c" * 50) == ["write", "sync"]
        assert len(desk.data(FILE)) == size
    assert write(desk, b"d" * 50) == ["write", "write", "sync"]
    assert (
        desk.data(FILE).rstrip(b"\0").endswith(b"d" * 50)
        and b"\0" not in desk.data(FILE)[: desk.journal.size]
    )


def test_as_much_is_prefilled_as_there_is_up_to_a_limit(desk):
    write(desk, b"a" * 30_000)
    assert 60_000 <= len(desk.data(FILE)) < 60_000 + PREFILL_BLOCK
    for _ in range(70):
        write(desk, b"a" * 60_000)
    assert len(desk.data(FILE)) - desk.journal.size <= MAX_PREFILL + PREFILL_BLOCK


def test_zeros_end_with_the_size_of_a_segment(desk):
    desk.journal.prefill_until = 10_000
    write(desk, b"a" * 9_000)
    assert len(desk.data(FILE)) == 3 * PREFILL_BLOCK
    write(desk, b"a" * 4_000)
    assert len(desk.data(FILE)) == 13_000


def test_large_writes_and_writes_without_a_sync_are_not_prefilled(desk):
    write(desk, b"a" * (MAX_PREFILLED_WRITE + 1))
    write(desk, b"b" * 50, sync=False)
    assert len(desk.data(FILE)) == desk.journal.size


def test_failing_prefill_fails_no_batch(desk):

    def fault(operation, path):
        if operation == "write" and desk.files.operations[-2:-1] == [("write", path.name)]:
            raise out_of_space(path)

    desk.files.fault = fault
    desk.journal.append(b"a" * 200)
    desk.writer.when_synced(desk.hear("safe"))
    desk.write()
    assert desk.heard == ["safe"] and desk.writer.failing is None and desk.data(FILE) == b"a" * 200
    assert write(desk, b"b" * 5000) == ["write", "sync"], "it is not tried again"


def test_zeros_are_removed_before_a_segment_is_sealed(desk):
    write(desk, b"a" * 200)
    assert len(desk.data(FILE)) > 200
    desk.journal.close(lambda read, size: b"footer of %d" % len(read(0, size)))
    desk.write()
    assert desk.data(FILE) == b"a" * 200 + b"footer of 200"
    operations = [operation for operation, _ in desk.files.operations[-4:]]
    assert operations == ["truncate", "read", "write", "sync"]


def filled(count=5, **configuration):
    world = StoredBroker(prefill_from=1, **configuration)
    world.queue("q")
    for number in range(count):
        world.keep("q", b"m%02d" % number)
    return world


def test_a_start_after_a_kill_removes_the_zeros_and_loses_nothing(caplog):
    world = filled()
    data = world.memory.data[FIRST]
    walk = SegmentScan(data)
    records = list(walk)
    assert len(data) > walk.size == records[-1][1]
    again = world.again()
    assert held(again) == held(world) and reported(again) == []
    assert "truncated" not in caplog.text, "nothing was torn"
    again.keep("q", b"more")
    third = again.again()
    assert held(third) == [*held(world), b"more"] and reported(third) == []
    assert third.journal.bytes == sum(segment.size for segment in third.journal.segments)


def test_sealed_segments_have_no_zeros():
    world = filled(60, journal_file_size=3000)
    *full, last = sorted(world.memory.data)
    assert len(full) > 2 and all(find_footer(world.memory.data[path]) for path in full)
    again = world.again()
    assert held(again) == held(world) and reported(again) == []


def test_a_torn_write_into_zeros_is_cut_off_with_them(caplog):
    world = filled()
    data = world.memory.data[FIRST]
    spans = [(begin - 8, end) for begin, end in SegmentScan(data)]
    before, (begin, end) = spans[-2], spans[-1]
    expected = held(world)
    for at in range(begin, end):
        for torn in (
            data[:at] + bytes(len(data) - at),  # its end is missing
            data[:begin] + bytes(at - begin) + data[at:],  # its beginning is missing
        ):
            again = world.again(MemoryFiles({FIRST: torn}))
            whole = torn == data
            assert held(again) == (expected if whole else expected[:-1]), at
            assert reported(again) == []
            size = before[1] if not whole else end
            assert again.memory.data[FIRST][:size] == data[:size]
            again.keep("q", b"next")
            assert held(again.again())[-1] == b"next"


@pytest.mark.parametrize("seed", range(20))
def test_power_failure_while_a_prefilled_segment_is_written(seed):
    world = filled(3, journal_file_size=1500)
    random = Random(seed)
    confirmed = []
    failing = random.randrange(5, 60)
    count = len(world.memory.operations)

    class PowerLoss(BaseException):
        pass

    def fault(operation, path):
        if len(world.memory.operations) - count > failing:
            raise PowerLoss

    world.memory.fault = fault
    try:
        for number in range(30):
            body = b"n%02d" % number
            world.durable("q", body)
            heard = world.synced()
            world.turn()
            if heard:
                confirmed.append(body)
    except PowerLoss:
        pass
    again = world.crashed(random)
    assert set(confirmed) <= set(held(again))
    assert held(again) == held(again.again())


def test_a_sealed_segment_whose_zeros_came_back():
    """The footer was on disk before the truncation: the next start completes it."""
    world = filled(60, journal_file_size=3000)
    path = sorted(world.memory.data)[1]
    whole = world.memory.data[path]
    again = world.again(MemoryFiles(world.memory.data | {path: whole + bytes(700)}))
    assert held(again) == held(world) and reported(again) == []
    assert again.memory.data[path] == whole
