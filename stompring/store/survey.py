"""What the footer of a segment would say, from its records: for one that was begun in an earlier run."""

from __future__ import annotations

from array import array
from struct import Struct

from .message_shape import fits
from .record import ADDRESS, MESSAGE, NAME, PREFIX, TRANSACTION, Kind
from .segment import Footer, Walk

_LENGTH = Struct("<I")


def survey(data: bytes) -> Footer:
    """Where records begin, the least and greatest numbers and times of messages, and the addresses named.

    Of records that cannot be taken apart it says no more than where they are.
    """
    footer = Footer(array("I"))
    addresses = set()
    for begin, end in Walk(data):
        footer.starts.append(begin - PREFIX.size)
        kind = data[begin]
        if kind == Kind.MESSAGE:
            _note(footer, data, begin, end)
        elif kind == Kind.TRANSACTION:
            at = begin + TRANSACTION.size
            while at + _LENGTH.size < end:
                start = at + _LENGTH.size
                at = start + _LENGTH.unpack_from(data, at)[0]
                if data[start] == Kind.MESSAGE and at <= end:
                    _note(footer, data, start, at)
        elif kind == Kind.NAME and end - begin >= NAME.size and data[begin + 1] == ADDRESS:
            addresses.add(NAME.unpack_from(data, begin)[3])
    footer.addresses = tuple(sorted(addresses))
    return footer


def _note(footer: Footer, data: bytes, begin: int, end: int) -> None:
    if fits(data, begin, end):
        _, _, _, _, _, number, timestamp, *_ = MESSAGE.unpack_from(data, begin)
        footer.note(number, timestamp)
