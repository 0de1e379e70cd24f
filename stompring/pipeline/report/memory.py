"""Bytes over time, and the limit that would have been enough for a share of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def weighted_quantile(values: Any, weights: Any, shares: Sequence[float]) -> list[int]:
    """For each share of the weight (0 to 1) the least value that so much of it does not exceed, as whole bytes."""
    values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    least = np.asarray(shares) * reached[-1] * (1 - 1e-12)  # sums of weights are not exact
    at = np.minimum(np.searchsorted(reached, least), len(values) - 1)
    return [int(np.ceil(value)) for value in values[order][at]]


def share_within(values: Any, weights: Any, limits: Any) -> Any:
    """For each limit the share of the weight (0 to 1) where values do not exceed it."""
    values, weights = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    order = np.argsort(values, kind="stable")
    reached = np.concatenate(([0.0], np.cumsum(weights[order])))
    return reached[np.searchsorted(values[order], np.asarray(limits), side="right")] / reached[-1]
