"""spill: sends evicted messages to another address, for rings in tiers."""

from __future__ import annotations

import logging

from stompring.policy import AddressPolicy, MessageView, parameter

log = logging.getLogger(__name__)


class Spill(AddressPolicy):
    """Sends evicted messages of a ring to another address, where a larger ring may store them on disk.

    For tiers: the newest 1,000 messages in a ring in memory, the 100,000 before them in an address that pages all
    messages. Each copy has headers of its origin (_AMQ_ORIG_ADDRESS, _AMQ_ORIG_QUEUE, _AMQ_ORIG_MESSAGE_ID), and
    expires at the time of the message. The copy is written atomically with the eviction: after a crash a message is in
    exactly one of the two addresses. All evictions are copied: by the ring, and by policies such as newest-per-key.

    A message that no queue of the other address accepts is lost, as in a ring without this policy; the log has their
    number at the first, second, fourth, eighth and so on. A copy costs as much as a SEND, and nothing while no ring is
    full.
    """

    to: str = parameter("The address that receives evicted messages. It must be another address.")

    def check(self) -> None:
        if "::" in self.to or not {"#", "*"}.isdisjoint(self.to.split(".")):
            raise ValueError(f"to is '{self.to}': must be an address, not a queue and not a pattern")

    def created(self) -> None:
        if self.to == self.address.name:
            raise ValueError(
                f"address {self.to} would spill to itself: exclude it from the match of the address-setting, or "
                f"set enabled to false in an address-setting for it"
            )
        self._lost = 0

    def evicted(self, message: MessageView) -> None:
        """Send a copy of the evicted message."""
        if message.copy_to(self.to, keep_expiry=True):
            return
        self._lost += 1
        if (
            self._lost & (self._lost - 1) == 0
        ):  # at powers of two, since a full ring evicts thousands per second
            log.warning(
                "%d evicted messages of address %s lost so far: no queue of address %s accepts them",
                self._lost,
                self.address.name,
                self.to,
                extra={"address": self.address.name},
            )
