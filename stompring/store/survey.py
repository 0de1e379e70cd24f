"""What the footer of a segment would say, from its records: for one that was begun in an earlier run."""

from __future__ import annotations

from array import array
from struct import Struct

from .record import ADDRESS, MESSAGE, NAME, PREFIX, TRANSACTION, Kind
from .segment import Footer, Walk

_LENGTH = Struct("<I")


def survey(data: bytes) -> Footer:
    """Where records begin, the least and greatest numbers and times of messages, and the addresses named."""
    footer = Footer(array("I"))
    addresses = set()
    for begin, end in Walk(data):
        footer.starts.append(begin - PREFIX.size)
        kind = data[begin]
        if kind == Kind.MESSAGE:
            _note(footer, data, begin)
        elif kind == Kind.TRANSACTION:
            at = begin + TRANSACTION.size
            while at < end:
                if data[at + 4] == Kind.MESSAGE:
                    _note(footer, data, at + 4)
                at += 4 + _LENGTH.unpack_from(data, at)[0]
        elif kind == Kind.NAME and data[begin + 1] == ADDRESS:
            addresses.add(NAME.unpack_from(data, begin)[3])
    footer.addresses = tuple(sorted(addresses))
    return footer


def _note(footer: Footer, data: bytes, at: int) -> None:
    _, _, _, _, _, number, timestamp, *_ = MESSAGE.unpack_from(data, at)
    footer.note(number, timestamp)
