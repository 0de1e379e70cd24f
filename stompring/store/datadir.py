"""The data directory: its lock, its identity, its schema version, and the progress of the lakes that ingest its files.

``ingested.json`` has the position of each lake in the retained files (docs/dev/store-format.md). Processes that ingest
write it. The broker reads it when it deletes a retained file.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from errno import EBADF, EINVAL, ENOLCK, EOPNOTSUPP
from pathlib import Path
from typing import NamedTuple

from stompring.errors import StoreError

from .files import Files
from .segment import HEADER, NO_IDENTITY, NO_LONGER_READ, Header

#: Version of the file formats in a data directory. A change that older versions of stompring cannot read increments it.
SCHEMA_VERSION = 3

LOCK, VERSION = "broker.lock", "schema-version"

#: The file with the random identity of a data directory, in hexadecimal. Each journal and page file has the identity in
#: its header.
IDENTITY = "identity"

#: The file that marks a directory as the local copy of a replicated log (`replication.copy`).
MARKER = "replicated-log"


#: Errors of file systems that cannot lock a directory, such as some network file systems.
_NO_DIRECTORY_LOCKS = frozenset({EBADF, EINVAL, ENOLCK, EOPNOTSUPP})

#: Maximum number of characters of an invalid schema version in an error. After an incomplete upload, the file contains
#: a sentence instead of a version.
MAX_SHOWN = 80

_VERSION = re.compile(r"[1-9][0-9]{0,8}")


class DataBusy(StoreError):
    """Another process has locked the data directory. ``holder`` names the process."""

    def __init__(self, holder: str, path: Path) -> None:
        super().__init__(f"the data directory is in use by {holder}", path)
        self.holder = holder


class DataLock:
    """The lock of a data directory, from construction to `release` or the end of the process.

    It locks both the directory and the file `LOCK` in it: an operator can delete that file, but not a directory with
    files. Older versions lock the file only.
    """

    def __init__(self, root: Path, files: Files | None = None, *, copy: bool = False) -> None:
        """Lock the directory. Creates it if missing. Raises `DataBusy`, `StoreError`.

        ``copy``: accept the local copy of a replicated log, and do not check the version: `use` checks it later.
        """
        self.root = root
        self._files = files or Files()
        self._descriptors: list[int] = []
        try:
            self._files.make_directory(root)
            self._take()
            if not copy:
                if (root / MARKER).exists():
                    raise StoreError(
                        "the data directory is the local copy of a replicated log, and the configuration has no "
                        "<replicated-log>: what is changed here would be lost. To go on without the log, delete "
                        "this file",
                        root / MARKER,
                    )
                self._check_version()
        except OSError as fault:
            self.release()
            raise StoreError(f"cannot be used: {fault.strerror or fault}", fault.filename or root) from fault
        except StoreError:
            self.release()
            raise

    def _take(self) -> None:
        directory = self._open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        file = self._open(self.root / LOCK, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _flock(directory, fcntl.LOCK_EX)
        except BlockingIOError:
            raise DataBusy(_holder(os.pread(file, MAX_HOLDER, 0)), self.root / LOCK) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n{socket.gethostname()}\n".encode()[:MAX_HOLDER], 0)

    def _open(self, path: Path, flags: int) -> int:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o640)
        self._descriptors.append(descriptor)
        return descriptor

    def use(self, files: Files) -> None:
        """Set the ``files`` for later writes, and check the version. Raises `StoreError`."""
        self._files = files
        try:
            self._check_version()
        except OSError as fault:
            raise StoreError.of(fault, self.root / VERSION) from fault

    def _check_version(self) -> None:
        path = self.root / VERSION
        if not check_version(self._files, path):
            self._files.replace(path, f"{SCHEMA_VERSION}\n".encode())

    def identity(self, journal: Path) -> bytes:
        """Return the identity of the directory. ``journal``: the directory of its segments. Raises `StoreError`.

        If the file `IDENTITY` is missing, creates it with the identity of the newest segment that has one, else with a
        new identity.
        """
        path = self.root / IDENTITY
        try:
            found = read_identity(self._files, path) or self._identity_of_journal(journal)
            if found is None or path.name not in self._files.names(self.root):
                found = found or secrets.token_bytes(16)
                self._files.replace(path, identity_text(found))
        except OSError as fault:
            raise StoreError.of(fault, path) from None
        return found

    def _identity_of_journal(self, journal: Path) -> bytes | None:
        for name in reversed(self._files.names(journal)):
            if name.endswith(".journal"):
                header = Header.read(self._files.read(journal / name, 0, HEADER.size))
                if header.fault is None and header.directory != NO_IDENTITY:
                    return header.directory
        return None

    def release(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


#: Maximum bytes of `LOCK`: a line with the process id, and one with the host name.
MAX_HOLDER = 300


def _holder(data: bytes) -> str:
    """Return a text that names the process in `LOCK`, and its host if that is not this machine."""
    process, _, host = data.decode(errors="replace").strip().partition("\n")
    if not process.isdecimal():
        return "another process"
    return f"process {process}" if host in ("", socket.gethostname()) else f"process {process} on {host}"


def check_version(files: Files, path: Path) -> bool:
    """Return whether the file `VERSION` exists. Raises `StoreError` if this broker does not support its version."""
    try:
        text = files.read(path).decode(errors="replace").strip()
    except FileNotFoundError:
        return False
    if not _VERSION.fullmatch(text):
        raise StoreError(f"{text[:MAX_SHOWN]!r} is not a schema version", path)
    if int(text) > SCHEMA_VERSION:
        raise StoreError(
            f"schema version {text} is newer than {SCHEMA_VERSION}, the newest that this broker supports: "
            "upgrade stompring",
            path,
        )
    if int(text) < SCHEMA_VERSION:
        raise StoreError(f"schema version {text} {NO_LONGER_READ}", path)
    return True


def _flock(descriptor: int, operation: int) -> None:
    """Lock a descriptor if the file system supports it. Raises `BlockingIOError` if another process has locked it."""
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except OSError as fault:
        if fault.errno not in _NO_DIRECTORY_LOCKS:
            raise


def identity_text(identity: bytes) -> bytes:
    """Return the contents of the file `IDENTITY`."""
    return f"{identity.hex()}\n".encode()


def read_identity(files: Files, path: Path) -> bytes | None:
    """Return the identity in a file, None if it does not exist. Raises `StoreError` if it is malformed, `OSError`."""
    try:
        return parse_identity(files.read(path), path)
    except FileNotFoundError:
        return None


def parse_identity(data: bytes, path: object) -> bytes:
    """Parse the contents of the file `IDENTITY`. Raises `StoreError` with ``path`` if they are not an identity."""
    text = data.decode(errors="replace").strip()
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        raise StoreError(f"{text[:40]!r} is not a data directory identity", path)
    return bytes.fromhex(text)


def is_locked(root: Path) -> bool:
    """Return whether a process, such as a broker, has locked the data directory."""
    return any(_is_held(path) for path in (root / LOCK, root))


def _is_held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        _flock(descriptor, fcntl.LOCK_SH)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


#: File systems whose locks may not stop a second broker, with the reason. ``fuse`` stands for all ``fuse.NAME``.
_WEAK_LOCKS = {
    "nfs": "NFS drops the locks of a client that it does not reach for a while",
    "nfs4": "NFS drops the locks of a client that it does not reach for a while",
    "cifs": "SMB drops the locks of a client that it does not reach for a while",
    "smb3": "SMB drops the locks of a client that it does not reach for a while",
    "smbfs": "SMB drops the locks of a client that it does not reach for a while",
    "9p": "9P locks files on this machine only, as a rule",
    "virtiofs": "virtiofs locks files within one virtual machine only, as a rule",
    "afs": "AFS locks are advisory and expire",
    "vboxsf": "shared folders of VirtualBox lock files within one virtual machine only",
    "lustre": "Lustre locks files on this machine only, without the mount option flock",
    "fuse": "FUSE file systems lock files on this machine only, as a rule",
}

#: FUSE file systems on a disk of this machine. They use the kernel's locks.
_LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuse.ntfs-3g", "fuse.ext4", "fuse.unionfs", "fuse.mergerfs"})

_MOUNTS = Path("/proc/self/mountinfo")
#: Mount point and file system type in a line of `_MOUNTS` (proc(5)).
_MOUNT = re.compile(r"^(?:\S+ ){4}(\S+) .*? - (\S+)", re.MULTILINE)
_OCTAL = re.compile(r"\\([0-7]{3})")


def weak_locks(path: Path, mounts: str | None = None) -> str | None:
    """Return why locks on the file system of ``path`` may not stop a second broker, None if the locks are reliable.

    ``mounts``: text of ``/proc/self/mountinfo`` (proc(5)). If the system lacks that file, the result is None.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(errors="replace")
        except OSError:
            return None
    kind, where = _file_system(path.resolve(), mounts)
    reason = _WEAK_LOCKS.get(kind, "")
    if kind.startswith("fuse.") and kind not in _LOCAL_FUSE:
        reason = _WEAK_LOCKS["fuse"]
    return f"{where} is {kind}: {reason}" if reason else None


