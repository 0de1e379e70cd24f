"""Names in the paging directory."""

from __future__ import annotations

import re
from pathlib import Path

from .files import Files, free_name
from .writer import Writer

#: Holds the name of the address a directory is of.
ADDRESS_FILE = "address.txt"

#: What a damaged page file is renamed to, so that somebody can look what is in it.
SET_ASIDE = ".invalidPage"

#: A page file by its number, set aside or not.
PAGE_NAME = re.compile(r"(\d{9,})\.page(?:(\.invalidPage)(?:\.\d+)?)?")

DIRECTORY_NAME = re.compile(r"(\d{9,})(?:-\d+)?")


def page_path(directory: Path, number: int) -> Path:
    """Where page ``number`` is."""
    return directory / f"{number:09d}.page"


def directory_number(path: Path) -> int:
    """The number of the address that a directory is of."""
    match = DIRECTORY_NAME.fullmatch(path.name)
    return int(match[1]) if match else 0


def set_aside(writer: Writer, path: Path) -> None:
    """Keep a damaged file under a name that no broker reads."""

    def rename(files: Files) -> None:
        if path.name in files.names(path.parent):
            files.rename(path, free_name(files, path, SET_ASIDE))

    writer.chore(rename)
