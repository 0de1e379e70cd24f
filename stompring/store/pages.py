"""The pages of addresses: appending, reading, deleting, and the cursors of queues in them.

`Paging` has the `Pages` of all addresses. `Pages` appends messages to the last page of one address, and deletes pages
without unsettled messages. `PageReader` reads blocks of messages in a thread of its own, one read for all callers that
wait for a block; it checks every record, and a block decodes messages on demand. A `Cursor` is the position of one
queue in the pages of one address; it has a `QueuePageState` for each page.
"""

from __future__ import annotations

import logging
import re
from array import array
from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, count
from pathlib import Path
from struct import Struct
from typing import Final
from weakref import WeakValueDictionary
from zlib import compress, crc32, decompress

from mypy_extensions import mypyc_attr

from stompring.broker.address import Address
from stompring.broker.clock import Clock
from stompring.broker.message import EVERYWHERE, Account, AddressBase, Message, RecoveredMessage, Traits
from stompring.broker.ports import LOADED, TIMED, Reason
from stompring.broker.queue import LAST_VALUE, Queue
from stompring.broker.reference import SCHEDULED, Position, QueueBase, Reference
from stompring.broker.reference import Page as AnyPage

from .encoder import RecordEncoder
from .files import Disk, Files
from .journal import Journal, LiveRecord
from .page_file import (
    ADDRESS_FILE,
    DURABLE_BIT,
    SCHEDULED_BIT,
    PageColumns,
    PageScan,
    describe_loss,
    page_path,
    set_aside,
)
from .record import (
    ADDRESS,
    BEGUN,
    COMPLETE,
    COPY,
    FOR_READERS,
    LENGTHS,
    LENGTHS_AT,
    MESSAGE,
    PAGE_CURSOR,
    PAGE_FILE,
    PAGE_SETTLED,
    PAGE_SHARE,
    PAGE_STATE,
    PREFIX,
    QUEUE,
    REMOVED,
    RUN,
    WENT_OUT,
    Cause,
    Kind,
    TraitsCache,
    encode_traits,
    framed,
    message_records,
    pack_name,
    pack_runs,
)
from .retention import PAGING, Retention
from .segment import PAGE, ReadFile, pack_header, read_footer
from .writer import AppendOnlyFile, Writer

#: Size of a block of a page in bytes. A block also contains the rest of its last message.
BLOCK_BYTES: Final = 256 * 1024

#: Estimated bytes of the Python objects of one block.
OVERHEAD: Final = 400

_unpack = MESSAGE.unpack_from
_unpack_lengths = LENGTHS.unpack_from
# of the fields of `MESSAGE`: flags, priority, expires, and the four lengths
_unpack_tail = Struct("<xBB21xQ16xIIII").unpack_from
_PROLOGUE: Final = MESSAGE.size
_FRAME: Final = PREFIX.size


class Block:
    """A block of messages of a page, read from disk (`broker.ports.Block`)."""

    def __init__(
        self, page: Page, records: BlockRecords, address: Address, memo: TraitsCache, account: Account
    ) -> None:
        self.page = page
        self.first = records.first
        self.stop = records.first + len(records.at)
        self._records = records  # keeps the records: the page has only a weak reference
        self._at: array[int] = records.at
        self._data: bytes = records.data
        self._address = address
        self._memo = memo
        self._account = account
        self.size = len(records.data) + 4 * len(records.at) + OVERHEAD

    def message(self, index: int) -> Message:
        page = self.page
        if page.left > 1 or page.shared:
            shared = page.shared.get(index)
            if shared is not None and shared.holders:
                return shared
        data, at = self._data, self._at[index - self.first]
        # fmt: off
        (_, flags, priority, _, _, number, timestamp, expires, _, _,
         head, body, queues, traits_length) = _unpack(data, at)
        # fmt: on
        start = at + _PROLOGUE + 4 * queues
        tail_at = start + traits_length
        tail = data[tail_at : tail_at + head + body + 2]
        traits = self._memo.recall(flags & ~COPY, priority, data[start:tail_at], tail, head)
        message = RecoveredMessage(
            number, self._address, traits, tail, head, timestamp, expires, self._account
        )
        if page.left > 1:
            page.share(index, message)
        return message

    def tail(self, index: int) -> tuple[Traits, bytes, int, int]:
        data, at = self._data, self._at[index - self.first]
        flags, priority, expires, head, body, queues, traits_length = _unpack_tail(data, at)
        start = at + _PROLOGUE + 4 * queues
        tail_at = start + traits_length
        tail = data[tail_at : tail_at + head + body + 2]
        traits = self._memo.recall(flags & ~COPY, priority, data[start:tail_at], tail, head)
        return traits, tail, head, expires

    def due(self, index: int) -> int:
        due: int = _unpack(self._data, self._at[index - self.first])[8]
        return due

    def number_of(self, index: int) -> int:
        number: int = _unpack(self._data, self._at[index - self.first])[5]
        return number

    def expires(self, index: int) -> int:
        expires: int = _unpack(self._data, self._at[index - self.first])[7]
        return expires

    def traits(self, index: int) -> Traits:
        data, at = self._data, self._at[index - self.first]
        head, _, queues, length = _unpack_lengths(data, at + LENGTHS_AT)
        start = at + _PROLOGUE + 4 * queues
        tail_at = start + length
        return self._memo.recall(
            data[at + 1], data[at + 2], data[start:tail_at], data[tail_at : tail_at + head], head
        )


log = logging.getLogger(__name__)

Done = Callable[[Block | None], None]

#: Maximum number of complete pages whose record offsets are cached, over all addresses.
CACHED_PAGE_STARTS: Final = 16

#: Key in `Page.pending_reads` for reads that wait for the page's record offsets.
STARTS: Final = -1

#: Number of retries of a failed read, and seconds between them. If all fail, the messages count as lost.
RETRIES, RETRY_INTERVAL = 3, 1.0


