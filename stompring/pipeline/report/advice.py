"""Sizing advice: how large rings and addresses would have had to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stompring.pipeline.report.held import Held
from stompring.pipeline.report.memory import share_within, weighted_quantile
from stompring.pipeline.report.ring import Flow, candidates, evicted, least_sizes
from stompring.pipeline.report.traffic import QueueTraffic

#: Points of a curve.
POINTS = 41


@dataclass(frozen=True, slots=True)
class RingAdvice:
    """One ring. ``modelled`` is what the model says that it threw away with the size it has: the nearer to what it
    really did (``ring.replaced``), the better is the advice. 0: the model sees no reason for advice.

    ``size`` is the least that keeps the share that was asked for, ``enough`` the least that throws nothing away, and
    ``kept`` has the share for each of ``sizes``.
    """

    ring: QueueTraffic
    by_events: bool
    modelled: int
    size: int
    enough: int
    sizes: Any
    kept: Any

    def bytes(self, size: int) -> float:
        """What so many messages take; 0 where nothing is known of their size."""
        return size * self.ring.average


def ring_advice(
    rings: Sequence[QueueTraffic], durable: Sequence[bool], flow: Flow, keep: float
) -> list[RingAdvice]:
    """For each ring, a row of the flow; ``keep`` (per cent) of what it threw away would not have been."""
    now = np.array([max(1, ring.ring_size) for ring in rings])
    flow = flow.with_sizes(now)
    modelled = evicted(flow, now[:, None])[:, 0]
    size = least_sizes(flow, now, np.floor(modelled * (1 - keep / 100) + 1e-9))
    enough = least_sizes(flow, now, np.zeros_like(modelled))
    sizes = np.stack([candidates(int(a), int(b), POINTS) for a, b in zip(now, enough, strict=True)])
    kept = 1 - evicted(flow, sizes) / np.maximum(modelled, 1)[:, None]
    rows = zip(rings, durable, modelled.tolist(), size.tolist(), enough.tolist(), sizes, kept, strict=True)
    return [RingAdvice(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class AddressAdvice:
    """One address that paged. ``size`` bytes would have been enough for the share of time that was asked for, and
    ``enough`` for all of it; ``unpaged`` has the share for each of ``sizes``.
    """

    held: Held
    size: int
    enough: int
    sizes: Any
    unpaged: Any

    @property
    def paging(self) -> float:
        """The share of time in which it had messages in pages."""
        return self.held.paging / float(self.held.seconds.sum())


def address_advice(held: Held, unpaged: float) -> AddressAdvice:
    """How large it would have had to be; ``unpaged`` is per cent of the time."""
    size, enough = weighted_quantile(held.bytes, held.seconds, (unpaged / 100, 1.0))
    least = max(1, min(size, int(held.bytes.min())), enough // 1000)
    sizes = np.unique(np.append(candidates(least, max(least + 1, enough), POINTS), size))
    return AddressAdvice(held, size, enough, sizes, share_within(held.bytes, held.seconds, sizes))
