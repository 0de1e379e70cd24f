"""What a ring gives up goes on to another address: rings in tiers."""

from __future__ import annotations

import logging

from stompring.policy import AddressPolicy, MessageView, parameter

log = logging.getLogger(__name__)


class Spill(AddressPolicy):
    """Sends what a ring gives up on to another address, where a larger ring may keep it on disk.

    For a short memory that is fast and a long one that is cheap: the newest 1,000 messages in a ring in memory, the
    100,000 before them in an address that pages everything. Each copy has headers that tell where it was
    (_AMQ_ORIG_ADDRESS, _AMQ_ORIG_QUEUE, _AMQ_ORIG_MESSAGE_ID), and expires when the message would have. Copy and
    leaving are one: after a crash a message is in one of the two places, never in both and never in none. Spilled is
    all that is given up: by a ring, and by policies such as newest-per-key.

    A message that no queue over there takes is lost, as in a ring without this policy; how many is told in the log,
    at the first, the second, the fourth and so on. A copy costs what a SEND costs, and nothing while no ring is full.
    """

    to: str = parameter("The address that gets what is given up. It must be another one.")

    def check(self) -> None:
        """See AddressPolicy."""
        if "::" in self.to or not {"#", "*"}.isdisjoint(self.to.split(".")):
            raise ValueError(f"to is '{self.to}': it must be one address, not a queue and not a pattern")

    def created(self) -> None:
        """See AddressPolicy."""
        if self.to == self.address.name:
            raise ValueError(
                f"address {self.to} would spill to itself; let the match of the address-setting leave it out, or "
                f"set enabled to false in one for it"
            )
        self._lost = 0

    def evicted(self, message: MessageView) -> None:
        """See AddressPolicy."""
        if message.copy_to(self.to, keep_expiry=True):
            return
        self._lost += 1
        if (
            self._lost & (self._lost - 1) == 0
        ):  # at powers of two: a ring that is full loses thousands a second
            log.warning(
                "%d messages of address %s were lost so far: address %s takes none",
                self._lost,
                self.address.name,
                self.to,
                extra={"address": self.address.name},
            )
