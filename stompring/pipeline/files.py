"""The files of a data directory, for readers that come while a broker works in it: which there are, and reading one.

A file is named by its path below the directory; one that the broker has moved to ``retention/`` since is found there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from zlib import crc32

from stompring.errors import StoreError
from stompring.pipeline.options import OptionError, Options, Wanted
from stompring.pipeline.schema import ENDINGS
from stompring.store.record import PREFIX
from stompring.store.segment import HEADER, TRAILER, Footer, footer_place

log = logging.getLogger(__name__)

RETENTION = "retention"

#: In a directory of pages: the name of their address.
ADDRESS_FILE = "address.txt"

#: Bytes of files that a task has at least: it costs more than decoding a few MB.
PARTITION = 32 << 20


class Listed(NamedTuple):
    """A file: where it would be if it were not kept in ``retention/``, and how large it was."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The files below a data directory."""

    root: Path

    def listed(self, wanted: Wanted) -> list[Listed]:
        """Those that rows of the table may be in, in the order of their names. Reads no more than footers."""
        if not self.root.is_dir():
            raise OptionError("path", f"{self.root} is not a directory")
        found: dict[str, Listed] = {}
        for path in self._paths(ENDINGS[wanted.table]):
            name = self._name(path)
            size = self._size(name)
            if name not in found and size > HEADER.size:
                found[name] = Listed(name, size)
        return [found[name] for name in sorted(found) if self._may_have(name, wanted)]

    def _paths(self, endings: frozenset[str]) -> Iterator[Path]:
        """What is moved meanwhile is in the second of the directories, if not in the first."""
        for root in (self.root, self.root / RETENTION):
            for folder in ("journal", "samples", "paging"):
                pattern = "*/*" if folder == "paging" else "*"
                for path in (root / folder).glob(pattern):
                    if path.suffix in endings and path.stem.isdecimal():
                        yield path

    def _name(self, path: Path) -> str:
        parts = path.relative_to(self.root).parts
        return str(PurePosixPath(*(parts[1:] if parts[0] == RETENTION else parts)))

    def _size(self, name: str) -> int:
        for root in (self.root, self.root / RETENTION):
            try:
                return (root / name).stat().st_size
            except FileNotFoundError:
                continue
        return 0

    def _may_have(self, name: str, wanted: Wanted) -> bool:
        path = PurePosixPath(name)
        if path.suffix == ".page" and wanted.addresses:
            address = self._address(path.parent)
            if address is not None and not wanted.matches(address):
                return False
        if wanted.table == "events" or (wanted.since is None and wanted.until is None):
            return True
        footer = self._footer(name)
        if footer is None:
            return True
        return wanted.within(footer.least_timestamp, footer.greatest_timestamp)

    def _address(self, folder: PurePosixPath) -> str | None:
        try:
            text = (self.root / folder / ADDRESS_FILE).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None
        return text.removesuffix("\n") or None

    # ---- reading

    def read(self, name: str) -> bytes | None:
        """All of a file as it is now; None, and a word in the log, where it is gone. Raises `StoreError`."""
        for root in (self.root, self.root / RETENTION, self.root):
            try:
                return (root / name).read_bytes()
            except FileNotFoundError:
                continue
            except OSError as fault:
                raise StoreError(fault.strerror or str(fault), str(root / name), 0) from None
        log.warning("%s is gone: it was deleted after the files were listed", self.root / name)
        return None

    def _footer(self, name: str) -> Footer | None:
        """The footer of a sealed file, without reading what is before it."""
        for root in (self.root, self.root / RETENTION):
            try:
                with open(root / name, "rb") as file:
                    size = file.seek(0, 2)
                    if size < HEADER.size + PREFIX.size + TRAILER.size:
                        return None
                    file.seek(size - TRAILER.size)
                    at = footer_place(file.read(TRAILER.size))
                    if not HEADER.size <= at < size:
                        return None
                    file.seek(at)
                    return _footer_of(file.read(), at)
            except FileNotFoundError:
                continue
            except OSError:
                return None
        return None


def _footer_of(ending: bytes, at: int) -> Footer | None:
    """From the bytes of a file from its footer on."""
    length, crc = PREFIX.unpack_from(ending)
    payload = ending[PREFIX.size : PREFIX.size + length]
    if PREFIX.size + length + TRAILER.size != len(ending) or crc32(payload) != crc:
        return None
    footer = Footer.parse(payload)
    return footer if footer is not None and footer.size == at else None


def packed(files: list[Listed], least: int = PARTITION) -> list[tuple[str, ...]]:
    """The names of files, put together until their sizes add up to ``least`` bytes."""
    parts: list[tuple[str, ...]] = []
    names: list[str] = []
    size = 0
    for file in files:
        names.append(file.name)
        size += file.size
        if size >= least:
            parts.append(tuple(names))
            names, size = [], 0
    if names:
        parts.append(tuple(names))
    return parts


def planned(options: Options) -> list[tuple[str, ...]]:
    """The files of each task."""
    return packed(DataFiles(options.root).listed(options.wanted))
