"""Page files: their names, their footer, and reading one without a footer.

For each message the footer has one byte, its *kind*: priority + 1, with `DURABLE_BIT` for a durable message and
`SCHEDULED_BIT` for one that was sent with a due time. Which queues a message belongs to is a bitmap for each queue,
left out where all messages are its own. Only durable queues are listed.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import Struct, error
from typing import Any, NamedTuple

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

#: Holds the name of the address a directory is of.
ADDRESS_FILE = "address.txt"

#: The suffix of a damaged page file that was set aside.
SET_ASIDE = ".invalidPage"

#: A page file by its number, set aside or not.
PAGE_NAME = re.compile(r"(\d{9,})\.page(?:(\.invalidPage)(?:\.\d+)?)?")

DIRECTORY_NAME = re.compile(r"(\d{9,})(?:-\d+)?")


def page_path(directory: Path, number: int) -> Path:
    """Where page ``number`` is."""
    return directory / f"{number:09d}.page"


def directory_number(path: Path) -> int:
    """The number of the address that a directory is of."""
    match = DIRECTORY_NAME.fullmatch(path.name)
    return int(match[1]) if match else 0


def set_aside(writer: Writer, path: Path) -> None:
    """Keep a damaged file under a name that no broker reads."""

    def rename(files: Files) -> None:
        if path.name in files.names(path.parent):
            files.rename(path, free_name(files, path, SET_ASIDE))

    writer.run_task(rename)


#: soonest expiry and due time (epoch ms, 0 for none), greatest transaction, queues, kinds (1 where all are equal,
#: else one for each message); then the kinds, u8 each; then for each durable queue a `PAGE_MEMBER`
PAGE_FOOTER = Struct("<QQQII")
#: queue, its messages; unless it has all of them a bitmap follows, the lowest bit of the first byte for the first one
PAGE_MEMBER = Struct("<II")

#: Bits of a kind beside priority + 1.
DURABLE_BIT, SCHEDULED_BIT = 0x80, 0x40

_FROM_DIGITS = bytes(255 if byte == ord("1") else 0 for byte in range(256))
_TO_DIGITS = bytes(ord("1") if byte else ord("0") for byte in range(256))


class PageColumns:
    """Columns of a page: one entry for each of its messages."""

    def __init__(self) -> None:
        self.starts = array("I")  # where their records begin
        self.numbers = array("Q")
        self.timestamps = array("Q")
        self.kinds = bytearray()
        self.memberships: list[tuple[int, bytes]] = []  # from which message on which queues, as packed ids
        self.passing: set[int] = set()  # queues that are not durable: nothing of theirs outlives the broker
        self.soonest_expiry = 0
        self.soonest_due = 0
        self.greatest_transaction = 0

    def footer(self, address: int) -> Footer:
        """The footer of the page with these messages."""
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
        """For each durable queue, by number, 255 for each message that is its own and 0 for others."""
        count = len(self.kinds)
        masks: defaultdict[int, bytearray] = defaultdict(lambda: bytearray(count))
        stops = [*(first for first, _ in self.memberships[1:]), count]
        for (first, ids), stop in zip(self.memberships, stops, strict=False):
            for queue in array("I", ids):
                if queue not in self.passing:
                    masks[queue][first:stop] = b"\xff" * (stop - first)
        return masks

    def summary(self) -> PageSummary:
        """The same as one would read it from the footer."""
        summary = PageSummary.of(self.footer(0))
        assert summary is not None
        return summary


@dataclass(slots=True)
class PageSummary:
    """What is known of a page's messages without reading them."""

    count: int
    kinds: bytes  # one for each message, or one for all
    members: dict[int, bytes | None]  # by queue: 255 for each message that is its own; None where all are
    soonest_expiry: int
    soonest_due: int
    greatest_transaction: int
    least_number: int
    greatest_number: int

    @classmethod
    def of(cls, footer: Footer) -> PageSummary | None:
        """From a page's footer, None where its last part does not make sense."""
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
        """What a durable queue has here after a restart (see `Cursor.states`): its durable messages."""
        states, mask = self.kinds.translate(_STATES), self.members[queue]
        if len(states) == 1:
            states *= self.count
        if mask is None:
            return bytearray(states)
        both = int.from_bytes(states, "little") & int.from_bytes(mask, "little")
        return bytearray(both.to_bytes(self.count, "little"))

    def durable_counts(self) -> dict[int, int]:
        """How many durable messages of the page entered each durable queue."""
        counts = {queue: self.count - self.states(queue).count(0) for queue in self.members}
        return {queue: count for queue, count in counts.items() if count}


