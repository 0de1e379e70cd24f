"""Auto-deletion: unused queues and addresses are deleted (Artemis, auto-delete-queues, auto-delete-addresses)."""

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

#: Milliseconds without a message after which an address that never had a queue is unused, as often as Artemis scans
#: its addresses (address-queue-scan-period). Producers that continue to send keep their address.
UNUSED_AFTER = 30_000

#: Such addresses that are checked in one iteration of the reactor, and whenever one more is created: however fast
#: clients create them, no more exist than were created in the delay.
CHECKED_AT_ONCE, CHECKED_PER_CREATION = 100, 2


class AutoDelete:
    """Deletes auto-created queues and addresses once they are unused, after their delays."""

    def __init__(self, broker: Broker, directory: Directory) -> None:
        self._broker = broker
        self._directory = directory
        self._timers: dict[Queue | Address, Timer] = {}
        self._unread: dict[str, int] = {}  # addresses that never had a queue, with how much was sent there
        self._checks: list[tuple[int, str]] = []  # a heap: when each of them is checked (epoch ms)
        self._check_timer: Timer | None = None
        self._check_due = 0  # of the timer

    def consider(self, queue: Queue) -> None:
        """A queue lost its last consumer or message: delete it if it is unused, at once or after its delay."""
        if self._is_unused(queue):
            delay = 0 if queue.attributes.temporary else queue.address.settings.auto_delete_queues_delay
            self._after(delay, queue, lambda: self._delete(queue))

    def consider_address(self, address: Address) -> None:
        """An address lost its last queue."""
        if self._is_unused_address(address):
            delay = address.settings.auto_delete_addresses_delay
            self._after(delay, address, lambda: self._delete_address(address))

    def watch_unread(self, address: Address, coming: int = 0) -> None:
        """An address was created without a queue: check at intervals whether messages are sent to it.

        ``coming`` is 1 if the message that it was created for is not counted yet.
        """
        if address.name not in self._unread and self._never_read(address):
            self._check_later(address, coming)
            self._check_some(CHECKED_PER_CREATION, self._broker.clock.steady.now)

    def stop(self) -> None:
        """Cancel all timers."""
        self._cancel_check()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _after(self, delay: int, thing: Queue | Address, delete: Callable[[], None]) -> None:
        """The delay starts again each time that ``thing`` becomes unused."""
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

    def _is_unused(self, queue: Queue) -> bool:
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
        if self._is_unused(queue):
            self._directory.delete_queue(queue.name)

    def _is_unused_address(self, address: Address) -> bool:
        settings = address.settings
        return bool(
            address.auto_created
            and settings.auto_delete_addresses
            and not address.temporary
            and address.used
            and not address.queues
            and not address.deleted
            and not self._broker.retroactive.keeps(address)
            and address.pages is None  # of which a wildcard queue may have something yet
        )

    # ---- addresses that never had a queue

    @staticmethod
    def _never_read(address: Address) -> bool:
        deletes = address.auto_created and address.settings.auto_delete_addresses
        return deletes and not (address.used or address.temporary)

    def _check_later(self, address: Address, coming: int = 0) -> None:
        self._unread[address.name] = address.sent_messages + coming
        delay = max(UNUSED_AFTER, address.settings.auto_delete_addresses_delay)
        heappush(self._checks, (self._broker.clock.steady.now + delay, address.name))
        self._set_timer()

    def _set_timer(self) -> None:
        due = self._checks[0][0]
        if self._check_timer is None or due < self._check_due:
            self._cancel_check()
            self._check_due = due
            self._check_timer = self._broker.clock.steady.call_at(due, self._check)

    def _cancel_check(self) -> None:
        if self._check_timer is not None and self._check_timer.active():
            self._check_timer.cancel()
        self._check_timer = None

    def _check(self) -> None:
        self._check_timer = None
        self._check_some(CHECKED_AT_ONCE, self._broker.clock.steady.refresh())
        if self._checks:
            self._set_timer()

    def _check_some(self, most: int, now: int) -> None:
        for _ in range(most):
            if not self._checks or self._checks[0][0] > now:
                break
            _, name = heappop(self._checks)
            sent, address = self._unread.pop(name), self._directory.addresses.get(name)
            if address is None or not self._never_read(address):
                continue
            # messages in memory are in queues of wildcard addresses, and count for the limits of this one
            if (
                self._broker.retroactive.keeps(address)
                or address.sent_messages != sent
                or address.memory_limit.messages
                or address.pages is not None
            ):
                self._check_later(address)
            else:
                self._directory.delete_address(name)

    def _delete_address(self, address: Address) -> None:
        if self._is_unused_address(address):
            self._directory.delete_address(address.name)
