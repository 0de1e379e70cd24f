"""The page reader: reads blocks of messages from page files in a thread of its own, each once for all who wait for it.

Every record is checked before it is handed on. A block's messages are decoded on demand.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from stompring.broker.clock import Clock
from stompring.broker.message import Account, Message, RecoveredMessage, Traits

from .files import Disk, Files
from .page_file import PageScan
from .pages import BlockRecords, Page
from .record import COPY, MESSAGE, PREFIX, Kind, TraitsCache
from .segment import TRAILER, Footer, footer_offset

if TYPE_CHECKING:
    from stompring.broker.address import Address

    from .pages import Pages

#: Bytes of a page that are read together, more or less: messages that begin within as many.
BLOCK_BYTES = 256 * 1024

#: Python's own share of a block.
OVERHEAD = 400

_unpack = MESSAGE.unpack_from
#: The lengths that end the prologue, for a scan that needs nothing else of it.
_LENGTHS = Struct("<IIII")
_LENGTHS_AT = MESSAGE.size - _LENGTHS.size
_unpack_lengths = _LENGTHS.unpack_from
_PROLOGUE, _FRAME = MESSAGE.size, PREFIX.size


class Block:
    """See `broker.paging.Block`."""

    __slots__ = (
        "_account",
        "_address",
        "_at",
        "_data",
        "_memo",
        "_records",
        "first",
        "page",
        "size",
        "stop",
    )

    def __init__(
        self, page: Page, records: BlockRecords, address: Address, memo: TraitsCache, account: Account
    ) -> None:
        self.page = page
        self.first = records.first
        self.stop = records.first + len(records.at)
        self._records = records  # the page has no more than a weak reference to them
        self._at: array[int] = records.at
        self._data: bytes = records.data
        self._address = address
        self._memo = memo
        self._account = account
        self.size = len(records.data) + 4 * len(records.at) + OVERHEAD

    def message(self, index: int) -> Message:
        """The message at a position of this block; the same object for all queues while any of them holds it."""
        page = self.page
        if page.left > 1 or page.shared:
            shared = page.shared.get(index)
            if shared is not None and shared.holders:
                return shared
        message = self.decode(index)
        if page.left > 1:
            page.share(index, message)
        return message

    def decode(self, index: int) -> Message:
        """As `message`, for a caller that is done with it at once: an object of its own."""
        data, at = self._data, self._at[index - self.first]
        # fmt: off
        (_, flags, priority, _, _, number, timestamp, expires, _, _,
         head, body, queues, traits_length) = _unpack(data, at)
        # fmt: on
        start = at + _PROLOGUE + 4 * queues
        tail_at = start + traits_length
        tail = data[tail_at : tail_at + head + body + 2]
        traits = self._memo.recall(flags & ~COPY, priority, data[start:tail_at], tail, head)
        return RecoveredMessage(number, self._address, traits, tail, head, timestamp, expires, self._account)

    def due(self, index: int) -> int:
        """When it is to be delivered (epoch ms) as it was sent, 0 for at once."""
        due: int = _unpack(self._data, self._at[index - self.first])[8]
        return due

    def number_of(self, index: int) -> int:
        """Its message's number."""
        number: int = _unpack(self._data, self._at[index - self.first])[5]
        return number

    def expires(self, index: int) -> int:
        """When it expires (epoch ms), 0 for never."""
        expires: int = _unpack(self._data, self._at[index - self.first])[7]
        return expires

    def traits(self, index: int) -> Traits:
        """Its traits; mostly the same object for messages that were sent with the same headers."""
        data, at = self._data, self._at[index - self.first]
        head, _, queues, length = _unpack_lengths(data, at + _LENGTHS_AT)
        start = at + _PROLOGUE + 4 * queues
        tail_at = start + length
        return self._memo.recall(
            data[at + 1], data[at + 2], data[start:tail_at], data[tail_at : tail_at + head], head
        )


log = logging.getLogger(__name__)

Done = Callable[[Block | None], None]

#: Complete pages whose record offsets are cached, over all addresses.
CACHED_PAGE_STARTS = 16

#: How often a read that fails is tried again before its page is given up, and the seconds between.
RETRIES, RETRY_INTERVAL = 3, 1.0


