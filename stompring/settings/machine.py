"""The machine that a broker runs on: its memory, the data directory, the shipped files.

The defaults of ``global-max-size`` and ``dispatch-memory`` are shares of the memory that this process may use. That is
the memory of the machine, or less if a control group of the process or one of its parents has a lower limit (version 1
or 2; containers and systemd's ``MemoryMax`` set such limits).

Artemis reads ``data/journal`` from the directory of its instance, which contains ``etc/broker.xml`` and ``data``. Here
the instance is the directory of broker.xml, or its parent if the directory is called ``etc``, ``conf`` or ``config``.

The shipped files are the examples, the plugins, the documentation, the schema and the console. In a checkout, and in
an editable installation of one, ``config/``, ``docs/``, ``examples/`` and ``plugins/`` are beside the package; a wheel
has copies of them inside the package, in ``stompring/shipped`` (setup.py). In a wheel the pages of ``docs/`` are HTML.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stompring.errors import ConfigurationError

from .model import BrokerConfiguration

ROOT = Path("/")

MIN_DISPATCH_MEMORY = 16 * 1024 * 1024
"""With a smaller budget page reads would be too small to be efficient."""

SHARE = 4
"""A quarter. Artemis uses half of its JVM's memory; the remainder is for connections, queues and Python."""


def default_global_max_size(memory: int) -> int:
    """Default of ``global-max-size`` in bytes, on a machine with ``memory`` bytes."""
    return max(memory // SHARE, 1)


def default_dispatch_memory(global_max_size: int, memory: int) -> int:
    """Default in bytes of ``dispatch-memory``, ``global-max-transaction-size`` and similar limits: a share of
    ``global_max_size``, or of the default of ``global-max-size`` if ``global_max_size`` is -1."""
    size = default_global_max_size(memory) if global_max_size < 0 else global_max_size
    return max(size // SHARE, MIN_DISPATCH_MEMORY)


def machine_memory(root: Path = ROOT) -> int:
    """Bytes of memory that this process may use. ``root``: directory that contains ``proc`` and ``sys``."""
    return min([_physical(root), *_limits(root)])


def _physical(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        name, _, size = line.partition(":")
        if name == "MemTotal":
            return int(size.split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _limits(root: Path) -> Iterator[int]:
    """The memory limits (bytes) of the process's control groups and of their parents."""
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
    """Yield the memory limits of the control group ``path`` and its parents.

    In a container ``mount`` may exist without ``path`` below it.
    """
    group = mount / path.lstrip("/")
    while True:
        for text in _lines(group / name):
            if text.isdecimal():  # a limit, not "max" (no limit)
                yield int(text)
        if group == mount or mount not in group.parents:
            return
        group = group.parent


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []  # no such file, for example on other systems than Linux, or no permission


CONFIGURATION_DIRECTORIES = frozenset({"etc", "conf", "config"})


class DataDirectory(NamedTuple):
    """Absolute paths of the directories of a broker.

    ``root`` contains ``broker.lock``, ``schema-version`` and ``identity``.
    """

    root: Path
    journal: Path
    paging: Path
    retention: Path | None = None


def data_directory(configuration: BrokerConfiguration, override: str | None = None) -> DataDirectory:
    """The directories of a broker, existing or not. ``override``: data directory to use instead of the configured ones.

    The root is the parent of the journal directory, so that two brokers with the same journal use the same lock.
    """
    retention = configuration.journal_retention_directory
    if override is not None:
        root = Path(override).absolute()
        retained = None if retention is None else root / "retention"
        return DataDirectory(root, root / "journal", root / "paging", retained)
    root = instance_directory(configuration.file)
    journal = root / configuration.journal_directory
    retained = None if retention is None else root / retention.directory
    return DataDirectory(journal.parent, journal, root / configuration.paging_directory, retained)


def instance_directory(file: str | None) -> Path:
    """The base directory of relative paths in the broker.xml ``file``; the current directory if ``file`` is None."""
    if file is None:
        return Path.cwd()
    beside = Path(file).absolute().parent
    return beside.parent if beside.name in CONFIGURATION_DIRECTORIES else beside


PACKAGE = Path(__file__).resolve().parent.parent

#: Directories of shipped files that are inside the package in a checkout too, not only in a wheel.
IN_PACKAGE = {"console": PACKAGE / "console", "schema": PACKAGE / "settings"}


def shipped_directory(name: str) -> Path:
    """The absolute path of a directory of shipped files (``schema`` contains schema.xsd). The files are read-only.

    Raises ConfigurationError if the installation lacks it.
    """
    if name in IN_PACKAGE:
        candidates = [IN_PACKAGE[name]]
    else:  # in ``stompring/shipped`` of a wheel, or beside the package in a checkout
        candidates = [PACKAGE / "shipped" / name, PACKAGE.parent / name]
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise ConfigurationError(f"the installation of stompring lacks {candidates[0]}: install stompring again")


def shipped_file(directory: str, *parts: str) -> Path:
    """The absolute path of one shipped file: ``shipped_file("config", "broker.xml")``.

    Raises ConfigurationError if the installation lacks it.
    """
    path = shipped_directory(directory).joinpath(*parts)
    if not path.is_file():
        raise ConfigurationError(f"the installation of stompring lacks {path}: install stompring again")
    return path
