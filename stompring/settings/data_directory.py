"""The data directory of a broker, from its configuration and ``stompring run --data``.

Artemis reads ``data/journal`` from the directory of its instance, which has ``etc/broker.xml`` and ``data`` in it.
Here the instance is the directory above that of broker.xml where that one is called ``etc``, ``conf`` or ``config``,
else the directory of broker.xml itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stompring.settings.model import BrokerConfiguration

CONFIGURATION_DIRECTORIES = frozenset({"etc", "conf", "config"})


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """Absolute paths. ``root`` contains ``broker.lock``, ``schema-version`` and ``identity``."""

    root: Path
    journal: Path
    paging: Path
    retention: Path | None = None


def data_directory(configuration: BrokerConfiguration, override: str | None = None) -> DataDirectory:
    """The directories of a broker, existing or not. ``override`` replaces all of them by one data directory.

    The root is the directory in which the journal's is: two brokers with one journal meet at its lock.
    """
    if override is not None:
        root = Path(override).absolute()
        retention = None if configuration.journal_retention_directory is None else root / "retention"
        return DataDirectory(root, root / "journal", root / "paging", retention)
    retention_settings = configuration.journal_retention_directory
    instance = instance_directory(configuration.file)
    journal = instance / configuration.journal_directory
    return DataDirectory(
        journal.parent,
        journal,
        instance / configuration.paging_directory,
        None if retention_settings is None else instance / retention_settings.directory,
    )


def instance_directory(file: str | None) -> Path:
    """The directory at which relative paths of ``file``, a broker.xml, start; without a file the current directory."""
    if file is None:
        return Path.cwd()
    beside = Path(file).absolute().parent
    return beside.parent if beside.name in CONFIGURATION_DIRECTORIES else beside
