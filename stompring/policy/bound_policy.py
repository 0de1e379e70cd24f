"""A policy bound to one address: its object, the time its hooks take, and what they raise (logged and counted)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from time import monotonic, perf_counter
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, ClassVar

from stompring.broker.address import Address
from stompring.broker.hooks import HOOK_EXCEPTIONS, SLOW_HOOK
from stompring.errors import Refused

from .api import AddressPolicy, Refuse
from .load import SelectedPlugin
from .views import AddressView

if TYPE_CHECKING:
    from stompring.broker.offer import Offer

log = logging.getLogger(__name__)

#: Faults that are remembered as logged. A policy that fails in more ways than these is logged anew.
MAX_LOGGED_ERRORS = 1000

#: Seconds between two lines about one hook that is slow.
SLOW_LOG_INTERVAL = 10.0


class PolicyErrors:
    """Of all policies of one broker."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}  # by policy and hook
        self._logged: set[tuple[object, ...]] = set()
        self.slow: dict[
            tuple[str, str], int
        ] = {}  # hooks that took longer than `SLOW_HOOK`, by policy and hook
        self._silent: dict[
            tuple[str, str], tuple[float, int]
        ] = {}  # until when, and the count of the last line

    def slow_hook(self, policy: str, address: str, hook: str, seconds: float) -> None:
        """A hook has held the reactor for too long. Logged once in `QUIET` seconds for each policy and hook."""
        key = (policy, hook)
        count = self.slow[key] = self.slow.get(key, 0) + 1
        now = monotonic()
        until, logged = self._silent.get(key, (0.0, 0))
        if now < until:
            return
        self._silent[key] = (now + SLOW_LOG_INTERVAL, count)
        more = f"; {count - logged - 1} more since the last line" if count - logged > 1 else ""
        log.warning(
            "policy %s of address %s: %s took %.0f ms, more than %.0f ms: no client was served meanwhile%s",
            policy,
            address,
            hook,
            seconds * 1000,
            SLOW_HOOK * 1000,
            more,
            extra={"address": address, "policy": policy, "hook": hook},
        )

    def note(self, policy: str, address: str, hook: str, error: BaseException, place: str) -> Refused:
        """A hook of a policy that broker.xml names at ``place`` has raised.

        What is returned tells so to whom the operation is refused for it, if there is one.
        """
        key = (policy, hook)
        self.counts[key] = self.counts.get(key, 0) + 1
        frames = extract_tb(error.__traceback__)
        where = (frames[-1].filename, frames[-1].lineno) if frames else ()
        fault = (policy, hook, type(error), where)
        if fault not in self._logged:
            if len(self._logged) >= MAX_LOGGED_ERRORS:
                self._logged.clear()
            self._logged.add(fault)
            log.error(
                "%s: policy %s of address %s failed in %s (said once; see stompring_policy_errors_total)",
                place,
                policy,
                address,
                hook,
                exc_info=error,
                extra={"address": address, "policy": policy, "hook": hook},
            )
        return Refused(f"Policy {policy} of address {address} failed in {hook}; the broker's log tells more")


#: Headers that `ChangeHeaders` must not touch, with what to do instead.
IMMUTABLE_HEADERS = {
    "destination": "Redirect is for that",
    "receipt": "it belongs to the frame",
    "transaction": "it belongs to the frame",
    "content-length": "it belongs to the frame",
}


class BoundPolicy:
    """A policy's object for one address. ``start_error`` says why it could not begin."""

    #: What stands for the address before its policy.
    view: ClassVar[type[AddressView]] = AddressView

    def __init__(self, selected: SelectedPlugin, address: Address, faults: PolicyErrors) -> None:
        self.selected = selected
        self.start_error: Refused | None = None
        self._faults = faults
        self._address = address.name
        self.policy = selected.make()
        self.policy.address = self.view(address, self._in_timer)

    @property
    def name(self) -> str:
        """As broker.xml calls it."""
        return self.selected.name

    def begin(self, former: BoundPolicy | None) -> None:
        """The policy begins, in the place of ``former`` if there is one."""
        try:
            self.policy.created()
        except HOOK_EXCEPTIONS as error:
            self.start_error = self.failed("created", error)
            if isinstance(error, ValueError):  # meant for people, as in `check`
                self.start_error = Refused(
                    f"Policy {self.name} of address {self._address} cannot begin: {error}"
                )
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
        except HOOK_EXCEPTIONS as error:
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
        return self._faults.note(self.name, self._address, hook, error, self.selected.place)

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
            if name in IMMUTABLE_HEADERS:
                raise ValueError(f"header {name} cannot be changed: {IMMUTABLE_HEADERS[name]}")
            if not name or not (value is None or isinstance(value, str)):
                raise TypeError(f"header {name!r} must be a text with a text or None, not {value!r}")
            changes[name.encode()] = None if value is None else value.encode()
        return changes