class PageReader:
    """Reads the pages of a broker."""

    def __init__(self, reader: Disk, files: Files, clock: Clock) -> None:
        self.account: Account | None = None  # memory account of blocks; None: the account of the address
        self.blocks_read = 0
        self.bytes_read = 0
        self._reader = reader
        self._files = files
        self.clock = clock
        self._memo = TraitsCache()
        # complete pages with cached record offsets, the least recently used first
        self._expanded: OrderedDict[Page, None] = OrderedDict()

    # ---- blocks

    def fetch(self, page: Page, index: int, done: Done) -> None:
        """Read the block that contains a position. Calls ``done`` with the block, or with None if it is unreadable,
        always after `fetch` has returned. An unreadable position is reported, and settled as lost for all queues,
        before ``done`` is called.
        """
        if page.gone or index in page.unreadable:
            if not page.gone:  # a queue may have returned an unreadable position from memory to disk
                page.pages.lose(page, [index], page.damage or "")
            self.clock.soon(lambda: done(None))
            return
        starts, key = page.starts, STARTS
        if starts is not None:
            if page in self._expanded:
                self._expanded.move_to_end(page)
            key = starts[index] // BLOCK_BYTES
            known = page.blocks.get(key)
            if known is not None and index < known.first + len(known.at):
                block = self._block(page, known)
                self.clock.soon(lambda: done(block))
                return
        if key in page.pending_reads:
            page.pending_reads[key].append((index, done))
            return
        page.pending_reads[key] = [(index, done)]
        self._read(page, key, 0)

    def _read(self, page: Page, key: int, tries: int) -> None:
        starts = page.starts
        if page.gone or (starts is None) != (key == STARTS):
            self._answer(page, key)
            return
        if starts is None:
            self._read_starts(page, tries)
            return
        first = bisect_left(starts, key * BLOCK_BYTES)
        stop = bisect_left(starts, (key + 1) * BLOCK_BYTES, first)
        own = starts[first:stop]
        begin, end = own[0], starts[stop] if stop < len(starts) else page.end
        stream = page.stream
        split = end if stream is None else min(max(begin, stream.written), end)
        rest = b"" if stream is None or split == end else stream.read(split, end)
        if split == begin:
            self.clock.soon(lambda: self._keep(page, key, first, own, rest))
            return

        def came(result: tuple[bytes, list[int]] | Exception) -> None:
            if isinstance(result, Exception):
                self._failed(page, key, range(first, stop), tries, result)
            elif not page.gone and any(first + place not in page.unreadable for place in result[1]):
                self._check(page, key)
            else:
                self._keep(page, key, first, own, result[0])

        self._reader.run(lambda: read_records(self._files, page.path, own, split, rest), came)

    def _keep(self, page: Page, key: int, first: int, starts: array[int], data: bytes) -> None:
        self.blocks_read += 1
        self.bytes_read += len(data)
        base = starts[0] - _FRAME
        records = BlockRecords(first, array("I", [start - base for start in starts]), data)
        page.blocks[key] = records
        self._answer(page, key, self._block(page, records))

    def _block(self, page: Page, records: BlockRecords) -> Block:
        address = page.pages.address
        return Block(page, records, address, self._memo, self.account or address)

    def _answer(self, page: Page, key: int, block: Block | None = None) -> None:
        for index, done in page.pending_reads.pop(key, ()):
            if block is not None and index < block.stop and index not in page.unreadable:
                done(block)
            else:  # the position is unreadable or was appended during the read, or only record offsets were read
                self.fetch(page, index, done)

    def _failed(self, page: Page, key: int, indexes: range, tries: int, fault: Exception) -> None:
        """Retry the read of a block: a disk error may be temporary. A missing file is not retried."""
        missing = isinstance(fault, FileNotFoundError)
        if page.gone or missing or tries >= RETRIES:
            self._lost(page, key, range(page.count) if missing else indexes, _reason(fault))
        else:
            log.warning("cannot read %s: %s; retrying in %.0f s", page.path, _reason(fault), RETRY_INTERVAL)
            self.clock.reactor.callLater(RETRY_INTERVAL, self._read, page, key, tries + 1)

    def _check(self, page: Page, key: int) -> None:
        """Check all records of a page that has a damaged one, so that the damage is reported once."""
        starts = page.starts
        assert starts is not None
        written = page.end if page.stream is None else page.stream.written
        own = starts[: bisect_left(starts, written)]

        def came(result: tuple[bytes, list[int]] | Exception) -> None:
            if isinstance(result, Exception):
                self._failed(page, key, range(len(own)), RETRIES, result)
            else:
                bad = result[1]
                at = starts[bad[0]] if bad else 0
                self._lost(page, key, bad, f"damaged records from byte {at} on")

        self._reader.run(lambda: read_records(self._files, page.path, own, written, b""), came)

    def _lost(self, page: Page, key: int, indexes: Sequence[int], reason: str) -> None:
        if not page.gone:
            page.pages.lose(page, indexes, reason)
        self._answer(page, key)

    # ---- record offsets

    def _read_starts(self, page: Page, tries: int) -> None:
        def came(result: array[int] | Exception) -> None:
            if isinstance(result, Exception):
                self._failed(page, STARTS, range(page.count), tries, result)
                return
            self.know_starts(page, result)
            if len(result) != page.count:
                self._lost(page, STARTS, range(page.count), "footer and records are damaged")
            else:
                self._answer(page, STARTS)

        self._reader.run(lambda: read_starts(self._files, page.path, page.count), came)

    def know_starts(self, page: Page, starts: array[int]) -> None:
        """Cache the record offsets of a complete page. Drops the offsets of the least recently used page."""
        page.starts = starts
        if page.sealed:
            self._expanded[page] = None
            self._expanded.move_to_end(page)
            while len(self._expanded) > CACHED_PAGE_STARTS:
                self._expanded.popitem(last=False)[0].starts = None

    def forget(self, page: Page) -> None:
        """Drop the cached record offsets of a deleted page."""
        self._expanded.pop(page, None)


def _reason(fault: Exception) -> str:
    return getattr(fault, "strerror", None) or str(fault)


def read_records(
    files: Files, path: Path, starts: array[int], split: int, rest: bytes
) -> tuple[bytes, list[int]]:
    """Return the bytes of records, and those indexes in ``starts`` whose records are damaged. Runs in the reading
    thread. The file has the bytes before ``split``; ``rest`` has the bytes after that.
    """
    base = starts[0]
    data = files.read(path, base, split)
    data = data.ljust(split - base, b"\0") + rest  # pad a truncated file
    bad, size, view = [], PREFIX.size, memoryview(data)
    unpack, length_of = PREFIX.unpack_from, len(data)
    for place, start in enumerate(starts):
        begin = start - base + size
        length, crc = unpack(data, begin - size) if begin <= length_of else (0, 0)
        end = begin + length
        if not length or end > length_of or crc32(view[begin:end]) != crc or data[begin] != Kind.MESSAGE:
            bad.append(place)
    return data, bad


def read_starts(files: Files, path: Path, count: int) -> array[int]:
    """Return the record offsets of a complete page. Runs in the reading thread."""
    footer = read_footer(partial(files.read, path), files.size(path))
    if footer is not None and len(footer.starts) == count:
        return footer.starts
    return PageScan(files.read(path)).contents.starts


ZEROS: Final = re.compile(rb"\0+")
#: States of positions that are only on disk: waiting or timed.
ON_DISK: Final = re.compile(rb"[\x01-\x0a\x0c]+")
_LEFT_IN_MEMORY: Final = bytes(LOADED if state == LOADED else 0 for state in range(256))


class PendingUpdates:
    """Changes of one queue in one page that are encoded together."""

    def __init__(self) -> None:
        # settled positions, and spans of them (first, after the last), by reason; `WENT_OUT` is added to the reason if
        # the delivery has no record
        self.settled: defaultdict[int, list[int]] = defaultdict(list)
        self.spans: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        #: Returned deliveries: index, deliveries, deliveries without a record yet, attempts, due time, time (epoch ms).
        self.returned: list[tuple[int, int, int, int, int, int]] = []
        self.takers: dict[int, str] = {}  # by index: name of the acknowledging consumer, if retained


_NO_COUNTS: dict[int, tuple[int, int]] = {}
_NO_DUES: dict[int, int] = {}


