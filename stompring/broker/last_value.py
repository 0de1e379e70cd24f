"""Last-value queues: of all messages with one key only the newest is pending (Artemis, "Last-Value Queues").

The queue has an index of the newest message of each key. The entry is a reference while the message is in memory, and
a number (`LastValueQueue.encode`) while it is on disk only. After a start it is the `ReferenceRun` that creates the
reference as soon as it is needed. When another message with the key enters, the index gets the new message, and the
queue drops the former one: immediately if it is pending, at its requeue if it is in delivery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from .address import as_address
from .message import SYSTEM_PROPERTIES, AddressBase, Message, header_in, line_begin
from .ports import Cursor, Hooks, Pages, Reason
from .queue import (
    LAST_VALUE,
    DueBatch,
    Queue,
    QueueServices,
)
from .reference import (
    DELIVERING,
    PENDING,
    SCHEDULED,
    Page,
    Position,
    QueueAttributes,
    Reference,
    ReferenceRun,
)

#: The header with the key if ``last-value-key`` is not set, or names a header that the message does not have.
LVQ_NAME: Final = b"_AMQ_LVQ_NAME"
_LVQ_LINE: Final = line_begin(LVQ_NAME)

#: Steps (`Effort`) that the creation of a recovered message's objects costs.
CREATION: Final = 4

_INDEX_BITS, _PAGE_BITS = 32, 64
_INDEX_MASK, _PAGE_MASK = (1 << _INDEX_BITS) - 1, (1 << _PAGE_BITS) - 1


class LastValueQueue(Queue):
    """A queue with at most one pending message for each key.

    `LAST_VALUE` blocks direct delivery: every message enters a pending list or a page.
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
        self._line = _LVQ_LINE if key is None else line_begin(key.encode())
        self._last: dict[bytes, Reference | int] = {}
        self._superseded: set[Reference] = (
            set()
        )  # messages in delivery that a newer message of their key will replace
        self._pages: list[Pages | None] = []
        self._numbers_of_pages: dict[Pages, int] = {}
        self.dispatcher.set_block(LAST_VALUE, True)

    @property
    def keys(self) -> int:
        """Number of keys in the index."""
        return len(self._last)

    def key_of(self, message: Message) -> bytes | None:
        """Return the key of a message. None: it has no key, and replaces no other message."""
        if self._property is not None:
            value = self._property(message)
            if value is not None:
                return str(value).encode()
        return self.key_in(message.tail, 0, message.body_at)

    @property
    def has_header_keys(self) -> bool:
        """Whether `key_in` finds all keys: the key is a header, not another property of the message."""
        return self._property is None

    def key_in(self, data: bytes, begin: int, end: int) -> bytes | None:
        """Return the key in the head of a tail, from ``begin`` to ``end`` in ``data``. None: it has no key."""
        key = header_in(data, begin, end, self._line)
        if key is None and self._line is not _LVQ_LINE:
            key = header_in(data, begin, end, _LVQ_LINE)
        return key

    # ---- the index

    def claim(self, keys: list[bytes], run: ReferenceRun) -> bool:
        """Make the messages of a run, which recovery is about to enqueue, the newest of their keys. Return False and
        change nothing if the index has one of the keys, or if two messages have the same key.
        """
        last, claimed = self._last, dict.fromkeys(keys, run)
        # in this order: `isdisjoint` iterates over its argument
        if len(claimed) < len(keys) or not last.keys().isdisjoint(claimed):
            return False
        last.update(claimed)
        return True

    def on_run_made(self, run: ReferenceRun, refs: list[Reference]) -> None:
        last = self._last
        for ref in refs:
            key = self.key_of(ref.message)
            if key is not None and last.get(key) is run:
                last[key] = ref
        self.broker.effort.steps += CREATION * len(refs)

    def _newest(self, key: bytes) -> Reference | int | None:
        """Return the newest message of a key, None without one. Creates the references of a run that has it."""
        found = self._last.get(key)
        if isinstance(found, ReferenceRun):
            found.references()  # calls `on_run_made`
            found = self._last.get(key)
        return found

    def become_last(self, message: Message, last: Reference | int) -> None:
        """Make a message that enters the queue, in memory or on disk, the newest of its key. It replaces the previous
        newest.
        """
        key = self.key_of(message)
        if key is None:
            return
        before = self._newest(key)
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
        """Drop a message that is in none of the queue's lists, because a newer message has its key. Counts as replaced;
        calls no policy hook.
        """
        self.messages_replaced += 1
        self.drop(ref, Reason.REPLACED)

    def _replace_on_disk(self, last: int) -> None:
        found = self._decode(last)
        if found is not None and self.paged is not None:
            cursor, page, index = found
            self.paged.replace(cursor, (page, index))

    # ---- positions in the index

    def encode(self, pages: Pages, position: Position) -> int:
        """Encode a position on disk as a number. A number takes 36 bytes of memory, a tuple 100."""
        number = self._numbers_of_pages.get(pages)
        if number is None:
            number = self._numbers_of_pages[pages] = len(self._pages)
            self._pages.append(pages)
        page, index = position
        return (number << _PAGE_BITS | page.number) << _INDEX_BITS | index

    def _decode(self, last: int) -> tuple[Cursor, Page, int] | None:
        """Return the position of an encoded number, None if it is no longer waiting on disk."""
        pages = self._pages[last >> _INDEX_BITS + _PAGE_BITS]
        if pages is None:
            return None
        page, index = pages.page(last >> _INDEX_BITS & _PAGE_MASK), last & _INDEX_MASK
        cursor = pages.cursors.get(self)
        if page is None or cursor is None or not cursor.is_waiting(page, index):
            return None
        return cursor, page, index

    def forget_pages(self, pages: Pages) -> None:
        """Forget the pages of an address that has left page mode. Their number is not used again."""
        number = self._numbers_of_pages.pop(pages, None)
        if number is not None:
            self._pages[number] = None

    def forget_settled(self) -> None:
        """Remove the keys of messages that were settled while only on disk: by a purge, by a ring, or as unreadable."""
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
        """Enter a message that recovery found in a page into the index, unless the index has a newer one with its key.
        ``numbers``: message numbers by encoded position, if the queue has messages in the pages of several addresses.
        """
        key = self.key_of(message)
        if key is None:
            return
        position, before = self.encode(cursor.pages, (page, index)), self._newest(key)
        if before == position:
            return  # the index has this message already: it entered the queue after recovery
        if numbers is not None:
            numbers[position] = message.number
        if before is None:
            newer = True
        elif isinstance(before, int):
            if before >> _INDEX_BITS + _PAGE_BITS == position >> _INDEX_BITS + _PAGE_BITS:
                newer = position > before
            else:  # ``numbers`` lacks messages that entered after recovery: they are newer
                newer = numbers is not None and before in numbers and numbers[before] < message.number
        else:  # a message that became due after recovery is newer, whatever its number
            newer = 0 < before.sequence and before.message.number < message.number
        if newer:
            self._last[key] = position
            if before is not None:
                self._supersede(before)
        else:
            self._replace_on_disk(position)

    # ---- messages enter

    def on_due(self, refs: Iterable[Reference], batch: DueBatch) -> None:
        """Enqueue scheduled messages. They replace the former message of their key when they become due, not before."""
        for ref in refs:
            if self.fall_due(ref):
                super().on_due((ref,), batch)

    def fall_due(self, ref: Reference) -> bool:
        """Make a scheduled message the newest of its key; it is in none of the queue's lists. Return False if it was
        dropped instead, because it waited for a redelivery and a newer message of its key has entered.
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
        """Enqueue or schedule a recovered message, or drop it if a newer one replaced it before the broker stopped."""
        key = self.key_of(ref.message)
        if key is not None and not (ref.due and not ref.deliveries):
            before = self._newest(key)
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
