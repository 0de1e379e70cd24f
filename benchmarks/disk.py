"""The disk below a broker: how long it takes by itself, what a directory takes on it, and reading it cold."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

# a record of a message of 128 bytes, about
RECORD = 256


@dataclass(frozen=True, slots=True)
class DiskTime:
    """Seconds for one write of `RECORD` bytes with fdatasync: the mean, the median, and of how many."""

    mean: float
    median: float
    count: int


def sync_time(directory: Path, seconds: float) -> DiskTime:
    """Appends records to a file in ``directory``, each with an fdatasync of its own, for so long."""
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
    """The type and the mount point of the file system that a directory is on."""
    best = ("", "unknown")
    wanted = directory.resolve()
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        point = point.encode().decode("unicode_escape")
        if wanted.is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return f"{best[1]} ({best[0]})"


def files(directory: Path, pattern: str = "*") -> list[Path]:
    """The files below a directory that are there now."""
    return [path for path in directory.rglob(pattern) if path.is_file()]


def used(directory: Path) -> int:
    """Bytes that everything below a directory takes on the disk. A file that goes meanwhile does not count."""
    total = 0
    for path in directory.rglob("*"):
        try:
            status = path.lstat()
        except OSError:
            continue
        total += status.st_blocks * 512
    return total


def forget(directory: Path) -> None:
    """Writes everything below a directory out and lets the system forget it, so that it is read from the disk."""
    for path in files(directory):
        try:
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError:
            continue
