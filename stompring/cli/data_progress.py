"""How far a long command is: a bar on standard error, where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

#: Seconds between two looks of the bar: drawing it costs more than reading a thousand records.
PAUSE = 0.1


@contextmanager
def progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told of each step; ``length`` is what they add up to."""
    if not sys.stderr.isatty() or length <= 0:
        yield _nothing
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        waiting, shown = 0, 0.0

        def step(size: int) -> None:
            nonlocal waiting, shown
            waiting += size
            now = time.monotonic()
            if now - shown >= PAUSE:
                shown = now
                bar.update(waiting)
                waiting = 0

        yield step
        bar.update(waiting)


def _nothing(size: int) -> None:
    """Nobody looks."""
