"""Page files: their names, their footer, and the scan of a file without a footer.

The footer has one byte for each message, its *kind*: priority + 1, with `DURABLE_BIT` for a durable message and
`SCHEDULED_BIT` for a message that was sent with a due time. For each durable queue, a bitmap has the messages of the
queue; it is left out if the queue has all messages. The footer does not list other queues.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import Struct, error
from typing import Any, Final, NamedTuple

from stompring.broker.ports import TIMED

from .files import Files, free_name
from .record import (
    ADDRESS,
    DURABLE,
    GREATEST_ID,
    MESSAGE,
    NAME,
    PREFIX,
    QUEUE,
    Kind,
    StoredMessage,
    fits,
    unpack_binding,
)
from .segment import HEADER, Footer, SegmentScan, record_end
from .writer import Writer

#: The file that has the name of the address, in the directory of its pages.
ADDRESS_FILE: Final = "address.txt"

#: The suffix of a damaged page file that was set aside.
SET_ASIDE: Final = ".invalidPage"

#: The name of a page file: its number, and a suffix if the file was set aside.
PAGE_NAME: Final = re.compile(r"(\d{9,})\.page(?:(\.invalidPage)(?:\.\d+)?)?")

DIRECTORY_NAME: Final = re.compile(r"(\d{9,})(?:-\d+)?")


def page_path(directory: Path, number: int) -> Path:
    """Return the path of page ``number``."""
    return directory / f"{number:09d}.page"


def directory_number(path: Path) -> int:
    """Return the number of the address of a directory, 0 without one."""
    match = DIRECTORY_NAME.fullmatch(path.name)
    return int(match[1]) if match else 0


def set_aside(writer: Writer, path: Path) -> None:
    """Rename a damaged file to a name that no broker reads."""

    def rename(files: Files) -> None:
        if path.name in files.names(path.parent):
            files.rename(path, free_name(files, path, SET_ASIDE))

    writer.run_task(rename)


#: soonest_expiry: of all messages with an expiry time, 0 for none
#: soonest_due: of all messages that were sent with a due time, 0 for none
#: greatest_transaction: of all messages that were sent in a transaction, 0 for none
#: queue_count
#: kind_count: 1 if all kinds are equal, else record_count
#: kinds u8[kind_count]: for each message: priority + 1, plus 128 if it is durable, plus 64 if it has a due time; 0
#:    if the message was unreadable when the footer was written
#: members PAGE_MEMBER[queue_count]: the durable queues that messages of the page entered
PAGE_FOOTER: Final = Struct("<QQQII")
#: queue
#: count: number of messages of the page that entered it
#: bitmap bitmap[record_count]: these messages
PAGE_MEMBER: Final = Struct("<II")

#: Bits of a kind in addition to priority + 1.
DURABLE_BIT, SCHEDULED_BIT = 0x80, 0x40

_FROM_DIGITS: Final = bytes(255 if byte == ord("1") else 0 for byte in range(256))
_TO_DIGITS: Final = bytes(ord("1") if byte else ord("0") for byte in range(256))


class PageColumns:
    """The columns of a page, with one item for each message."""

    def __init__(self) -> None:
        self.starts = array("I")  # offsets of the records
        self.numbers = array("Q")
        self.timestamps = array("Q")
        self.kinds = bytearray()
        # for each run of messages in the same queues: index of the first message, packed ids of the queues
        self.memberships: list[tuple[int, bytes]] = []
        # numbers of the non-durable queues, whose messages do not outlive the broker
        self.passing: set[int] = set()
        self.soonest_expiry = 0
        self.soonest_due = 0
        self.greatest_transaction = 0

    def footer(self, address: int) -> Footer:
        """Return the footer of a page with these messages. ``address``: number of the page's address."""
        numbers, timestamps = self.numbers, self.timestamps
        return Footer(
            self.starts,
            min(numbers, default=0),
            max(numbers, default=0),
            min(timestamps, default=0),
            max(timestamps, default=0),
            (address,),
            more=self._more(),
        )

    def _more(self) -> bytes:
        kinds, count = bytes(self.kinds), len(self.kinds)
        if kinds.count(kinds[:1]) == count:
            kinds = kinds[:1]
        masks = self.masks()
        parts = [
            PAGE_FOOTER.pack(
                self.soonest_expiry, self.soonest_due, self.greatest_transaction, len(masks), len(kinds)
            ),
            kinds,
        ]
        for queue, mask in masks.items():
            members = mask.count(255)
            parts.append(PAGE_MEMBER.pack(queue, members))
            if members != count:
                parts.append(pack_bits(mask))
        return b"".join(parts)

    def masks(self) -> dict[int, bytearray]:
        """Return a mask for each durable queue, by number: 255 for each message of the queue, 0 for other messages."""
        count = len(self.kinds)
        masks: defaultdict[int, bytearray] = defaultdict(lambda: bytearray(count))
        stops = [*(first for first, _ in self.memberships[1:]), count]
        for (first, ids), stop in zip(self.memberships, stops, strict=False):
            for queue in array("I", ids):
                if queue not in self.passing:
                    masks[queue][first:stop] = b"\xff" * (stop - first)
        return masks

    def summary(self) -> PageSummary:
        """Return the summary that the footer would give of the page."""
        summary = PageSummary.of(self.footer(0))
        assert summary is not None
        return summary


