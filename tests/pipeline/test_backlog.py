"""Reading a directory step by step while it grows: every record once, in order, and a word about what was deleted."""

import shutil
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from hypothesis import given
from hypothesis import strategies as st

from stompring.pipeline.backlog import (
    DirectoryReplaced,
    Limit,
    MissingFiles,
    end_positions,
    ranges_between,
    start_positions,
)
from stompring.pipeline.files import DataFiles, Position, dump_positions, load_positions
from stompring.store.segment import HEADER

from ..property.profile import examples
from .growing_directory import FOLDERS, GrowingDirectory, interfering_files, records

ENDINGS = (".journal", ".page")
ALL = Limit()


@pytest.fixture
def world(tmp_path):
    return GrowingDirectory(tmp_path)


class Reader:
    """Reads what is new, a batch at a time."""

    def __init__(self, world):
        self.world = world
        self.files = interfering_files(world, iter(()))
        self.at = {}
        self.got = {folder: [] for folder in FOLDERS}
        self.lost = []
        self.planned = None

    def plan(self, limit=ALL, files=None, until=None):
        """What the next batch is; False where there is nothing new."""
        end = end_positions(files or self.files, ENDINGS, self.at, limit, until)
        assert load_positions(dump_positions(end)) == end
        assert all(end[folder] >= position for folder, position in self.at.items())
        if end == self.at:
            return False
        self.planned = self.at, end
        return True

    def carry_out(self, files=None):
        """Read what is planned."""
        assert self.planned is not None
        files = files or self.files
        begin, self.at = self.planned
        self.planned = None
        ranges, lost = ranges_between(files, ENDINGS, begin, self.at)
        self.lost += lost
        for one, size in ranges:
            assert size >= 0
            data = files.read(one.name)
            if data is not None:
                folder = one.name.rpartition("/")[0]
                self.got[folder] += records(data, one)
            else:
                self.lost.append(MissingFiles(one.name.rpartition("/")[0], number_of(one), number_of(one)))
        return [one for one, _ in ranges]

    def read(self, limit=ALL, until=None):
        """A whole batch."""
        return self.carry_out() if self.plan(limit, until=until) else []

    def read_all(self, limit=ALL, until=None):
        """Until nothing is left; returns in how many batches."""
        count = 0
        while self.read(limit, until):
            count += 1
            assert count < 10_000
        return count


def number_of(one):
    return int(Path(one.name).stem)


def grown(world, steps):
    """Letters: a record, torn record, new file, seal, retire, delete, of the journal; capital ones of paging/1."""
    names = {"a": "append", "t": "tear", "b": "begin", "s": "seal", "r": "retire", "d": "delete"}
    for letter in steps:
        world.do(names[letter.lower()], "paging/1" if letter.isupper() else "journal")


@pytest.mark.parametrize(
    "before, between, ranges",
    [
        ("aaa", "", []),
        ("aaa", "a", ["journal/1 from there"]),
        ("aaa", "b", ["journal/1 from there to the end"]),  # its footer, no record
        ("aaab", "a", ["journal/2"]),
        ("aaaba", "ba", ["journal/2 from there to the end", "journal/3"]),
        ("aaat", "", []),
        ("aaat", "a", ["journal/1 from there"]),
        ("AA", "BA", ["paging/1/1 from there to the end", "paging/1/2"]),
        ("AABA", "S", []),
        ("aabar", "ra", ["journal/2 from there"]),
        ("", "aA", ["journal/1", "paging/1/1"]),
    ],
)
def test_what_is_new(world, before, between, ranges):
    grown(world, before)
    reader = Reader(world)
    reader.read_all()
    grown(world, between)
    found = reader.read()
    shown = []
    for one in found:
        folder = one.name.rpartition("/")[0]
        from_there = " from there" if one.start else ""
        to_the_end = " to the end" if one.stop < 0 and one.start else ""
        shown.append(f"{folder}/{number_of(one)}{from_there}{to_the_end}")
    assert shown == ranges
    assert reader.read_all() == 0 and not reader.lost
    for folder in FOLDERS:
        torn = [file.ids[-1] for file in world.files[folder] if file.half]
        assert reader.got[folder] == [each for each in world.ids(folder) if each not in torn]


@pytest.mark.parametrize(
    "before, between, lost",
    [
        ("aba", "", []),
        ("aba", "rba", []),
        ("ababa", "dba", []),  # it was read
        ("aba", "bababaddda", ["files 2 to 3 of journal"]),  # the first one of them was read
        ("aba", "babadda", ["file 2 of journal"]),
        ("ABA", "BASSDBADD", ["file 2 of paging/1"]),
        ("ABABA", "SSDD", []),
    ],
)
def test_what_was_deleted(world, before, between, lost):
    grown(world, before)
    reader = Reader(world)
    reader.read_all()
    grown(world, between)
    reader.read_all()
    assert [str(each) for each in reader.lost] == lost


def test_files_with_nothing_in_them_are_no_gap(world):
    """A broker was killed as it had begun a file of samples: the next one has the number after it."""
    folder = world.root / "retention" / "samples"
    folder.mkdir(parents=True)
    for number, size in enumerate((100, HEADER.size, 0, 100), 1):
        (folder / f"{number:09d}.samples").write_bytes(bytes(size))
    files, begin = DataFiles(str(world.root)), {"samples": Position(1, 0)}
    ranges, lost = ranges_between(files, [".samples"], begin, {"samples": Position(5, 0)})
    assert not lost and [number_of(one) for one, _ in ranges] == [1, 4]


