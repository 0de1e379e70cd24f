"""The hooks that are told what has happened: several policies' as one call, their faults caught."""

from __future__ import annotations

from collections.abc import Sequence

from stompring.broker.hooks import Told
from stompring.broker.reference import Reference

from .bound_policy import BoundPolicy
from .message_view import MessageView

#: Names of the hooks with a message as their argument.
TOLD = ("enqueued", "evicted", "expired", "killed", "dead_lettered", "delivered", "settled")


def told_of(policies: Sequence[BoundPolicy], hook: str) -> Told | None:
    """The hook of all policies that have it, None where none has."""
    return told_by_all([_told(bound, hook) for bound in policies if bound.has(hook)])


def told_by_all(calls: Sequence[Told]) -> Told | None:
    """Several calls as one."""
    if not calls:
        return None
    if len(calls) == 1:
        return calls[0]

    def tell(ref: Reference) -> None:
        for call in calls:
            call(ref)

    return tell


def _told(bound: BoundPolicy, hook: str) -> Told:
    call, run = getattr(bound.policy, hook), bound.run

    def tell(ref: Reference) -> None:
        run(hook, call, MessageView(ref))

    return tell
