"""What a page's footer says beyond that of any segment: enough to know what each queue has in it without reading it.

Of each message one byte is kept, its *kind*: priority + 1, with `LASTING` for a durable message and `DELAYED` for
one that was sent with a due time. Which queues a message belongs to is kept as one bitmap for each queue, left out
where all messages are its own. Only durable queues are told of.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from struct import Struct, error

from stompring.broker.paging import TIMED

from .segment import Footer

#: soonest expiry and due time (epoch ms, 0 for none), greatest transaction, queues, kinds (1 where all are equal,
#: else one for each message); then the kinds, u8 each; then for each durable queue a `PAGE_MEMBER`
PAGE_FOOTER = Struct("<QQQII")
#: queue, its messages; unless it has all of them a bitmap follows, the lowest bit of the first byte for the first one
PAGE_MEMBER = Struct("<II")

#: Bits of a kind beside priority + 1.
LASTING, DELAYED = 0x80, 0x40

_FROM_DIGITS = bytes(255 if byte == ord("1") else 0 for byte in range(256))
_TO_DIGITS = bytes(ord("1") if byte else ord("0") for byte in range(256))


class Contents:
    """Columns of a page: one entry for each of its messages."""

    __slots__ = (
        "greatest_transaction",
        "kinds",
        "memberships",
        "numbers",
        "passing",
        "soonest_due",
        "soonest_expiry",
        "starts",
        "timestamps",
    )

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
        masks: dict[int, bytearray] = {}
        for place, (first, ids) in enumerate(self.memberships):
            following = self.memberships[place + 1 : place + 2]
            stop = following[0][0] if following else count
            for queue in array("I", ids):
                if queue in self.passing:
                    continue
                mask = masks.get(queue)
                if mask is None:
                    mask = masks[queue] = bytearray(count)
                mask[first:stop] = b"\xff" * (stop - first)
        return masks

    def summary(self) -> Summary:
        """The same as one would read it from the footer."""
        numbers = self.numbers
        return Summary(
            len(self.kinds),
            bytes(self.kinds),
            {queue: bytes(mask) for queue, mask in self.masks().items()},
            self.soonest_expiry,
            self.soonest_due,
            self.greatest_transaction,
            min(numbers, default=0),
            max(numbers, default=0),
        )


class Summary:
    """What is known of a page's messages without reading them."""

    __slots__ = (
        "count",
        "greatest_number",
        "greatest_transaction",
        "kinds",
        "least_number",
        "members",
        "soonest_due",
        "soonest_expiry",
    )

    def __init__(
        self,
        count: int,
        kinds: bytes,
        members: dict[int, bytes | None],
        soonest_expiry: int,
        soonest_due: int,
        greatest_transaction: int,
        least_number: int,
        greatest_number: int,
    ) -> None:
        self.count = count
        self.kinds = kinds  # one for each message, or one for all
        self.members = members  # by queue: 255 for each message that is its own; None where all are
        self.soonest_expiry = soonest_expiry
        self.soonest_due = soonest_due
        self.greatest_transaction = greatest_transaction
        self.least_number = least_number
        self.greatest_number = greatest_number

    @classmethod
    def of(cls, footer: Footer) -> Summary | None:
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
        return states_of(self.kinds, self.members[queue], self.count)

    @property
    def passing(self) -> int:
        """How many messages are not durable."""
        if len(self.kinds) == 1:
            return 0 if self.kinds[0] & LASTING else self.count
        return sum(self.kinds.count(kind) for kind in set(self.kinds) if not kind & LASTING)


def states_of(kinds: bytes, mask: bytes | None, count: int) -> bytearray:
    """The states of durable messages of some kinds, where a mask of 0 and 255 lets them through."""
    if len(kinds) == 1:
        state = _STATES[kinds[0]]
        if mask is None:
            return bytearray([state]) * count
        return bytearray(mask.translate(_one_or_none(state)))
    states = kinds.translate(_STATES)
    if mask is None:
        return bytearray(states)
    both = int.from_bytes(states, "little") & int.from_bytes(mask, "little")
    return bytearray(both.to_bytes(count, "little"))


def _state(kind: int) -> int:
    if not kind & LASTING:
        return 0
    return TIMED if kind & DELAYED else kind & 0x0F


_STATES = bytes(map(_state, range(256)))


@lru_cache(maxsize=16)
def _one_or_none(state: int) -> bytes:
    return bytes(state if byte else 0 for byte in range(256))


def pack_bits(mask: bytes | bytearray) -> bytes:
    """A bit for each byte, set where that is not 0; the lowest bit of the first byte for the first."""
    digits = mask.translate(_TO_DIGITS)[::-1]
    return int(digits or b"0", 2).to_bytes((len(mask) + 7) // 8, "little")


def unpack_bits(bits: bytes, count: int) -> bytes:
    """255 for each bit that is set, 0 for others."""
    number = int.from_bytes(bits, "little")
    return f"{number:0{count}b}"[::-1][:count].encode().translate(_FROM_DIGITS)