def _file_system(path: Path, mounts: str) -> tuple[str, str]:
    """Return type and mount point of the file system of ``path``. Of mounts at the same point the last one counts."""
    kind, where = "", Path("/")
    for escaped, type_ in _MOUNT.findall(mounts):
        point = Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), escaped))
        if path.is_relative_to(point) and len(point.parts) >= len(where.parts):
            kind, where = type_, point
    return kind, str(where)


#: Files in the retention directory: the file with the progress of lakes, and the file to lock before it is replaced.
INGESTED, INGESTED_LOCK = "ingested.json", "ingested.lock"

INGESTED_VERSION = 1

#: Form of the ids of lakes, which are parts of file names.
LAKE_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")

_POSITION = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")


class Position(NamedTuple):
    """The progress of a lake in one folder. It has ingested all files with numbers below ``number``, and ``offset``
    bytes of file ``number``.
    """

    number: int
    offset: int

    def __str__(self) -> str:
        return f"{self.number}:{self.offset}"


class Lake(NamedTuple):
    """A lake that ingests the retained files. ``positions``: its progress in each folder (``journal``,
    ``paging/000000007``).
    """

    id: str
    name: str
    time: int  # epoch ms of the lake's last ingest
    positions: Mapping[str, Position]

    def lacks(self, folder: str, number: int, end: int) -> bool:
        """Return whether the lake lacks a part of a file. ``end``: offset at which the records of the file end."""
        return self.positions.get(folder, Position(0, 0)) < (number, end)


