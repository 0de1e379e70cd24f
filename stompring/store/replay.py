"""Replay of the journal: the state that its records describe, from the oldest segment to the newest, as plain data.

Replay changes nothing, neither on disk nor in a broker: `recovery` rebuilds a broker from it, and commands print it.

`MessageIndex` has the location of message records by number. Most records have ascending numbers and one queue, and are
neither scheduled nor expiring. `SegmentMessages` stores such a record as four numbers in columns, without an object of
its own; a `MessageKind` has the fields that many records share. Each other record has an entry in a dictionary.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import merge
from pathlib import Path
from struct import Struct, error
from typing import Any, Final, NamedTuple

from mypy_extensions import mypyc_attr

from .encoder import MessageState, unpack_recurrence
from .files import Files
from .page_file import directory_number
from .record import (
    ADDRESS,
    BEGUN,
    CONSUMER,
    DELIVERED,
    FOR_RESTARTS,
    GREATEST_ID,
    GREATEST_NUMBER,
    LEAST_MESSAGE,
    MESSAGE,
    NAME,
    NUMBERS,
    PAGE_CURSOR,
    PAGE_FILE,
    PAGE_SETTLED,
    PAGE_SHARE,
    PAGE_STATE,
    QUEUE,
    QUEUE_ADDRESS,
    REMOVED,
    RETAINED,
    SCOPED,
    SETTLED,
    STATE,
    TRAITS,
    TRANSACTION,
    Kind,
    StoredMessage,
    fits,
    unpack_binding,
    unpack_ids,
    unpack_numbers,
    unpack_runs,
)
from .segment import FORMAT, JOURNAL, NO_IDENTITY, Fault, Header, SegmentScan

#: Fields at the front of a message record: all from the kind to the address; the number; all from expiry to
#: transaction; bytes of the head; bytes of the body; all from the number of queues to the first queue.
_FRONT: Final = Struct("<8sQ8x24sII12s")
_unpack = _FRONT.unpack_from
#: Fields of a message record: number of queues, bytes of the traits part, and the first queue.
_ROUTED: Final = Struct("<III")
_ZEROS: Final = bytes(24)
_PART_AT: Final = MESSAGE.size + 4

#: In `SegmentMessages.kinds_of`: the message is settled, or has a newer record elsewhere.
GONE: Final = 0
#: Maximum number of kinds in one segment; each message of a further kind has an entry in ``MessageIndex.others``.
MAX_KINDS: Final = 10_000

#: Location of a message record: its segment, the bytes of the segment, and the offset of the record in them.
RecordLocation = tuple["ReadSegment", bytes, int]


class MessageKind:
    """The fields that message records share: all except number, times and the lengths of head and body."""

    def __init__(self, fixed: bytes, routed: bytes, part: bytes) -> None:
        self.fixed = fixed
        self.routed = routed
        self.part = part
        self.priority = fixed[2]
        self.address = int.from_bytes(fixed[4:8], "little")
        self.queue = int.from_bytes(routed[8:12], "little")
        self.grouped = part[TRAITS.size - 4 : TRAITS.size] != bytes(4)
        self.before = _PART_AT + len(part) + 2  # bytes of a record in addition to its head and body


class SegmentMessages:
    """The message records of a segment as columns, ascending by number: number, offset, bytes of the tail, and kind."""

    def __init__(self, segment: ReadSegment, data: bytes) -> None:
        self.segment = segment
        self.data = data
        self.numbers = array("Q")
        self.begins = array("I")
        self.sizes = array("I")
        self.kinds_of = array("H")  # indexes in `kinds`
        self.kinds: list[MessageKind | None] = [None]  # index 0 is `GONE`
        self.gone = 0
        self._known: dict[tuple[bytes, bytes, bytes], int] = {}
        self._current: MessageKind | None = None
        self._number_of_kind = 0
        self._found = -1

    def add(self, begin: int, end: int, greatest: int) -> int:
        """Add a message record if the columns can describe it, and its number is above ``greatest``. Returns the number
        of the message, -1 if the record was not added.
        """
        data = self.data
        if end - begin < LEAST_MESSAGE:
            return -1
        fixed, number, zeros, head, body, routed = _unpack(data, begin)
        kind = self._current
        if (
            kind is None
            or routed != kind.routed
            or fixed != kind.fixed
            or not data.startswith(kind.part, begin + _PART_AT)
        ):
            kind = self._find_kind(data, begin, end, fixed, routed)
            if kind is None:
                return -1
        if zeros != _ZEROS or number <= greatest or number > GREATEST_NUMBER:
            return -1
        if begin + kind.before + head + body != end:
            return -1
        self.numbers.append(number)
        self.begins.append(begin)
        self.sizes.append(head + body + 2)
        self.kinds_of.append(self._number_of_kind)
        return int(number)

    def _find_kind(
        self, data: bytes, begin: int, end: int, fixed: bytes, routed: bytes
    ) -> MessageKind | None:
        queues, length, _ = _ROUTED.unpack(routed)
        if queues != 1 or not fits(data, begin, end):
            return None
        start = begin + _PART_AT
        part = data[start : start + length]
        key = (fixed, routed, part)
        number = self._known.get(key, 0)
        if not number:
            number = len(self.kinds)
            if number > MAX_KINDS:
                return None
            self._known[key] = number
            self.kinds.append(MessageKind(fixed, routed, part))
        self._number_of_kind = number
        kind = self._current = self.kinds[number]
        return kind

    def find(self, number: int) -> int:
        """Return the index of a message in this segment, -1 if the message is not in it or is settled."""
        numbers, place = self.numbers, self._found + 1
        # mostly the message directly follows the one found last
        if place >= len(numbers) or numbers[place] != number:
            place = bisect_left(numbers, number)
            if place == len(numbers) or numbers[place] != number:
                return -1
        self._found = place
        return -1 if self.kinds_of[place] == GONE else place


class MessageIndex:
    """The messages of the journal by number: in the `SegmentMessages` of their segments, else in ``others``."""

    def __init__(self) -> None:
        self.segments: list[SegmentMessages] = []  # segments with messages, ascending by number
        self.others: dict[int, RecordLocation] = {}
        self._open: SegmentMessages | None = None
        self._last: SegmentMessages | None = None  # the segment of the message found last

    def open(self, segment: ReadSegment, data: bytes) -> SegmentMessages:
        """Begin a segment: create the `SegmentMessages` for its messages."""
        self._open = columns = SegmentMessages(segment, data)
        return columns

    def close(self) -> None:
        """End the segment. Keeps its `SegmentMessages` if the segment has messages."""
        columns, self._open = self._open, None
        if columns is not None and len(columns.numbers):
            self.segments.append(columns)

    def _columns_of(self, number: int) -> SegmentMessages | None:
        columns = self._open
        if columns is not None and len(columns.numbers) and columns.numbers[0] <= number:
            return columns
        last = self._last
        if last is not None and last.numbers[0] <= number <= last.numbers[-1]:
            return last
        at = bisect_left(self.segments, number, key=lambda columns: columns.numbers[-1])
        if at == len(self.segments):
            return None
        self._last = found = self.segments[at]
        return found

    def get(self, number: int) -> RecordLocation | None:
        """Return the location of a message record, None if there is no such message."""
        found = self.others.get(number)
        if found is not None:
            return found
        columns = self._columns_of(number)
        if columns is None:
            return None
        place = columns.find(number)
        return None if place < 0 else (columns.segment, columns.data, columns.begins[place])

    def put(self, number: int, location: RecordLocation) -> None:
        """Add a message to ``others``."""
        self.others[number] = location

    def forget(self, number: int) -> None:
        """Remove a message, if it exists."""
        if self.others.pop(number, None) is None:
            columns = self._columns_of(number)
            if columns is not None:
                place = columns.find(number)
                if place >= 0:
                    columns.kinds_of[place] = GONE
                    columns.gone += 1

    def __contains__(self, number: int) -> bool:
        return self.get(number) is not None

    def __len__(self) -> int:
        return len(self.others) + sum(len(each.numbers) - each.gone for each in self.segments)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers, ascending."""
        return merge(sorted(self.others), self._in_columns())

    def _in_columns(self) -> Iterator[int]:
        for columns in self.segments:
            for kind, number in zip(columns.kinds_of, columns.numbers, strict=True):
                if kind != GONE:
                    yield number


