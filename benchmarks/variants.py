"""The builds and reactors of stompring that are measured beside each other."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.brokers import Stompring
from benchmarks.targets import OURS

VARIANTS: dict[str, Callable[[], Stompring]] = {OURS: lambda: Stompring(tls=True)}
