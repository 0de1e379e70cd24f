"""Durations counted in bins that are 2 % wide: a few thousand numbers tell percentiles of ten million durations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: Bins by which a duration becomes e times as long.
BINS = 50

#: What a report tells.
PERCENTILES = (50.0, 90.0, 99.0, 99.9)


def bin_of(column: str) -> str:
    """SQL: the bin of a duration in µs; -1 for none, and for less than none (clocks may step back)."""
    return f"IF({column} < 1, -1, CAST(FLOOR(LN({column}) * {BINS}) AS INT))"


def seconds_of(bins: Any) -> Any:
    """The middle of bins: no duration in one is more than one per cent off."""
    return np.where(np.asarray(bins) < 0, 0.0, np.exp((np.asarray(bins) + 0.5) / BINS) / 1e6)


def percentiles(bins: Any, counts: Any, wanted: Sequence[float] = PERCENTILES) -> list[float]:
    """Seconds that so many per cent of the durations do not exceed. The same bin may be there more than once."""
    order = np.argsort(bins, kind="stable")
    reached = np.cumsum(np.asarray(counts)[order])
    # Nearest rank: the least duration that at least that many are not longer than. The 1e-9 is for 99.9 % of 1000.
    ranks = [max(1, int(np.ceil(reached[-1] * each / 100 - 1e-9))) for each in wanted]
    return [float(value) for value in seconds_of(np.asarray(bins)[order][np.searchsorted(reached, ranks)])]