SEGMENT_NAME: Final = re.compile(r"(\d{9,})\.journal")

_NUMBER: Final = Struct("<Q")
_NUMBER_AT: Final = 8  # offset of the number in a message record
_COUNT: Final = Struct("<I")
_QUEUES_AT: Final = MESSAGE.size - 8


@dataclass(slots=True)
class ReadSegment:
    """A segment that was read. ``good``: end of the last record before the first fault. ``size``: bytes of the file
    without the zeros that prefill its end. ``zeros``: number of these zeros.
    """

    number: int
    path: Path
    size: int
    header: Header
    good: int = 0
    sealed: bool = False
    faults: list[Fault] = field(default_factory=list)
    records: int = 0
    consumers: int = 0  # the highest number of a consumer in the segment's NAME records
    end: int = 0  # end of the records, if the segment has no fault
    zeros: int = 0


class ReplayedIds:
    """The duplicate ids of one address."""

    def __init__(self) -> None:
        self.oldest = 0
        self.next = 0
        self._found: dict[int, tuple[ReadSegment, bytes]] = {}  # segment and id by position

    def include(self, segment: ReadSegment, first: int, oldest: int, ids: list[bytes]) -> None:
        """Add the ids of one record. They replace earlier ids at the same positions."""
        self.oldest = max(self.oldest, oldest)
        self.next = max(self.next, self.oldest, first + len(ids))
        for position, identifier in enumerate(ids, first):
            self._found[position] = (segment, identifier)

    def latest(self, size: int | None = None) -> Iterator[tuple[int, ReadSegment, bytes]]:
        """Return position, segment and id of the latest ``size`` valid ids, the oldest first, without duplicates."""
        seen: set[bytes] = set()
        chosen: list[tuple[int, ReadSegment, bytes]] = []
        for position in sorted(self._found, reverse=True):
            if position < self.oldest or len(chosen) == size:
                break
            segment, identifier = self._found[position]
            if identifier not in seen:
                seen.add(identifier)
                chosen.append((position, segment, identifier))
        return reversed(chosen)


