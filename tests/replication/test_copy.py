"""The local copy of a log: its marker, when it is discarded, and entries that come again or are missing."""

import json
import logging
import os
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.replication.copy import MARKER_BYTES, LocalCopy, Places
from stompring.replication.log import CONTROL, FileChange, LogUnavailable, Operation, UnsafeLog
from stompring.settings.machine import DataDirectory
from stompring.store.datadir import MARKER

from ..property.profile import examples
from .directories import contents, data_directory, follow
from .memory_log import MemoryEngine, MemoryLog


class Follower:
    """A standby with a clock of its own."""

    def __init__(self, engine, root, *, boot_id="boot", retention=True):
        self.log = MemoryLog(engine)
        self.log.connect()
        self.root = root
        self.now = 0.0
        self.copy = LocalCopy(
            data_directory(root, retention=retention), clock=lambda: self.now, boot_id=boot_id
        )
        self.copy.open(self.log)

    def follow(self, most=None):
        follow(self.copy, self.log, most=most)
        return self

    @property
    def marker(self):
        return json.loads((self.root / MARKER).read_text())

    @property
    def contents(self):
        return contents(self.root, retention=True)


@pytest.fixture
def engine():
    return MemoryEngine()


@pytest.fixture
def writer(engine):
    log = MemoryLog(engine)
    log.connect()
    log.claim(1, 0, FileChange(Operation.CLAIM))
    return log


@pytest.fixture
def start(engine, tmp_path):
    """A standby of the test's directory is started."""
    return partial(Follower, engine, tmp_path)


@pytest.fixture
def ended(start, writer):
    """The directory of a standby that has read one file and was stopped."""
    writer.append([written()])
    start().follow().copy.close()


def written(name="journal/1.journal", data=b"x", at=0):
    return FileChange(Operation.WRITE, name, at, data)


def removed(number, name="journal/1.journal"):
    return FileChange(Operation.REMOVE, name, number)


def moved(name, number, size):
    return FileChange(Operation.MOVE, name, number, b"%d" % size, f"retention/{name}")


# ---- the marker


def test_copy_goes_on_behind_its_marker(ended, engine, tmp_path, start):
    assert start().copy.sequence == engine.last
    assert contents(tmp_path) == {"journal/1.journal": b"x"}


def test_marker_is_written_once_a_second_or_after_many_bytes(writer, start, monkeypatch):
    follower = start().follow()
    follower.now = 0.9
    writer.append([written()])
    assert follower.follow().marker["sequence"] == 0
    follower.now = 1.0
    writer.append([written()])
    assert follower.follow().marker["sequence"] == 3
    assert MARKER_BYTES == 64 * 1024 * 1024
    monkeypatch.setattr("stompring.replication.copy.MARKER_BYTES", 100)
    writer.append([written("journal/1.journal", bytes(100))])
    assert follower.follow().marker["sequence"] == 4


def test_copy_without_a_clean_end_is_used_again_until_the_machine_restarts(writer, tmp_path, start, caplog):
    writer.append([written()])
    start().follow().copy.save()
    assert start().copy.sequence == 2
    with caplog.at_level(logging.INFO):
        other = start(boot_id="another boot")
    assert other.copy.sequence == 0
    assert contents(tmp_path) == {}
    assert "the machine restarted" in caplog.text
    other.follow().copy.close()
    assert start(boot_id="a third boot").copy.sequence == 2


def test_clean_marker_is_not_clean_any_more_once_the_copy_is_open(ended, start):
    assert start().marker["clean"] is False
    assert start(boot_id="another boot").copy.sequence == 0


def test_machine_without_a_boot_id_uses_only_a_clean_copy(writer, start):
    writer.append([written()])
    start(boot_id="").follow().copy.save()
    second = start(boot_id="")
    assert second.copy.sequence == 0
    second.follow().copy.close()
    assert start(boot_id="").copy.sequence == 2


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"{}", b'{"format": "1"}', b'{"format": 3, "sequence": -1}']
)
def test_copy_with_a_damaged_marker_is_discarded(ended, tmp_path, start, text):
    (tmp_path / "journal/stale").write_bytes(b"x")
    (tmp_path / MARKER).write_bytes(text)
    again = start()
    assert again.copy.sequence == 0
    assert again.follow().contents == {"journal/1.journal": b"x"}


@pytest.mark.parametrize("version, advice", [(4, "upgrade stompring"), (2, "'stompring data export'")])
def test_marker_of_another_version_is_refused(tmp_path, start, version, advice):
    start().follow().copy.close()
    marker = json.loads((tmp_path / MARKER).read_text())
    (tmp_path / MARKER).write_text(json.dumps(marker | {"format": version}))
    with pytest.raises(UnsafeLog, match=f"has format {version}.*{advice}"):
        start()


