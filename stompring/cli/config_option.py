"""The option ``--config`` of several commands: which broker.xml."""

from __future__ import annotations

from pathlib import Path

from stompring.errors import ConfigurationError

DEFAULT = "config/broker.xml"


def existing(path: str | None) -> str:
    """The file that ``--config`` names, or the default one where the option is not given (None).

    Raises ConfigurationError, with what to do, when there is no such file.
    """
    if path is not None:
        return path  # whoever reads it says what is wrong with it
    if not Path(DEFAULT).exists():
        raise ConfigurationError(
            f"there is no {DEFAULT} in the directory {Path.cwd()}: go to where yours is, or name it with --config FILE"
        )
    return DEFAULT
