"""The message index: where the journal's message records are, by number, while it is replayed.

Most records come in ascending order and are for one queue, neither scheduled nor expiring. Of each such record a
segment has four numbers in columns and no object; its *kind* has all that it shares with others. Whatever is
different has an entry of its own.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING

from .record import GREATEST_NUMBER, LEAST_MESSAGE, MESSAGE, TRAITS, fits

if TYPE_CHECKING:
    from .replay import ReadSegment

#: A message record's front, as far as most messages of a queue have it in common: from its kind to its address, the
#: number, from expiry to transaction, lengths of head and body, from the number of queues to the first queue.
_FRONT = Struct("<8sQ8x24sII12s")
_unpack = _FRONT.unpack_from
#: Numbers of queues and bytes of traits, and the first queue.
_ROUTED = Struct("<III")
_ZEROS = bytes(24)
_PART_AT = MESSAGE.size + 4
_GROUP_AT = _PART_AT + TRAITS.size - 4

#: In the column of kinds: the message is settled, or has a newer record.
GONE = 0
#: Kinds of one segment; messages of further ones have entries of their own.
MAX_KINDS = 10_000

#: Where a message record is: its segment, the bytes that hold it, and where in them it begins.
RecordLocation = tuple["ReadSegment", bytes, int]


class MessageKind:
    """What message records have in common: all but number, times and the lengths of head and body."""

    __slots__ = ("address", "before", "fixed", "grouped", "part", "priority", "queue", "routed")

    def __init__(self, fixed: bytes, routed: bytes, part: bytes) -> None:
        self.fixed = fixed
        self.routed = routed
        self.part = part
        self.priority = fixed[2]
        self.address = int.from_bytes(fixed[4:8], "little")
        self.queue = int.from_bytes(routed[8:12], "little")
        self.grouped = part[TRAITS.size - 4 : TRAITS.size] != bytes(4)
        self.before = _PART_AT + len(part) + 2  # bytes of a record beside head and body


class SegmentMessages:
    """Message records of one segment, ascending by number: number, beginning, bytes of the tail, and kind of each."""

    __slots__ = (
        "_current",
        "_found",
        "_known",
        "_number_of_kind",
        "begins",
        "data",
        "gone",
        "kinds",
        "kinds_of",
        "numbers",
        "segment",
        "sizes",
    )

    def __init__(self, segment: ReadSegment, data: bytes) -> None:
        self.segment = segment
        self.data = data
        self.numbers = array("Q")
        self.begins = array("I")
        self.sizes = array("I")
        self.kinds_of = array("H")  # in `kinds`
        self.kinds: list[MessageKind | None] = [None]  # the first is `GONE`
        self.gone = 0
        self._known: dict[tuple[bytes, bytes, bytes], int] = {}
        self._current: MessageKind | None = None
        self._number_of_kind = 0
        self._found = -1

    def add(self, begin: int, end: int, greatest: int) -> int:
        """Add a record, if it is such as most are and its number is above ``greatest``. Returns that, or -1."""
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
        """The place of a message in the columns, -1 where it is gone or was never here."""
        numbers, place = self.numbers, self._found + 1
        if (
            place >= len(numbers) or numbers[place] != number
        ):  # else it is the one behind the last that was found
            place = bisect_left(numbers, number)
            if place == len(numbers) or numbers[place] != number:
                return -1
        self._found = place
        return -1 if self.kinds_of[place] == GONE else place

    def forget(self, place: int) -> None:
        """The message is gone."""
        self.kinds_of[place] = GONE
        self.gone += 1


class MessageIndex:
    """The messages that the journal has, by number: in the columns of their segments, else in ``others``."""

    def __init__(self) -> None:
        self.segments: list[SegmentMessages] = []  # with messages; their numbers ascend from one to the next
        self.others: dict[int, RecordLocation] = {}
        self._open: SegmentMessages | None = None
        self._last: SegmentMessages | None = None  # in which the last message was found

    def open(self, segment: ReadSegment, data: bytes) -> SegmentMessages:
        """The columns of a segment that is read now."""
        self._open = columns = SegmentMessages(segment, data)
        return columns

    def close(self) -> None:
        """That segment was read."""
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
        segments = self.segments
        low, high = 0, len(segments)
        while low < high:
            middle = (low + high) // 2
            if segments[middle].numbers[-1] < number:
                low = middle + 1
            else:
                high = middle
        if low == len(segments):
            return None
        self._last = segments[low]
        return segments[low]

    def get(self, number: int) -> RecordLocation | None:
        """Where the record of a message is, None where there is no such message."""
        found = self.others.get(number)
        if found is not None:
            return found
        columns = self._columns_of(number)
        if columns is None:
            return None
        place = columns.find(number)
        return None if place < 0 else (columns.segment, columns.data, columns.begins[place])

    def put(self, number: int, location: RecordLocation) -> None:
        """A message that is in no columns."""
        self.others[number] = location

    def forget(self, number: int) -> None:
        """A message is gone. Nothing happens where there is none."""
        if self.others.pop(number, None) is None:
            columns = self._columns_of(number)
            if columns is not None:
                place = columns.find(number)
                if place >= 0:
                    columns.forget(place)

    def __contains__(self, number: int) -> bool:
        return self.get(number) is not None

    def __len__(self) -> int:
        return len(self.others) + sum(len(each.numbers) - each.gone for each in self.segments)

    def __iter__(self) -> Iterator[int]:
        """The numbers, ascending."""
        others = sorted(self.others)
        at = 0
        for columns in self.segments:
            kinds = columns.kinds_of
            for place, number in enumerate(columns.numbers):
                while at < len(others) and others[at] < number:
                    yield others[at]
                    at += 1
                if kinds[place] != GONE:
                    yield number
        yield from others[at:]
