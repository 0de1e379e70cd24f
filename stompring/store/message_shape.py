"""Whether a message record can be taken apart: its lengths fit, and its numbers are ones that exist.

A good checksum says that a record is as somebody wrote it, not that what wrote it was right. One message that is not
must not keep a broker from starting with all the others.
"""

from __future__ import annotations

from struct import Struct

from .record import MESSAGE, ROUTING_MASK, TRAITS

#: head, body, queues, traits: the lengths that end the prologue
_LENGTHS = Struct("<IIII")
_LENGTHS_AT = MESSAGE.size - _LENGTHS.size
_unpack = _LENGTHS.unpack_from
_LEAST = MESSAGE.size + TRAITS.size + 2

#: No id of a queue or an address, and no number of a message or a transaction, comes near: they are counted up from 1.
GREATEST_ID, GREATEST_NUMBER = 0xFFFF_0000, 1 << 62


def fits(data: bytes, begin: int, end: int) -> bool:
    """Whether the payload from ``begin`` to ``end`` is that of a message."""
    if end - begin < _LEAST:
        return False
    head, body, queues, traits = _unpack(data, begin + _LENGTHS_AT)
    return (
        begin + MESSAGE.size + 4 * queues + traits + head + body + 2 == end
        and traits >= TRAITS.size
        and data[begin + 2] <= 9  # its priority
        and data[begin + 15] < 0x40  # the last byte of its number
        and data[begin + 1] & ROUTING_MASK != ROUTING_MASK
    )
