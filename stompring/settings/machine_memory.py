"""Memory that this process may use, and the defaults of ``global-max-size`` and ``dispatch-memory`` as shares of it.

The machine's, or less where a control group sets a limit (containers, systemd's ``MemoryMax``), of the first or the
second version, on the process's own group or on one above it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")

MIN_DISPATCH_MEMORY = 16 * 1024 * 1024
"""With a smaller budget page reads would be too small to be efficient."""

SHARE = 4
"""A quarter. Artemis uses half of its JVM's memory; the remainder is for connections, queues and Python."""


def default_global_max_size(memory: int) -> int:
    """``global-max-size`` where a file does not say it, in bytes, on a machine with ``memory`` bytes."""
    return max(memory // SHARE, 1)


def default_dispatch_memory(global_max_size: int, memory: int) -> int:
    """``dispatch-memory`` where a file does not say it, in bytes; without a global limit it goes by its default."""
    size = default_global_max_size(memory) if global_max_size < 0 else global_max_size
    return max(size // SHARE, MIN_DISPATCH_MEMORY)


def default_transaction_memory(global_max_size: int, memory: int) -> int:
    """``global-max-transaction-size``, and its like, where a file does not say it: as `default_dispatch_memory`."""
    return default_dispatch_memory(global_max_size, memory)


def machine_memory(root: Path = ROOT) -> int:
    """Bytes of memory that this process may use; ``root`` is where ``proc`` and ``sys`` are found."""
    return min([_physical(root), *_limits(root)])


def _physical(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        name, _, size = line.partition(":")
        if name == "MemTotal":
            return int(size.split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _limits(root: Path) -> Iterator[int]:
    """The limits of the process's control groups and of all above them."""
    mounts = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            yield from _upwards(mounts / "memory", path, "memory.limit_in_bytes")
        elif number == "0" and not controllers:
            yield from _upwards(mounts, path, "memory.max")
            yield from _upwards(mounts / "unified", path, "memory.max")


def _upwards(mount: Path, path: str, name: str) -> Iterator[int]:
    """In a container the path may be one of the host, with only the mount itself visible."""
    group = mount / path.lstrip("/")
    while True:
        for text in _lines(group / name):
            if text.isdecimal():  # and not "max"
                yield int(text)
        if group == mount or mount not in group.parents:
            return
        group = group.parent


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []  # not Linux, or without access
