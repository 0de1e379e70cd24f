"""Duplicate detection: a message that is sent twice is routed once (Artemis, "Duplicate Message Detection").

A producer that does not know whether a message has arrived sends it again with the same ``_AMQ_DUPL_ID``. An address
knows the latest ids that were sent to it, and forgets the oldest. Messages of the broker itself are not checked.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .address import Address

log = logging.getLogger(__name__)

#: Milliseconds for which the duplicates of one address are logged once.
LOG_INTERVAL = 60_000

#: Characters of an id in a log line or an ERROR.
PRINTED_CHARACTERS = 80


class DuplicateIds:
    """The latest ids of one address, at most ``size``, each either kept by a store (persisted) or not.

    ``forgotten`` counts the persisted ones that are not known any more; a store knows by it which of its own go.
    """

    __slots__ = ("_known", "_order", "forgotten", "next_log", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.forgotten = 0
        self.next_log = 0  # epoch ms
        self._known: dict[bytes, bool] = {}  # whether it is persisted
        self._order: deque[bytes] = deque()

    def __contains__(self, identifier: bytes) -> bool:
        return identifier in self._known

    def __len__(self) -> int:
        return len(self._order)

    @property
    def in_order(self) -> list[bytes]:
        """All ids that are known, the oldest first."""
        return list(self._order)

    def add(self, identifier: bytes, *, persisted: bool) -> None:
        """A message with an id that is not known was routed."""
        order = self._order
        self._known[identifier] = persisted
        order.append(identifier)
        if len(order) > self.size and self._known.pop(order.popleft()):
            self.forgotten += 1

    def resize(self, size: int) -> None:
        """At most so many are known from now on."""
        self.size = size
        while len(self._order) > size:
            self._forget()

    def clear(self) -> None:
        """None is known from now on."""
        self.forgotten += sum(self._known.values())
        self._known.clear()
        self._order.clear()

    def restore(self, identifiers: Iterable[bytes]) -> None:
        """What a store has kept, the oldest first, none twice and no more than fit."""
        self._order.extend(identifiers)
        self._known.update(dict.fromkeys(self._order, True))

    def _forget(self) -> None:
        if self._known.pop(self._order.popleft()):
            self.forgotten += 1


def cache_size(address: Address) -> int:
    """The ``id-cache-size`` of an address: that of ``<core>`` where its address-settings have none. 0: no detection."""
    size = address.settings.id_cache_size
    return address.directory.broker.configuration.id_cache_size if size is None else size


def is_known(address: Address, identifier: bytes) -> bool:
    """Whether a message with this id was routed before."""
    return address.duplicates is not None and identifier in address.duplicates


def is_persisted(address: Address, durable: bool) -> bool:
    """Whether the id of a message is stored: then message and id are stored in one transaction."""
    return durable and address.directory.broker.configuration.persist_id_cache


def add_id(address: Address, identifier: bytes, *, persisted: bool) -> None:
    """A message with this id was routed."""
    if address.deleted:  # meanwhile, and its ids with it
        return
    known = address.duplicates
    if known is None:
        known = address.duplicates = DuplicateIds(cache_size(address))
    known.add(identifier, persisted=persisted)
    if persisted:
        address.directory.broker.storage.remember(address, identifier)


def apply_cache_size(address: Address) -> None:
    """After a change of the settings of an address: apply its ``id-cache-size``."""
    known = address.duplicates
    if known is None:
        return
    size = cache_size(address)
    if size != known.size:
        known.resize(size)
        address.directory.broker.storage.forgot(address)


def forget_all(address: Address) -> int:
    """Forget all ids of an address, those in the store included. Returns how many were known."""
    known = address.duplicates
    count = 0 if known is None else len(known)
    if known is not None:
        known.clear()
    address.directory.broker.storage.forgot_all(address)
    return count


def count_duplicate(address: Address, identifier: bytes) -> None:
    """Count a message that is not routed because of its id. Logged once a minute."""
    address.duplicate_messages += 1
    known, now = address.duplicates, address.directory.broker.clock.steady.now
    if known is None or now < known.next_log:
        return
    known.next_log = now + LOG_INTERVAL
    log.info(
        "address %s: duplicates rejected: %d so far, latest _AMQ_DUPL_ID '%s'",
        address.name,
        address.duplicate_messages,
        printable_id(identifier),
        extra={"address": address.name},
    )


def printable_id(identifier: bytes) -> str:
    """An id for a log line or an ERROR: shortened, control characters replaced."""
    text = identifier[: PRINTED_CHARACTERS + 1].decode("utf-8", "backslashreplace")
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= PRINTED_CHARACTERS else text[:PRINTED_CHARACTERS] + "…"