class QueuePageState(LiveRecord):
    """The states of a page's messages in one queue (see `broker.ports.Cursor.states`), and counts of the states.

    ``states`` may be shorter than the page: the queue has no positions after its end. `compress_states` compresses
    states that were not used recently; then ``states`` is empty until `expand_states`.
    """

    whole = False

    def __init__(self, cursor: Cursor, page: Page, states: bytearray | None = None) -> None:
        super().__init__()
        self.cursor = cursor
        self.page = page
        self.states = bytearray() if states is None else states
        self.remaining = 0
        self.loaded = 0
        self.timed = 0
        self.levels = [0] * 10  # number of waiting positions by priority
        # all page states share the empty dicts, see `set_counts` and `set_due`
        self.counts = _NO_COUNTS  # by index: deliveries and attempts, if not 0
        self.dues = _NO_DUES  # by index: due times of returned deliveries
        self.listed = False  # whether this state is in `Cursor._expanded`
        self.updates: PendingUpdates | None = None  # the updates that may still be extended
        self.mark: object = None  # the transaction that ``updates`` belongs to
        self.logged: PendingUpdates | None = None  # updates of messages that do not survive a restart
        self._packed = b""
        self._unlogged: list[PendingUpdates] = []

    def count_up(self) -> None:
        """Count the positions in each state."""
        states = self.states
        self.levels = [states.count(level + 1) for level in range(10)]
        self.timed = states.count(TIMED)
        self.loaded = states.count(LOADED)
        self.remaining = sum(self.levels) + self.timed + self.loaded

    # ---- states

    def set_counts(self, index: int, deliveries: int, attempts: int) -> None:
        """Set the deliveries and failed attempts of a position."""
        if self.counts is _NO_COUNTS:
            self.counts = {}
        self.counts[index] = (deliveries, attempts)

    def set_due(self, index: int, due: int) -> None:
        """Set the due time of a position. The due time stays while the message is in memory, because compaction may
        write it again.
        """
        if self.dues is _NO_DUES:
            self.dues = {}
        self.dues[index] = due

    def compress_states(self) -> None:
        """Compress the states. Call this only if the page is complete and no position is loaded."""
        if self.states:
            self._packed = compress(self.states, 1) if self.remaining else b""
            self.states = bytearray()

    def expand_states(self) -> bytearray:
        """Return the uncompressed states, which the caller may change."""
        packed = self._packed
        if packed:
            self._packed = b""
            self.states = bytearray(decompress(packed))
        return self.states

    def purge(self, reason: Reason, durable: bool, retains: bool) -> int:
        """Settle all positions that are waiting or timed. Returns their number. ``retains``: also record messages that
        do not survive a restart.
        """
        states, settled = self.expand_states(), 0
        for match in ON_DISK.finditer(states):
            start, stop = match.span()
            settled += stop - start
            if durable and self.page.contents is None:
                self.pending_updates().spans[reason].append((start, stop))
                continue
            kept: list[int] = []
            others: list[int] = []
            for index in range(start, stop):
                (kept if durable and self.page.keeps(index) else others).append(index)
            if kept:
                self.pending_updates().settled[reason] += kept
            if retains and others:
                self.logged_updates().settled[reason] += others
        self.states = states = states.translate(_LEFT_IN_MEMORY)
        self.counts = {index: counts for index, counts in self.counts.items() if states[index]}
        self.dues = {index: due for index, due in self.dues.items() if states[index]}
        self.count_up()
        return settled

    # ---- records for the journal

    def pending_updates(self) -> PendingUpdates:
        """Return the object to which the caller adds changes: a new one after the beginning or end of a transaction."""
        log = self.cursor.pages.log
        updates = self.updates
        if updates is None or self.mark is not log.mark:
            updates = self.updates = PendingUpdates()
            self.mark = log.mark
            self._unlogged.append(updates)
            log.update(self)
        return updates

    def logged_updates(self) -> PendingUpdates:
        """Return the object to which the caller adds changes of retained messages that do not survive a restart."""
        updates = self.logged
        if updates is None:
            updates = self.logged = PendingUpdates()
            self.cursor.pages.log.log_page(self)
        return updates

    def encode_logged(self, encoder: RecordEncoder) -> None:
        updates, self.logged = self.logged, None
        if updates is not None:
            self._encode(updates, encoder, FOR_READERS)

    def encode(self, encoder: RecordEncoder) -> None:
        updates = self._unlogged.pop(0)
        if updates is self.updates:
            self.updates = None
        self._encode(updates, encoder)

    def _encode(self, updates: PendingUpdates, encoder: RecordEncoder, scope: int = 0) -> None:
        address, queue = self._names(encoder)
        page, now = self.page.number, self.cursor.pages.clock.now
        kind, cause = Kind.PAGE_STATE, Cause.RETURNED
        for index, deliveries, unlogged, attempts, due, time in updates.returned:
            counts = (index, deliveries, attempts, due, time)
            encoder.add(PAGE_STATE.pack(kind, cause, unlogged, address, queue, page, *counts), scope)
        for reason, positions in updates.settled.items():
            positions.sort()
            takers = updates.takers if reason & ~WENT_OUT == Reason.ACKNOWLEDGED else {}
            for consumer, some in by_consumer(encoder, positions, takers):
                head = PAGE_SETTLED.pack(Kind.PAGE_SETTLED, reason, consumer, address, queue, page, now)
                encoder.add(head + pack_runs(some), scope)
        for reason, spans in sorted(updates.spans.items()):
            head = PAGE_SETTLED.pack(Kind.PAGE_SETTLED, reason, 0, address, queue, page, now)
            encoder.add(head + pack_spans(sorted(spans)), scope)

    def encode_all(self, encoder: RecordEncoder) -> None:
        """Encode all settled positions of the page, and the counts of other positions."""
        address, queue = self._names(encoder)
        page = self.page.number
        states = decompress(self._packed) if self._packed else self.states
        spans = [match.span() for match in ZEROS.finditer(states)]
        if len(states) < self.page.count:
            spans.append((len(states), self.page.count))
        encoder.add(PAGE_CURSOR.pack(Kind.PAGE_CURSOR, 0, 0, address, queue, page) + pack_spans(spans))
        for index, (deliveries, attempts) in self.counts.items():
            counts = (index, deliveries, attempts, self.dues.get(index, 0), 0)
            encoder.add(PAGE_STATE.pack(Kind.PAGE_STATE, Cause.REPEATED, 0, address, queue, page, *counts))

    def _names(self, encoder: RecordEncoder) -> tuple[int, int]:
        cursor = self.cursor
        encoder.name_queue(cursor.queue)
        return encoder.name_address(cursor.pages.address), cursor.queue.number


def by_consumer(
    encoder: RecordEncoder, positions: list[int], takers: dict[int, str]
) -> Iterable[tuple[int, list[int]]]:
    """Group positions by the consumer that acknowledged them: pairs of consumer number (0: unknown) and positions."""
    if not takers:
        return ((0, positions),)
    found: dict[int, list[int]] = {}
    for position in positions:
        taker = takers.get(position)
        found.setdefault(0 if taker is None else encoder.name_consumer(taker), []).append(position)
    return found.items()


def pack_spans(spans: Iterable[tuple[int, int]]) -> bytes:
    """Encode ascending spans (first position, position after the last) as runs of u32 first, u32 count."""
    return b"".join([RUN.pack(start, stop - start) for start, stop in spans])


