"""Addresses and queues deleted because nobody needs them any more (auto-delete, with its delays)."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from .address import Address
from .clock import Timer
from .queue import Queue

if TYPE_CHECKING:
    from .broker import Broker
    from .directory import Directory

#: Milliseconds without a message after which an address that never had a queue is not needed. Artemis looks at its
#: addresses as often (address-queue-scan-period). Who goes on sending there finds the address it has planned with.
UNUSED_AFTER = 30_000

#: Such addresses that are looked at in one turn of the reactor.
CHECKED_AT_ONCE = 100


class AutoDelete:
    """Deletes what was made automatically once it is no longer needed (auto-delete, with its delays)."""

    def __init__(self, broker: Broker, directory: Directory) -> None:
        self._broker = broker
        self._directory = directory
        self._timers: dict[Queue | Address, Timer] = {}
        self._unread: dict[str, int] = {}  # addresses that never had a queue, with how much was sent there
        self._looks: list[tuple[int, str]] = []  # a heap: when each of them is looked at (epoch ms)
        self._look_timer: Timer | None = None
        self._look_due = 0  # of the timer

    def consider(self, queue: Queue) -> None:
        """A queue lost its last consumer or message: delete it now, or look again after its delay."""
        if self._unneeded(queue):
            delay = 0 if queue.attributes.temporary else queue.address.settings.auto_delete_queues_delay
            self._after(delay, queue, lambda: self._delete(queue))

    def consider_address(self, address: Address) -> None:
        """An address lost its last queue."""
        if self._address_unneeded(address):
            delay = address.settings.auto_delete_addresses_delay
            self._after(delay, address, lambda: self._delete_address(address))

    def watch_unread(self, address: Address, coming: int = 0) -> None:
        """An address was made that has no queue: look now and then whether anything is sent there.

        The message that it was made for is yet ``coming``, and does not count.
        """
        if address.name not in self._unread and self._never_read(address):
            self._look_later(address, coming)

    def stop(self) -> None:
        """No timer is left behind."""
        self._cancel_look()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _after(self, delay: int, thing: Queue | Address, delete: Callable[[], None]) -> None:
        """The delay begins anew each time that ``thing`` becomes unneeded."""
        earlier = self._timers.pop(thing, None)
        if earlier is not None:
            earlier.cancel()
        if delay <= 0:
            delete()
            return

        def over() -> None:
            del self._timers[thing]
            delete()

        clock = self._broker.clock.steady
        self._timers[thing] = clock.call_at(clock.now + delay, over)

    def _unneeded(self, queue: Queue) -> bool:
        settings = queue.address.settings
        if queue.deleted or queue.consumers or not queue.attributes.auto_delete:
            return False
        if queue.attributes.temporary:
            return True
        if not queue.used and not settings.auto_delete_queues_skip_usage_check:
            return False
        allowed = settings.auto_delete_queues_message_count
        return allowed < 0 or queue.message_count <= allowed

    def _delete(self, queue: Queue) -> None:
        if self._unneeded(queue):
            self._directory.delete_queue(queue.name)

    def _address_unneeded(self, address: Address) -> bool:
        settings = address.settings
        return bool(
            address.auto_created
            and settings.auto_delete_addresses
            and address.used
            and not address.queues
            and not address.deleted
            and address.pages is None  # of which a wildcard queue may have something yet
        )

    # ---- addresses that never had a queue

    @staticmethod
    def _never_read(address: Address) -> bool:
        return address.auto_created and address.settings.auto_delete_addresses and not address.used

    def _look_later(self, address: Address, coming: int = 0) -> None:
        self._unread[address.name] = address.sent_messages + coming
        delay = max(UNUSED_AFTER, address.settings.auto_delete_addresses_delay)
        heappush(self._looks, (self._broker.clock.steady.now + delay, address.name))
        self._set_look()

    def _set_look(self) -> None:
        due = self._looks[0][0]
        if self._look_timer is None or due < self._look_due:
            self._cancel_look()
            self._look_due = due
            self._look_timer = self._broker.clock.steady.call_at(due, self._look)

    def _cancel_look(self) -> None:
        if self._look_timer is not None and self._look_timer.active():
            self._look_timer.cancel()
        self._look_timer = None

    def _look(self) -> None:
        self._look_timer = None
        now = self._broker.clock.steady.refresh()
        for _ in range(CHECKED_AT_ONCE):
            if not self._looks or self._looks[0][0] > now:
                break
            _, name = heappop(self._looks)
            sent, address = self._unread.pop(name), self._directory.addresses.get(name)
            if address is None or not self._never_read(address):
                continue
            # messages that are held are in queues of wildcard addresses, and count for the limits of this one
            if address.sent_messages != sent or address.memory_limit.messages or address.pages is not None:
                self._look_later(address)
            else:
                self._directory.delete_address(name)
        if self._looks:
            self._set_look()

    def _delete_address(self, address: Address) -> None:
        if self._address_unneeded(address):
            self._directory.delete_address(address.name)
