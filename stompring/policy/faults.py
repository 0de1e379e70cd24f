"""What went wrong in policies: counted each time, logged once for each place it goes wrong at."""

from __future__ import annotations

import logging
from traceback import extract_tb

from stompring.errors import Refused

log = logging.getLogger(__name__)

#: Faults that are remembered as logged. A policy that fails in more ways than these is logged anew.
REMEMBERED = 1000


class PolicyFaults:
    """Of all policies of one broker."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}  # by policy and hook
        self._logged: set[tuple[object, ...]] = set()

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
