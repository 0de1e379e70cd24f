"""Cooperative tasks: long work in time slices, between which the reactor does other work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Cooperator, TaskFinished

from stompring.broker.background import Background
from stompring.broker.queue_browser import PageRead

#: Seconds of one time slice of management and metrics: what they may add to the latency of messages.
TIME_SLICE = 0.005

#: Items processed between two checks of the time slice: a millisecond of work or less.
ITEMS_PER_STEP = 50


def make_cooperator(reactor: Any) -> Cooperator:
    """One for the whole site, so that many requests together take one time slice."""

    def time_is_up() -> Callable[[], bool]:
        end = time.perf_counter() + TIME_SLICE
        return lambda: time.perf_counter() >= end

    return Cooperator(time_is_up, lambda call: reactor.callLater(0, call))


def page_read(wait: PageRead) -> Deferred[None]:
    """Fires when the page has been read and the iteration can continue."""
    deferred: Deferred[None] = Deferred()
    wait.then(lambda: deferred.callback(None))
    return deferred


def background_done(background: Background, key: object) -> Deferred[None]:
    """Fires when the background work on that queue is complete."""
    deferred: Deferred[None] = Deferred()
    background.after(key, lambda: deferred.callback(None))
    return deferred


class CooperativeTask:
    """Runs an iterator to its end; as a push producer it pauses while the client is slow."""

    def __init__(self, work: Iterator[object], cooperator: Cooperator) -> None:
        self._task = cooperator.cooperate(work)
        self._paused = False

    def pauseProducing(self) -> None:
        """The transport's buffer is full."""
        self._change(self._task.pause, to=True)

    def resumeProducing(self) -> None:
        """The transport accepts data again."""
        self._change(self._task.resume, to=False)

    def stopProducing(self) -> None:
        """The client has disconnected."""
        try:
            self._task.stop()
        except TaskFinished:
            pass

    def _change(self, act: Callable[[], object], *, to: bool) -> None:
        if self._paused is not to:
            self._paused = to
            try:
                act()
            except TaskFinished:
                pass
