"""Which files there are, which of them are read, and where they are when they have moved."""

import logging
from pathlib import Path
from zlib import crc32

import pytest

pytest.importorskip("pyarrow")

from stompring.errors import StoreError
from stompring.pipeline import files as files_module
from stompring.pipeline.files import DataFiles, Range, read_files, task_ranges
from stompring.pipeline.options import OptionError, Options, TableScan
from stompring.store.segment import HEADER, find_footer

from . import reference_decoder
from .broker_files import broker_files, write_files

FILES = broker_files()


@pytest.fixture
def root(tmp_path):
    return write_files(tmp_path, FILES)


def listed(root, **options):
    asked = Options.of({"path": str(root), **options})
    return [file.name for file in DataFiles.of(asked).listed(asked.wanted)]


def read(root, *names):
    """The rows of files."""
    ranges = [Range(name) for name in names]
    found = read_files(DataFiles(str(root)), ranges, TableScan())
    return [row for batch in found for row in batch.to_pylist()]


#: Their bytes by the names that are read.
DATA = {name.removeprefix("retention/"): data for name, data in FILES.items()}


def test_all_files_of_a_table(root):
    assert listed(root) == sorted(name for name in DATA if not name.endswith(".samples"))
    assert listed(root, table="events") == listed(root)
    assert listed(root, table="samples") == [name for name in DATA if name.endswith(".samples")]


def test_files_of_an_older_format_are_refused(root):
    path = next(root.rglob("*.page"))
    data = bytearray(path.read_bytes())
    data[8:16] = b"\2\0" + data[10:12] + bytes(4)
    data[12:16] = crc32(data[: HEADER.size]).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(
        StoreError, match="format 2 is of an earlier version .* 'stompring data export'"
    ) as caught:
        read(root, *listed(root))
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
    names = listed(root)
    for name in names:
        if (root / name).exists():
            target = root / "retention" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (root / name).rename(target)
    assert len(read(root, *names)) == sum(len(reference_decoder.rows(data)) for data in FILES.values())


def test_deleted_meanwhile(root, caplog):
    names = listed(root)
    (root / names[0]).unlink(missing_ok=True)
    (root / "retention" / names[0]).unlink(missing_ok=True)
    with caplog.at_level(logging.WARNING):
        assert read(root, *names[1:])
        assert not caplog.records
        assert not read(root, names[0])
    assert f"{names[0]}: deleted after the files were listed" in caplog.text


def test_damage_is_told_in_the_log(root, caplog):
    name = next(n for n, data in FILES.items() if n.endswith(".journal") and find_footer(data))
    path = root / name
    broken = bytearray(path.read_bytes())
    broken[60] ^= 1
    path.write_bytes(broken)
    short = name.removeprefix("retention/")
    with caplog.at_level(logging.WARNING):
        read(root, short)
    assert f"{short} at" in caplog.text and "; skipped" in caplog.text


def test_what_cannot_be_read(root):
    (root / "journal" / "000000902.journal").mkdir(parents=True)
    with pytest.raises(StoreError, match="000000902"):
        read(root, "journal/000000902.journal")


def test_no_directory(tmp_path):
    with pytest.raises(OptionError, match="option path: .* is not a directory"):
        listed(tmp_path / "none")
    assert listed(tmp_path) == []


def test_files_are_packed():
    assert task_ranges([]) == []
    some = [(Range(str(number)), 4) for number in range(7)]
    names = [[one.name for one in part] for part in task_ranges(some, 8)]
    assert names == [["0", "1"], ["2", "3"], ["4", "5"], ["6"]]
    assert [len(part) for part in task_ranges(some, 100)] == [7]
    assert task_ranges([(Range("large"), 1 << 30)]) == [(Range("large"),)]
    assert files_module.PARTITION >= 32 << 20
