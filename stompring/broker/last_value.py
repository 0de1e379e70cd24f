"""Last-value queues: of all messages with one key only the newest is pending (Artemis, "Last-Value Queues").

The queue has an index: for each key the newest message that has entered the queue and not left it. That is a reference
while the message is in memory, and a number (`LastValueQueue.encode`) while it is on disk only. When the next message
with the key enters, the message in the index is replaced: at once if it is pending, when it comes back if it is in
delivery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .address import as_address
from .message import SYSTEM_PROPERTIES, AddressBase, Message
from .ports import Cursor, Hooks, Pages, Reason
from .queue import (
    LAST_VALUE,
    DueBatch,
    Queue,
    QueueServices,
)
from .reference import DELIVERING, PENDING, SCHEDULED, Page, Position, QueueAttributes, Reference

#: The header with the key where ``last-value-key`` names none, and of messages that lack the header it names.
LVQ_NAME = b"_AMQ_LVQ_NAME"

_INDEX_BITS, _PAGE_BITS = 32, 64
_INDEX_MASK, _PAGE_MASK = (1 << _INDEX_BITS) - 1, (1 << _PAGE_BITS) - 1


class LastValueQueue(Queue):
    """A queue with at most one pending message for each key.

    Every message passes `add_pending` or a page: `LAST_VALUE` blocks direct delivery.
    """

    def __init__(
        self,
        name: str,
        address: AddressBase,
        attributes: QueueAttributes,
        broker: QueueServices,
        hooks: Hooks,
    ) -> None:
        super().__init__(name, address, attributes, broker, hooks)
        key = attributes.last_value_key
        self._property = None if key is None else SYSTEM_PROPERTIES.get(key)
        self._header = LVQ_NAME if key is None else key.encode()
        self._last: dict[bytes, Reference | int] = {}
        self._superseded: set[Reference] = set()  # in delivery, with a newer message of their key
        self._pages: list[Pages | None] = []
        self._numbers_of_pages: dict[Pages, int] = {}
        self.dispatcher.set_block(LAST_VALUE, True)

    @property
    def keys(self) -> int:
        """Keys in the index: those of messages that are pending, paged or in delivery."""
        return len(self._last)

    def key_of(self, message: Message) -> bytes | None:
        """The key of a message; None where it has none, and replaces nothing."""
        if self._property is not None:
            value = self._property(message)
            key = None if value is None else str(value).encode()
        else:
            key = message.header(self._header)
        return message.header(LVQ_NAME) if key is None and self._header is not LVQ_NAME else key

    # ---- the index

    def become_last(self, message: Message, last: Reference | int) -> None:
        """A message enters the queue, in memory or on disk: it is the newest of its key and replaces the one before."""
        key = self.key_of(message)
        if key is None:
            return
        before = self._last.get(key)
        self._last[key] = last
        if before is not None and before is not last:
            self._supersede(before)

    def _supersede(self, before: Reference | int) -> None:
        if isinstance(before, int):
            self._replace_on_disk(before)
        elif before.state == DELIVERING:
            self._superseded.add(before)
        elif before.state in (PENDING, SCHEDULED):
            self.detach(before)
            self._replace_value(before)

    def _replace_value(self, ref: Reference) -> None:
        """Drop a message that is in no list: a newer one has its key. It counts as replaced; no policy is notified."""
        self.messages_replaced += 1
        self.drop(ref, Reason.REPLACED)

    def _replace_on_disk(self, last: int) -> None:
        found = self._decode(last)
        if found is not None and self.paged is not None:
            cursor, page, index = found
            self.paged.replace(cursor, (page, index))

    # ---- positions in the index

    def encode(self, pages: Pages, position: Position) -> int:
        """A position on disk as one number: 36 bytes instead of the 100 of a tuple."""
        number = self._numbers_of_pages.get(pages)
        if number is None:
            number = self._numbers_of_pages[pages] = len(self._pages)
            self._pages.append(pages)
        page, index = position
        return (number << _PAGE_BITS | page.number) << _INDEX_BITS | index

    def _decode(self, last: int) -> tuple[Cursor, Page, int] | None:
        """Where a message is on disk; None where it is not on disk only any more."""
        pages = self._pages[last >> _INDEX_BITS + _PAGE_BITS]
        if pages is None:
            return None
        page, index = pages.page(last >> _INDEX_BITS & _PAGE_MASK), last & _INDEX_MASK
        cursor = pages.cursors.get(self)
        if page is None or cursor is None or not cursor.is_waiting(page, index):
            return None
        return cursor, page, index

    def forget_pages(self, pages: Pages) -> None:
        """An address has left page mode. The number of its pages is not used again."""
        number = self._numbers_of_pages.pop(pages, None)
        if number is not None:
            self._pages[number] = None

    def forget_settled(self) -> None:
        """Remove keys whose messages were settled on disk, unread: after a purge, by a ring, as unreadable."""
        self.broker.background.run(self._forget_settled(), self)

    def _forget_settled(self) -> Iterator[None]:
        last = self._last
        for key in list(last):
            found = last.get(key)
            if isinstance(found, int) and self._decode(found) is None:
                del last[key]
            yield

    def find_on_disk(
        self, cursor: Cursor, page: Page, index: int, message: Message, numbers: dict[int, int] | None
    ) -> None:
        """A start has found a message in a page: it enters the index, or is replaced by a newer one that is there.

        ``numbers`` has message numbers of positions, where the queue has messages in the pages of several addresses.
        """
        key = self.key_of(message)
        if key is None:
            return
        position, before = self.encode(cursor.pages, (page, index)), self._last.get(key)
        if before == position:
            return  # it has come since the start
        if numbers is not None:
            numbers[position] = message.number
        if before is None:
            newer = True
        elif isinstance(before, int):
            if before >> _INDEX_BITS + _PAGE_BITS == position >> _INDEX_BITS + _PAGE_BITS:
                newer = position > before
            else:  # what has come since the start is newer, and has no number here
                newer = numbers is not None and before in numbers and numbers[before] < message.number
        else:  # what fell due since the start is newer, whatever its number
            newer = 0 < before.sequence and before.message.number < message.number
        if newer:
            self._last[key] = position
            if before is not None:
                self._supersede(before)
        else:
            self._replace_on_disk(position)

    # ---- messages enter

    def on_due(self, refs: Iterable[Reference], batch: DueBatch) -> None:
        """A scheduled message replaces what has its key when it falls due, and not before."""
        for ref in refs:
            if self.fall_due(ref):
                super().on_due((ref,), batch)

    def fall_due(self, ref: Reference) -> bool:
        """A scheduled message, in no list, becomes the newest of its key.

        One that waited for its redelivery is dropped if a newer one has entered; returns False then.
        """
        key = self.key_of(ref.message)
        if key is None or (before := self._last.get(key)) is ref:
            return True
        if ref.deliveries and before is not None:
            self.scheduled.pop(ref.message.number, None)
            self._replace_value(ref)
            return False
        self.become_last(ref.message, ref)
        return True

    def load(self, message: Message, position: Position, counts: tuple[int, int]) -> Reference:
        ref = super().load(message, position, counts)
        key, pages = self.key_of(message), as_address(message.address).pages
        if key is not None and pages is not None and self._last.get(key) == self.encode(pages, position):
            self._last[key] = ref
        return ref

    def unload(self, ref: Reference) -> None:
        key, pages = self.key_of(ref.message), as_address(ref.message.address).pages
        last = key is not None and self._last.get(key) is ref
        super().unload(ref)
        if last and key is not None and pages is not None and ref.position is not None:
            self._last[key] = self.encode(pages, ref.position)

    def reinstate(self, ref: Reference) -> None:
        """As in any queue, but for a message that a newer one has replaced without a record of it."""
        key = self.key_of(ref.message)
        if key is not None and not (ref.due and not ref.deliveries):
            before = self._last.get(key)
            if isinstance(before, Reference) and before.message.number > ref.message.number:
                self._replace_value(ref)
                return
            self.become_last(ref.message, ref)
        super().reinstate(ref)

    # ---- messages leave and come back

    def drop(self, ref: Reference, reason: Reason | None) -> None:
        key = self.key_of(ref.message)
        if key is not None:
            if self._last.get(key) is ref:
                del self._last[key]
            elif self._superseded:
                self._superseded.discard(ref)
        super().drop(ref, reason)

    def _requeue(self, ref: Reference, *, delayed: bool) -> None:
        if ref in self._superseded:
            self.detach(ref)
            self._replace_value(ref)
        else:
            super()._requeue(ref, delayed=delayed)

    def _end(self) -> None:
        super()._end()
        self._last, self._superseded = {}, set()
        self._pages, self._numbers_of_pages = [], {}
