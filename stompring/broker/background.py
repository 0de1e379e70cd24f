"""Work on many messages at once, in slices of the reactor's time: between two of them everybody else is served.

A job is an iterator: each step does a little, a message's worth, and leaves everything in order. What is small is done
at once, as if it were no job. Jobs with one key (a queue) are done one after the other, in the order they came; those
with different keys take turns.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

from .clock import Clock

log = logging.getLogger(__name__)

#: Seconds of work at a time, after which the reactor serves everybody else.
SLICE = 0.001

#: Steps in one turn of the reactor that are done without a look at the time.
LEAST = 4

#: Steps of one key, after which another has its turn.
STEPS = 16

#: Things that are let go of in one step of `Background.discard`.
HANDFUL = 32

Job = Iterator[object]


class Background:
    """The jobs of one broker. ``now`` is a clock that only goes forward, in seconds."""

    def __init__(self, clock: Clock, now: Callable[[], float]) -> None:
        self.now = now
        self.least = LEAST
        self._clock = clock
        self._lines: OrderedDict[object, deque[Job]] = OrderedDict()  # by key, the next in turn first
        self._called = False
        self._steps = 0  # in this turn of the reactor, up to ``least``
        self._end = 0.0

    def __len__(self) -> int:
        """Jobs that are not done."""
        return sum(map(len, self._lines.values()))

    def __contains__(self, key: object) -> bool:
        """Whether jobs with this key are not done."""
        return key in self._lines

    def run(self, job: Job, key: object = None) -> None:
        """Do ``job``: as much of it as there is time for at once, the rest later. What it raises at once is raised."""
        if key is None:
            key = job
        line = self._lines.get(key)
        if line is not None:
            line.append(job)
            return
        self._lines[key] = deque((job,))
        try:
            while key in self._lines and self._in_time():
                self._step(key)
        finally:
            if self._lines:
                self._call()

    def after(self, key: object, call: Callable[[], object]) -> None:
        """Call once all jobs with this key that were begun so far are done."""
        self.run(_then(call), key)

    def discard(self, things: list[Any]) -> None:
        """Let go of many objects, the last references to which are in ``things``, which is empty in the end."""
        self.run(_let_go(things))

    def abandon(self) -> None:
        """Forget all jobs: the broker stops."""
        self._lines.clear()

    def finish(self, seconds: float = inf) -> None:
        """Do all that is left, or so much of it as ``seconds`` are enough for: the broker stops."""
        end = self.now() + seconds
        while self._lines and self.now() < end:
            self._go_on(self._next_key())  # one may wait for another

    def _next_key(self) -> object:
        """The key whose turn it is, from now on the last in turn."""
        key: object = next(iter(self._lines))
        self._lines.move_to_end(key)
        return key

    def _call(self) -> None:
        if not self._called:
            self._called = True
            self._clock.soon(self._run)

    def _in_time(self) -> bool:
        if self._steps < self.least:
            self._steps += 1
            if self._steps == self.least:
                self._end = self.now() + SLICE
                self._call()  # the next turn begins anew
            return True
        return self.now() < self._end

    def _step(self, key: object) -> None:
        line = self._lines[key]
        try:
            next(line[0])
        except StopIteration:
            self._done(key)
        except BaseException:
            self._done(key)
            raise

    def _done(self, key: object) -> None:
        line = self._lines[key]
        line.popleft()
        if not line:
            del self._lines[key]

    def _run(self) -> None:
        self._called = False
        self._clock.refresh()
        self._steps, self._end = self.least, self.now() + SLICE
        while self._lines:
            key = self._next_key()
            for _ in range(STEPS):
                self._go_on(key)
                if key not in self._lines or not self._in_time():
                    break
            if not self._in_time():
                break
        if self._lines:
            self._call()
        else:
            self._steps = 0

    def _go_on(self, key: object) -> None:
        try:
            self._step(key)
        except Exception:  # the other jobs go on
            log.exception("background job failed")


def _then(call: Callable[[], object]) -> Job:
    call()
    yield None


def _let_go(things: list[Any]) -> Job:
    while things:
        del things[-HANDFUL:]
        yield None


#: Least seconds in one turn of the reactor for the delivery of backlogs, of all queues together, and most.
DELIVERY_SLICE, LONGEST_DELIVERY_SLICE = 0.0005, 0.005

#: The same for frames that take long, of all connections together.
FRAME_SLICE = 0.001

#: Of the time that everything else took since the last slice: that part is a slice, where it is more than the least.
DELIVERY_SHARE = 0.1

#: Deliveries of one queue between two looks at the time; a shorter backlog is always delivered at once.
DELIVERIES = 16

#: Deliveries for each call while a queue waits for its next slice: more than one, so that a backlog shrinks however
#: fast messages arrive.
DELIVERIES_BETWEEN = 2


class Effort:
    """Counts the steps of work that may make one frame take long: words of wildcard addresses, selectors evaluated,
    consumers passed over, queues created. A step takes less than a microsecond."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


class Slices:
    """Does long work of one kind in slices of the reactor's time, which all who have such work share, round robin:
    queues that deliver a backlog, connections with frames that take long.

    A turn's slice begins with the first look at the time, so that what is short costs nothing. ``now`` is a clock
    that only goes forward, in seconds; ``least`` are the seconds of a slice.
    """

    __slots__ = ("_clock", "_end", "_least", "_line", "_open", "exhausted", "now")

    def __init__(self, clock: Clock, now: Callable[[], float], least: float) -> None:
        self.now = now
        self.exhausted = False  # the slice of this turn is used up: what is not short waits for the next one
        self._clock = clock
        self._least = least
        self._line: deque[Callable[[], object]] = deque()
        self._open = False  # a slice has begun in this turn
        self._end = 0.0

    def __len__(self) -> int:
        """Calls that wait for a later turn."""
        return len(self._line)

    def is_over(self) -> bool:
        """Whether the slice of this turn is used up. It begins with the first call."""
        if not self._open:
            self._begin(self._least)
        elif self.now() >= self._end:
            self.exhausted = True
        return self.exhausted

    def defer(self, go_on: Callable[[], object]) -> None:
        """Call ``go_on`` in a later turn, in which it looks at the time again."""
        self._line.append(go_on)
        if not self._open:
            self._begin(self._least)

    def _begin(self, length: float) -> None:
        self._open = True
        self._end = self.now() + length
        self._clock.soon(self._next_turn)

    def _next_turn(self) -> None:
        self._open = self.exhausted = False
        line = self._line
        if not line:
            return
        others = self.now() - self._end
        self._begin(min(max(self._least, others * DELIVERY_SHARE), LONGEST_DELIVERY_SLICE))
        self._clock.refresh()
        for _ in range(len(line)):
            line.popleft()()
            if self.exhausted:
                break