class PageReader:
    """Reads for all pages of a broker."""

    def __init__(self, reader: Disk, files: Files, clock: Clock) -> None:
        self.account: Account | None = None  # for what is read; None: its address
        self.blocks_read = 0
        self.bytes_read = 0
        self._reader = reader
        self._files = files
        self.clock = clock
        self._memo = TraitsCache()
        self._expanded: OrderedDict[Page, None] = OrderedDict()  # their starts can be read again

    # ---- blocks

    def fetch(self, pages: Pages, page: Page, index: int, done: Done) -> None:
        if page.gone or index in page.unreadable:
            if not page.gone:  # something that was in memory was put back
                pages.lose(page, [index], page.damage or "")
            self.clock.soon(lambda: done(None))
            return
        starts = page.starts
        if starts is None:
            self._with_starts(pages, page, lambda: self.fetch(pages, page, index, done))
            return
        if page in self._expanded:
            self._expanded.move_to_end(page)
        key = starts[index] // BLOCK_BYTES
        known = page.blocks.get(key)
        if known is not None and index < known.first + len(known.at):
            block = self._block(pages, page, known)
            self.clock.soon(lambda: done(block))
        elif key in page.pending_reads:
            page.pending_reads[key].append((index, done))
        else:
            page.pending_reads[key] = [(index, done)]
            self._read(pages, page, key, 0)

    def _read(self, pages: Pages, page: Page, key: int, tries: int) -> None:
        starts = page.starts
        if page.gone or starts is None:
            self._answer(pages, page, key)
            return
        first = bisect_left(starts, key * BLOCK_BYTES)
        stop = bisect_left(starts, (key + 1) * BLOCK_BYTES, first)
        own = starts[first:stop]
        begin, end = own[0], starts[stop] if stop < len(starts) else page.end
        stream = page.stream
        split = end if stream is None else min(max(begin, stream.written), end)
        rest = b"" if stream is None or split == end else stream.read(split, end)
        if split == begin:
            self.clock.soon(lambda: self._keep(pages, page, key, first, own, rest))
            return
        files, path = self._files, page.path

        def came(result: tuple[bytes, list[int]] | Exception) -> None:
            if isinstance(result, Exception):
                self._failed(pages, page, key, first, stop, tries, result)
            elif not page.gone and any(first + place not in page.unreadable for place in result[1]):
                self._check(pages, page, key)
            else:
                self._keep(pages, page, key, first, own, result[0])

        self._reader.run(lambda: read_records(files, path, own, split, rest), came)

    def _keep(self, pages: Pages, page: Page, key: int, first: int, starts: array[int], data: bytes) -> None:
        self.blocks_read += 1
        self.bytes_read += len(data)
        base = starts[0] - _FRAME
        records = BlockRecords(first, array("I", [start - base for start in starts]), data)
        page.blocks[key] = records
        self._answer(pages, page, key, self._block(pages, page, records))

    def _block(self, pages: Pages, page: Page, records: BlockRecords) -> Block:
        address = pages.address
        return Block(page, records, address, self._memo, self.account or address)

    def _answer(self, pages: Pages, page: Page, key: int, block: Block | None = None) -> None:
        for index, done in page.pending_reads.pop(key, ()):
            if block is not None and index < block.stop and index not in page.unreadable:
                done(block)
            else:  # appended while the block was read, or unreadable
                self.fetch(pages, page, index, done)

    def _failed(
        self, pages: Pages, page: Page, key: int, first: int, stop: int, tries: int, fault: Exception
    ) -> None:
        """The file cannot be read. It may be the disk's passing weakness, unless there is no such file."""
        if page.gone:
            self._answer(pages, page, key)
        elif isinstance(fault, FileNotFoundError):
            self._lost(pages, page, key, range(page.count), _reason(fault))
        elif tries >= RETRIES:
            self._lost(pages, page, key, range(first, stop), _reason(fault))
        else:
            log.warning("cannot read %s: %s; retrying in %.0f s", page.path, _reason(fault), RETRY_INTERVAL)
            self.clock.reactor.callLater(RETRY_INTERVAL, lambda: self._read(pages, page, key, tries + 1))

    def _check(self, pages: Pages, page: Page, key: int) -> None:
        """Something is damaged: look what else is, so that all of it is reported at once."""
        files, path, starts = self._files, page.path, page.starts
        assert starts is not None
        written = page.end if page.stream is None else page.stream.written
        own = starts[: bisect_left(starts, written)]

        def came(result: tuple[bytes, list[int]] | Exception) -> None:
            if isinstance(result, Exception):
                self._failed(pages, page, key, 0, len(own), RETRIES, result)
            elif page.gone:
                self._answer(pages, page, key)
            else:
                bad = result[1]
                at = starts[bad[0]] if bad else 0
                self._lost(pages, page, key, bad, f"damaged records from byte {at} on")

        self._reader.run(lambda: read_records(files, path, own, written, b""), came)

    def _lost(self, pages: Pages, page: Page, key: int, indexes: Sequence[int], reason: str) -> None:
        if not page.gone:
            pages.lose(page, indexes, reason)
        self._answer(pages, page, key)

    # ---- where the records begin

    def _with_starts(self, pages: Pages, page: Page, call: Callable[[], None]) -> None:
        waiting = page.waiting_for_starts
        if waiting is not None:
            waiting.append(call)
            return
        page.waiting_for_starts = [call]
        self._read_starts(pages, page, 0)

    def _read_starts(self, pages: Pages, page: Page, tries: int) -> None:
        files, path = self._files, page.path

        def came(result: array[int] | Exception) -> None:
            calls = page.waiting_for_starts
            if isinstance(result, Exception) and not page.gone:
                if not isinstance(result, FileNotFoundError) and tries < RETRIES:
                    log.warning(
                        "cannot read %s: %s; retrying in %.0f s", path, _reason(result), RETRY_INTERVAL
                    )
                    self.clock.reactor.callLater(
                        RETRY_INTERVAL, lambda: self._read_starts(pages, page, tries + 1)
                    )
                    return
                pages.lose(page, range(page.count), _reason(result))
            elif not isinstance(result, Exception):
                self.know_starts(page, result)
                if len(result) != page.count and not page.gone:
                    pages.lose(page, range(page.count), "footer and records are damaged")
            page.waiting_for_starts = None
            for call in calls or ():
                call()

        self._reader.run(lambda: read_starts(files, path, page.count), came)

    def know_starts(self, page: Page, starts: array[int]) -> None:
        """Keep where the records of a complete page begin, and give up those of another for it."""
        page.starts = starts
        if page.sealed:
            at_hand = self._expanded
            at_hand[page] = None
            at_hand.move_to_end(page)
            while len(at_hand) > CACHED_PAGE_STARTS:
                at_hand.popitem(last=False)[0].starts = None

    def forget(self, page: Page) -> None:
        """A page is gone."""
        self._expanded.pop(page, None)


