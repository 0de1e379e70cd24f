"""What of the retained files has been ingested into lakes: ``ingested.json``, as docs/store-format.md has it.

A process that ingests writes it, the broker looks into it when it deletes a retained file. Nothing here needs the rest
of stompring, so that both may use it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

#: The file in the directory of the retention, and the one that is locked while it is replaced.
INGESTED, LOCK = "ingested.json", "ingested.lock"

VERSION = 1

#: Ids of lakes: they are in names of files.
LAKE_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")

_POSITION = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")


class Position(NamedTuple):
    """How far one folder is ingested: all files with lower numbers wholly, and so many bytes of that one."""

    number: int
    offset: int

    def __str__(self) -> str:
        return f"{self.number}:{self.offset}"


class Lake(NamedTuple):
    """Where files are ingested to. ``positions`` are those of folders, as ``journal`` or ``paging/000000007``."""

    id: str
    name: str
    time: int  # epoch ms of its last ingest
    positions: Mapping[str, Position]

    def lacks(self, folder: str, number: int, end: int) -> bool:
        """Whether something of a file is not ingested, of which what matters ends at ``end``."""
        return self.positions.get(folder, Position(0, 0)) < (number, end)


class Busy(Exception):
    """Another process ingests into the same lake."""


# ---- reading


def parse_ingested(data: bytes) -> dict[str, Lake]:
    """The lakes by their ids. Raises `ValueError` for what is no such file."""
    try:
        document = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError(f"its version is not {VERSION}")
    lakes = document.get("lakes")
    if not isinstance(lakes, dict):
        raise ValueError("it has no lakes")
    return {identifier: _lake(identifier, lake) for identifier, lake in lakes.items()}


def _lake(identifier: str, lake: object) -> Lake:
    if not isinstance(lake, dict) or not isinstance(lake.get("positions"), dict):
        raise ValueError(f"lake {identifier!r} has no positions")
    positions = {folder: _position(text) for folder, text in lake["positions"].items()}
    name, when = lake.get("name", identifier), lake.get("time", 0)
    if not isinstance(name, str) or not isinstance(when, int):
        raise ValueError(f"lake {identifier!r} has no name and time")
    return Lake(identifier, name, when, positions)


def _position(text: object) -> Position:
    match = _POSITION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not a position")
    return Position(int(match[1]), int(match[2]))


def read_ingested(directory: Path) -> dict[str, Lake]:
    """The lakes that a retention's directory is ingested to; none where there is no file. Raises `ValueError`."""
    try:
        data = (directory / INGESTED).read_bytes()
    except FileNotFoundError:
        return {}
    return parse_ingested(data)


# ---- writing


def record_ingested(
    directory: Path, lake: str, name: str, positions: Mapping[str, Position], when: int | None = None
) -> None:
    """Say how far a lake has come, once that is safe there. Other lakes stay as they are, folders not named go.

    After a crash the file is the old one or the new one. Raises `ValueError` where the one that is there is damaged:
    overwriting it would forget the other lakes.
    """
    _check_id(lake)
    with _locked(directory / LOCK, wait=True):
        lakes = read_ingested(directory)
        now = time.time_ns() // 1_000_000 if when is None else when
        lakes[lake] = Lake(lake, name, now, positions)
        _replace(directory / INGESTED, _document(lakes))


def forget_lake(directory: Path, lake: str) -> None:
    """A lake is not ingested into any more: what it lacks is not reported."""
    with _locked(directory / LOCK, wait=True):
        lakes = read_ingested(directory)
        if lakes.pop(lake, None) is not None:
            _replace(directory / INGESTED, _document(lakes))


@contextmanager
def ingesting(directory: Path, lake: str) -> Iterator[None]:
    """While one process ingests into a lake no other does. Raises `Busy`. The lock ends with the process."""
    _check_id(lake)
    with _locked(directory / f"ingested.{lake}.lock", wait=False):
        yield


def _check_id(lake: str) -> None:
    if not LAKE_ID.fullmatch(lake):
        raise ValueError(
            f"{lake!r} cannot be the id of a lake: letters, digits, dots, dashes and underscores"
        )


def _document(lakes: Mapping[str, Lake]) -> bytes:
    fields: dict[str, Any] = {
        lake.id: {
            "name": lake.name,
            "time": lake.time,
            "positions": {folder: str(Position(*each)) for folder, each in lake.positions.items()},
        }
        for lake in lakes.values()
    }
    return json.dumps({"version": VERSION, "lakes": fields}, indent=1).encode() + b"\n"


@contextmanager
def _locked(path: Path, *, wait: bool) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise Busy(f"another process is ingesting: {path} is locked") from None
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(path.name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(draft, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
