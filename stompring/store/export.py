"""From a data directory to a portable file."""

from __future__ import annotations

from pathlib import Path

from .inspection import Findings, Held, Inspection
from .inspection_bindings import bound_addresses, bound_queues
from .inspection_contents import Contents
from .portable import Place, PortableMessage
from .portable_file import PortableWriter
from .record import ADDRESS, TraitsMemo
from .tail import unpack_recurrence


def export(contents: Contents, path: Path, now: int, findings: Findings) -> dict[str, int]:
    """Write everything that a broker would find in a directory; returns how many there are of each kind.

    Messages come in the order of their numbers, which is the order of delivery within a priority.
    """
    journal = contents.journal
    queues, addresses = bound_queues(journal), bound_addresses(journal)
    names = {number: queue.name for number, queue in queues.items()}
    memo = TraitsMemo()
    with PortableWriter(path, now) as writer:
        for address in addresses.values():
            writer.write("address", address.fields())
        for queue in queues.values():
            writer.write("queue", queue.fields())
        for held in contents.messages():
            message = portable(held, journal, names, memo)
            if message is not None:
                writer.write("message", message.fields())
            else:
                findings(held.path, held.at, f"message {held.number} is in no queue that is there")
    return writer.counts


def portable(
    held: Held, journal: Inspection, names: dict[int, str], memo: TraitsMemo
) -> PortableMessage | None:
    """A message with its whole contents; None for one that is in no known queue."""
    places = [_portable_place(held, number, names[number]) for number in held.queues if number in names]
    if not places:
        return None
    message = held.stored.restore(None, memo, _NoAccount())
    return PortableMessage(
        held.number,
        journal.names.get((ADDRESS, held.stored.address), ""),
        places,
        message.traits,
        message.body,
        message.timestamp,
        message.expires,
    )


def _portable_place(held: Held, number: int, name: str) -> Place:
    deliveries, attempts, due, recurrence = held.state(number)
    return Place(name, deliveries, attempts, due, unpack_recurrence(recurrence))


class _NoAccount:
    """Messages that are only looked at are held by nobody."""

    def occupy(self, size: int) -> None:
        """See `Account`."""

    def release(self, size: int) -> None:
        """See `Account`."""
