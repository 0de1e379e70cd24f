"""How far a data directory has been read: the offset of a stream, and what an ingest remembers.

For each folder of files (``journal``, ``samples``, ``paging/NAME``) a position: the number of a file, and a byte in it
at which a record begins. All of the files with lower numbers is behind it. A file that is complete and read to its end
is left for the next number, byte 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stompring.store.ingested import Position as Position

#: Nothing was read yet.
START = Position(0, 0)

#: By folder. A folder that is not there is to be read from the start.
Positions = Mapping[str, Position]


def dumped(positions: Positions) -> dict[str, str]:
    """As it goes into JSON."""
    return {folder: str(positions[folder]) for folder in sorted(positions)}


def loaded(told: Mapping[str, str]) -> dict[str, Position]:
    """From JSON. Raises `ValueError`."""
    found = {}
    for folder, text in told.items():
        number, _, offset = str(text).partition(":")
        found[folder] = Position(int(number), int(offset))
    return found


class Range(NamedTuple):
    """Records of a file that begin at ``start`` or behind it, and before ``stop`` (-1: up to the end of the file)."""

    name: str
    start: int = 0
    stop: int = -1
