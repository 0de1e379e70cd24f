"""The disk of a broker: the time of a sync, the space that a directory uses, and removal from the system's cache."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

# approximate bytes of a journal record with a body of 128 bytes
RECORD = 256


@dataclass(frozen=True, slots=True)
class DiskTime:
    """Seconds for one write of `RECORD` bytes with fdatasync: mean, median, and the number of writes."""

    mean: float
    median: float
    count: int


def sync_time(directory: Path, seconds: float) -> DiskTime:
    """Append records to a file in ``directory``, each with its own fdatasync, for ``seconds``."""
    taken = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        number, record = file.fileno(), os.urandom(RECORD)
        end = time.perf_counter() + seconds
        begun = time.perf_counter()
        while begun < end:
            os.write(number, record)
            os.fdatasync(number)
            done = time.perf_counter()
            taken.append(done - begun)
            begun = done
    return DiskTime(statistics.fmean(taken), statistics.median(taken), len(taken))


def file_system(directory: Path) -> str:
    """Return the type and the mount point of a directory's file system."""
    best = ("", "unknown")
    wanted = directory.resolve()
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        point = point.encode().decode("unicode_escape")
        if wanted.is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return f"{best[1]} ({best[0]})"


def files(directory: Path, pattern: str = "*") -> list[Path]:
    """Return the files below a directory."""
    return [path for path in directory.rglob(pattern) if path.is_file()]


def used(directory: Path) -> int:
    """Return the bytes on disk of all files below a directory. Files deleted meanwhile do not count."""
    total = 0
    for path in directory.rglob("*"):
        try:
            status = path.lstat()
        except OSError:
            continue
        total += status.st_blocks * 512
    return total


def forget(directory: Path) -> None:
    """Sync all files below a directory, and drop them from the system's cache."""
    for path in files(directory):
        try:
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError:
            continue
