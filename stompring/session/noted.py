"""Subscriptions that a store which keeps everything can name: each reference they settle says who took it.

They are classes of their own, so that others pay nothing for it.
"""

from __future__ import annotations

from stompring.broker.reference import Reference

from .subscription import (
    AcknowledgedSubscription,
    AutoSubscription,
    CumulativeSubscription,
    Subscription,
)


class NotedAuto(AutoSubscription):
    """See `AutoSubscription`."""

    __slots__ = ("taker_name",)

    def take_reference(self, ref: Reference) -> None:
        """See `Consumer.take_reference`."""
        ref.avoid = self
        super().take_reference(ref)


class NotedAcknowledged(AcknowledgedSubscription):
    """See `AcknowledgedSubscription`."""

    __slots__ = ("taker_name",)

    def settle(self, key: bytes) -> None:
        """See `AcknowledgedSubscription.settle`."""
        self.unsettled[key].avoid = self
        super().settle(key)

    def release(self, key: bytes) -> list[Reference]:
        """See `AcknowledgedSubscription.release`. Whoever gives them back says anew whom they avoid."""
        return _noted(super().release(key), self)


class NotedCumulative(CumulativeSubscription):
    """See `CumulativeSubscription`."""

    __slots__ = ("taker_name",)

    def release(self, key: bytes) -> list[Reference]:
        """See `NotedAcknowledged.release`."""
        return _noted(super().release(key), self)


def _noted(refs: list[Reference], taker: Subscription) -> list[Reference]:
    for ref in refs:
        ref.avoid = taker
    return refs


#: By how they acknowledge.
NOTED: dict[str, type[NotedAuto | NotedAcknowledged | NotedCumulative]] = {
    "auto": NotedAuto,
    "client": NotedCumulative,
    "client-individual": NotedAcknowledged,
}