def _reason(fault: Exception) -> str:
    return getattr(fault, "strerror", None) or str(fault)


def read_records(
    files: Files, path: Path, starts: array[int], split: int, rest: bytes
) -> tuple[bytes, list[int]]:
    """Bytes of records, and which of those are damaged. In the reader's thread.

    The file has them up to ``split``, ``rest`` is what follows.
    """
    base = starts[0]
    data = files.read(path, base, split)
    data = data.ljust(split - base, b"\0") + rest  # where the file has become shorter
    bad, size, view = [], PREFIX.size, memoryview(data)
    unpack, length_of = PREFIX.unpack_from, len(data)
    for place, start in enumerate(starts):
        begin = start - base + size
        length, crc = unpack(data, begin - size) if begin <= length_of else (0, 0)
        end = begin + length
        if not length or end > length_of or crc32(view[begin:end]) != crc or data[begin] != Kind.MESSAGE:
            bad.append(place)
    return data, bad


def read_footer(files: Files, path: Path, size: int) -> Footer | None:
    """The footer of a page file of ``size`` bytes, None where it has none that can be believed."""
    at = footer_offset(files.read(path, max(0, size - TRAILER.size), size))
    if not 0 < at < size - TRAILER.size - PREFIX.size:
        return None
    data = files.read(path, at, size - TRAILER.size)
    if len(data) < PREFIX.size:
        return None
    length, crc = PREFIX.unpack_from(data)
    payload = memoryview(data)[PREFIX.size :]
    if len(payload) != length or crc32(payload) != crc:
        return None
    footer = Footer.parse(payload)
    return footer if footer is not None and footer.size == at else None


def read_starts(files: Files, path: Path, count: int) -> array[int]:
    """Where the records of a complete page begin. In the reader's thread."""
    footer = read_footer(files, path, files.size(path))
    if footer is not None and len(footer.starts) == count:
        return footer.starts
    return PageScan(files.read(path)).contents.starts
