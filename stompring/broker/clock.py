"""Time as the broker sees it: one reading per read of a socket, and the reactor's ``callLater``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    """What ``callLater`` returns (Twisted's IDelayedCall)."""

    def cancel(self) -> None: ...
    def active(self) -> bool: ...


class Reactor(Protocol):
    """The part of Twisted's IReactorTime that the broker needs; ``task.Clock`` has it too."""

    def seconds(self) -> float: ...
    def callLater(self, delay: float, call: Callable[..., object], /, *args: Any, **kw: Any) -> Any: ...


class Clock:
    """Epoch milliseconds, read once per socket read or timer and shared by all that happens in it."""

    __slots__ = ("now", "reactor")

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        self.now = int(reactor.seconds() * 1000)

    def refresh(self) -> int:
        """Read the time anew."""
        self.now = now = int(self.reactor.seconds() * 1000)
        return now

    def call_at(self, due: int, call: Callable[[], object]) -> Timer:
        """Call ``call`` at ``due`` (epoch ms). It may come a little early: the callee compares with `refresh`."""
        timer: Timer = self.reactor.callLater(max(0, due - self.refresh()) / 1000, call)
        return timer

    def soon(self, call: Callable[[], object]) -> None:
        """Call ``call`` after what is going on now."""
        self.reactor.callLater(0, call)
