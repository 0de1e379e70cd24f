"""Segments: files of records with a header and, once complete, a footer.

The name of the file is the segment's number. The footer of a sealed segment has a summary and the offsets of all
records: a reader needs less of the file, and damage to one record leaves the others readable.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import Struct, error
from typing import Final
from zlib import crc32

from stompring.errors import StoreError

from .record import ADDRESS, MESSAGE, NAME, PREFIX, TRANSACTION, Kind, fits, framed

MAGIC: Final = b"STOMPRNG"
FORMAT: Final = 3
JOURNAL, PAGE, SAMPLES = 1, 2, 3  # kinds of segments

#: magic: `STOMPRNG`
#: format: 3
#: kind: 1 for a journal segment, 2 for a page, 3 for samples
#: crc: CRC-32 of these 72 bytes, computed with 0 in this field
#: next: in the journal: all messages written before this file have lower numbers; in a page: the number of its
#:    first message
#: created: creation time of the file
#: number: the number in the file name
#: directory: the identity of the data directory
#: address: in a page: the number of the address; else 0
#: zero
#: previous: in the journal: the end offset of the records in the previous segment; 0 if there is none or the offset
#:    is unknown. In other files 0
HEADER: Final = Struct("<8sHHIQQQ16sIIQ")
#: The beginning of the header in every format, and the bytes of the header of format 1: so a file of an older format is
#: not taken for damaged.
_ANY_HEADER, _FIRST_SIZE = Struct("<8sHHI"), 32
#: An unknown identity of a data directory.
NO_IDENTITY: Final = bytes(16)
#: kind, zero, zero, record_count
#: least_number: of all MESSAGEs in the file, 0 for none
#: greatest_number
#: least_timestamp: of all MESSAGEs, 0 for none
#: greatest_timestamp
#: size: bytes before this record
#: address_count, block_count
#: starts u32[record_count]: record offsets in the file: in the journal of all records, in a page of the MESSAGEs
#: addresses u32[address_count]: numbers of the addresses in this file
#: blocks u32[block_count]: CRC-32 of each 64 KiB of the file before this record; the last block may be shorter
#: more bytes[*]: in a page a PAGE_FOOTER, in the journal nothing
FOOTER: Final = Struct("<BBHIQQQQQII")
#: footer: offset of the footer record in the file
#: crc: CRC-32 of those 8 bytes
#: magic: `SEAL`
TRAILER: Final = Struct("<QI4s")
SEAL: Final = b"SEAL"

#: The end of an error message that begins with the format of a file or a directory.
NO_LONGER_READ: Final = (
    "is of an earlier version of stompring, and no longer read: with that version write 'stompring data export', and "
    "import it into a new data directory"
)

#: Bytes of a block, the unit of the CRC-32 values in the footer.
BLOCK: Final = 64 * 1024

#: Bytes per read when a footer is built: whole blocks.
READ_AT_ONCE: Final = 16 * BLOCK

#: Returns the bytes of a file from the first position up to, and without, the second.
ReadFile = Callable[[int, int], bytes | memoryview]


def pack_header(
    kind: int,
    next_number: int,
    created: int,
    number: int = 0,
    directory: bytes = NO_IDENTITY,
    address: int = 0,
    previous: int = 0,
) -> bytes:
    """Encode the header of segment ``number``. ``next_number`` is greater than the numbers of all messages so far."""
    fields = (next_number, created, number, directory, address, 0, previous)
    bare = HEADER.pack(MAGIC, FORMAT, kind, 0, *fields)
    return HEADER.pack(MAGIC, FORMAT, kind, crc32(bare), *fields)


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a segment. ``fault``: why it is invalid."""

    format: int = FORMAT
    kind: int = 0
    next_number: int = 0
    created: int = 0
    number: int = 0  # number that the name of the file must have
    directory: bytes = NO_IDENTITY
    address: int = 0
    previous: int = 0  # bytes of the previous segment without its footer
    fault: str | None = None

    @classmethod
    def read(cls, data: bytes) -> Header:
        """Decode the beginning of a file. For an older format, only ``format`` and ``kind`` are set."""
        size = _FIRST_SIZE if data[8:10] == b"\1\0" else HEADER.size
        if len(data) < size:
            return cls(fault=f"the file ends after {len(data)} bytes, inside the header")
        magic, format_, kind, crc = _ANY_HEADER.unpack_from(data)
        if crc != crc32(data[:12] + bytes(4) + data[16:size]):
            return cls(fault="the header is damaged")
        if magic != MAGIC:
            return cls(fault="not a segment file")
        if format_ < FORMAT:
            return cls(format_, kind)
        _, _, _, _, next_number, created, number, directory, address, _, previous = HEADER.unpack_from(data)
        return cls(format_, kind, next_number, created, number, directory, address, previous)

    def refuse_older(self, path: object) -> None:
        """Raise `StoreError` for a file of a format that is no longer read."""
        if self.format < FORMAT:
            raise StoreError(f"format {self.format} {NO_LONGER_READ}", path)

    def misplaced(self, number: int, directory: bytes) -> str:
        """Return why this cannot be file ``number`` of a data directory, empty if it can."""
        if self.fault is not None:
            return ""
        if NO_IDENTITY not in (directory, self.directory) and directory != self.directory:
            return f"it belongs to the data directory {self.directory.hex()}"
        if self.number not in (0, number):
            return f"it is a copy of file number {self.number}"
        return ""


