"""The addresses and queues that the journal knows, by their numbers."""

from __future__ import annotations

from collections.abc import Iterator

from .bindings import UNUSABLE, StoredAddress, StoredQueue, describe_attributes
from .inspection import Inspection
from .portable import PortableAddress, PortableQueue
from .record import ADDRESS, QUEUE


def bound_queues(journal: Inspection) -> dict[int, PortableQueue]:
    """The queues there are. One whose binding cannot be understood is left out (see `faults`)."""
    found = {}
    for number, binding in journal.described(QUEUE):
        try:
            found[number] = queue_of(StoredQueue.parse(number, binding))
        except UNUSABLE:
            continue
    return found


def bound_addresses(journal: Inspection) -> dict[int, PortableAddress]:
    """The addresses there are."""
    found = {}
    for number, binding in journal.described(ADDRESS):
        try:
            address = StoredAddress.parse(number, binding)
        except UNUSABLE:
            continue
        found[number] = PortableAddress(
            address.name, address.routing_types, address.auto_created, address.configured, address.paused
        )
    return found


def faults(journal: Inspection) -> Iterator[str]:
    """What is wrong with bindings."""
    addresses, queues = bound_addresses(journal), bound_queues(journal)
    for (what, number), _ in journal.bindings.items():
        if what == QUEUE and number not in queues:
            yield f"the binding of queue {journal.queue(number)} (number {number}) cannot be understood"
        elif what == ADDRESS and number not in addresses:
            name = journal.names.get((ADDRESS, number), "")
            yield f"the binding of address {name} (number {number}) cannot be understood"
    names = {address.name for address in addresses.values()}
    for number, queue in queues.items():
        if queue.address not in names:
            yield f"queue {queue.name} (number {number}) is bound to address {queue.address}, which is not there"


def queue_of(stored: StoredQueue) -> PortableQueue:
    """A queue as it is taken elsewhere."""
    configured = stored.make_as_configured()
    return PortableQueue(
        stored.name,
        stored.address,
        describe_attributes(stored.make_attributes()),
        stored.paused,
        stored.no_local,
        None if configured is None else describe_attributes(configured),
    )
