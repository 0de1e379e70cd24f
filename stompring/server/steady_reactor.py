"""Timers that do not care when somebody sets the clock.

Twisted's reactors schedule by ``time.time()``: where that is set back a day, every timer comes a day late, and the
reactor sleeps that long. They ask their own attribute ``seconds``, which may be replaced as long as no timer is set.
"""

from __future__ import annotations

import time
from typing import Any


def run_steadily(reactor: Any) -> None:
    """Have a reactor's timers run on the monotonic clock. ``wall_seconds`` is then what `Clock` tells the time by.

    Raises `RuntimeError` where a timer is set already: its time could not be told any more.
    """
    if reactor.seconds is time.monotonic:
        return
    if reactor.getDelayedCalls():
        raise RuntimeError("timers are set already: the reactor cannot change to the monotonic clock")
    reactor.wall_seconds = time.time
    reactor.seconds = time.monotonic
