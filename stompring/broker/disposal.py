"""Addresses and queues deleted because nobody needs them any more (auto-delete, with its delays)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .address import Address
from .clock import Timer
from .queue import Queue

if TYPE_CHECKING:
    from .broker import Broker
    from .directory import Directory


class Disposal:
    """Deletes what was made automatically once it is no longer needed (auto-delete, with its delays)."""

    def __init__(self, broker: Broker, directory: Directory) -> None:
        self._broker = broker
        self._directory = directory
        self._timers: dict[Queue | Address, Timer] = {}

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

    def stop(self) -> None:
        """No timer is left behind."""
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

        clock = self._broker.clock
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

    def _delete_address(self, address: Address) -> None:
        if self._address_unneeded(address):
            self._directory.delete_address(address.name)
