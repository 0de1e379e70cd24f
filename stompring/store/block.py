"""A block: consecutive messages of one page in memory, taken apart only when somebody asks."""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING

from stompring.broker.message import Account, Message, Traits

from .record import MESSAGE, PREFIX, StoredMessage, TraitsMemo

if TYPE_CHECKING:
    from stompring.broker.address import Address

    from .page import Page

#: Bytes of a page that are read together, more or less: messages that begin within as many.
BLOCK_BYTES = 256 * 1024

#: Python's own share of a block.
OVERHEAD = 400

_unpack = MESSAGE.unpack_from
#: The lengths that end the prologue, for a scan that needs nothing else of it.
_LENGTHS = Struct("<IIII")
_LENGTHS_AT = MESSAGE.size - _LENGTHS.size
_unpack_lengths = _LENGTHS.unpack_from
_PROLOGUE, _FRAME = MESSAGE.size, PREFIX.size


class Block:
    """See `broker.paging.Block`. ``data`` are the bytes of the page from the first record on."""

    __slots__ = (
        "__weakref__",
        "_account",
        "_address",
        "_at",
        "_data",
        "_memo",
        "first",
        "page",
        "size",
        "stop",
    )

    def __init__(
        self,
        page: Page,
        first: int,
        starts: array[int],
        data: bytes,
        address: Address,
        memo: TraitsMemo,
        account: Account,
    ) -> None:
        self.page = page
        self.first = first
        self.stop = first + len(starts)
        base = starts[0] - _FRAME
        self._at = array("I", [start - base for start in starts])  # of payloads in the data
        self._data = data
        self._address = address
        self._memo = memo
        self._account = account
        self.size = len(data) + 4 * len(starts) + OVERHEAD

    def message(self, index: int) -> Message:
        """The message at a position of this block; the same object for all who ask while anybody holds it."""
        page = self.page
        made = page.made.get(index)
        if made is not None:
            message = made()
            if message is not None:
                return message
        stored = StoredMessage(self._data, self._at[index - self.first])
        message = stored.restore(self._address, self._memo, self._account)
        page.share(index, message)
        return message

    def due(self, index: int) -> int:
        """When it is to be delivered (epoch ms) as it was sent, 0 for at once."""
        due: int = _unpack(self._data, self._at[index - self.first])[8]
        return due

    def number_of(self, index: int) -> int:
        """Its message's number."""
        number: int = _unpack(self._data, self._at[index - self.first])[5]
        return number

    def expires(self, index: int) -> int:
        """When it expires (epoch ms), 0 for never."""
        expires: int = _unpack(self._data, self._at[index - self.first])[7]
        return expires

    def traits(self, index: int) -> Traits:
        """Its traits; mostly the same object for messages that were sent with the same headers."""
        data, at = self._data, self._at[index - self.first]
        head, _, queues, length = _unpack_lengths(data, at + _LENGTHS_AT)
        start = at + _PROLOGUE + 4 * queues
        tail_at = start + length
        return self._memo.recall(
            data[at + 1], data[at + 2], data[start:tail_at], data[tail_at : tail_at + head], head
        )