def block_crcs(data: memoryview) -> list[int]:
    """Return the CRC-32 of each block."""
    return [crc32(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK)]


@dataclass(slots=True)
class Footer:
    """The footer of a sealed segment. Without messages, all message numbers and timestamps are 0."""

    starts: array[int]
    least_number: int = 0
    greatest_number: int = 0
    least_timestamp: int = 0
    greatest_timestamp: int = 0
    addresses: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    size: int = 0  # bytes of the file before the footer
    more: bytes = field(default=b"", repr=False)  # a `PAGE_FOOTER` in a page, else empty

    def include(self, number: int, timestamp: int) -> None:
        """Add a message to the ranges of numbers and timestamps."""
        self.greatest_number = max(self.greatest_number, number)
        self.greatest_timestamp = max(self.greatest_timestamp, timestamp)
        self.least_number = min(self.least_number or number, number)
        self.least_timestamp = min(self.least_timestamp or timestamp, timestamp)

    def agrees_with(self, data: bytes) -> bool:
        """Return whether ``data``, a whole segment, has exactly the bytes that this footer was built for."""
        starts = self.starts
        if not starts or starts[0] != HEADER.size:
            return False
        return tuple(block_crcs(memoryview(data)[: self.size])) == self.blocks

    def ending(self, data: bytes | memoryview) -> bytes:
        """Return footer and trailer for ``data``, all bytes of the file so far."""
        view = memoryview(data)
        return self.ending_of(lambda start, stop: view[start:stop], len(view))

    def ending_of(self, read: ReadFile, size: int) -> bytes:
        """Return footer and trailer for a file of ``size`` bytes. Reads the file in parts, in the disk thread."""
        crcs: list[int] = []
        at = 0
        while at < size:
            part = memoryview(read(at, min(at + READ_AT_ONCE, size)))
            crcs += block_crcs(part)
            at += len(part)
            if len(part) < READ_AT_ONCE:
                break
        self.size = at
        self.blocks = tuple(crcs)
        return framed(self.payload()) + TRAILER.pack(at, crc32(at.to_bytes(8, "little")), SEAL)

    def payload(self) -> bytes:
        """Return the footer's record without its frame."""
        fixed = FOOTER.pack(
            Kind.FOOTER,
            0,
            0,
            len(self.starts),
            self.least_number,
            self.greatest_number,
            self.least_timestamp,
            self.greatest_timestamp,
            self.size,
            len(self.addresses),
            len(self.blocks),
        )
        return b"".join((fixed, self.starts, array("I", self.addresses), array("I", self.blocks), self.more))

    @classmethod
    def parse(cls, payload: bytes | memoryview) -> Footer | None:
        """Return the footer in a payload, None if the payload is not a footer."""
        try:
            kind, _, _, records, *numbers, addresses, blocks = FOOTER.unpack_from(payload)
        except error:
            return None
        parts, at = [], FOOTER.size
        for count in (records, addresses, blocks):
            part = array("I")
            if kind != Kind.FOOTER or len(payload) - at < 4 * count:
                return None
            part.frombytes(payload[at : at + 4 * count])
            parts.append(part)
            at += 4 * count
        starts, address_ids, crcs = parts
        least, greatest, earliest, latest, size = numbers
        rest = bytes(payload[at:])
        return cls(starts, least, greatest, earliest, latest, tuple(address_ids), tuple(crcs), size, rest)


def footer_offset(trailer: bytes) -> int:
    """Return the offset of the footer from the last bytes of a file, -1 if the file is not sealed."""
    if len(trailer) < TRAILER.size:
        return -1
    at, crc, seal = TRAILER.unpack(trailer[-TRAILER.size :])
    return at if seal == SEAL and crc == crc32(int(at).to_bytes(8, "little")) else -1


def find_footer(data: bytes | memoryview) -> Footer | None:
    """Return the footer of a whole segment, None without a valid one."""
    view = memoryview(data)
    return read_footer(lambda start, stop: view[start:stop], len(view))


def read_footer(read: ReadFile, size: int) -> Footer | None:
    """Return the footer of a file of ``size`` bytes, None without a valid one. Reads only the end of the file."""
    stop = size - TRAILER.size
    at = footer_offset(bytes(read(max(0, stop), size)))
    if not HEADER.size <= at <= stop - PREFIX.size:
        return None
    data = read(at, stop)
    if record_end(data, 0, len(data)) != (len(data), ""):
        return None
    footer = Footer.parse(memoryview(data)[PREFIX.size :])
    return footer if footer is not None and footer.size == at else None