#: The states of messages in durable queues, by kind.
_STATES = bytes(
    0 if not kind & DURABLE_BIT else TIMED if kind & SCHEDULED_BIT else kind & 0x0F for kind in range(256)
)


def pack_bits(mask: bytes | bytearray) -> bytes:
    """A bit for each byte, set where that is not 0; the lowest bit of the first byte for the first."""
    digits = mask.translate(_TO_DIGITS)[::-1]
    return int(digits or b"0", 2).to_bytes((len(mask) + 7) // 8, "little")


def unpack_bits(bits: bytes, count: int) -> bytes:
    """255 for each bit that is set, 0 for others."""
    number = int.from_bytes(bits, "little")
    return f"{number:0{count}b}"[::-1][:count].encode().translate(_FROM_DIGITS)


def describe_loss(lost: Mapping[str, int] | None, *, more: bool = False) -> str:
    """Lost messages by queue, as text; None: unknown, ``more``: there may be others."""
    if lost is None:
        return "all, number unknown"
    each = ", ".join(f"{count} of queue {name}" for name, count in sorted(lost.items()))
    if more:
        return f"at least {each}, total unknown" if each else "number unknown"
    return each or "none"


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


class PageScan(SegmentScan):
    """The messages of a page's bytes. It does not need the footer.

    ``end`` is where the last good record ended. What is behind it is in ``tail``, the reason why it cannot be read,
    empty where there is nothing; ``gaps`` are before it.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data, min(HEADER.size, len(data)))
        self.footer = None
        self.contents = PageColumns()
        self.transactions: list[tuple[int, int]] = []  # index, number, where there is one
        self.address = 0
        self.name: str | None = None  # of the address
        self.queues: dict[int, str] = {}  # names of durable ones
        self.bindings: dict[tuple[int, int], dict[str, Any]] = {}  # as in `Replay`, of what was new then
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
        """Go on with the first good record behind ``at``."""
        stop = next_record(self.data, at + 1)
        if stop >= 0:
            self._gap(at, stop, reason)
            return stop
        self.footer_begun = self.data[at + _FRAME : at + _FRAME + 1] == bytes([Kind.FOOTER])
        self.tail = "" if self.footer_begun else reason
        return len(self.data)

    def _gap(self, at: int, stop: int, reason: str) -> None:
        """Note what cannot be read between two good records; keep the place of a message."""
        begin = at + _FRAME
        length = PREFIX.unpack_from(self.data, at)[0]
        # as the record itself says
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
            contents.kinds.append(0)  # of no queue
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

    def _record(self, begin: int, end: int) -> None:
        """Take a good record in."""
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
    """Index and number of the messages, of those that begin at ``starts``, that were sent in a transaction."""
    found = []
    for index, at in enumerate(starts):
        end, reason = record_end(data, at, len(data))
        if not reason and end - at >= _FRAME + MESSAGE.size:
            number = MESSAGE.unpack_from(data, at + _FRAME)[9]
            if number:
                found.append((index, number))
    return found


def next_record(data: bytes, at: int) -> int:
    """Where the first good record at or after a position begins, -1 where there is none."""
    match = _BEGINNING.search(data, at + _FRAME)
    while match is not None:
        start = match.start() - _FRAME
        if not record_end(data, start, len(data))[1]:
            return start
        match = _BEGINNING.search(data, match.start() + 1)
    return -1
