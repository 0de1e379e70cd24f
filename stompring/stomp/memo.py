"""The header blocks that a connection sends again and again, decoded once."""

from __future__ import annotations

from stompring.stomp.frame import Head

_MOST_HEADS = 256
_LONGEST_BLOCK = 1024  # bytes: what a connection can make us keep is 256 KiB
_REST = 16_384  # heads that are not kept after a bad time: the 256 kept in vain are then one in 64


class HeadMemo:
    """Heads by their header block, as it came.

    Producers mostly send the same block over and over, and then a head costs one look in a dict. Where each block
    holds something unique, keeping them is in vain: a full memo that was not hit at least once for each of its
    entries is emptied and left so for a while.
    """

    __slots__ = ("heads", "hits", "rest")

    def __init__(self) -> None:
        self.heads: dict[bytes, Head] = {}
        self.hits = 0  # since the memo was last empty; added up by the reader, once per read
        self.rest = 0  # how many more heads are not kept

    def keep(self, block: bytes, head: Head) -> None:
        """Remember ``head``, unless its block is long or sure to be unique."""
        if self.rest:
            self.rest -= 1
        elif len(block) <= _LONGEST_BLOCK and b"receipt" not in head.headers:
            if len(self.heads) >= _MOST_HEADS:
                self._start_again()
            self.heads[block] = head

    def clear(self) -> None:
        self.heads.clear()
        self.hits = 0
        self.rest = 0

    def pass_over(self, heads: int) -> None:
        """So many were not worth keeping, without being looked at."""
        self.rest = max(0, self.rest - heads)

    def _start_again(self) -> None:
        rest = 0 if self.hits >= len(self.heads) else _REST
        self.clear()
        self.rest = rest
