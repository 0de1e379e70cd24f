"""Time as the broker sees it: one reading per read of a socket, the reactor's ``callLater``, and the local time zone.

There are two clocks. The *wall clock* is for people, headers and files; it jumps when somebody sets it. The *steady
clock* is for intervals; it never jumps.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Protocol

from mypy_extensions import mypyc_attr


class Timer(Protocol):
    """What ``callLater`` returns (Twisted's IDelayedCall)."""

    def cancel(self) -> None: ...
    def active(self) -> bool: ...


class Reactor(Protocol):
    """The part of Twisted's IReactorTime that the broker needs; ``task.Clock`` has it too."""

    def seconds(self) -> float: ...
    def callLater(self, delay: float, call: Callable[..., object], /, *args: Any, **kw: Any) -> Any: ...


#: Milliseconds after which a jump of the wall clock is known at the latest.
NOTICED = 1000


@mypyc_attr(native_class=False)
class FromNow(int):
    """A due time (epoch ms) that was a delay: due when so much time has passed, whatever the wall clock is set to.

    ``steady`` is that moment on the steady clock. The number itself is right as long as the wall clock is not set.
    """

    steady: int


#: A due time: `FromNow`, or epoch ms as a plain int. Compiled code makes a plain one of everything declared as int.
Due = Any


class Clock:
    """Epoch milliseconds, read once per socket read or timer and shared by all that happens in it."""

    __slots__ = ("_wall", "now", "reactor", "steady")

    now: int
    steady: Clock

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        wall: Callable[[], float] | None = getattr(reactor, "wall_seconds", None)
        self._wall: Callable[[], float] = wall or reactor.seconds
        self.steady = self if wall is None else SteadyClock(self)
        self.refresh()

    def refresh(self) -> int:
        """Read the time anew, on both clocks."""
        steady = self.steady
        if steady is not self:
            steady.now = int(self.reactor.seconds() * 1000)
        self.now = now = int(self._wall() * 1000)
        return now

    def call_at(self, due: int, call: Callable[[], object]) -> Timer:
        """Call ``call`` at ``due`` (ms of this clock).

        It may come early, on a wall clock that can be set at any time: the callee compares with `refresh`, and asks
        again. On the steady clock it may come a little early.
        """
        delay = max(0, due - self.refresh())
        if self.steady is not self:
            delay = min(delay, NOTICED)
        timer: Timer = self.reactor.callLater(delay / 1000, call)
        return timer

    def from_now(self, delay: int) -> FromNow:
        """The due time after a delay (ms)."""
        due = FromNow(self.now + delay)
        due.steady = self.steady.now + delay
        return due

    def soon(self, call: Callable[[], object]) -> None:
        """Call ``call`` after what is going on now."""
        self.reactor.callLater(0, call)


class SteadyClock(Clock):
    """The steady clock of a reactor that has both: milliseconds since some moment. Read together with the other."""

    __slots__ = ("_base",)

    def __init__(self, base: Clock) -> None:
        self._base = base
        self.reactor = base.reactor
        self.steady = self
        self.now = 0

    def refresh(self) -> int:
        """See `Clock.refresh`."""
        self._base.refresh()
        return self.now


class LocalZone(tzinfo):
    """Asks the C library, as ``TZ`` or /etc/localtime say."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """See tzinfo; ``fold`` tells the two passes of a repeated hour apart."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, moment: datetime | None) -> timedelta | None:
        """Not known apart from `utcoffset`."""
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        """See tzinfo."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, moment: datetime) -> datetime:
        """See tzinfo."""
        return datetime.fromtimestamp(moment.replace(tzinfo=UTC).timestamp()).replace(tzinfo=self)


LOCAL = LocalZone()
