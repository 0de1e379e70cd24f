"""The second reader of the replicated log: its files, and the writers that it finds out."""

import pytest

from stompring.replication.log import FileChange, Operation, encode_entry

from . import stream
from .stream import BEAT, CLAIM, MOVE, REMOVE, TRUNCATE, WHOLE, WRITE, Entry, Writers


def _entry(sequence, operation, path="", at=0, data=b"", **more):
    return Entry(sequence, operation, more.get("writer", 1), more.get("number", sequence), at, path, "", data)


def test_it_reads_what_the_product_writes():
    change = FileChange(Operation.MOVE, "journal/ä", 7, b"data", "retention/ä", serial=8)
    entry = stream.decode(3, encode_entry(5, 6, change))
    assert entry == Entry(3, MOVE, 5, 6, 7, "journal/ä", "retention/ä", b"data")
    assert [operation.value for operation in Operation] == list(range(1, 11))


def test_entries_make_files():
    files = stream.files_of(
        [
            _entry(1, WRITE, "journal/a", 2, b"cd"),
            _entry(2, WRITE, "journal/a", 0, b"ab"),
            _entry(3, WHOLE, "identity", 0, b"one"),
            _entry(4, WRITE, "journal/b", 0, b"gone"),
            _entry(5, REMOVE, "journal/b", 1),
            _entry(6, WRITE, "paging/c", 0, b"12345"),
            _entry(7, TRUNCATE, "paging/c", 3),
            _entry(8, WHOLE, "identity", 0, b"2"),
            _entry(9, BEAT),
        ]
    )
    assert files == {"journal/a": b"abcd", "identity": b"2", "paging/c": b"123"}


def test_differences_say_where():
    found = stream.differences({"a": b"123", "b": b""}, {"a": b"1x3", "c": b"1"}, ("one", "two"))
    assert found == [
        "a has 3 bytes in one, 3 in two; they differ from 1 on",
        "b is in one (0 bytes), not in two",
        "c is in two (1 bytes), not in one",
    ]


def _faults(*entries):
    writers = Writers()
    writers.check(entries)
    return writers.faults


def test_a_writer_may_follow_another():
    assert not _faults(
        _entry(1, CLAIM, writer=1, number=1),
        _entry(2, WRITE, writer=1, number=2),
        _entry(5, WRITE, writer=1, number=5),  # those between are purged
        _entry(6, CLAIM, writer=2, number=1),
        _entry(7, WRITE, writer=2, number=2),
    )


@pytest.mark.parametrize(
    "entries, fault",
    [
        ([(CLAIM, 1, 1), (CLAIM, 2, 1), (WRITE, 1, 2)], "entry 3: writer 1 wrote after it was fenced"),
        (
            [(CLAIM, 1, 1), (WRITE, 1, 2), (WRITE, 1, 2)],
            "entry 3 is number 2 of its writer; entry 2 was number 2",
        ),
        ([(CLAIM, 1, 1), (WRITE, 2, 1)], "entry 2 is the first of its writer, and claims nothing"),
    ],
)
def test_a_wrong_writer_is_found_out(entries, fault):
    made = [
        _entry(at, operation, writer=by, number=number)
        for at, (operation, by, number) in enumerate(entries, 1)
    ]
    assert _faults(*made) == [fault]