@pytest.mark.parametrize(
    "steps, ends",
    [("a", "ends with file 1, but was read up to 3"), ("ababa", "ends with file 3, but was")],
)
def test_another_directory(world, steps, ends):
    grown(world, "ababaaa")
    reader = Reader(world)
    reader.read_all()
    shutil.rmtree(world.root / "journal")
    grown(GrowingDirectory(world.root), steps)
    for limit in (Limit(), Limit(files=1)):
        with pytest.raises(
            DirectoryReplaced, match=f"journal {ends}.*: the data directory was replaced or recreated"
        ):
            reader.plan(limit)


@pytest.mark.parametrize(
    "limit, batches",
    [
        (Limit(), 1),
        (Limit(files=1), 4),
        (Limit(files=2), 2),
        (Limit(files=3), 2),
        (Limit(bytes=1), 4),
        (Limit(bytes=10_000), 1),
        (Limit(rows=1), 4),
        (Limit(rows=4), 2),
        (Limit(rows=1000), 1),
        (Limit(bytes=10_000, files=3, rows=1000), 2),
    ],
)
def test_limits(world, limit, batches):
    grown(world, "aabaabaaba")
    reader = Reader(world)
    assert reader.read_all(limit) == batches
    assert reader.got["journal"] == world.ids("journal")


def test_a_folder_that_always_has_something_holds_up_no_other(world):
    grown(world, "aAA")
    world.append("paging/2")
    reader = Reader(world)
    for _ in range(60):
        grown(world, "a")
        assert reader.read(Limit(files=1))
    assert all(reader.got.values())


def test_up_to_an_end_that_was_fixed(world):
    grown(world, "aabaAABA")
    reader = Reader(world)
    until = end_positions(reader.files, ENDINGS, {})
    expected = {folder: world.ids(folder) for folder in FOLDERS}
    grown(world, "aabababBABA")
    world.append("paging/2")  # of an address that was not there
    reader.read_all(Limit(files=1), until)
    assert reader.got == expected and reader.at == until
    reader.read_all()
    assert all(reader.got[folder] == world.ids(folder) for folder in FOLDERS)
    assert reader.at != until == end_positions(reader.files, ENDINGS, until, until=until)
    assert end_positions(reader.files, ENDINGS, reader.at, until=until) == reader.at  # it is behind already


def test_what_is_named_was_synced(world):
    grown(world, "aabaAABA")
    reader, synced = Reader(world), []
    reader.files.sync = synced.append
    found = reader.read()
    assert sorted(synced) == sorted(one.name for one in found) and len(found) == 4


def test_a_damaged_tail_is_not_read(world):
    grown(world, "aaaa")
    file = world.files["journal"][0]
    path = world.root / file.name
    broken = bytearray(path.read_bytes())
    broken[file.starts[2] + 20] ^= 1
    path.write_bytes(broken)
    reader = Reader(world)
    reader.read_all()
    assert reader.got["journal"] == file.ids[:2]
    assert reader.at["journal"] == Position(1, file.starts[2])


# ---- anything

steps = st.tuples(
    st.sampled_from(["append", "append", "append", "tear", "begin", "seal", "retire"]),
    st.sampled_from(sorted(FOLDERS)),
)
limits = st.one_of(
    st.just(Limit()),
    st.builds(Limit, st.integers(1, 2000)),
    st.builds(Limit, st.none(), st.integers(1, 3)),
    st.builds(Limit, st.none(), st.none(), st.integers(1, 8)),
)


@examples(60)
@given(
    st.lists(st.tuples(st.lists(steps, max_size=8), limits, st.lists(steps, max_size=12)), max_size=8),
    st.lists(steps, max_size=6),
)
def test_every_record_once_and_in_order(rounds, between):
    """Whatever happens between two calls of the system, and between planning a batch and reading it."""
    with tempfile.TemporaryDirectory() as directory:
        world = GrowingDirectory(Path(directory))
        reader = Reader(world)
        for before, limit, meddling in rounds:
            for step in before:
                world.do(*step)
            files = interfering_files(world, iter(meddling))
            if reader.plan(limit, files):
                for step in between:
                    world.do(*step)
                reader.carry_out(files)
        world.finish()
        reader.read_all()
        assert reader.lost == []
        assert {folder: reader.got[folder] for folder in FOLDERS} == {f: world.ids(f) for f in FOLDERS}


@examples(60)
@given(
    st.lists(
        st.tuples(
            st.lists(
                st.tuples(
                    st.sampled_from(["append", "append", "begin", "retire", "delete"]), st.just("journal")
                ),
                max_size=8,
            ),
            limits,
            st.lists(st.just(("delete", "journal")), max_size=4),
        ),
        max_size=10,
    )
)
def test_what_is_missing_is_told(rounds):
    """And nothing else. Files that were deleted before anything was read are none of them."""
    with tempfile.TemporaryDirectory() as directory:
        world = GrowingDirectory(Path(directory))
        world.append("journal")
        reader = Reader(world)
        reader.at = start_positions(reader.files, ENDINGS)
        for before, limit, meddling in rounds:
            for step in before:
                world.do(*step)
            files = interfering_files(world, iter(meddling))
            if reader.plan(limit, files):
                reader.carry_out(files)
        world.append("journal")
        reader.read_all()
        told = {number for each in reader.lost for number in range(each.first, each.last + 1)}
        got = reader.got["journal"]
        assert got == sorted(set(got))
        for file in world.files["journal"]:
            if not set(file.ids) <= set(got):
                assert file.deleted and file.number in told
            elif not file.deleted:
                assert file.number not in told
