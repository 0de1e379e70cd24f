"""Whose a data directory is, and which version wrote it."""

import fcntl
import os
import socket
import subprocess
import sys
from errno import EBADF, EINVAL, ENOLCK, EOPNOTSUPP
from pathlib import Path
from stat import S_ISDIR

import pytest

from stompring.errors import StoreError
from stompring.replication.engines import INCOMPLETE
from stompring.store.datadir import DataBusy, DataLock, is_locked, weak_locks
from stompring.store.files import Files

HOLDER = """
import sys
from pathlib import Path
from stompring.store.datadir import DataLock
lock = DataLock(Path(sys.argv[1]))
print("taken", flush=True)
sys.stdin.read()
"""


def test_lock_creates_the_directory_and_can_be_released(tmp_path):
    root = tmp_path / "some" / "data"
    lock = DataLock(root)
    assert (root / "broker.lock").read_text() == f"{os.getpid()}\n{socket.gethostname()}\n"
    assert (root / "schema-version").read_text() == "3\n"
    lock.release()
    lock.release()
    DataLock(root).release()


def test_another_process_has_it(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert holder.stdin is not None and holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"taken\n"
        with pytest.raises(StoreError, match=f"in use by process {holder.pid}"):
            DataLock(tmp_path)
    finally:
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
    DataLock(tmp_path).release()  # one that died has let go of it


def test_the_lock_holds_when_its_file_is_removed(tmp_path):
    lock = DataLock(tmp_path)
    for _ in range(2):
        (tmp_path / "broker.lock").unlink()
        with pytest.raises(StoreError, match="in use by another process"):
            DataLock(tmp_path)
        assert is_locked(tmp_path)
    lock.release()
    assert not is_locked(tmp_path)
    DataLock(tmp_path).release()


@pytest.mark.parametrize("number", [EBADF, EINVAL, ENOLCK, EOPNOTSUPP])
def test_the_file_alone_is_locked_where_directories_cannot_be(tmp_path, number, monkeypatch):
    flock = fcntl.flock

    def refuse_directories(descriptor, operation):
        if S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", refuse_directories)
    lock = DataLock(tmp_path)
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"):
        DataLock(tmp_path)
    assert is_locked(tmp_path)
    lock.release()
    assert not is_locked(tmp_path)


def test_two_in_one_process(tmp_path):
    lock = DataLock(tmp_path)
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"):
        DataLock(tmp_path)
    (tmp_path / "broker.lock").write_text("rubbish")
    with pytest.raises(StoreError, match="in use by another process"):
        DataLock(tmp_path)
    lock.release()


@pytest.mark.parametrize(
    "text, words",
    [
        ("4\n", "upgrade stompring"),
        ("2\n", "schema version 2 is of an earlier version .* 'stompring data export'"),
        ("", "not a schema version"),
        ("0", "not a schema version"),
        ("one", "not a schema version"),
        ("9" * 5001, "not a schema version"),
        ("\u0661", "not a schema version"),
        ("1_0", "not a schema version"),
        ("+1", "not a schema version"),
        (INCOMPLETE.decode(), "the upload of 'stompring ha init' has not finished"),
    ],
)
def test_versions_that_are_not_known(tmp_path, text, words):
    (tmp_path / "schema-version").write_text(text)
    with pytest.raises(StoreError, match=words) as caught:
        DataLock(tmp_path)
    assert "schema-version" in str(caught.value)
    (tmp_path / "schema-version").write_text("3\n")
    DataLock(tmp_path).release()  # the lock was not kept


def test_a_place_where_no_directory_can_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file.*cannot be used"):
        DataLock(tmp_path / "file")
    with pytest.raises(StoreError, match="cannot be used"):
        DataLock(tmp_path / "file" / "data")


@pytest.mark.parametrize(
    "text, holder",
    [
        (f"12\n{socket.gethostname()}\n", "process 12"),
        ("12\n", "process 12"),  # of an older version
        ("12\nanother.example\n", "process 12 on another.example"),
        ("", "another process"),
    ],
)
def test_holder_of_the_lock_is_named_with_its_host(tmp_path, text, holder):
    lock = DataLock(tmp_path)
    (tmp_path / "broker.lock").write_text(text)
    with pytest.raises(DataBusy) as fault:
        DataLock(tmp_path)
    assert fault.value.holder == holder
    lock.release()


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /srv/nfs rw shared:2 - nfs4 filer:/export rw,vers=4.2
31 22 0:41 / /srv/with\\040blank rw - cifs //filer/share rw
32 22 0:42 / /srv/bucket rw - fuse.s3fs s3fs rw
33 22 0:43 / /srv/overlay rw - fuse.fuse-overlayfs fuse-overlayfs rw
34 30 8:2 / /srv/nfs/local rw - xfs /dev/sdb rw
35 22 0:44 / /srv/host rw - 9p host rw
36 22 0:45 / /srv/plain rw - fuse sshfs rw
broken line
"""


@pytest.mark.parametrize(
    "path, reason",
    [
        ("/var/lib", None),
        ("/srv/nfs/data", "/srv/nfs is nfs4: NFS drops the locks"),
        ("/srv/nfs2", None),
        ("/srv/nfs/local/data", None),
        ("/srv/with blank", "/srv/with blank is cifs: SMB drops"),
        ("/srv/bucket/data", "/srv/bucket is fuse.s3fs: FUSE file systems lock files on this machine only"),
        ("/srv/overlay/data", None),
        ("/srv/host/data", "/srv/host is 9p: 9P locks"),
        ("/srv/plain", "/srv/plain is fuse: FUSE file systems"),
    ],
)
def test_file_systems_without_reliable_locks_are_known(path, reason):
    found = weak_locks(Path(path), MOUNTS)
    assert found is None if reason is None else (found or "").startswith(reason), found


def test_file_system_of_this_machine_can_be_read(tmp_path):
    weak_locks(tmp_path)
    assert weak_locks(tmp_path, "") is None


def test_local_copy_of_a_replicated_log_is_refused_without_the_log(tmp_path):
    (tmp_path / "replicated-log").write_text("{}")
    with pytest.raises(StoreError, match="local copy of a replicated log"):
        DataLock(tmp_path)
    lock = DataLock(tmp_path, copy=True)
    assert not (tmp_path / "schema-version").exists(), "the log has it"
    (tmp_path / "schema-version").write_text("4\n")
    with pytest.raises(StoreError, match="schema version 4 is newer"):
        lock.use(Files())
    (tmp_path / "schema-version").write_text("3\n")
    lock.use(Files())
    lock.release()
