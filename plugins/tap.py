"""tap: copies messages, or one in N, to another address."""

from __future__ import annotations

from stompring.policy import AddressPolicy, Offer, parameter


class Tap(AddressPolicy):
    """Copies the messages that enter an address, or one in N, to another address.

    For a look at live traffic, a test system with a part of the load, or an audit. The copy has the headers of the
    message as changed by other policies, and is written atomically with it: after a crash both are there, or neither. A
    message that is refused or dropped is not copied. To copy by a filter, use a divert.

    A copy costs as much as a SEND, and a message that is not copied some microseconds. A copy that no queue of the
    other address accepts is lost: give that address a ring.
    """

    to: str = parameter("The address that receives the copies. It must be another address.")
    one_in: int = parameter("N: one message in N is copied.", 1, least=1)

    def check(self) -> None:
        if "::" in self.to or not {"#", "*"}.isdisjoint(self.to.split(".")):
            raise ValueError(f"to is '{self.to}': must be an address, not a queue and not a pattern")

    def created(self) -> None:
        if self.to == self.address.name:
            raise ValueError(
                f"address {self.to} would copy to itself: exclude it from the match of the address-setting, or "
                f"set enabled to false in an address-setting for it"
            )
        self._count = 0

    def entered(self, offer: Offer) -> None:
        """Copy the first message, then every N-th."""
        if self._count == 0:
            offer.copy_to(self.to, keep_expiry=True)
        self._count = (self._count + 1) % self.one_in