#: Number of complete pages without loaded messages whose states a cursor keeps uncompressed.
EXPANDED_STATES: Final = 2

NEVER_DELIVERED = (0, 0)


class Cursor:
    """The progress of one queue through the pages of one address (`broker.ports.Cursor`). ``_order``: states of pages
    with unsettled messages, by page number.
    """

    def __init__(self, pages: Pages, queue: Queue) -> None:
        self.pages = pages
        self.queue = queue
        self.durable = queue.durable and not queue.attributes.temporary
        #: Whether to record the consumer of each acknowledgement, and changes of retained messages that are lost at a
        #: restart.
        self.retaining = pages.log.retention is not None
        self.remaining = 0
        self.waiting = 0
        self.timed = 0
        self.levels = [0] * 10
        self.page_states: dict[AnyPage, QueuePageState] = {}  # states of the queue by page
        self._order: list[QueuePageState] = []
        self._numbers: list[int] = []  # page numbers of ``_order``
        self._lowest = [0] * 10  # by priority: no page with a lower number than this has a waiting message
        self._expanded: list[QueuePageState] = []

    # ---- finding

    def first(self, level: int) -> Position | None:
        found = self._find(level, self._lowest[level], 0)
        assert found is not None or not self.levels[level], "a message waits, but no page has it"
        if found is not None:
            self._lowest[level] = found[0].number
        return found

    def following(self, level: int, page: Page, index: int) -> Position | None:
        return self._find(level, page.number, index)

    def _find(self, level: int, number: int, index: int) -> Position | None:
        """Return the first waiting position of a priority at or after ``index`` of page ``number``."""
        if not self.levels[level]:
            return None
        order = self._order
        for place in range(bisect_left(self._numbers, number), len(order)):
            page_state = order[place]
            if page_state.levels[level]:
                page = page_state.page
                first = index if page.number == number else 0
                found = (page_state.states or self._expand(page_state)).find(level + 1, first)
                if found >= 0:
                    return page, found
        return None

    def is_waiting(self, page: Page, index: int) -> bool:
        states = self._states(page)
        return index < len(states) and 0 < states[index] < LOADED

    def states(self, page: Page, first: int, stop: int) -> bytes:
        return bytes(self._states(page)[first:stop]).ljust(stop - first, b"\0")

    def _states(self, page: Page) -> bytearray:
        """Return the states of a page, empty if the queue has no unsettled message in it."""
        page_state = self.page_states.get(page)
        if page_state is None or not page_state.remaining:
            return bytearray()
        return page_state.states or self._expand(page_state)

    def timed_of(self, page: Page) -> list[int]:
        # bytes(): mypyc does not compile a comprehension over a bytearray.
        page_state = self.page_states.get(page)
        if page_state is None or not page_state.timed:
            return []
        return [index for index, state in enumerate(bytes(self._states(page))) if state == TIMED]

    def waiting_of(self, page: Page) -> list[int]:
        return [index for index, state in enumerate(bytes(self._states(page))) if 0 < state < LOADED]

    def counts(self, page: Page, index: int) -> tuple[int, int]:
        page_state = self.page_states.get(page)
        return NEVER_DELIVERED if page_state is None else page_state.counts.get(index, NEVER_DELIVERED)

    def due(self, block: Block, index: int) -> int:
        page_state = self.page_states.get(block.page)
        if page_state is not None and index in page_state.dues:
            return page_state.dues[index]
        return block.due(index)

    # ---- loading

    def take(self, page: Page, index: int) -> tuple[int, int]:
        page_state = self.page_states[page]
        states = page_state.states or self._expand(page_state)
        state = states[index]
        if state == TIMED:
            page_state.timed -= 1
            self.timed -= 1
        else:
            assert 0 < state < LOADED, "this position does not wait"
            state -= 1
            page_state.levels[state] -= 1
            self.levels[state] -= 1
            self.waiting -= 1
        states[index] = LOADED
        page_state.loaded += 1
        return page_state.counts.get(index, NEVER_DELIVERED)

    def put_back(self, ref: Reference) -> None:
        assert ref.position is not None
        page, index = ref.position
        page_state = self.page_states.get(page)
        if page_state is None:
            return
        states = page_state.states
        if states[index] != LOADED:
            return
        if ref.deliveries or ref.attempts:
            page_state.set_counts(index, ref.deliveries, ref.attempts)
        self._set_due(page_state, index, ref)
        if ref.state == SCHEDULED:
            states[index] = TIMED
            if not 0 < page.soonest_due <= ref.due:
                page.soonest_due = ref.due
            page_state.timed += 1
            self.timed += 1
        else:
            level = ref.message.traits.priority
            states[index] = level + 1
            page_state.levels[level] += 1
            self.levels[level] += 1
            self.waiting += 1
            if page.number < self._lowest[level]:
                self._lowest[level] = page.number
        page_state.loaded -= 1
        self.keep_expanded(page_state)

    def returned(self, ref: Reference) -> None:
        assert ref.position is not None
        page, index = ref.position
        page_state = self.page_states.get(page)
        if page_state is None or page_state.states[index] != LOADED:
            return
        logged = page_state.counts.get(index, NEVER_DELIVERED)[0]
        page_state.set_counts(index, ref.deliveries, ref.attempts)
        self._set_due(page_state, index, ref)
        updates = self._updates(page_state, ref)
        if updates is not None:
            due = ref.due if ref.state == SCHEDULED else 0
            counts = (ref.deliveries, ref.deliveries - logged, ref.attempts, due)
            updates.returned.append((index, *counts, self.pages.clock.now))

    def _updates(self, page_state: QueuePageState, ref: Reference) -> PendingUpdates | None:
        """Return the updates for a change of a loaded position, None if the change is not recorded."""
        traits = ref.message.traits
        if self.durable and traits.durable:
            return page_state.pending_updates()
        if self.retaining and traits.retained >= self.queue.retains_from:
            return page_state.logged_updates()
        return None

    @staticmethod
    def _set_due(page_state: QueuePageState, index: int, ref: Reference) -> None:
        if ref.state == SCHEDULED:
            page_state.set_due(index, ref.due)
        else:
            page_state.dues.pop(index, None)

    # ---- settling

    def settle(self, ref: Reference, reason: Reason) -> None:
        place = ref.position
        assert place is not None
        page, index = place
        page_state = self.page_states.get(page)
        if page_state is None:
            return  # the queue was deleted meanwhile
        states = page_state.states
        if states[index] != LOADED:
            return
        states[index] = 0
        page_state.loaded -= 1
        logged = page_state.counts.pop(index, NEVER_DELIVERED)[0]
        page_state.dues.pop(index, None)
        updates = self._updates(page_state, ref) if self.durable or self.retaining else None
        if updates is not None:
            out = WENT_OUT if ref.deliveries > logged else 0
            updates.settled[out | reason].append(index)
            taker = ref.last_rejected_by
            if self.retaining and reason is Reason.ACKNOWLEDGED and taker is not None and taker.consumer_name:
                updates.takers[index] = taker.consumer_name
        self._settled(page_state, 1)

    def settle_waiting(self, page: Page, index: int, reason: Reason) -> None:
        self.take(page, index)
        page_state = self.page_states[page]
        states = page_state.states
        states[index] = 0
        page_state.loaded -= 1
        page_state.counts.pop(index, None)
        page_state.dues.pop(index, None)
        if self.durable and page.keeps(index):
            page_state.pending_updates().settled[reason].append(index)
        elif self.retaining and page.retains:
            page_state.logged_updates().settled[reason].append(index)
        self._settled(page_state, 1)

    def _settled(self, page_state: QueuePageState, number: int) -> None:
        """Count settled positions. Drops the page state if all its positions are settled. May compress it if none of
        its positions is loaded.
        """
        self.remaining -= number
        page_state.remaining = left = page_state.remaining - number
        if not left:
            # `Page.page_states` keeps the state: compaction repeats the settled positions while the file exists
            place = bisect_left(self._numbers, page_state.page.number)
            del self._order[place], self._numbers[place]
            page_state.counts, page_state.dues = _NO_COUNTS, _NO_DUES
            self.pages.queue_left(page_state.page)
        elif not page_state.loaded:
            self.keep_expanded(page_state)

    def untouched(self, page: Page) -> bool:
        page_state = self.page_states.get(page)
        return page_state is not None and not page_state.counts and not self.retaining

    def acknowledge(self, page: Page, first: int, stop: int, durable: bool) -> None:
        page_state = self.page_states[page]
        states = page_state.states or self._expand(page_state)
        number, level = stop - first, states[first] - 1
        states[first:stop] = bytes(number)
        page_state.levels[level] -= number
        self.levels[level] -= number
        self.waiting -= number
        if durable and self.durable:
            page_state.pending_updates().spans[WENT_OUT | Reason.ACKNOWLEDGED].append((first, stop))
        self._settled(page_state, number)

    def purge(self, reason: Reason) -> Iterator[int]:
        """Settle the messages on disk, page by page (`broker.ports.Cursor.purge`). Messages appended meanwhile stay."""
        for page_state in self._order[::-1]:
            if page_state.remaining and self.page_states.get(page_state.page) is page_state:
                self._count(page_state, -1)
                settled = page_state.purge(reason, self.durable, self.retaining and page_state.page.retains)
                self._count(page_state, 1)
                self._settled(page_state, 0)
                yield settled

    def lose(self, page: Page, indexes: Sequence[int]) -> int:
        """Settle unreadable positions that are not in memory as killed. Returns the number of settled positions."""
        states = self._states(page)
        count = len(states)
        lost = [index for index in indexes if index < count and states[index] not in (0, LOADED)]
        for index in lost:
            self.settle_waiting(page, index, Reason.KILLED)
        return len(lost)

    def _count(self, page_state: QueuePageState, sign: int) -> None:
        self.remaining += sign * page_state.remaining
        self.timed += sign * page_state.timed
        for level, waiting in enumerate(page_state.levels):
            if waiting:
                self.levels[level] += sign * waiting
                self.waiting += sign * waiting

    # ---- page states

    def page_state(self, page: Page) -> QueuePageState:
        """Return the state of a page, created on first use."""
        page_state = self.page_states.get(page)
        if page_state is None:
            page_state = self.page_states[page] = QueuePageState(self, page)
            page.page_states[page_state] = None
        return page_state

    def adopt(self, page_state: QueuePageState) -> None:
        """Add a page state that recovery has restored. The caller adds them in ascending order of page numbers."""
        self.page_states[page_state.page] = page_state
        page_state.page.page_states[page_state] = None
        if page_state.remaining:
            self._count(page_state, 1)
            self.enlist(page_state)

    def enlist(self, page_state: QueuePageState) -> None:
        """Add a state for the last page, when this queue gets its first message in that page."""
        self._order.append(page_state)
        self._numbers.append(page_state.page.number)
        self.pages.queue_entered(page_state.page)

    def end(self) -> None:
        """Drop all page states of a deleted queue."""
        order, self._order, self._numbers = self._order, [], []
        self.page_states, self._expanded = {}, []
        self.remaining = self.waiting = self.timed = 0
        self.levels = [0] * 10
        for page_state in order:
            self.pages.queue_left(page_state.page)

    def _expand(self, page_state: QueuePageState) -> bytearray:
        states = page_state.expand_states()
        self.keep_expanded(page_state)
        return states

    def keep_expanded(self, page_state: QueuePageState) -> None:
        """Keep a page state uncompressed. If there are more than `EXPANDED_STATES`, compress the state that was
        expanded first.
        """
        if page_state.loaded or page_state.listed or page_state.page.contents is not None:
            return
        page_state.listed = True
        self._expanded.append(page_state)
        if len(self._expanded) > EXPANDED_STATES:
            oldest = self._expanded.pop(0)
            oldest.listed = False
            if not oldest.loaded and oldest.page.contents is None:
                oldest.compress_states()