@dataclass(slots=True)
class PageSummary:
    """The contents of a page, as its footer describes them."""

    count: int
    kinds: bytes  # a kind for each message, or a single kind for all messages
    # mask by queue, see `PageColumns.masks`; None: the queue has all messages
    members: dict[int, bytes | None]
    soonest_expiry: int
    soonest_due: int
    greatest_transaction: int
    least_number: int
    greatest_number: int

    @classmethod
    def of(cls, footer: Footer) -> PageSummary | None:
        """Return the summary of a page's footer, None if the part of the footer about the page is malformed."""
        count, data = len(footer.starts), footer.more
        try:
            expiry, due, transaction, queues, kinds = PAGE_FOOTER.unpack_from(data)
            at = PAGE_FOOTER.size + kinds
            if kinds not in (1, count) or len(data) < at:
                return None
            members: dict[int, bytes | None] = {}
            for _ in range(queues):
                queue, own = PAGE_MEMBER.unpack_from(data, at)
                at += PAGE_MEMBER.size
                members[queue] = None
                if own != count:
                    size = (count + 7) // 8
                    members[queue] = unpack_bits(data[at : at + size], count)
                    at += size
        except error:
            return None
        if at != len(data):
            return None
        of_all = data[PAGE_FOOTER.size : PAGE_FOOTER.size + kinds]
        least, greatest = footer.least_number, footer.greatest_number
        return cls(count, of_all, members, expiry, due, transaction, least, greatest)

    def states(self, queue: int) -> bytearray:
        """Return the states of a page's positions in a durable queue after a restart (`Cursor.states`). The state is 0
        for messages that are not durable or not in the queue.
        """
        states, mask = self.kinds.translate(_STATES), self.members[queue]
        if len(states) == 1:
            states *= self.count
        if mask is None:
            return bytearray(states)
        both = int.from_bytes(states, "little") & int.from_bytes(mask, "little")
        return bytearray(both.to_bytes(self.count, "little"))

    def durable_counts(self) -> dict[int, int]:
        """Return the number of durable messages of the page for each durable queue."""
        counts = {queue: self.count - self.states(queue).count(0) for queue in self.members}
        return {queue: count for queue, count in counts.items() if count}


#: The state of a message in a durable queue, by its kind.
_STATES: Final = bytes(
    0 if not kind & DURABLE_BIT else TIMED if kind & SCHEDULED_BIT else kind & 0x0F for kind in range(256)
)


