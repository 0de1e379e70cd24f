"""The threads that wait for the disk so that the reactor need not, as the store sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Disk(Protocol):
    """One thread that carries out jobs in the order they were given (`server.diskpool` is the real one)."""

    def run(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Do ``job`` in the thread, then call ``done`` on the reactor with its result or the exception it raised.

        ``done`` is never called before `run` has returned.
        """

    def finish(self) -> None:
        """Wait until nothing is left to do, every ``done`` called. Only when the broker stops: all else waits."""