def test_directory_with_messages_and_without_a_marker_is_never_touched(tmp_path, start):
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal/000000001.journal").write_bytes(b"messages")
    with pytest.raises(UnsafeLog, match="stompring ha init"):
        start()
    assert contents(tmp_path) == {"journal/000000001.journal": b"messages"}
    assert not (tmp_path / MARKER).exists()


def test_directory_that_a_broker_has_only_just_begun_becomes_a_copy(tmp_path, start, writer):
    (tmp_path / "schema-version").write_bytes(b"3\n")
    (tmp_path / "broker.lock").write_bytes(b"1\n")
    start().follow()
    assert contents(tmp_path) == {}
    assert (tmp_path / "broker.lock").exists()


def test_copy_of_another_log_is_set_aside(engine, writer, tmp_path, start, caplog):
    writer.append([written(), written("paging/1/1.page"), written("identity", b"abc")])
    start().follow().copy.close()
    engine.recreate()
    writer = MemoryLog(engine)
    writer.claim(2, 0, FileChange(Operation.CLAIM))
    assert start().copy.sequence == 0
    assert contents(tmp_path) == {}
    assert (tmp_path / "journal.discarded/1.journal").read_bytes() == b"x"
    assert (tmp_path / "paging.discarded/1/1.page").read_bytes() == b"x"
    assert (tmp_path / "identity.discarded").read_bytes() == b"abc"
    assert "set aside as journal.discarded, paging.discarded, identity.discarded" in caplog.text


def test_empty_log_is_refused_while_the_directory_is_a_copy_of_another(ended, engine, tmp_path, start):
    engine.recreate()
    with pytest.raises(UnsafeLog, match="--from-data"):
        start()
    assert contents(tmp_path) == {"journal/1.journal": b"x"}


def test_log_that_has_lost_entries_is_refused_after_some_time(engine, writer, tmp_path, start):
    writer.append([written(), written("journal/2.journal")])
    start().follow().copy.close()
    shorter = MemoryLog(engine.cut_off(2))
    now = [0.0]
    copy = LocalCopy(data_directory(tmp_path), clock=lambda: now[0], boot_id="boot")
    for now[0] in (0.0, 10.0):  # a new leader may have to catch up
        with pytest.raises(LogUnavailable, match="the log ends at entry 2"):
            copy.open(shorter)
    now[0] = 10.1
    with pytest.raises(UnsafeLog, match="the engine has lost entries"):
        copy.open(shorter)
    assert contents(tmp_path) == {"journal/1.journal": b"x", "journal/2.journal": b"x"}


def test_copy_that_was_discarded_half_way_is_discarded_again(writer, tmp_path, start, monkeypatch):
    writer.append([written(), written("journal/2.journal")])
    start().follow().copy.close()
    (tmp_path / "journal/stale").write_bytes(b"x")
    unlink = Path.unlink

    def fail(path, missing_ok=False):
        if path.name == "stale":
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    marker = json.loads((tmp_path / MARKER).read_text())
    (tmp_path / MARKER).write_text(json.dumps(marker | {"clean": False, "boot": "another"}))
    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(KeyboardInterrupt):
        start()
    monkeypatch.undo()
    assert start().follow().contents == {
        "journal/1.journal": b"x",
        "journal/2.journal": b"x",
    }


# ---- entries


def test_entries_that_are_applied_again_change_nothing(engine, writer, tmp_path):
    writer.append(
        [
            written("journal/1.journal", b"12345"),
            FileChange(Operation.TRUNCATE, "journal/1.journal", 2),
            written("journal/1.journal", b"x", 4),
            FileChange(Operation.WHOLE, "identity", 0, b"longer"),
            FileChange(Operation.WHOLE, "identity", 0, b"abc"),
            written("paging/1/1.page", b"page"),
            removed(1, "paging/1/1.page"),
            written("journal/2.journal", b"first "),
            written("journal/2.journal", b"second", 6),
            moved("journal/2.journal", 2, 12),
        ]
    )
    expected = {
        "journal/1.journal": b"12\0\0x",
        "identity": b"abc",
        "retention/journal/2.journal": b"first second",
    }
    for entry in range(engine.last):
        root = tmp_path / str(entry)
        follower = Follower(engine, root).follow(entry + 1)
        follower.copy.save()
        follower.follow()  # and killed, before the marker was written again
        again = Follower(engine, root)
        assert again.copy.sequence <= entry + 1
        assert again.follow().contents == expected
        assert not (root / "paging/1").exists()


def test_file_of_which_entries_were_purged_is_not_retained(engine, writer, tmp_path, start):
    writer.append([written("journal/1.journal", b"first "), written("journal/1.journal", b"second", 6)])
    follower = start().follow(2)
    assert contents(tmp_path) == {"journal/1.journal": b"first "}
    writer.append([moved("journal/1.journal", 1, 12)])
    writer.purge("journal/1.journal", engine.last)
    assert follower.follow().contents == {}


def test_broker_without_retention_deletes_what_others_move(writer, tmp_path, start):
    writer.append([written(), moved("journal/1.journal", 1, 1)])
    writer.append([removed(2, "retention/journal/1.journal")])
    start(retention=False).follow()
    assert contents(tmp_path, retention=True) == {}


