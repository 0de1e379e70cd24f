"""What is in files of the journal, pages and samples, for tests that look at all of them."""

import struct
from zlib import crc32

from stompring.store.record import NAME, SAMPLE, SAMPLE_ROW, TRANSACTION, Kind
from stompring.store.segment import HEADER, Header, SegmentScan

from .format_tables import Format


def payloads(data):
    """All of a file's payloads that say what went through: those within transactions too, none for restarts alone."""
    found = []
    for start, stop in SegmentScan(data):
        payload = data[start:stop]
        parts = [payload]
        if payload[0] == Kind.TRANSACTION:
            parts, at = [], TRANSACTION.size
            while at < len(payload):
                (size,) = struct.unpack_from("<I", payload, at)
                parts.append(payload[at + 4 : at + 4 + size])
                at += 4 + size
        for part in parts:
            if part[0] != Kind.SCOPED:
                found.append(part)
            elif part[1] == 1:
                found.append(part[4:])
    return found


def of_format_2(path):
    """Give a file the header of the format before the present one."""
    data = bytearray(path.read_bytes())
    data[8:16] = b"\2\0" + data[10:12] + bytes(4)
    data[12:16] = crc32(data[: HEADER.size]).to_bytes(4, "little")
    path.write_bytes(data)


def rows(data):
    """Of each sample its time, and the rows by queue."""
    names = {}
    found = []
    assert Header.read(data).kind == 3 and Header.read(data).fault is None
    for payload in payloads(data):
        if payload[0] == Kind.NAME:
            names[NAME.unpack_from(payload)[3]] = payload[NAME.size :].decode()
        elif payload[0] == Kind.SAMPLE:
            count, time = SAMPLE.unpack_from(payload)[3:]
            every = list(SAMPLE_ROW.iter_unpack(payload[SAMPLE.size :]))
            assert len(every) == count
            found.append((time, {names[row[0]]: row[2:] for row in every}))
    return found


FORMAT = Format.of_document()


def retained(payload):
    """The fields of a RETAINED record, as the document has them, and of each message its number and its body."""
    title, fields = FORMAT.payload(payload)
    assert title == "RETAINED"
    at, found = 0, []
    for number, head, size in zip(fields["numbers"], fields["head_lengths"], fields["lengths"], strict=True):
        found.append((number, fields["tails"][at + head : at + size - 2]))
        at += size
    assert at == len(fields["tails"])
    return fields, found


def passed_on(payload):
    """Of a RETAINED record the messages that were acknowledged as they came: number, queue, consumer."""
    fields, _ = retained(payload)
    return [
        (fields["numbers"][place], entries["queue"], entries["consumer"])
        for entries in fields["entries"]
        if entries["outcome"] == 1
        for place in (entries["places"] or range(fields["count"]))
    ]
