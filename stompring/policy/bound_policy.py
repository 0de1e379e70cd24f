"""One policy at one address: its object, and what is done about what it answers and raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from stompring.broker.address import Address
from stompring.broker.hooks import FAULTS, SLOW_HOOK
from stompring.errors import Refused

from .address_policy import AddressPolicy
from .address_view import AddressView
from .faults import PolicyFaults
from .load import Chosen
from .verdict import Refuse

if TYPE_CHECKING:
    from stompring.broker.offer import Offer

#: Headers that `ChangeHeaders` must not touch, with what to do instead.
FIXED = {
    "destination": "Redirect is for that",
    "receipt": "it belongs to the frame",
    "transaction": "it belongs to the frame",
    "content-length": "it belongs to the frame",
}


class BoundPolicy:
    """A policy's object for one address. ``broken`` says why it could not begin."""

    #: What stands for the address before its policy.
    view: ClassVar[type[AddressView]] = AddressView

    def __init__(self, chosen: Chosen, address: Address, faults: PolicyFaults) -> None:
        self.chosen = chosen
        self.broken: Refused | None = None
        self._faults = faults
        self._address = address.name
        self.policy = chosen.make()
        self.policy.address = self.view(address, self._in_timer)

    @property
    def name(self) -> str:
        """As broker.xml calls it."""
        return self.chosen.name

    def begin(self, former: BoundPolicy | None) -> None:
        """The policy begins, in the place of ``former`` if there is one."""
        try:
            self.policy.created()
        except FAULTS as error:
            self.broken = self.failed("created", error)
            if isinstance(error, ValueError):  # meant for people, as in `check`
                self.broken = Refused(f"Policy {self.name} of address {self._address} cannot begin: {error}")
            return
        if former is not None:
            self.call("replaces", former.policy)

    def end(self) -> None:
        """It is done with."""
        self.call("closed")
        self.policy.address.stop()

    def call(self, hook: str, *arguments: object) -> None:
        """Call a hook whose fault refuses nothing."""
        self.run(hook, getattr(self.policy, hook), *arguments)

    def run(self, hook: str, call: Callable[..., object], *arguments: object) -> None:
        """Call what counts as the hook of that name, and whose fault refuses nothing."""
        began = perf_counter()
        try:
            call(*arguments)
        except FAULTS as error:
            self.failed(hook, error)
        self.timed(hook, began)

    def timed(self, hook: str, began: float) -> None:
        """A hook that was called at ``began`` has returned."""
        seconds = perf_counter() - began
        if seconds > SLOW_HOOK:
            self.slow(hook, seconds)

    def slow(self, hook: str, seconds: float) -> None:
        """A hook took longer than `SLOW_HOOK`."""
        self._faults.slow_hook(self.name, self._address, hook, seconds)

    def _in_timer(self, call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.run("timer", call, *arguments)

    @property
    def admit(self) -> Callable[[Offer], object]:
        """The policy's `AddressPolicy.admit`."""
        return self.policy.admit

    def has(self, hook: str) -> bool:
        """Whether the policy has a hook of its own."""
        return getattr(type(self.policy), hook) is not getattr(AddressPolicy, hook)

    # ---- answers

    def failed(self, hook: str, error: BaseException) -> Refused:
        """A hook has raised."""
        return self._faults.note(self.name, self._address, hook, error, self.chosen.place)

    def refused(self, verdict: Refuse) -> Refused:
        """What is told to a client."""
        return Refused(f"{verdict.reason} (policy {self.name} of address {self._address})")

    def wrong(self, hook: str, answer: object) -> Refused:
        """A hook has answered what is no answer to it."""
        return self.failed(hook, TypeError(f"{answer!r} is no answer of {hook}"))

    def changes(self, headers: Mapping[str, str | None]) -> Mapping[bytes, bytes | None]:
        """Changed headers as bytes. Raises `TypeError`, `ValueError` for what cannot be."""
        changes: dict[bytes, bytes | None] = {}
        for name, value in headers.items():
            if name in FIXED:
                raise ValueError(f"header {name} cannot be changed: {FIXED[name]}")
            if not name or not (value is None or isinstance(value, str)):
                raise TypeError(f"header {name!r} must be a text with a text or None, not {value!r}")
            changes[name.encode()] = None if value is None else value.encode()
        return changes