class QueueRemoved(LiveRecord):
    """The record that a deleted queue has no message in a page."""

    def __init__(self, address: int, queue: int, page: Page) -> None:
        super().__init__()
        self._address = address
        self._queue = queue
        self._page = page

    def encode(self, encoder: RecordEncoder) -> None:
        """Record the whole page as settled."""
        page = self._page
        if not self.gone:
            head = PAGE_CURSOR.pack(Kind.PAGE_CURSOR, 0, 0, self._address, self._queue, page.number)
            encoder.add(head + pack_spans([(0, page.count)]))


class PageFileRecord(LiveRecord):
    """The record of a page file in the journal.

    ``shares``: number of the page's durable messages that entered each durable queue, by queue number; None until the
    page is complete. ``messages``: number of all messages of a complete page.
    """

    def __init__(self, log: Journal, address: int, number: int) -> None:
        super().__init__()
        self.messages = 0
        self.shares: Mapping[int, int] | None = None
        self._log = log
        self._address = address
        self._number = number

    def encode(self, encoder: RecordEncoder) -> None:
        shares = {} if self.gone or self.shares is None else self.shares
        operation = REMOVED if self.gone else BEGUN if self.shares is None else COMPLETE
        messages = self.messages if operation == COMPLETE else 0
        log, number = self._log, self._number
        if log.next_page:
            log.next_page = max(log.next_page, number + 1)
        head = PAGE_FILE.pack(Kind.PAGE_FILE, operation, 0, self._address, number, messages, len(shares))
        encoder.add(head + b"".join([PAGE_SHARE.pack(*share) for share in shares.items()]))


#: Minimum number of cached messages of a page at which messages that no queue holds are removed from the cache.
SHARED_AT_LEAST: Final = 64


@mypyc_attr(native_class=False)  # `Page.blocks` has weak references to the objects
@dataclass(eq=False)
class BlockRecords:
    """The bytes of a block's records, and the offsets of their payloads. ``first``: index of the first message."""

    first: int
    at: array[int]
    data: bytes


