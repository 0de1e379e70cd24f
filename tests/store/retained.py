"""What is in files of the journal, pages and samples, for tests that look at all of them."""

from __future__ import annotations

import struct

from stompring.store.record import NAME, SAMPLE, SAMPLE_ROW, TRANSACTION, Kind
from stompring.store.segment import Header, Walk


def payloads(data: bytes) -> list[bytes]:
    """All of a file's payloads, those within transactions too."""
    found = []
    for start, stop in Walk(data):
        payload = data[start:stop]
        if payload[0] != Kind.TRANSACTION:
            found.append(payload)
            continue
        at = TRANSACTION.size
        while at < len(payload):
            (size,) = struct.unpack_from("<I", payload, at)
            found.append(payload[at + 4 : at + 4 + size])
            at += 4 + size
    return found


def rows(data: bytes) -> list[tuple[int, dict[str, tuple[int, ...]]]]:
    """Of each sample its time, and the rows by queue."""
    names: dict[int, str] = {}
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