class ReplayedPageFile(NamedTuple):
    """A page file that has a record in the journal. ``shares``: None until the page is complete."""

    segment: ReadSegment
    address: int
    messages: int
    shares: dict[int, int] | None  # number of durable messages by queue


@mypyc_attr(allow_interpreted_subclasses=True)  # subclasses read a journal without a broker
class Replay:
    """The contents of a journal. `read` reads them."""

    def __init__(self, files: Files, directory: Path, identity: bytes = NO_IDENTITY) -> None:
        """``identity``: identity of the data directory. Segments with another identity are not read."""
        self._files = files
        self.directory = directory
        self.identity = identity
        # segments that do not match their names, each with the reason
        self.misplaced: list[tuple[ReadSegment, str]] = []
        self.page_files: dict[int, ReplayedPageFile] = {}
        self.removed_pages: set[int] = set()
        self.next_page = 0  # greater than every page number in the records
        # whether the journal has a record of every page file, except perhaps the newest
        self.lists_pages = False
        self.oldest_segment = 0  # number of the oldest segment that recovery needs; 0: unknown
        self.segments: list[ReadSegment] = []
        self.messages = MessageIndex()
        self._greatest = 0  # highest message number in the segments of `messages`
        # queues that have settled a message, by its number, while other queues still hold the message
        self.gone: dict[int, set[int]] = {}
        self.states: dict[int, dict[int, MessageState]] = {}  # state by message and queue
        # number of deliveries after the last STATE record, by message and queue
        self.went_out: dict[int, dict[int, int]] = {}
        self.names: dict[tuple[int, int], str] = {}
        self.ended: set[tuple[int, int]] = set()  # deleted addresses, queues and values
        self.bindings: dict[tuple[int, int], tuple[ReadSegment, dict[str, Any]]] = {}
        self.duplicate_ids: dict[int, ReplayedIds] = {}  # ids by address
        self.page_records: list[tuple[ReadSegment, bytes]] = []  # payloads of PAGE_… records, in order
        self.transactions: set[int] = set()  # committed transactions with messages in pages
        self.complete_transaction = 1  # all transactions with smaller numbers are complete
        self.next_transaction = 1
        self.next_message = 1
        self.next_queue = 1
        self.missing: list[int] = []  # numbers of missing segments
        self.malformed: list[str] = []  # descriptions of malformed records
        self._segment = ReadSegment(0, directory, 0, Header())
        self._kinds: dict[int, Callable[[bytes], None]] = {
            Kind.SETTLED: self._settled,
            Kind.STATE: self._state,
            Kind.DELIVERED: self._delivered,
            Kind.PAGE_SETTLED: self._page_record,
            Kind.PAGE_STATE: self._page_record,
            Kind.PAGE_CURSOR: self._page_record,
            Kind.PAGE_FILE: self._page_file,
            Kind.DUPLICATE_IDS: self._duplicate_ids,
            Kind.NUMBERS: self._numbers,
            Kind.BINDING: self._binding,
            Kind.NAME: self._name,
            Kind.QUEUE_ADDRESS: self._queue_address,
            Kind.RETAINED: self._retained,
        }

    def read(self, progress: Callable[[int, int], object] = lambda done, total: None) -> None:
        """Read all segments. Calls ``progress`` with the number of bytes read and in total. Raises `OSError`,
        `StoreError`.
        """
        found = sorted(
            (int(match[1]), self.directory / match[0])
            for name in self._files.names(self.directory)
            if (match := SEGMENT_NAME.fullmatch(name))
        )
        total = sum(self._files.size(path) for _, path in found)
        done = 0
        for number, path in found:
            done += self._read_segment(number, path)
            progress(done, total)
        self.missing = self._find_missing()

    def _find_missing(self) -> list[int]:
        """Return the numbers of missing segments. If the last segment is sealed, the next one must have existed."""
        numbers = [segment.number for segment in self.segments]
        if not numbers:
            return []
        missing = set(range(min(self.oldest_segment or numbers[0], numbers[0]), numbers[-1])) - {*numbers}
        last = self.segments[-1]
        if last.sealed and not last.header.fault:
            missing.add(last.number + 1)
        return sorted(missing)

    def _read_segment(self, number: int, path: Path) -> int:
        data = self._files.read(path)
        header = Header.read(data)
        header.refuse_older(path)
        segment = ReadSegment(number, path, len(data), header)
        why = header.misplaced(number, self.identity)
        if why:
            self.misplaced.append((segment, why))
            return len(data)
        self._segment = segment
        self.segments.append(segment)
        walk = SegmentScan(data)
        if header.fault is not None:
            walk.faults.append(Fault(0, header.fault))
            walk.end = 0
        elif header.kind != JOURNAL or header.format > FORMAT:
            what = f"format {header.format}" if header.kind == JOURNAL else f"kind {header.kind}"
            segment.faults.append(Fault(0, f"unsupported segment {what}", unsupported=True))
            return len(data)
        self.next_message = max(self.next_message, header.next_number)
        greatest, records = self._greatest, 0
        columns, others = self.messages.open(segment, data), self.messages.others
        for begin, end in walk:
            records += 1
            if data[begin] == 1:
                number = columns.add(begin, end, greatest)
                if number < 0:
                    self._record(data, begin, end)
                    continue
                greatest = number
                if others and number in others:
                    self._forget(number)
            else:
                self._record(data, begin, end)
        self.messages.close()
        self._greatest = greatest
        self.next_message = max(self.next_message, greatest + 1)
        segment.good = walk.end if header.fault is None else 0
        segment.end = walk.end
        segment.size = walk.size
        segment.zeros = len(data) - walk.size
        segment.faults += walk.faults
        segment.records = records
        segment.sealed = walk.footer is not None
        return len(data)

    def _record(self, data: bytes, begin: int, end: int) -> None:
        try:
            kind = data[begin]
            read = self._kinds.get(kind)
            if read is not None:
                read(data[begin:end])
            elif kind == Kind.MESSAGE:
                self._message(data, begin, end)
            elif kind == Kind.TRANSACTION:
                self._transaction(data, begin, end)
            elif kind == Kind.SCOPED:
                if SCOPED.unpack_from(data, begin)[1] == FOR_RESTARTS:
                    self._record(data, begin + SCOPED.size, end)
            else:
                raise ValueError
        except (error, ValueError, KeyError, TypeError, IndexError, RecursionError):
            self._not_understood(begin)

    def _not_understood(self, at: int) -> None:
        self.malformed.append(f"{self._segment.path} at {at}")

    # ---- messages

    def _message(self, data: bytes, begin: int, end: int) -> None:
        if not fits(data, begin, end):
            raise ValueError
        number = _NUMBER.unpack_from(data, begin + _NUMBER_AT)[0]
        if number in self.messages:
            self._forget(number)
        self.next_message = max(self.next_message, number + 1)
        self.messages.put(number, (self._segment, data, begin))

    def _forget(self, number: int) -> None:
        """Remove a message that is settled, or has a newer record."""
        self.messages.forget(number)
        self.gone.pop(number, None)
        self.states.pop(number, None)
        self.went_out.pop(number, None)

    def _settled(self, payload: bytes) -> None:
        _, _, _, queue, _ = SETTLED.unpack_from(payload)
        messages = self.messages
        for number in unpack_numbers(payload[SETTLED.size :]):
            place = messages.get(number)
            if place is None:
                continue
            _, held_in, begins = place
            holders = _COUNT.unpack_from(held_in, begins + _QUEUES_AT)[0]
            if holders < 2:
                self._forget(number)
                continue
            gone = self.gone.setdefault(number, set())
            gone.add(queue)
            if len(gone) >= holders:
                self._forget(number)

    def _state(self, payload: bytes) -> None:
        _, _, _, queue, number, deliveries, attempts, due, _ = STATE.unpack_from(payload)
        if number in self.messages:
            recurrence = payload[STATE.size :]
            unpack_recurrence(recurrence)  # only a check: raises `ValueError` for a malformed recurrence
            state = MessageState(deliveries, attempts, due, recurrence)
            self.states.setdefault(number, {})[queue] = state
            self.went_out.get(number, {}).pop(queue, None)

    def _delivered(self, payload: bytes) -> None:
        queue = DELIVERED.unpack_from(payload)[3]
        for number in unpack_numbers(payload[DELIVERED.size :]):
            if number in self.messages:
                counts = self.went_out.setdefault(number, {})
                counts[queue] = counts.get(queue, 0) + 1

    def _transaction(self, data: bytes, begin: int, end: int) -> None:
        _, _, _, records, number = TRANSACTION.unpack_from(data, begin)
        at = begin + TRANSACTION.size
        for _ in range(records):
            start = at + 4
            at = start + _COUNT.unpack_from(data, at)[0]
            if at > end:
                raise ValueError
            if data[start] == Kind.MESSAGE:
                self._message(data, start, at)
            else:
                self._record(data, start, at)
        if number > GREATEST_NUMBER:
            raise ValueError
        if number:
            self.transactions.add(number)
            self.next_transaction = max(self.next_transaction, number + 1)

    # ---- other records

    def _page_record(self, payload: bytes) -> None:
        self.page_records.append((self._segment, payload))

    def _duplicate_ids(self, payload: bytes) -> None:
        address, first, oldest, ids = unpack_ids(payload, 0, len(payload))
        self.duplicate_ids.setdefault(address, ReplayedIds()).include(self._segment, first, oldest, ids)

    def _numbers(self, payload: bytes) -> None:
        _, _, _, queue, transaction, message, page, oldest = NUMBERS.unpack_from(payload)
        if queue > GREATEST_ID or max(transaction, message) > GREATEST_NUMBER:
            raise ValueError
        self.next_queue = max(self.next_queue, queue)
        self.complete_transaction = max(self.complete_transaction, transaction)
        self.next_transaction = max(self.next_transaction, transaction)
        self.next_message = max(self.next_message, message)
        self.next_page = max(self.next_page, page)
        self.lists_pages = self.lists_pages or page > 0
        self.oldest_segment = max(self.oldest_segment, oldest)

    def _page_file(self, payload: bytes) -> None:
        _, operation, _, address, page, messages, queues = PAGE_FILE.unpack_from(payload)
        packed = payload[PAGE_FILE.size :]
        if queues * PAGE_SHARE.size != len(packed) or operation > REMOVED or page > GREATEST_NUMBER:
            raise ValueError
        self.next_page = max(self.next_page, page + 1)
        if operation == REMOVED:
            self.page_files.pop(page, None)
            self.removed_pages.add(page)
            return
        shares = None if operation == BEGUN else dict(PAGE_SHARE.iter_unpack(packed))
        self.page_files[page] = ReplayedPageFile(self._segment, address, messages, shares)
        self.removed_pages.discard(page)

    def _binding(self, payload: bytes) -> None:
        what, number, value = unpack_binding(payload)
        if number > GREATEST_ID:
            raise ValueError
        if value is not None:
            self.bindings[what, number] = (self._segment, value)
        else:
            self.bindings.pop((what, number), None)
            self.ended.add((what, number))
        if what == QUEUE:
            self.next_queue = max(self.next_queue, number + 1)

    def _name(self, payload: bytes) -> None:
        _, what, _, number = NAME.unpack_from(payload)
        if number > GREATEST_ID:
            raise ValueError
        if what == CONSUMER:  # only records in the same segment refer to the number of a consumer
            self._segment.consumers = max(self._segment.consumers, number)
            return
        self.names[what, number] = payload[NAME.size :].decode()
        if what == QUEUE:
            self.next_queue = max(self.next_queue, number + 1)

    def _queue_address(self, payload: bytes) -> None:
        """Check the record, and ignore it: only readers of a single segment use it. Replay has the addresses of durable
        queues from BINDING records.
        """
        QUEUE_ADDRESS.unpack_from(payload)

    def _retained(self, payload: bytes) -> None:
        """Reserve the numbers of retained messages. They have no other effect on a restart."""
        size = 8 * RETAINED.unpack_from(payload)[3]
        numbers = unpack_numbers(payload[RETAINED.size : RETAINED.size + size])
        if 8 * len(numbers) < size:
            raise ValueError
        self.next_message = max(self.next_message, max(numbers, default=0) + 1)

    # ---- results

    def state_of(self, message: StoredMessage, queue: int) -> MessageState:
        """Return the state of a message in one of its queues."""
        number = message.number
        state = self.states.get(number, {}).get(queue)
        if state is None:
            state = MessageState(message.deliveries, 0, message.due)
        went_out = self.went_out.get(number, {}).get(queue, 0)
        return state._replace(deliveries=state.deliveries + went_out) if went_out else state

    def may_have_page(self, number: int) -> bool:
        """Return whether a page with this number may exist. Only a page that was created last may lack a record."""
        if not self.lists_pages or number in self.page_files or number in self.removed_pages:
            return True
        return number >= self.next_page

    def misplaced_page(
        self,
        number: int,
        path: Path,
        header: Header,
        expected: str,
        found: Callable[[], str | None],
        twice: bool,
        sure: bool,
    ) -> str:
        """Return why a file cannot be page ``number`` of the address ``expected``, empty if it can.

        ``found`` returns the name of the address in the file; called if file and directory have different address
        numbers. ``twice``: whether another file has the same number. ``sure``: whether the journal is complete,
        so that a page without a record is an error.
        """
        why = header.misplaced(number, self.identity)
        if not why and twice:
            why = "another file has the same number"
        if not why and header.address not in (0, directory_number(path.parent)):
            name = found()
            if name not in (None, expected):
                why = f"it belongs to address {name}"
        if not why and sure and not self.may_have_page(number):
            why = "the journal has no record of it"
        return why

    @property
    def next_address(self) -> int:
        """A number greater than all numbers of addresses."""
        numbers = [number for what, number in (*self.names, *self.bindings) if what == ADDRESS]
        return max(numbers, default=0) + 1