def record_end(data: bytes | memoryview, at: int, stop: int) -> tuple[int, str]:
    """Return the end of the record at a position, and why the record is unreadable (empty for a valid record). The end
    is -1 if the record does not end before ``stop``.
    """
    begin = at + PREFIX.size
    if begin > stop:
        return -1, "record header is truncated"
    length, crc = PREFIX.unpack_from(data, at)
    end = begin + length
    if not length:
        return -1, "record length is 0"
    if end > stop:
        return -1, "record extends beyond the end of the file"
    return end, "" if crc32(memoryview(data)[begin:end]) == crc else "record checksum mismatch"


@dataclass(frozen=True, slots=True)
class Fault:
    """The beginning of unreadable bytes in a segment. ``incomplete``: maybe a record that was written only in part, not
    damage. ``unsupported``: a newer version of stompring wrote the file.
    """

    at: int
    reason: str
    incomplete: bool = False
    unsupported: bool = False


#: Only prefilled segments end with so many zeros: the numbers at the end of a record have fewer zero bytes.
_PREFILLED_END: Final = bytes(64)


class SegmentScan:
    """The records in the bytes of a segment. Iterate over the scan for begin and end of each payload.

    After a damaged record the scan continues with the next one in the footer; without a footer it ends. ``end``: end of
    the last valid record before the first fault. ``size``: bytes of the file without the zeros that prefill a journal
    segment after its last record.
    """

    def __init__(self, data: bytes, start: int = -1) -> None:
        """``start``: offset of the first record, -1: after the header."""
        self._all = start < 0
        header = Header.read(data) if start < 0 else None
        self.start = start if header is None else HEADER.size
        self._prefilled = header is not None and (header.kind == JOURNAL or header.fault is not None)
        self.footer = find_footer(data)
        if self.footer is None and self._prefilled and data.endswith(b"\0"):
            # zeros after the footer: a power failure undid the truncation of the prefilled zeros
            shorter = data.rstrip(b"\0")
            self.footer = find_footer(shorter)
            data = shorter if self.footer is not None else data
        self.data = data
        self.size = len(data)
        self.end = self.start
        self.faults: list[Fault] = []

    @property
    def whole(self) -> bool:
        """Whether every byte was valid. Known only after an iteration."""
        return not self.faults

    def __iter__(self) -> Iterator[tuple[int, int]]:
        footer = self.footer
        if footer is None or not self._all or not footer.agrees_with(self.data):
            return self._one_by_one()
        # a valid block has only valid records: this is ten times as fast as a check of each record
        self.end = footer.size
        begins = [start + PREFIX.size for start in footer.starts]
        return zip(begins, [*footer.starts[1:], footer.size], strict=True)

    def _one_by_one(self) -> Iterator[tuple[int, int]]:
        data, at = self.data, self.start
        stop = len(data) if self.footer is None else self.footer.size
        while at < stop:
            end, reason = record_end(data, at, stop)
            if reason:
                filled = self._prefilled and self.footer is None
                if filled and not data[at:].strip(b"\0"):
                    self.size = at  # only zeros follow; any other byte after ``at`` would belong to an incomplete write
                    return
                # zeros at the end prefill the file: the record before them may have been written in part
                at = self._skip(at, reason, end < 0 or (filled and data.endswith(_PREFILLED_END)))
                continue
            begin = at + PREFIX.size
            if data[begin] == Kind.FOOTER:
                # the footer's trailer is missing or damaged, but all records were found
                self._sealed_in_part(at)
                return
            at = end
            if not self.faults:
                self.end = at
            yield begin, end

    def _sealed_in_part(self, at: int) -> None:
        if not self.faults:
            self.end = at
            self.faults.append(Fault(at, "footer trailer is damaged", incomplete=True))

    def _skip(self, at: int, reason: str, incomplete: bool) -> int:
        """Add a fault. Returns the offset of the next record, or the end of the data."""
        self.faults.append(Fault(at, reason, incomplete))
        if self.footer is not None:
            for start in self.footer.starts:
                if start > at:
                    return int(start)
        return len(self.data)


_LENGTH: Final = Struct("<I")


def build_footer(data: bytes) -> Footer:
    """Return a footer with the record offsets, the ranges of message numbers and timestamps, and the named addresses.
    Of a malformed record, only the offset is used.
    """
    footer = Footer(array("I"))
    addresses = set()
    for begin, end in SegmentScan(data):
        footer.starts.append(begin - PREFIX.size)
        kind = data[begin]
        if kind == Kind.MESSAGE:
            _add_to_footer(footer, data, begin, end)
        elif kind == Kind.TRANSACTION:
            at = begin + TRANSACTION.size
            while at + _LENGTH.size < end:
                start = at + _LENGTH.size
                at = start + _LENGTH.unpack_from(data, at)[0]
                if data[start] == Kind.MESSAGE and at <= end:
                    _add_to_footer(footer, data, start, at)
        elif kind == Kind.NAME and end - begin >= NAME.size and data[begin + 1] == ADDRESS:
            addresses.add(NAME.unpack_from(data, begin)[3])
    footer.addresses = tuple(sorted(addresses))
    return footer


def _add_to_footer(footer: Footer, data: bytes, begin: int, end: int) -> None:
    if fits(data, begin, end):
        _, _, _, _, _, number, timestamp, *_ = MESSAGE.unpack_from(data, begin)
        footer.include(number, timestamp)
