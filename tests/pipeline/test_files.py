"""Which files there are, which of them are read, and where they are when they have moved."""

import logging
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from stompring.errors import StoreError
from stompring.store.segment import find_footer

from ..store.decoded_files import of_format_2
from . import reference_decoder
from .broker_files import broker_files, write_files
from .spark_formats import reader, rows_of, table

FILES = broker_files()


@pytest.fixture
def root(tmp_path):
    return write_files(tmp_path, FILES)


def tasks(root, **options):
    """The names of the files that each task of a query reads."""
    return [[one.name for one in part.value] for part in reader(root, **options).partitions()]


def listed(root, **options):
    return [name for part in tasks(root, **options) for name in part]


class Planned:
    """A query of which the files are listed, and not yet read."""

    def __init__(self, root):
        self.reader = reader(root)
        self.parts = self.reader.partitions()

    def rows(self):
        return rows_of(self.reader, self.parts)


#: Their bytes by the names that are read.
DATA = {name.removeprefix("retention/"): data for name, data in FILES.items()}


def test_all_files_of_a_table(root):
    assert listed(root) == sorted(name for name in DATA if not name.endswith(".samples"))
    assert listed(root, table="events") == listed(root)
    assert listed(root, table="samples") == [name for name in DATA if name.endswith(".samples")]


def test_files_of_an_older_format_are_refused(root):
    path = next(root.rglob("*.page"))
    of_format_2(path)
    with pytest.raises(
        StoreError, match="format 2 is of an earlier version .* 'stompring data export'"
    ) as caught:
        table(root)
    assert path.name in str(caught.value)


def test_what_is_none_of_them(root):
    before = listed(root)
    for name in (
        "journal/000000900.journal.damaged",
        "journal/000000900.journal.new",
        "paging/1/address.txt",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(bytes(100))
    (root / "journal" / "000000901.journal").write_bytes(b"")
    assert listed(root) == before


def test_a_file_that_is_in_both_places_is_read_once(root):
    name = next(name for name in FILES if name.startswith("journal/"))
    (root / "retention" / name).parent.mkdir(parents=True, exist_ok=True)
    (root / "retention" / name).write_bytes(FILES[name])
    assert listed(root).count(name) == 1


def test_times_leave_out_sealed_files(root):
    footers = {name: find_footer(data) for name, data in sorted(DATA.items()) if name.endswith(".journal")}
    name, greatest = [(name, each.greatest_timestamp) for name, each in footers.items() if each][2]
    since = str(greatest + 1)
    found = listed(root, since=since)
    left_out = {*listed(root)} - {*found}
    assert name in left_out and found
    moment = reference_decoder.time(greatest + 1)
    assert all(row["timestamp"] < moment for each in left_out for row in reference_decoder.rows(DATA[each]))
    assert listed(root, since=since, table="events") == listed(root, table="events")


def test_pages_of_other_addresses_are_left_out(root):
    page = next(Path(name) for name in FILES if name.startswith("paging/"))
    assert str(page) in listed(root, addresses="elsewhere")  # nobody says of which address it is
    (root / page.parent / "address.txt").write_text("a\n")
    assert str(page) not in listed(root, addresses="elsewhere")
    assert str(page) in listed(root, addresses="a")


def test_moved_meanwhile(root):
    planned = Planned(root)
    for name in listed(root):
        if (root / name).exists():
            target = root / "retention" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (root / name).rename(target)
    assert len(planned.rows()) == sum(len(reference_decoder.rows(data)) for data in FILES.values())


def test_deleted_meanwhile(root, caplog):
    name, planned = listed(root)[0], Planned(root)
    with caplog.at_level(logging.WARNING):
        every = planned.rows()
        assert not caplog.records
        for folder in (root, root / "retention"):
            (folder / name).unlink(missing_ok=True)
        assert len(planned.rows()) == len(every) - len(reference_decoder.rows(DATA[name])) > 0
    assert f"{name}: deleted after the files were listed" in caplog.text


def test_damage_is_told_in_the_log(root, caplog):
    name = next(n for n, data in FILES.items() if n.endswith(".journal") and find_footer(data))
    path = root / name
    broken = bytearray(path.read_bytes())
    broken[60] ^= 1
    path.write_bytes(broken)
    with caplog.at_level(logging.WARNING):
        Planned(root).rows()
    assert f"{name.removeprefix('retention/')} at" in caplog.text and "; skipped" in caplog.text


def test_what_cannot_be_read(root):
    name, planned = listed(root)[0], Planned(root)
    for path in (root / name, root / "retention" / name):
        path.unlink(missing_ok=True)
    (root / name).mkdir(parents=True)
    with pytest.raises(StoreError, match=Path(name).stem):
        planned.rows()


def test_no_directory(tmp_path):
    with pytest.raises(ValueError, match="option path: .* is not a directory"):
        listed(tmp_path / "none")
    (tmp_path / "schema-version").touch()
    assert listed(tmp_path) == []


def test_files_are_packed(tmp_path):
    """Small ones together: a task has tens of megabytes, or a file that is larger."""
    (tmp_path / "journal").mkdir()
    for number, size in enumerate((20, 20, 20, 20, 1, 100, 1), 1):
        with open(tmp_path / "journal" / f"{number:09d}.journal", "wb") as file:
            file.truncate(size << 20)
    numbers = [[int(Path(name).stem) for name in names] for names in tasks(tmp_path)]
    assert numbers == [[1, 2], [3, 4], [5, 6], [7]]
