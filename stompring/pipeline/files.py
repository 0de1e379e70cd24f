"""The files of a data directory, for readers that come while a broker works in it: which there are, and reading one.

A file is named by its path below the directory; one that the broker has moved to ``retention/`` since is found there.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from zlib import crc32

from stompring.errors import StoreError
from stompring.pipeline.folder import Entry, Folder
from stompring.pipeline.options import OptionError, Options, Wanted
from stompring.pipeline.positions import Range
from stompring.pipeline.schema import ENDINGS
from stompring.store.record import PREFIX
from stompring.store.segment import HEADER, TRAILER, Footer, footer_place

log = logging.getLogger(__name__)

#: Where files are kept after the broker is done with them, below the data directory or by option.
RETENTION = "retention"

#: In a directory of pages: the name of their address.
ADDRESS_FILE = "address.txt"

#: Bytes of files that a task has at least: it costs more than decoding a few MB.
PARTITION = 32 << 20

_NAME = re.compile(r"(journal|samples|paging/[^/]+)/(\d+)\.(journal|samples|page)")

#: Pages whose message numbers are kept at hand.
_PAGES = 8


class Listed(NamedTuple):
    """A file: where it would be if it were not kept in ``retention/``, its folder and number, how large it was."""

    name: str
    folder: str
    number: int
    size: int


class DataFiles:
    """The files below a data directory."""

    def __init__(self, root: str, retention: str | None = None) -> None:
        """``retention`` is where retained files are, where that is not in the data directory."""
        self.root = Folder(root)
        self.retention = Folder(retention or f"{root}/{RETENTION}")
        self._pages: dict[int, str] | None = None
        self._numbers: OrderedDict[int, Any] = OrderedDict()

    @classmethod
    def of(cls, options: Options) -> DataFiles:
        """The ones that options name."""
        return cls(options.root, options.retention)

    def every(self, endings: Iterable[str], *, empty: bool = False) -> list[Listed]:
        """All files with these endings, by folder and number; ``empty``: those too that have no record yet."""
        if not self.root.is_directory():
            raise OptionError("path", f"{self.root} is not a directory")
        found: dict[str, Listed] = {}
        for entry in self._entries():
            match = _NAME.fullmatch(entry.name)
            if match is None or f".{match[3]}" not in endings:
                continue
            if entry.size <= HEADER.size and not empty:
                continue
            listed = Listed(entry.name, match[1], int(match[2]), entry.size)
            if entry.name not in found or found[entry.name].size < entry.size:
                found[entry.name] = listed
        return sorted(found.values(), key=lambda one: (one.folder, one.number))

    def listed(self, wanted: Wanted) -> list[Listed]:
        """Those that rows of the table may be in. Reads no more than footers."""
        return [one for one in self.every(ENDINGS[wanted.table]) if self.may_have(one.name, wanted)]

    def _entries(self) -> Iterator[Entry]:
        """What is moved meanwhile is in the second of the folders, if not in the first."""
        for root in (self.root, self.retention):
            for folder in ("journal", "samples", "paging"):
                yield from root.entries(folder, deep=folder == "paging")

    def may_have(self, name: str, wanted: Wanted) -> bool:
        """Whether a file may have rows that are wanted, as far as its footer and its address tell."""
        path = PurePosixPath(name)
        if path.suffix == ".page" and wanted.addresses:
            address = self._address(path.parent)
            if address is not None and not wanted.matches(address):
                return False
        if wanted.table == "events" or (wanted.since is None and wanted.until is None):
            return True
        footer = self.footer(name)
        if footer is None:
            return True
        return wanted.within(footer.least_timestamp, footer.greatest_timestamp)

    def _address(self, folder: PurePosixPath) -> str | None:
        try:
            text = self.root.read(f"{folder}/{ADDRESS_FILE}").decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return None
        return text.removesuffix("\n") or None

    # ---- reading

    def read(self, name: str, start: int = 0) -> bytes | None:
        """All of a file as it is now; None, and a word in the log, where it is gone. Raises `StoreError`."""
        for root in (self.root, self.retention, self.root):
            try:
                return root.read(name, start)
            except FileNotFoundError:
                continue
            except OSError as fault:
                raise StoreError(fault.strerror or str(fault), f"{root}/{name}", 0) from None
        log.warning("%s/%s is gone: it was deleted after the files were listed", self.root, name)
        return None

    def sync(self, name: str) -> None:
        """Let what can be read of a file be there after a power cut too."""
        for root in (self.root, self.retention, self.root):
            try:
                return root.sync(name)
            except FileNotFoundError:
                continue

    def footer(self, name: str) -> Footer | None:
        """The footer of a sealed file, without reading what is before it; None where there is none to be read."""
        for root in (self.root, self.retention, self.root):
            try:
                size = root.size(name) or 0
                if size < HEADER.size + PREFIX.size + TRAILER.size:
                    continue
                at = footer_place(root.read(name, size - TRAILER.size))
                return _footer_of(root.read(name, at), at) if HEADER.size <= at < size else None
            except FileNotFoundError:
                continue
            except OSError:
                return None
        return None

    # ---- messages of pages, by their place

    def message_numbers(self, page: int) -> Any:
        """The numbers of a page's messages, an array in their order; None where the page cannot be read."""
        if page in self._numbers:
            self._numbers.move_to_end(page)
            return self._numbers[page]
        from stompring.pipeline.records import Records, message_numbers

        if self._pages is None or page not in self._pages:
            self._pages = {one.number: one.name for one in self.every({".page"})}
        data = self.read(self._pages[page]) if page in self._pages else None
        found = None if data is None else message_numbers(Records(data))
        self._numbers[page] = found
        if len(self._numbers) > _PAGES:
            self._numbers.popitem(last=False)
        return found


def _footer_of(ending: bytes, at: int) -> Footer | None:
    """From the bytes of a file from its footer on."""
    length, crc = PREFIX.unpack_from(ending)
    payload = ending[PREFIX.size : PREFIX.size + length]
    if PREFIX.size + length + TRAILER.size != len(ending) or crc32(payload) != crc:
        return None
    footer = Footer.parse(payload)
    return footer if footer is not None and footer.size == at else None


def packed(files: Iterable[tuple[Range, int]], least: int = PARTITION) -> list[tuple[Range, ...]]:
    """Ranges of files, put together until their sizes in bytes add up to ``least``."""
    parts: list[tuple[Range, ...]] = []
    ranges: list[Range] = []
    total = 0
    for each, size in files:
        ranges.append(each)
        total += size
        if total >= least:
            parts.append(tuple(ranges))
            ranges, total = [], 0
    if ranges:
        parts.append(tuple(ranges))
    return parts


def planned(options: Options) -> list[tuple[Range, ...]]:
    """What each task of a batch query reads."""
    listed = DataFiles.of(options).listed(options.wanted)
    return packed((Range(one.name), one.size) for one in listed)