class Page:
    """A page of an address, see `broker.reference.Page`.

    ``page_states``: states of all queues that had a message in the page. ``left``: number of queues with unsettled
    messages. ``starts``: record offsets, None if they must be read from the footer first.
    """

    def __init__(self, pages: Pages, number: int, path: Path, first_number: int) -> None:
        self.pages = pages
        self.number = number
        self.path = path
        self.first_number = first_number
        self.count = 0
        self.end = 0  # bytes of the records, without the footer
        self.bytes = 0  # bytes of the file, including a footer of an earlier run
        self.soonest_expiry = 0
        self.soonest_due = 0
        self.contents: PageColumns | None = None  # None when the page gets no more messages
        self.starts: array[int] | None = None
        self.stream: AppendOnlyFile | None = None  # None for a page of an earlier run
        self.sealed = False  # whether the file has a footer to read `starts` from
        self.gone = False
        # whether the page has a message that is retained for all its queues, even if it does not survive a restart
        self.retains = False
        self.unreadable: set[int] = set()
        self.damage: str | None = None  # reason for which the file will be set aside instead of deleted
        self.page_states: dict[QueuePageState, None] = {}  # a set in the order of insertion
        self.ended: list[QueueRemoved] = []  # records of deleted queues
        self.file: PageFileRecord | None = None  # the journal's record of the page file
        self.left = 0
        self.plan: AppendPlan | None = None  # plan for the queues of the last message
        self.names: set[int] = set()  # numbers of the queues that have a NAME record in the page
        #: Records by number of the block, as long as a `Block` refers to the records.
        self.blocks: WeakValueDictionary[int, BlockRecords] = WeakValueDictionary()
        self.shared: dict[int, Message] = {}  # by index: messages that several queues may hold
        self._most_shared = SHARED_AT_LEAST
        #: Positions that wait for a block, and their callbacks, by number of the block. By `STARTS`: positions that
        #: wait for ``starts``.
        self.pending_reads: dict[int, list[tuple[int, Done]]] = {}

    def keeps(self, index: int) -> bool:
        """Return whether the message at a position may be durable, so that the journal must record its settlement."""
        return self.contents is None or self.contents.kinds[index] & DURABLE_BIT != 0

    def share(self, index: int, message: Message) -> None:
        """Cache a message for all queues, as long as one queue holds it."""
        shared = self.shared
        if len(shared) >= self._most_shared:
            shared = self.shared = {at: each for at, each in shared.items() if each.holders}
            self._most_shared = max(2 * len(shared), SHARED_AT_LEAST)
        shared[index] = message


class AppendPlan:
    """The cursors and the encoded ids of a set of queues, prepared for messages to exactly these queues.

    ``page_states``: the states of these queues in ``page``; the plan is prepared again for another page. ``rest``: the
    encoded bytes between prologue and tail of the record of a message with ``traits``.
    """

    def __init__(self, cursors: list[Cursor], sync: bool) -> None:
        self.cursors = cursors
        self.ids = b"".join([cursor.queue.number.to_bytes(4, "little") for cursor in cursors])
        # whether durable messages need a sync
        self.wants_sync = sync and any(cursor.durable for cursor in cursors)
        self.page: Page | None = None
        self.page_states: list[QueuePageState] = []
        self.traits: Traits | None = None
        self.rest = b""

    def describe(self, traits: Traits) -> None:
        """Prepare the plan for messages with these traits."""
        self.traits = traits
        self.rest = self.ids + (traits.record or encode_traits(traits))[2:]

    def enqueue(self, index: int, level: int, due: int, number: int = 1) -> None:
        """Add ``number`` written messages from ``index`` on to each queue: as timed messages, unless ``due`` is 0."""
        for page_state in self.page_states:
            states, cursor = page_state.states, page_state.cursor
            gap = index - len(states)
            if gap:
                states.extend(bytes(gap))
            if not page_state.remaining:
                cursor.enlist(page_state)
            page_state.remaining += number
            cursor.remaining += number
            if due:
                states.append(TIMED)
                page_state.timed += 1
                cursor.timed += 1
                continue
            if number == 1:
                states.append(level + 1)
            else:
                states.extend(bytes((level + 1,)) * number)
            page_state.levels[level] += number
            cursor.levels[level] += number
            cursor.waiting += number


#: Maximum bytes of a page file, because record offsets are u32.
MAX_PAGE_FILE_SIZE: Final = 1 << 31

#: Maximum cached plans, one for each set of queues.
MAX_PLANS: Final = 1000