def pack_bits(mask: bytes | bytearray) -> bytes:
    """Pack a mask into bits. A bit is set if its byte is not 0. The lowest bit of a byte comes first."""
    digits = mask.translate(_TO_DIGITS)[::-1]
    return int(digits or b"0", 2).to_bytes((len(mask) + 7) // 8, "little")


def unpack_bits(bits: bytes, count: int) -> bytes:
    """Return 255 for each set bit, 0 for each unset bit: the inverse of `pack_bits`."""
    number = int.from_bytes(bits, "little")
    return f"{number:0{count}b}"[::-1][:count].encode().translate(_FROM_DIGITS)


def describe_loss(lost: Mapping[str, int] | None, *, more: bool = False) -> str:
    """Describe lost messages. ``lost``: number by queue; None: unknown. ``more``: further messages may be lost."""
    if lost is None:
        return "all, number unknown"
    each = ", ".join(f"{count} of queue {name}" for name, count in sorted(lost.items()))
    if more:
        return f"at least {each}, total unknown" if each else "number unknown"
    return each or "none"


#: Beginnings of the payloads in pages: a message with any flags and a priority, a binding, a name, a footer.
_BEGINNING: Final = re.compile(
    rb"\x01[\x00-\x0f][\x00-\x09]|\x09[\x01\x02]\x00\x00|\x0a[\x01\x02][\x00\x01]\x00|\x0b\x00\x00\x00",
    re.DOTALL,
)

_FRAME: Final = PREFIX.size


class Gap(NamedTuple):
    """Unreadable bytes between two valid records. ``before``: number of messages before the gap. ``keeps_place``: a
    message in the gap is lost, and keeps the index ``before``. ``sure``: whether the gap is exactly one record.
    """

    at: int
    stop: int
    reason: str
    before: int
    keeps_place: bool
    sure: bool


class PageScan(SegmentScan):
    """The messages in the bytes of a page, found without the footer. ``end``: end of the last valid record. ``tail``:
    why the bytes after ``end`` are unreadable, empty if there are none. ``gaps``: unreadable bytes before ``end``.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data, min(HEADER.size, len(data)))
        self.footer = None
        self.contents = PageColumns()
        # index and transaction of each message that was sent in a transaction
        self.transactions: list[tuple[int, int]] = []
        self.address = 0
        self.name: str | None = None  # name of the address
        self.queues: dict[int, str] = {}  # names of durable queues
        # descriptions of addresses and queues that were new, by kind and number
        self.bindings: dict[tuple[int, int], dict[str, Any]] = {}
        self.gaps: list[Gap] = []
        self.tail = ""
        self.footer_begun = False
        for begin, end in self:
            try:
                self._record(begin, end)
            except (error, ValueError) as fault:
                self._gap(begin - _FRAME, end, f"malformed record: {fault}")

    def _sealed_in_part(self, at: int) -> None:
        self.footer_begun = True
        self.end = at

    def _skip(self, at: int, reason: str, incomplete: bool) -> int:
        """Continue with the first valid record after ``at``."""
        stop = next_record(self.data, at + 1)
        if stop >= 0:
            self._gap(at, stop, reason)
            return stop
        self.footer_begun = self.data[at + _FRAME : at + _FRAME + 1] == bytes([Kind.FOOTER])
        self.tail = "" if self.footer_begun else reason
        return len(self.data)

    def _gap(self, at: int, stop: int, reason: str) -> None:
        """Add a gap between two valid records. If the gap may have a message, an index is reserved for it."""
        begin = at + _FRAME
        length = PREFIX.unpack_from(self.data, at)[0]
        # bytes of a message record by the lengths in this record, which may be damaged; -1: unknown
        message_length = -1
        if begin + MESSAGE.size <= len(self.data):
            message_length = StoredMessage(self.data, begin).size
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
            contents.kinds.append(0)  # 0: an unreadable message, in no queue
            self._members(before, b"")

    def cut(self, gap: Gap) -> None:
        """Drop everything after the beginning of a gap, as if the file ended there."""
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

    def _record(self, begin: int, end: int) -> None:
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
            what, number, value = unpack_binding(data[begin:end])
            if value is not None and number <= GREATEST_ID:
                self.bindings[what, number] = value
        else:
            raise ValueError(f"unexpected record of kind {kind}")

    def _message(self, begin: int, end: int) -> None:
        data = self.data
        fields = MESSAGE.unpack_from(data, begin)
        _, flags, priority, _, address, number, timestamp, expires, due, transaction = fields[:10]
        if not fits(data, begin, end):
            raise ValueError("lengths do not match")
        contents = self.contents
        index = len(contents.kinds)
        contents.starts.append(begin - _FRAME)
        contents.numbers.append(number)
        contents.timestamps.append(timestamp)
        kind = priority + 1
        if flags & DURABLE:
            kind |= DURABLE_BIT
        if due:
            kind |= SCHEDULED_BIT
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


def transactions_at(data: bytes, starts: Iterable[int]) -> list[tuple[int, int]]:
    """Return index and transaction of those messages at ``starts`` that were sent in a transaction."""
    found = []
    for index, at in enumerate(starts):
        end, reason = record_end(data, at, len(data))
        if not reason and end - at >= _FRAME + MESSAGE.size:
            number = MESSAGE.unpack_from(data, at + _FRAME)[9]
            if number:
                found.append((index, number))
    return found


def next_record(data: bytes, at: int) -> int:
    """Return the offset of the first valid record at or after ``at``, -1 if there is none."""
    match = _BEGINNING.search(data, at + _FRAME)
    while match is not None:
        start = match.start() - _FRAME
        if not record_end(data, start, len(data))[1]:
            return start
        match = _BEGINNING.search(data, match.start() + 1)
    return -1