QueueInPage = tuple[int, int]  # numbers of a queue and a page


class PageRecords:
    """The records about pages, by queue and page: ``settled``: runs of settled positions; ``states``: the latest counts
    of returned positions; ``segments``: the oldest segment with a record that no later record repeats.

    ``ends``: minimum number of messages of each page. ``reach``: for each page, the highest message index in any
    record, plus 1.
    """

    def __init__(self, records: Iterable[tuple[ReadSegment, bytes]]) -> None:
        self.settled: dict[QueueInPage, list[tuple[int, int]]] = {}  # runs of settled positions: first, count
        # by index: deliveries, attempts, due time (epoch ms)
        self.states: dict[QueueInPage, dict[int, tuple[int, int, int]]] = {}
        self.segments: dict[QueueInPage, ReadSegment] = {}
        self.ends: dict[int, int] = {}
        self.reach: dict[int, int] = {}
        for segment, payload in records:
            with suppress(error):  # ignore malformed records
                self._read(segment, payload)

    def _read(self, segment: ReadSegment, payload: bytes) -> None:
        # the three kinds of records begin with the fields of PAGE_CURSOR
        kind, _, _, _, queue, page = PAGE_CURSOR.unpack_from(payload)
        key = (queue, page)
        if kind == Kind.PAGE_STATE:
            *_, index, deliveries, attempts, due, _ = PAGE_STATE.unpack_from(payload)
            self.states.setdefault(key, {})[index] = (deliveries, attempts, due)
            end = index + 1
        else:
            runs = payload[PAGE_CURSOR.size if kind == Kind.PAGE_CURSOR else PAGE_SETTLED.size :]
            known = self.settled.setdefault(key, [])
            known += unpack_runs(runs)
            end = sum(known[-1]) if runs else 0  # the runs of a record are in ascending order
        if kind == Kind.PAGE_CURSOR:
            self.segments[key] = segment  # this record repeats all earlier records
        else:
            self.segments.setdefault(key, segment)
            self.ends[page] = max(self.ends.get(page, 0), end)
        self.reach[page] = max(self.reach.get(page, 0), end)

    def lost_with(self, page: int, shares: Mapping[int, int]) -> dict[int, int]:
        """Return the number of unsettled messages that each queue loses with a lost page. ``shares``: number of
        messages of each queue in the page.
        """
        left = {
            queue: count - run_length(self.settled.get((queue, page), ())) for queue, count in shares.items()
        }
        return {queue: count for queue, count in left.items() if count > 0}


def run_length(runs: Iterable[tuple[int, int]]) -> int:
    """Return the number of positions in runs that may overlap."""
    total = end = 0
    for first, count in sorted(runs):
        total += max(0, first + count - max(end, first))
        end = max(end, first + count)
    return total
