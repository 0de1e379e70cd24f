"""Reading a page from its front, where it has no footer or one that is damaged: all that can be read, and what cannot.

Damage to one record does not cost the others: the next good one is looked for. Where exactly one record lies between
two good ones, and it was a message, its place is kept, so that what the journal says of those behind it fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from struct import error
from typing import Any, NamedTuple
from zlib import crc32

from .message_shape import GREATEST_ID, fits
from .page_footer import DELAYED, LASTING, Contents
from .record import ADDRESS, DURABLE, MESSAGE, NAME, PREFIX, QUEUE, Kind, unpack_binding
from .segment import Header

#: How payloads of pages may begin: a message with any flags and a priority, a binding, a name, a footer.
_BEGINNING = re.compile(
    rb"\x01[\x00-\x0f][\x00-\x09]|\x09[\x01\x02]\x00\x00|\x0a[\x01\x02][\x00\x01]\x00|\x0b\x00\x00\x00",
    re.DOTALL,
)

_FRAME = PREFIX.size


class Gap(NamedTuple):
    """Bytes that cannot be read. ``before`` is the number of messages before them, whose places are known.

    ``keeps_place`` says that a message was lost there, which has the place behind those; ``sure`` that it was no
    more than one record.
    """

    at: int
    stop: int
    reason: str
    before: int
    keeps_place: bool
    sure: bool


class Scan:
    """The messages of a page's bytes.

    ``end`` is where the last good record ended. What is behind it is in ``tail``, the reason why it cannot be read,
    empty where there is nothing; ``gaps`` are before it.
    """

    __slots__ = (
        "address",
        "bindings",
        "contents",
        "data",
        "end",
        "footer_begun",
        "gaps",
        "name",
        "queues",
        "tail",
        "transactions",
    )

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.contents = Contents()
        self.transactions: list[tuple[int, int]] = []  # index, number, where there is one
        self.address = 0
        self.name: str | None = None  # of the address
        self.queues: dict[int, str] = {}  # names of durable ones
        self.bindings: dict[tuple[int, int], dict[str, Any]] = {}  # as in `Replay`, of what was new then
        self.gaps: list[Gap] = []
        self.tail = ""
        self.footer_begun = False
        self.end = min(Header.read(data).size, len(data))
        self._walk()

    def _walk(self) -> None:
        data, at = self.data, self.end
        while at < len(data):
            end, reason = record_end(data, at)
            if not reason:
                try:
                    if not self._record(at + _FRAME, end):
                        return
                except (error, ValueError) as fault:
                    reason = f"a record is malformed: {fault}"
            if reason:
                end = next_record(data, at + 1)
                if end < 0:
                    self.footer_begun = data[at + _FRAME : at + _FRAME + 1] == bytes([Kind.FOOTER])
                    self.tail = "" if self.footer_begun else reason
                    return
                self._gap(at, end, reason)
            at = self.end = end

    def _gap(self, at: int, stop: int, reason: str) -> None:
        """Note what cannot be read between two good records; keep the place of a message."""
        begin = at + _FRAME
        length = PREFIX.unpack_from(self.data, at)[0]
        message_length = _message_length(self.data, begin)
        sure = stop - begin in (length, message_length)
        is_other = sure and stop - begin != message_length and self.data[begin] in (Kind.NAME, Kind.BINDING)
        keeps_place = not is_other and not (sure and stop - begin < MESSAGE.size)
        contents = self.contents
        before = len(contents.kinds)
        self.gaps.append(Gap(at, stop, reason, before, keeps_place, sure))
        if keeps_place:
            contents.starts.append(at)
            contents.numbers.append(contents.numbers[-1] if before else 0)
            contents.timestamps.append(contents.timestamps[-1] if before else 0)
            contents.kinds.append(0)  # nobody's
            self._members(before, b"")

    def cut(self, gap: Gap) -> None:
        """Leave out what begins with a gap, as if the file ended before it."""
        contents, count = self.contents, gap.before
        for column in (contents.starts, contents.numbers, contents.timestamps, contents.kinds):
            del column[count:]
        contents.memberships = [each for each in contents.memberships if each[0] < count]
        self.transactions = [each for each in self.transactions if each[0] < count]
        self.gaps = [each for each in self.gaps if each.at < gap.at]
        self.end, self.tail, self.footer_begun = gap.at, "", False

    def _members(self, index: int, ids: bytes) -> None:
        memberships = self.contents.memberships
        if not memberships or memberships[-1][1] != ids:
            memberships.append((index, ids))

    def _record(self, begin: int, end: int) -> bool:
        """Take a good record in; False for the footer, which ends the page."""
        data = self.data
        kind = data[begin]
        if kind == Kind.MESSAGE:
            self._message(begin, end)
        elif kind == Kind.NAME:
            _, what, passing, number = NAME.unpack_from(data, begin)
            name = data[begin + NAME.size : end].decode("utf-8", "surrogateescape")
            if what == QUEUE and passing:
                self.contents.passing.add(number)
            elif what == QUEUE:
                self.queues[number] = name
            elif what == ADDRESS and self.name is None:
                self.address, self.name = number, name
        elif kind == Kind.BINDING:
            what, number, value = unpack_binding(data, begin, end)
            if value is not None and number <= GREATEST_ID:
                self.bindings[what, number] = value
        elif kind == Kind.FOOTER:
            self.footer_begun = True
            return False
        else:
            raise ValueError(f"a record of kind {kind} does not belong here")
        return True

    def _message(self, begin: int, end: int) -> None:
        data = self.data
        fields = MESSAGE.unpack_from(data, begin)
        _, flags, priority, _, address, number, timestamp, expires, due, transaction = fields[:10]
        if not fits(data, begin, end):
            raise ValueError("its lengths do not fit")
        contents = self.contents
        index = len(contents.kinds)
        contents.starts.append(begin - _FRAME)
        contents.numbers.append(number)
        contents.timestamps.append(timestamp)
        kind = priority + 1
        if flags & DURABLE:
            kind |= LASTING
        if due:
            kind |= DELAYED
            contents.soonest_due = min(contents.soonest_due or due, due)
        if expires:
            contents.soonest_expiry = min(contents.soonest_expiry or expires, expires)
        if transaction:
            self.transactions.append((index, transaction))
            contents.greatest_transaction = max(contents.greatest_transaction, transaction)
        contents.kinds.append(kind)
        start = begin + MESSAGE.size
        self._members(index, data[start : start + 4 * fields[12]])
        self.address = self.address or address


def _message_length(data: bytes, begin: int) -> int:
    """How long the payload of a message is by what it says itself, -1 where that is cut off."""
    if begin + MESSAGE.size > len(data):
        return -1
    head, body, queues, traits = MESSAGE.unpack_from(data, begin)[10:]
    length: int = MESSAGE.size + 4 * queues + traits + head + body + 2
    return length


def transactions_at(data: bytes, starts: Iterable[int]) -> list[tuple[int, int]]:
    """Index and number of the messages, of those that begin at ``starts``, that were sent in a transaction."""
    found = []
    for index, at in enumerate(starts):
        end, reason = record_end(data, at)
        if not reason and end - at >= _FRAME + MESSAGE.size:
            number = MESSAGE.unpack_from(data, at + _FRAME)[9]
            if number:
                found.append((index, number))
    return found


def record_end(data: bytes, at: int) -> tuple[int, str]:
    """Where the record at a position ends, and why it cannot be read; an empty text for a good one."""
    begin = at + _FRAME
    if begin > len(data):
        return -1, "the frame of a record is cut off"
    length, crc = PREFIX.unpack_from(data, at)
    end = begin + length
    if not length:
        return -1, "a record would be empty"
    if end > len(data):
        return -1, "a record goes beyond the end"
    if crc32(memoryview(data)[begin:end]) != crc:
        return -1, "a record's checksum is wrong"
    return end, ""


def next_record(data: bytes, at: int) -> int:
    """Where the first good record at or after a position begins, -1 where there is none."""
    match = _BEGINNING.search(data, at + _FRAME)
    while match is not None:
        start = match.start() - _FRAME
        if not record_end(data, start)[1]:
            return start
        match = _BEGINNING.search(data, match.start() + 1)
    return -1
