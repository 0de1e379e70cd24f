"""A policy bound to one address: its object, the time its hooks take, and what they raise (logged and counted)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from time import monotonic, perf_counter, time_ns
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from stompring.broker.address import Address
from stompring.broker.policy_hooks import HOOK_EXCEPTIONS, SLOW_HOOK
from stompring.errors import Refused

from .api import AddressPolicy, Refuse
from .load import SelectedPlugin
from .views import AddressView

if TYPE_CHECKING:
    from stompring.broker.policy_hooks import Offer

log = logging.getLogger(__name__)

#: Exceptions recorded as logged. After so many different ones the record starts anew.
MAX_LOGGED_ERRORS = 1000

#: Characters of the text of an exception that are kept for management.
MAX_ERROR_TEXT = 300

#: Seconds between two log lines about the same slow hook.
SLOW_LOG_INTERVAL = 10.0


class ErrorEntry(NamedTuple):
    """The last exception of a policy. ``time`` is in ms since the epoch."""

    time: int
    address: str
    hook: str
    text: str


class PolicyErrors:
    """Exceptions and slow calls of all policies of one broker: each counted, each cause logged once."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}  # by policy and hook
        #: called once for each cause, with its text and address
        self.on_error: Callable[[str, str], object] | None = None
        self._logged: set[tuple[object, ...]] = set()
        self.last: dict[str, ErrorEntry] = {}  # by policy
        self.slow: dict[tuple[str, str], int] = {}  # calls longer than `SLOW_HOOK`, by policy and hook
        self.longest: dict[tuple[str, str], float] = {}  # seconds of the longest of these
        # by policy and hook: time before which nothing is logged, and the count at the last log line
        self._log_after: dict[tuple[str, str], tuple[float, int]] = {}

    def slow_hook(self, policy: str, address: str, hook: str, seconds: float) -> None:
        """Count a hook that blocked the reactor, and log it once in `SLOW_LOG_INTERVAL` for each policy and hook."""
        key = (policy, hook)
        count = self.slow[key] = self.slow.get(key, 0) + 1
        self.longest[key] = max(seconds, self.longest.get(key, 0.0))
        now = monotonic()
        until, logged = self._log_after.get(key, (0.0, 0))
        if now < until:
            return
        self._log_after[key] = (now + SLOW_LOG_INTERVAL, count)
        more = f"; {count - logged - 1} more since the last log line" if count - logged > 1 else ""
        log.warning(
            "policy %s of address %s: %s blocked the broker for %.0f ms (limit %.0f ms)%s",
            policy,
            address,
            hook,
            seconds * 1000,
            SLOW_HOOK * 1000,
            more,
            extra={"address": address, "policy": policy, "hook": hook},
        )

    def record(self, policy: str, address: str, hook: str, error: BaseException, location: str) -> Refused:
        """Count and log an exception of a hook. ``location`` is FILE:LINE of broker.xml where the policy is named.

        Returns the error for the client whose operation is refused, if there is one.
        """
        key = (policy, hook)
        self.counts[key] = self.counts.get(key, 0) + 1
        frames = extract_tb(error.__traceback__)
        text = f"{type(error).__name__}: {error}"[:MAX_ERROR_TEXT]
        self.last[policy] = ErrorEntry(time_ns() // 1_000_000, address, hook, text)
        where = (frames[-1].filename, frames[-1].lineno) if frames else ()
        fault = (policy, hook, type(error), where)
        if fault not in self._logged:
            if len(self._logged) >= MAX_LOGGED_ERRORS:
                self._logged.clear()
            self._logged.add(fault)
            if self.on_error is not None:
                self.on_error(
                    f"policy {policy} of address {address} failed in {hook}: {type(error).__name__}", address
                )
            log.error(
                "%s: policy %s of address %s failed in %s (logged once; counted in stompring_policy_errors_total)",
                location,
                policy,
                address,
                hook,
                exc_info=error,
                extra={"address": address, "policy": policy, "hook": hook},
            )
        return Refused(f"Policy {policy} of address {address} failed in {hook}: see the broker's log")


#: Headers that `ChangeHeaders` must not change, with the reason.
IMMUTABLE_HEADERS = {
    "destination": "use Redirect",
    "receipt": "it is a header of the frame",
    "transaction": "it is a header of the frame",
    "content-length": "it is a header of the frame",
}


class BoundPolicy:
    """The object of a policy for one address. ``start_error`` is the reason why it could not start, None else."""

    #: The class of ``AddressPolicy.address``.
    view: ClassVar[type[AddressView]] = AddressView

    def __init__(self, selected: SelectedPlugin, address: Address, errors: PolicyErrors) -> None:
        self.selected = selected
        self.start_error: Refused | None = None
        self._errors = errors
        self._address = address.name
        self.policy = selected.make()
        self.policy.address = self.view(address, self._in_timer)

    @property
    def name(self) -> str:
        """Its name in broker.xml."""
        return self.selected.name

    def start(self, former: BoundPolicy | None) -> None:
        """Call `AddressPolicy.created`, and `AddressPolicy.replaces` if there is a ``former`` object."""
        try:
            self.policy.created()
        except HOOK_EXCEPTIONS as error:
            self.start_error = self.failed("created", error)
            if isinstance(error, ValueError):  # its text is for clients, as in `check`
                self.start_error = Refused(
                    f"Policy {self.name} of address {self._address} cannot start: {error}"
                )
            return
        if former is not None:
            self.call("replaces", former.policy)

    def stop(self) -> None:
        """Call `AddressPolicy.closed`, and cancel its timers."""
        self.call("closed")
        self.policy.address.stop()

    def call(self, hook: str, *arguments: object) -> None:
        """Call a hook without a verdict; log and count an exception."""
        self.run(hook, getattr(self.policy, hook), *arguments)

    def run(self, hook: str, call: Callable[..., object], *arguments: object) -> None:
        """Call ``call`` as the hook ``hook``, without a verdict; log and count an exception."""
        began = perf_counter()
        try:
            call(*arguments)
        except HOOK_EXCEPTIONS as error:
            self.failed(hook, error)
        self.timed(hook, began)

    def timed(self, hook: str, began: float) -> None:
        """Check the duration of a hook that was called at ``began`` (`perf_counter`)."""
        seconds = perf_counter() - began
        if seconds > SLOW_HOOK:
            self.slow(hook, seconds)

    def slow(self, hook: str, seconds: float) -> None:
        """Record a call longer than `SLOW_HOOK`."""
        self._errors.slow_hook(self.name, self._address, hook, seconds)

    def _in_timer(self, call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.run("timer", call, *arguments)

    @property
    def admit(self) -> Callable[[Offer], object]:
        """The policy's `AddressPolicy.admit`."""
        return self.policy.admit

    def has(self, hook: str) -> bool:
        """Whether the policy overrides a hook."""
        return getattr(type(self.policy), hook) is not getattr(AddressPolicy, hook)

    # ---- verdicts

    def failed(self, hook: str, error: BaseException) -> Refused:
        """Record an exception of a hook. Returns the error for the client."""
        return self._errors.record(self.name, self._address, hook, error, self.selected.location)

    def refused(self, verdict: Refuse) -> Refused:
        """The error for the client of a verdict `Refuse`."""
        return Refused(f"{verdict.reason} (policy {self.name} of address {self._address})")

    def wrong(self, hook: str, answer: object) -> Refused:
        """Record a result that is not a verdict of the hook. Returns the error for the client."""
        return self.failed(hook, TypeError(f"{answer!r} is not a verdict of {hook}"))

    def changes(self, headers: Mapping[str, str | None]) -> Mapping[bytes, bytes | None]:
        """Changed headers as bytes. Raises `TypeError` or `ValueError` for invalid headers."""
        changes: dict[bytes, bytes | None] = {}
        for name, value in headers.items():
            if name in IMMUTABLE_HEADERS:
                raise ValueError(f"header {name} cannot be changed: {IMMUTABLE_HEADERS[name]}")
            if not name or not (value is None or isinstance(value, str)):
                raise TypeError(f"header {name!r} must be a str with a str or None, not {value!r}")
            changes[name.encode()] = None if value is None else value.encode()
        return changes