class Busy(Exception):
    """Another process ingests into the same lake."""


# ---- reading


def parse_ingested(data: bytes) -> dict[str, Lake]:
    """Parse the contents of `INGESTED`: lakes by id. Raises `ValueError` if they are malformed."""
    try:
        document = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(document, dict) or document.get("version") != INGESTED_VERSION:
        raise ValueError(f"its version is not {INGESTED_VERSION}")
    lakes = document.get("lakes")
    if not isinstance(lakes, dict):
        raise ValueError("it has no lakes")
    return {identifier: _lake(identifier, lake) for identifier, lake in lakes.items()}


def _lake(identifier: str, lake: object) -> Lake:
    if not isinstance(lake, dict) or not isinstance(lake.get("positions"), dict):
        raise ValueError(f"lake {identifier!r} has no positions")
    positions = {}
    for folder, text in lake["positions"].items():
        match = _POSITION.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise ValueError(f"{text!r} is not a position")
        positions[folder] = Position(int(match[1]), int(match[2]))
    name, when = lake.get("name", identifier), lake.get("time", 0)
    if not isinstance(name, str) or not isinstance(when, int):
        raise ValueError(f"lake {identifier!r} has no name and time")
    return Lake(identifier, name, when, positions)


def read_ingested(directory: Path) -> dict[str, Lake]:
    """Return the lakes in `INGESTED` of a retention directory; empty if missing. Raises `ValueError` if malformed."""
    try:
        return parse_ingested((directory / INGESTED).read_bytes())
    except FileNotFoundError:
        return {}


# ---- writing


def record_ingested(
    directory: Path, lake: str, name: str, positions: Mapping[str, Position], when: int | None = None
) -> None:
    """Replace the positions of a lake in `INGESTED`, atomically. The caller first syncs the data that the lake has
    ingested. Raises `ValueError` if the present file is malformed: a new file would lack the other lakes.
    """
    _check_id(lake)
    with _locked(directory / INGESTED_LOCK, wait=True):
        lakes = read_ingested(directory)
        now = time.time_ns() // 1_000_000 if when is None else when
        lakes[lake] = Lake(lake, name, now, positions)
        fields = {
            lake.id: {
                "name": lake.name,
                "time": lake.time,
                "positions": {folder: str(Position(*each)) for folder, each in lake.positions.items()},
            }
            for lake in lakes.values()
        }
        document = json.dumps({"version": INGESTED_VERSION, "lakes": fields}, indent=1)
        Files().replace(directory / INGESTED, document.encode() + b"\n")


@contextmanager
def ingesting(directory: Path, lake: str) -> Iterator[None]:
    """Context manager: lock a lake, so that no other process ingests into it. Raises `Busy`. The lock ends with the
    process.
    """
    _check_id(lake)
    with _locked(directory / f"ingested.{lake}.lock", wait=False):
        yield


def _check_id(lake: str) -> None:
    if not LAKE_ID.fullmatch(lake):
        raise ValueError(
            f"{lake!r} cannot be the id of a lake: letters, digits, dots, dashes and underscores"
        )


@contextmanager
def _locked(path: Path, *, wait: bool) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    with os.fdopen(descriptor):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise Busy(f"another process is ingesting: {path} is locked") from None
        yield
