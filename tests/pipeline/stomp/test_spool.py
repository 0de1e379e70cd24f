"""The spool: what was synced survives whatever happens to the end of its last file."""

import os
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.pipeline.stomp.source import (
    HEADER,
    Position,
    SegmentRange,
    Spool,
    SpoolError,
    payload_spans,
    read_range,
    segment_path,
    segments,
)

from ...property.profile import examples

payloads = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6)
groups = st.lists(payloads, min_size=1, max_size=8)


def records(spool, start=None, end=None):
    """The payloads between two positions, of all where none are given."""
    found = []
    for piece in spool.pieces(start or spool.head, end or spool.tail):
        data = read_range(spool.directory, piece)
        found += [data[begin:stop] for begin, stop in payload_spans(data, piece, spool.directory)]
    return found


@examples(30)
@given(groups, st.integers(1, 200), st.data())
def test_a_crash_loses_nothing_that_was_synced(groups, segment, data):
    """The last group is on its way when the machine stops: any part of it may be in the file."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        synced = [payload for group in groups[:-1] for payload in group]
        with Spool(directory, segment=segment) as spool:
            for group in groups[:-1]:
                spool.append(group)
            tail = spool.tail
        with Spool(
            directory
        ) as spool:  # so large that the last group can be cut in the file in which it begins
            spool.append(groups[-1])
        path = segment_path(directory, tail.segment)
        cut = data.draw(st.integers(tail.offset, path.stat().st_size), "cut")
        os.truncate(path, cut)
        with Spool(directory, segment=segment) as spool:
            found = records(spool)
            assert found[: len(synced)] == synced
            rest = found[len(synced) :]
            assert rest == groups[-1][: len(rest)]
            assert spool.tail >= tail
            spool.append([b"more"])
            assert records(spool) == [*found, b"more"]


@examples(30)
@given(groups, st.data())
def test_rubbish_at_the_end_is_cut_off(groups, data):
    """Blocks of a file may be there without what was to be written to them."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        with Spool(directory) as spool:
            for group in groups:
                spool.append(group)
            tail = spool.tail
        rubbish = data.draw(st.one_of(st.just(bytes(50)), st.binary(min_size=1, max_size=50)), "rubbish")
        with open(segment_path(directory, 1), "ab") as file:
            file.write(rubbish)
        with Spool(directory) as spool:
            assert spool.tail == tail
            assert records(spool) == [payload for group in groups for payload in group]


@examples(30)
@given(groups, st.integers(1, 100), st.integers(1, 10), st.integers(1, 200))
def test_walking_in_steps(groups, segment, rows, size):
    every = [payload for group in groups for payload in group]
    with TemporaryDirectory() as name, Spool(Path(name), segment=segment) as spool:
        for group in groups:
            spool.append(group)
        at, found = spool.head, []
        while records(spool, at):
            end = spool.after(at, spool.tail, rows, size)
            part = records(spool, at, end)
            assert 1 <= len(part) <= rows
            assert len(part) == 1 or spool.bytes_between(at, end) <= size
            found += part
            at = end
        assert found == every
        assert spool.after(spool.head, spool.tail, None, None) == spool.tail


def test_what_is_committed_goes(tmp_path):
    with Spool(tmp_path, segment=20) as spool:
        ends = [spool.append([b"x" * 30]) for _ in range(4)]
        assert segments(tmp_path) == [1, 2, 3, 4, 5]
        spool.unlink_before(ends[1])
        assert segments(tmp_path) == [3, 4, 5] and spool.head == ends[1]
        spool.unlink_before(spool.tail)
        assert segments(tmp_path) == [5] and records(spool) == []
        with pytest.raises(
            SpoolError, match="segment 3 of the spool .* is missing, but the checkpoint needs it"
        ):
            spool.check(ends[1])
        with pytest.raises(SpoolError, match="segment 3"):
            spool.pieces(ends[1], ends[2])
    with Spool(tmp_path) as spool:
        assert spool.tail == Position(5, len(HEADER))
        with pytest.raises(SpoolError, match="ends before the position of the checkpoint"):
            spool.check(Position(9, 16))
        with pytest.raises(SpoolError, match="ends at 16, before 99"):
            spool.pieces(spool.tail, Position(5, 99))


def test_one_at_a_time(tmp_path):
    with Spool(tmp_path) as spool:
        with pytest.raises(SpoolError, match="is in use by another query"):
            Spool(tmp_path, patience=0)
        leaving = threading.Timer(0.2, spool.close)
        leaving.start()
        Spool(tmp_path, patience=30).close()
        leaving.join()


def test_damage_is_told(tmp_path):
    with Spool(tmp_path) as spool:
        spool.append([b"first", b"second"])
        end = spool.tail.offset
    path = segment_path(tmp_path, 1)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    piece = SegmentRange(1, len(HEADER), end)
    with pytest.raises(SpoolError, match=f"is damaged at {len(HEADER) + 13}: messages in it are lost"):
        payload_spans(read_range(tmp_path, piece), piece, tmp_path)
    path.write_bytes(b"something else altogether")
    with pytest.raises(SpoolError, match="is not a spool segment"):
        Spool(tmp_path)
    path.unlink()
    with pytest.raises(SpoolError, match="is missing"):
        read_range(tmp_path, piece)
