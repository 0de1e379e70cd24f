"""Where a broker keeps what is on disk: what a configuration and ``stompring run --data`` say together.

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
    """Absolute paths. ``root`` has ``broker.lock``, ``schema-version`` and whatever else is of the whole."""

    root: Path
    journal: Path
    paging: Path
    retention: Path | None = None


def data_directory(configuration: BrokerConfiguration, override: str | None = None) -> DataDirectory:
    """The directories of a broker; none of them need exist. ``override`` is a data directory in place of all that.

    The root is the directory in which the journal's is: two brokers with one journal meet at its lock.
    """
    if override is not None:
        root = Path(override).absolute()
        retention = None if configuration.journal_retention_directory is None else root / "retention"
        return DataDirectory(root, root / "journal", root / "paging", retention)
    kept = configuration.journal_retention_directory
    instance = instance_directory(configuration.file)
    journal = instance / configuration.journal_directory
    return DataDirectory(
        journal.parent,
        journal,
        instance / configuration.paging_directory,
        None if kept is None else instance / kept.directory,
    )


def instance_directory(file: str | None) -> Path:
    """What paths of ``file``, a broker.xml, are relative to; the current directory where there is no file."""
    if file is None:
        return Path.cwd()
    beside = Path(file).absolute().parent
    return beside.parent if beside.name in CONFIGURATION_DIRECTORIES else beside
