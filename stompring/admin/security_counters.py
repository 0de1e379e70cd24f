"""The counters of logins and permissions: there where security is on."""

from __future__ import annotations

from stompring.settings.model import PermissionType

from .counters import COUNTER, Counter
from .served import Served

#: What became of a login, and how it is called in JSON.
OUTCOMES = ("accepted", "refused", "throttled", "overloaded", "failed")

LOGINS_HELP = "Logins over STOMP and HTTP, by what became of them."
REFUSALS_HELP = "Times that something was refused for lack of a permission."


def _logins(outcome: str) -> Counter[Served]:
    return Counter(
        f"{outcome}LoginCount",
        "stompring_logins_total",
        COUNTER,
        LOGINS_HELP,
        lambda s: None if s.security is None else s.security.logins.outcomes[outcome],
        labels={"outcome": outcome},
    )


def _refusals(permission: PermissionType) -> Counter[Served]:
    return Counter(
        f"{permission}RefusalCount",
        "stompring_permission_refusals_total",
        COUNTER,
        REFUSALS_HELP,
        lambda s: None if s.security is None else s.security.authority.refusals[permission],
        labels={"permission": permission.value},
    )


OF_SECURITY: tuple[Counter[Served], ...] = (
    *(_logins(outcome) for outcome in OUTCOMES),
    *(_refusals(permission) for permission in PermissionType),
)
