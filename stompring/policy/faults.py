"""What went wrong in policies: counted each time, logged once for each place it goes wrong at."""

from __future__ import annotations

import logging
from time import monotonic
from traceback import extract_tb

from stompring.broker.hooks import SLOW_HOOK
from stompring.errors import Refused

log = logging.getLogger(__name__)

#: Faults that are remembered as logged. A policy that fails in more ways than these is logged anew.
REMEMBERED = 1000

#: Seconds between two lines about one hook that is slow.
QUIET = 10.0


class PolicyFaults:
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
        self._silent[key] = (now + QUIET, count)
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
            if len(self._logged) >= REMEMBERED:
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
