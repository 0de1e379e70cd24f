"""Limits of the broker as a whole and of its users, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """One ``<resource-limit-setting>``: what the user of that exact name may have. -1: no limit."""

    user: str
    max_sessions: int = -1
    max_queues: int = -1