class Pages:
    """The pages of an address, see `broker.ports.Pages`. ``log``: the journal, for records about pages."""

    def __init__(self, paging: Paging, address: Address, directory: Path) -> None:
        self.address = address
        self.directory = directory
        # all directories of the address, because an earlier run may have used others
        self.directories = [directory]
        self.paging = paging
        self.log = paging.log
        self.clock = paging.clock
        self.fetch = paging.reads.fetch
        self.bytes = 0
        self.cursors: dict[Queue, Cursor] = {}
        self._pages: list[Page] = []
        self._by_number: dict[int, Page] = {}
        self._last: Page | None = None  # the page that is appended to
        self.empty = True
        self._left = 0  # number of pages with unsettled messages
        self._plans: dict[object, AppendPlan] = {}
        self._settings: object = None
        self._file_bytes = 0
        self._gathered: list[Message] = []  # gathered messages of one queue and priority
        self._gathers_for: Queue | None = None
        self._gathers_like: Traits | None = None

    # ---- properties

    @property
    def count(self) -> int:
        return len(self._pages)

    @property
    def messages(self) -> int:
        """The largest number of unsettled messages of a queue. Artemis compares this number with
        ``page-limit-messages``.
        """
        return max([cursor.remaining for cursor in self.cursors.values()], default=0)

    def in_order(self) -> Sequence[Page]:
        return self._pages

    def page(self, number: int) -> Page | None:
        return self._by_number.get(number)

    def cursor(self, queue: Queue) -> Cursor:
        cursor = self.cursors.get(queue)
        if cursor is None:
            cursor = self.cursors[queue] = Cursor(self, queue)
            self.log.reserve_queue(queue.number)
        return cursor

    def forget(self, queue: Queue) -> None:
        cursor = self.cursors.pop(queue, None)
        if cursor is None:
            return
        self._plans.clear()
        for page in self._pages:
            page_state = cursor.page_states.get(page)
            if page_state is not None and page_state in page.page_states:
                del page.page_states[page_state]
                page_state.gone = True
                self.log.forget(page_state)
                if cursor.durable:
                    self.end(page, QueueRemoved(self.address.number, queue.number, page))
            page.plan = None
        cursor.end()

    def end(self, page: Page, ended: QueueRemoved) -> None:
        """Record that a deleted queue has no message in a page."""
        page.ended.append(ended)
        self.log.update(ended)

    # ---- writing

    def append(self, message: Message, members: Sequence[Queue], due: int = 0) -> Position:
        if self._gathered:
            self.write_gathered()
        plan = self._plans.get(members[0] if len(members) == 1 else tuple(members))
        if plan is None:
            plan = self._make_plan(members)
        traits = message.traits
        transaction = self.log.transaction()
        if plan.traits is not traits:
            plan.describe(traits)
        queues = len(plan.cursors)
        (record,) = message_records(
            (message,), traits, self.address.number, plan.rest, queues, due, transaction
        )
        size = len(record)
        page = self._last
        if self.address.settings is not self._settings:
            self._settings = self.address.settings
            self._file_bytes = min(self.address.settings.page_file_bytes, MAX_PAGE_FILE_SIZE)
        if page is None or (page.end + size > self._file_bytes and page.count):
            page = self._open_page(message)
        if plan.page is not page:
            self._prepare(plan, page)
        contents, stream = page.contents, page.stream
        assert contents is not None and stream is not None
        if traits.retained == EVERYWHERE:
            page.retains = True
        index = page.count
        page.count = index + 1
        contents.starts.append(page.end)
        contents.numbers.append(message.number)
        contents.timestamps.append(message.timestamp)
        level = traits.priority
        contents.kinds.append(
            level + 1 | (DURABLE_BIT if traits.durable else 0) | (SCHEDULED_BIT if due else 0)
        )
        if page.plan is not plan:
            page.plan = plan
            contents.memberships.append((index, plan.ids))
        self._add_size(page, size)
        stream.append(record, plan.wants_sync and traits.durable)
        expires = message.expires
        if expires and not 0 < page.soonest_expiry <= expires:
            page.soonest_expiry = contents.soonest_expiry = expires
        if due and not 0 < page.soonest_due <= due:
            page.soonest_due = contents.soonest_due = due
        if transaction > contents.greatest_transaction:
            contents.greatest_transaction = transaction
        plan.enqueue(index, level, due)
        return page, index

    def gather(self, message: Message, queue: Queue) -> bool:
        if self._gathered:
            if queue is self._gathers_for and not message.expires:
                like, traits = self._gathers_like, message.traits
                if traits is like or (
                    like is not None and traits.priority == like.priority and traits.retained == like.retained
                ):
                    self._gathered.append(message)
                    return True
            self.write_gathered()
        if message.expires or not self.paging.gathering or queue.ring_size >= 0:
            return False
        if queue.dispatcher.blocks & LAST_VALUE:
            return False  # the message replaces the former message with the same key
        if queue.ready and queue.dispatcher.selector_lists:
            return False  # this message may be the first that matches the selector of a ready consumer
        cursor = self.cursors.get(queue)
        if cursor is None or queue.paged is None or not cursor.levels[message.traits.priority]:
            return False
        if self.log.in_transaction:
            return False
        self._gathers_for, self._gathers_like = queue, message.traits
        self._gathered.append(message)
        self.paging.gathered.append(self)
        return True

    def write_gathered(self) -> None:
        """Append the gathered messages, in one write if the page has space for all."""
        queue, traits = self._gathers_for, self._gathers_like
        if queue is None or traits is None:
            return
        messages, self._gathered = self._gathered, []
        self._gathers_for = self._gathers_like = None
        page, plan = self._last, self._plans.get(queue)
        if (
            page is None
            or plan is None
            or plan.page is not page
            or self.address.settings is not self._settings
            or not self._extend(page, plan, messages, traits)
        ):
            for message in messages:
                self.append(message, [queue])
        if queue.paged is not None:
            queue.paged.on_growth()

    def _extend(self, page: Page, plan: AppendPlan, messages: list[Message], traits: Traits) -> bool:
        """Append messages of one priority. Returns False if the page has no space for all of the messages."""
        records = self._records(plan, messages)
        data = b"".join(records)
        if page.end + len(data) > self._file_bytes:
            return False
        contents, stream, number = page.contents, page.stream, len(records)
        assert contents is not None and stream is not None
        if traits.retained == EVERYWHERE:
            page.retains = True
        index, level = page.count, traits.priority
        page.count += number
        contents.starts.extend(accumulate(map(len, records[:-1]), initial=page.end))
        contents.numbers.extend([message.number for message in messages])
        contents.timestamps.extend([message.timestamp for message in messages])
        contents.kinds.extend(bytes((level + 1,)) * number)
        if page.plan is not plan:
            page.plan = plan
            contents.memberships.append((index, plan.ids))
        self._add_size(page, len(data))
        stream.append(data, sync=False)
        plan.enqueue(index, level, 0, number)
        return True

    def _records(self, plan: AppendPlan, messages: list[Message]) -> list[bytes]:
        """Encode messages as records: consecutive messages with the same traits in one step."""
        records: list[bytes] = []
        begin, address = 0, self.address.number
        while begin < len(messages):
            traits, end = messages[begin].traits, begin + 1
            while end < len(messages) and messages[end].traits is traits:
                end += 1
            if plan.traits is not traits:
                plan.describe(traits)
            records += message_records(messages[begin:end], traits, address, plan.rest)
            begin = end
        return records

    def _make_plan(self, members: Sequence[Queue]) -> AppendPlan:
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        self.log.number_of(self.address)
        plan = AppendPlan([self.cursor(queue) for queue in members], self.paging.sync)
        self._plans[members[0] if len(members) == 1 else tuple(members)] = plan
        return plan

    def _prepare(self, plan: AppendPlan, page: Page) -> None:
        """Write the names of the plan's queues to a page, before the first message of these queues in the page."""
        plan.page = page
        plan.page_states = [cursor.page_state(page) for cursor in plan.cursors]
        for cursor in plan.cursors:
            number = cursor.queue.number
            if number not in page.names:
                page.names.add(number)
                if not cursor.durable and page.contents is not None:
                    page.contents.passing.add(number)
                self._write(page, framed(pack_name(QUEUE, number, cursor.queue.name, not cursor.durable)))
                if self.log.unwritten:
                    if cursor.queue.address is not self.address:
                        self._repeat_binding(page, cursor.queue.address)
                    self._repeat_binding(page, cursor.queue)

    def _repeat_binding(self, page: Page, subject: QueueBase | AddressBase) -> None:
        """Write a binding to the page if the journal lacks it: the journal is written after the page."""
        binding = self.log.unwritten.get(subject)
        if binding is not None:
            self._write(page, framed(binding.record()))

    def _write(self, page: Page, data: bytes) -> None:
        assert page.stream is not None
        page.stream.append(data, sync=False)  # no sync: a later durable message also syncs this data
        self._add_size(page, len(data))

    def _add_size(self, page: Page, size: int) -> None:
        page.end += size
        page.bytes += size
        self.bytes += size

    # ---- page files

    def _open_page(self, message: Message) -> Page:
        self.roll()
        paging, address = self.paging, self.address
        number = paging.next_page()
        page = self._last = Page(self, number, page_path(self.directory, number), message.number)
        page.stream = paging.writer.open(page.path)
        page.contents = PageColumns()
        page.starts = page.contents.starts
        header = pack_header(PAGE, message.number, self.clock.now, number, self.log.identity, address.number)
        self._write(page, header)
        page.file = PageFileRecord(self.log, address.number, number)
        self.log.update(page.file)
        self._write(page, framed(pack_name(ADDRESS, address.number, address.name)))
        self._repeat_binding(page, address)
        self.add(page)
        return page

    def add(self, page: Page) -> None:
        """Add a page as the last one."""
        self._pages.append(page)
        self._by_number[page.number] = page

    def roll(self) -> None:
        page, self._last = self._last, None
        if page is None:
            return
        if not page.left:
            self.retire(page)
            return
        contents, page.contents = page.contents, None
        assert contents is not None and page.stream is not None
        seal_page(page, contents, self.address.number)
        for page_state in page.page_states:
            page_state.cursor.keep_expanded(page_state)

    def queue_entered(self, page: Page) -> None:
        """Count a queue that gets its first message in a page."""
        if not page.left:
            self._left += 1
            self.empty = False
        page.left += 1

    def queue_left(self, page: Page) -> None:
        """Count a queue that has settled its last message in a page. Retire the page after the last queue."""
        page.left -= 1
        if not page.left:
            self._left -= 1
            self.empty = not self._left
            if page is not self._last:
                self.retire(page)

    def retire(self, page: Page) -> None:
        """Remove a page without unsettled messages. Its file is deleted when no synced record needs it."""
        page.gone = True
        page.plan = None  # breaks a reference cycle
        contents, page.contents = page.contents, None
        if contents is not None and self.paging.retention is not None:
            seal_page(page, contents, self.address.number)  # a retained file must be complete
        del self._pages[bisect_left(self._pages, page.number, key=lambda each: each.number)]
        del self._by_number[page.number]
        self.bytes -= page.bytes
        for page_state in page.page_states:
            page_state.cursor.page_states.pop(page, None)
        self.paging.remove(page)

    def close(self) -> None:
        """Retire all pages, which have no unsettled message."""
        self._last = None
        for page in list(self._pages):
            self.retire(page)
        self.cursors, self._plans = {}, {}  # both refer to this object: drop them to break the cycles

    # ---- reading

    def lose(self, page: Page, indexes: Iterable[int], reason: str) -> None:
        """Settle unreadable positions as lost. Reports lost messages, and a damaged file the first time."""
        first_time, page.damage = page.damage is None, page.damage or reason
        indexes = sorted(indexes)
        page.unreadable.update(indexes)
        lost: dict[str, int] = {}
        for page_state in list(page.page_states):
            count = page_state.cursor.lose(page, indexes)
            if count:
                lost[page_state.cursor.queue.name] = count
        if lost or first_time:
            self.paging.report_loss(page.path, reason, lost, new_file=first_time)