def test_copy_begins_anew_where_control_entries_are_missing(engine, writer, tmp_path, start, caplog):
    writer.append([written(), written("journal/2.journal")])
    follower = start().follow()
    writer.append([removed(1), removed(2, "journal/2.journal"), written("journal/3.journal")])
    writer.purge("journal/1.journal", engine.last)
    writer.purge(CONTROL, 4)  # the first of the two
    with caplog.at_level(logging.INFO):
        follower.follow()
    assert "control entries 1 to 1 were purged" in caplog.text
    assert contents(tmp_path) == {"journal/3.journal": b"x"}


def test_copy_begins_anew_where_control_entries_go_while_it_is_read(engine, writer, start):
    writer.append([written(), written("journal/2.journal"), removed(1, "journal/9.journal")])
    follower = start().follow(2)
    writer.append([removed(2), removed(3, "journal/2.journal")])
    writer.purge("journal/1.journal", engine.last)
    writer.purge(CONTROL, engine.last - 1)
    assert follower.follow().contents == {}


def test_copy_begins_anew_where_the_first_control_entry_goes_while_it_is_read(writer, start):
    writer.append([written(), removed(1), removed(2, "journal/2.journal")])
    follower = start().follow(2)
    writer.purge("journal/1.journal", 2)
    writer.purge(CONTROL, 3)
    assert follower.follow().contents == {}


def test_new_copy_begins_with_the_first_control_entry_there_is(engine, writer, tmp_path, start, caplog):
    for number in range(1, 6):
        writer.append([written(f"journal/{number}.journal"), removed(number, f"journal/{number}.journal")])
        writer.purge(f"journal/{number}.journal", engine.last)
    writer.purge(CONTROL, engine.last - 3)
    writer.append([written("journal/6.journal")])
    with caplog.at_level(logging.INFO):
        follower = start().follow()
    assert follower.copy.control == 5
    assert contents(tmp_path) == {"journal/6.journal": b"x"}
    assert "discarding" not in caplog.text


def test_copy_that_cannot_be_begun_anew_is_begun_at_the_next_try(writer, start):
    writer.append([written()])
    follower = start().follow()
    writer.append([removed(1), removed(2, "journal/2.journal"), written("journal/3.journal")])
    writer.purge("journal/1.journal", 3)
    writer.purge(CONTROL, 3)
    entries = follower.log.read(follower.copy.sequence, 0)
    follower.log.connected = False
    with pytest.raises(LogUnavailable):
        follower.copy.apply(entries)
    follower.log.connected = True
    assert follower.follow().contents == {"journal/3.journal": b"x"}


def test_full_disk_of_a_standby_is_overcome(writer, start, monkeypatch):
    follower = start().follow()
    writer.append([written("journal/1.journal", b"first"), written("journal/2.journal", b"second")])
    pwrite, left = os.pwrite, [1]

    def full(descriptor, data, at):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return pwrite(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        follower.follow()
    assert follower.copy.sequence == 2
    monkeypatch.undo()
    assert follower.follow().contents == {"journal/1.journal": b"first", "journal/2.journal": b"second"}


def test_few_files_are_kept_open(writer, tmp_path, start):
    before = len(os.listdir("/proc/self/fd"))
    writer.append([written(f"journal/{number}.journal") for number in range(200)])
    follower = start().follow()
    assert len(os.listdir("/proc/self/fd")) <= before + 70
    follower.copy.close()
    assert len(os.listdir("/proc/self/fd")) <= before
    assert len(contents(tmp_path)) == 200


def test_written_file_that_is_removed_and_made_again_is_another_one(writer, start):
    writer.append([written("paging/1/address", b"long name")])
    follower = start().follow()
    writer.append([removed(1, "paging/1/address"), written("paging/1/address", b"name")])
    assert follower.follow().contents == {"paging/1/address": b"name"}


# ---- paths


@pytest.mark.parametrize(
    "key",
    ["", "journal", "journal/", "/etc/passwd", "journal/../../x", "journal//x", "paging/./x", "x", "a/b"],
)
def test_path_outside_a_data_directory_is_refused(tmp_path, key):
    with pytest.raises(UnsafeLog):
        Places(data_directory(tmp_path)).path(key)


@given(
    st.sampled_from(["journal", "paging", "retention"]),
    st.lists(st.from_regex(r"[a-z0-9.]{1,9}", fullmatch=True)),
)
@examples(50)
def test_paths_and_keys_name_the_same_files(first, rest):
    key = "/".join([first, *(part for part in rest if part.strip(".")), "x"])
    root = Path("/data")
    places = Places(DataDirectory(root, root / "journal", root / "elsewhere/paging", root / "journal/kept"))
    path = places.path(key)
    assert path is not None
    assert places.key(path) == key.replace("journal/kept/", "retention/", 1)
