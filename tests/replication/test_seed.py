"""The upload of a data directory to a log."""

import os

import pytest

from stompring.errors import StoreError
from stompring.replication.engines import seed
from stompring.replication.log import MAX_ENTRY_DATA, Beat, LogFull, Operation, UnsafeLog, decode_beat
from stompring.store.datadir import check_version
from stompring.store.files import Files

from .directories import ActiveBroker, contents, data_directory, rebuilt
from .memory_log import DELAYED, FULL, LOST, UNANSWERED, MemoryEngine, MemoryLog

BEAT = Beat("stompring ha init", reason="stopped")


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "data"
    for name, data in {
        "identity": b"abc\n",
        "schema-version": b"3\n",
        "journal/000000001.journal": os.urandom(2 * MAX_ENTRY_DATA + 7),
        "journal/000000002.journal": b"",
        "paging/000000001/address.txt": b"a\n",
        "paging/000000001/000000001.page": os.urandom(100),
        "retention/journal/000000000.journal": b"retained",
        "broker.lock": b"1\n",
    }.items():
        Files().replace(root / name, data)
    return root


def client(engine):
    log = MemoryLog(engine)
    log.connect()
    return log


def test_uploaded_directory_is_what_a_standby_reads(root, tmp_path):
    engine, seen = MemoryEngine(), []
    before = contents(root)
    size = seed(client(engine), data_directory(root), BEAT, lambda done, total: seen.append((done, total)))
    assert size == sum(map(len, before.values()))
    assert rebuilt(engine, tmp_path / "standby") == before == contents(root)
    assert seen[-1] == (size, size)
    last = engine.entries()[-1].change
    assert last.operation is Operation.RELEASE and decode_beat(last.data).reason == "stopped"


def test_uploaded_directory_is_a_copy_of_the_log(root):
    engine = MemoryEngine()
    before = contents(root)
    seed(client(engine), data_directory(root), BEAT)
    active = ActiveBroker(engine, root)
    assert contents(root) == before
    assert active.copy.sequence == engine.last
    assert not list(root.glob("*.discarded"))


@pytest.mark.parametrize("version", [b"3\n", None])
def test_upload_without_an_end_is_a_directory_that_no_broker_starts_with(root, tmp_path, version):
    if version is None:
        (root / "schema-version").unlink()
    complete = MemoryEngine()
    seed(client(complete), data_directory(root), BEAT)
    for length in range(1, complete.last):
        standby = tmp_path / str(length)
        there = rebuilt(complete.cut_off(length), standby)
        if any(name.startswith(("journal", "paging")) for name in there) and length < complete.last - 1:
            with pytest.raises(StoreError, match="not a schema version"):
                check_version(Files(), standby / "schema-version")
    expected = contents(root)
    assert rebuilt(complete, tmp_path / "complete") == expected


@pytest.mark.parametrize("fault", [LOST, UNANSWERED, DELAYED])
def test_upload_goes_on_after_a_lost_answer(root, tmp_path, fault, monkeypatch):
    monkeypatch.setattr("stompring.replication.engines.sleep", lambda seconds: engine.deliver_delayed())
    engine = MemoryEngine()
    log = client(engine)
    log.faults.extend([None] + [None, fault] * 4)
    seed(log, data_directory(root), BEAT)
    assert rebuilt(engine, tmp_path / "standby") == contents(root)


def test_upload_to_a_full_log_fails(root):
    log = client(MemoryEngine())
    log.faults.extend([None, None, FULL])
    with pytest.raises(LogFull):
        seed(log, data_directory(root), BEAT)
    assert not (root / "replicated-log").exists()


def test_directory_without_messages_is_not_uploaded(tmp_path):
    engine = MemoryEngine()
    Files().replace(tmp_path / "schema-version", b"3\n")
    assert seed(client(engine), data_directory(tmp_path), BEAT) == 0
    assert engine.last == 0


def test_log_that_is_not_empty_takes_no_upload(root, tmp_path):
    engine = MemoryEngine()
    ActiveBroker(engine, tmp_path / "active")
    with pytest.raises(UnsafeLog, match="not empty"):
        seed(client(engine), data_directory(root), BEAT)
    assert engine.last == 1