def seal_page(page: Page, contents: PageColumns, address: int) -> None:
    """Complete a page: the next batch writes the footer. Record offsets can then be read from the footer."""
    stream, file, paging = page.stream, page.file, page.pages.paging
    assert stream is not None
    shares: dict[int, int] = {}

    def ending(read: ReadFile, size: int) -> bytes:
        # this takes time for many queues: count in the disk thread
        shares.update(contents.summary().durable_counts())
        return contents.footer(address).ending_of(read, size)

    stream.close(ending)

    def sealed() -> None:
        if file is not None and not file.gone:
            file.messages, file.shares = len(contents.kinds), shares
            paging.log.update(file)
        stream.seal = None  # frees the contents of the page, to which the seal refers
        if not page.gone and page.damage is None:
            page.sealed = True
            paging.reads.know_starts(page, contents.starts)

    paging.writer.after_next_batch(sealed)


class Paging:
    """The pages of all addresses, see `broker.address.Paging`.

    ``directory``: parent of the addresses' directories. ``purge``: delete the directories of addresses that stop paging
    (``purge-page-folders``). ``reader``: thread for reads. ``sync``: if False, the operating system decides when
    messages reach the disk.
    """

    def __init__(
        self,
        log: Journal,
        writer: Writer,
        reader: Disk,
        clock: Clock,
        directory: Path,
        *,
        purge: bool = True,
        sync: bool = True,
    ) -> None:
        self.log = log
        self.writer = writer
        self.clock = clock
        self.directory = directory
        self.purge = purge
        self.sync = sync
        self.reads = PageReader(reader, writer.files, clock)
        self.next_page: Callable[[], int] = count(1).__next__
        self.retention: Retention | None = None
        self.recovered: list[Pages] = []
        self.gathering = False
        self.gathered: list[Pages] = []
        self.lost_messages = 0  # a message that several queues lose counts for each of them
        self.damaged_pages = 0
        self._of_directory: dict[Path, Pages] = {}  # pages by directory in use

    # ---- addresses

    def open(self, address: Address) -> Pages:
        directory = base = self.directory / f"{self.log.number_of(address):09d}"
        for place in count(2):
            if directory not in self._of_directory:
                break
            directory = base.with_name(f"{base.name}-{place}")
        pages = self._of_directory[directory] = Pages(self, address, directory)
        name = address.name.encode("utf-8", "surrogateescape")
        self.writer.run_task(lambda files: files.replace(directory / ADDRESS_FILE, name))
        return pages

    def release(self, directory: Path) -> None:
        """Release a directory that has no page files. With ``purge``, delete the directory."""
        self._of_directory.pop(directory, None)
        if self.purge:
            self.writer.when_synced(lambda: self.sweep(directory), None)

    def adopt(self, pages: Pages) -> None:
        """Add the pages of an address that recovery has restored."""
        for directory in pages.directories:
            self._of_directory[directory] = pages
        self.recovered.append(pages)

    def close(self, pages: Pages) -> None:
        pages.close()
        for directory in pages.directories:
            self.release(directory)

    def sweep(self, directory: Path) -> None:
        """Delete a directory that is not in use, unless it has a file that was set aside."""

        def tidy(files: Files) -> None:
            if directory not in self._of_directory and set(files.names(directory)) <= {ADDRESS_FILE}:
                files.remove_directory(directory)

        self.writer.run_task(tidy)

    # ---- pages

    def remove(self, page: Page) -> None:
        """Delete the file of a page without unsettled messages, after all records about the page are synced."""
        retention, directory = self.retention, page.path.parent

        def keep() -> None:
            assert retention is not None
            retention.retain(page.path, page.bytes, f"{PAGING}/{directory.name}")
            if self.purge:
                self.sweep(directory)

        def remove() -> None:
            if page.damage is not None and page.stream is not None:
                if not page.stream.closed:
                    page.stream.close()
                self.writer.after_next_batch(lambda: set_aside(self.writer, page.path))
            elif page.damage is not None:
                set_aside(self.writer, page.path)
            elif retention is not None:
                self.writer.after_next_batch(keep)  # the next batch may write the end of the file
            elif page.stream is not None:
                page.stream.delete()
            else:
                self.writer.run_task(lambda files: files.remove(page.path))
            for record in (*page.page_states, *page.ended):
                record.gone = True
                self.log.forget(record)
            page.page_states, page.ended = {}, []  # break the cycles: both refer to the page

        self.reads.forget(page)
        if page.file is not None:
            page.file.gone = True
            self.log.update(page.file)
        self.writer.when_synced(remove, None)

    def write_gathered(self) -> None:
        gathered, self.gathered = self.gathered, []
        for pages in gathered:
            pages.write_gathered()

    def report_loss(
        self,
        path: Path,
        reason: str,
        lost: dict[str, int] | None,
        *,
        more: bool = False,
        new_file: bool = True,
    ) -> None:
        """Log and count messages that are lost, because a page file is damaged. ``lost``: number by queue name, None if
        unknown. ``more``: further messages may be lost. ``new_file``: count the file as damaged.
        """
        level = logging.WARNING if lost == {} and not more else logging.ERROR
        log.log(level, "%s is damaged: %s; messages lost: %s", path, reason, describe_loss(lost, more=more))
        self.lost_messages += sum((lost or {}).values())
        self.damaged_pages += new_file

    # ---- the end

    def stop(self) -> None:
        """Write the footers of all open pages, at a clean stop."""
        for pages in set(self._of_directory.values()):
            pages.roll()
