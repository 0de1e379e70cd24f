"""Clocks of the broker, background work in time slices, and recurrence of scheduled messages.

Clocks: the time, which is read once for each read of a socket, timers, and the local time zone. The *wall clock* is for
people, headers and files; it jumps when it is set. The *steady clock* is for intervals; it never jumps.

Background work: long work on many messages, in time slices of the reactor. The broker serves all connections between
two slices. A job is an iterator: each step handles about one message, and leaves a consistent state. A short job ends
within `Background.run`. Jobs with the same key (a queue) run one after the other, in order; jobs with different keys
run round robin.

Scheduled delivery: delay or time, period and repeat, or a cron expression (Artemis, ActiveMQ Classic).
"""

from __future__ import annotations

import logging
import sched
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from math import inf
from typing import Any, Final, NamedTuple, Protocol

from cronsim import CronSim, CronSimError
from mypy_extensions import mypyc_attr

from stompring.errors import Refused

#: A callback without arguments.
Call = Callable[[], object]

#: A clock, in seconds.
Seconds = Callable[[], float]


class Timer(Protocol):
    """The result of ``callLater``: a call that can be cancelled (Twisted's IDelayedCall)."""

    def cancel(self) -> None: ...
    def active(self) -> bool: ...


class ScheduledTimer(NamedTuple):
    """A `Timer` for a reactor that uses ``sched.scheduler`` of the standard library."""

    scheduler: sched.scheduler
    event: sched.Event

    def active(self) -> bool:
        return self.event in self.scheduler.queue

    def cancel(self) -> None:
        self.scheduler.cancel(self.event)


def cancel(timer: Timer | None) -> None:
    """Cancel a timer, if it is given and has not fired."""
    if timer is not None and timer.active():
        timer.cancel()


class Reactor(Protocol):
    """The part of Twisted's IReactorTime that the broker needs; ``task.Clock`` has it too."""

    def seconds(self) -> float: ...
    def callLater(self, delay: float, call: Callable[..., object], /, *args: Any, **kw: Any) -> Any: ...


#: Maximum milliseconds until the broker notices a jump of the wall clock.
NOTICED: Final = 1000


@mypyc_attr(native_class=False)
class FromNow(int):
    """A due time that was computed from a delay: the message is due after the delay, even if the wall clock is set
    meanwhile. ``steady`` is the due time on the steady clock (ms). The int value is the due time on the wall clock
    (epoch ms); it becomes wrong if the wall clock is set.
    """

    steady: int


#: A due time: `FromNow`, or epoch ms as an int. If this type were int, compiled code would convert `FromNow` to int.
Due = Any


class Clock:
    """The wall clock in epoch milliseconds, read once for each socket read or timer."""

    now: int
    steady: Clock

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        wall: Seconds | None = getattr(reactor, "wall_seconds", None)
        self._wall: Seconds = wall or reactor.seconds
        self.steady = self if wall is None else SteadyClock(self)
        self.refresh()

    def refresh(self) -> int:
        """Read both clocks. Return the time of this clock (ms)."""
        steady = self.steady
        if steady is not self:
            steady.now = int(self.reactor.seconds() * 1000)
        self.now = now = int(self._wall() * 1000)
        return now

    def call_at(self, due: int, call: Call) -> Timer:
        """Call ``call`` at ``due`` (ms of this clock), or early: a timer of the wall clock runs at most `NOTICED` ms.
        The callee compares ``due`` with `refresh`, and calls this method again if it was called early.
        """
        delay = max(0, due - self.refresh())
        if self.steady is not self:
            delay = min(delay, NOTICED)
        timer: Timer = self.reactor.callLater(delay / 1000, call)
        return timer

    def from_now(self, delay: int) -> FromNow:
        """Return the due time after a delay (ms)."""
        due = FromNow(self.now + delay)
        due.steady = self.steady.now + delay
        return due

    def soon(self, call: Call) -> None:
        """Call ``call`` in the next iteration of the reactor."""
        self.reactor.callLater(0, call)


class SteadyClock(Clock):
    """The steady clock of a reactor with two clocks: milliseconds since a fixed moment, read with the wall clock."""

    def __init__(self, base: Clock) -> None:
        self._base = base
        self.reactor = base.reactor
        self.steady = self
        self.now = 0

    def refresh(self) -> int:
        self._base.refresh()
        return self.now


class LocalZone(tzinfo):
    """The local time zone of the C library (``TZ`` or /etc/localtime)."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """Implements tzinfo; ``fold`` distinguishes the two passes of a repeated hour."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, moment: datetime | None) -> timedelta | None:
        """None: only `utcoffset` is known."""
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        """None: cron expressions need no name."""
        return None

    def fromutc(self, moment: datetime) -> datetime:
        return datetime.fromtimestamp(moment.replace(tzinfo=UTC).timestamp()).replace(tzinfo=self)


LOCAL = LocalZone()


log = logging.getLogger(__name__)

#: Time slice of background jobs, in seconds. The reactor serves all connections between two slices.
SLICE: Final = 0.001

#: Number of steps that run in each iteration of the reactor before the clock is read.
LEAST: Final = 4

#: Number of steps of jobs with one key that run before jobs with the next key.
STEPS: Final = 16

#: Number of objects that `Background.discard` frees in one step.
HANDFUL: Final = 32

Job = Iterator[object]


class Background:
    """The background jobs of one broker. ``now`` returns seconds and never goes backward."""

    def __init__(self, clock: Clock, now: Seconds) -> None:
        self.now = now
        self.least = LEAST
        self._clock = clock
        # jobs by key; the key to run next is first
        self._lines: OrderedDict[object, deque[Job]] = OrderedDict()
        self._called = False
        self._steps = 0  # number of steps in this iteration of the reactor that did not read the clock
        self._end = 0.0

    def __len__(self) -> int:
        """Return the number of unfinished jobs."""
        return sum(map(len, self._lines.values()))

    def __contains__(self, key: object) -> bool:
        """Return whether a job with this key is unfinished."""
        return key in self._lines

    def run(self, job: Job, key: object = None) -> None:
        """Run ``job``: the first part now, the rest in later time slices. Raises the exceptions of the first part."""
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

    def after(self, key: object, call: Call) -> None:
        """Call ``call`` when all present jobs with this key are finished."""
        self.run(_then(call), key)

    def discard(self, things: list[Any]) -> None:
        """Free many objects in time slices. Empties ``things``, which must have the only references to the objects."""
        self.run(_let_go(things))

    def abandon(self) -> None:
        """Drop all jobs: the broker stops."""
        self._lines.clear()

    def finish(self, seconds: float = inf) -> None:
        """Run all remaining jobs for at most ``seconds``: the broker stops."""
        end = self.now() + seconds
        while self._lines and self.now() < end:
            self._go_on(self._next_key())  # run jobs of all keys, because one job may wait for another

    def _next_key(self) -> object:
        """Return the next key, and move it to the end of the order."""
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
                self._call()  # schedules a call in the next iteration, which sets ``_steps`` to 0
            return True
        return self.now() < self._end

    def _step(self, key: object) -> None:
        line = self._lines[key]
        try:
            next(line[0])
        except BaseException as end:
            line.popleft()
            if not line:
                del self._lines[key]
            if not isinstance(end, StopIteration):
                raise

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
        except Exception:  # a fault in one job must not stop the others
            log.exception("background job failed")


def _then(call: Call) -> Job:
    call()
    yield None


def _let_go(things: list[Any]) -> Job:
    while things:
        del things[-HANDFUL:]
        yield None


#: Shortest and longest time slice for the delivery of backlogs in one iteration of the reactor, in seconds. All queues
#: share the slice.
DELIVERY_SLICE, LONGEST_DELIVERY_SLICE = 0.0005, 0.005

#: Shortest time slice for long frames in one iteration of the reactor, in seconds. All connections share the slice.
FRAME_SLICE: Final = 0.001

#: Length of a slice, as a part of the time that all other work has taken since the previous slice.
DELIVERY_SHARE: Final = 0.1

#: Number of deliveries of one queue between two readings of the clock. A shorter backlog is delivered without a pause.
DELIVERIES: Final = 16

#: Number of deliveries that each call may make while its queue waits for the next slice. It is above 1, so that the
#: backlog shrinks even if each call adds a message.
DELIVERIES_BETWEEN: Final = 2


class Effort:
    """Counts the steps of work that can make a frame slow: words of wildcard addresses, selectors evaluated, consumers
    passed over, queues created. A step takes less than a microsecond."""

    steps = 0


class Slices:
    """Time slices of the reactor for long work of one kind, shared round robin: by queues that deliver a backlog, or by
    connections with long frames.

    The slice of an iteration of the reactor begins with the first call of `is_over`, so that short work does not read
    the clock. ``now`` is a steady clock in seconds, ``least`` the shortest slice in seconds.
    """

    def __init__(self, clock: Clock, now: Seconds, least: float) -> None:
        self.now = now
        # whether the slice of this iteration is used up: long work then waits for the next iteration
        self.exhausted = False
        self._clock = clock
        self._least = least
        self._line: deque[Call] = deque()
        self._open = False  # whether a slice has begun in this iteration
        self._end = 0.0

    def __len__(self) -> int:
        """Return the number of deferred calls."""
        return len(self._line)

    def is_over(self) -> bool:
        """Return whether the slice of this iteration is used up. The first call begins the slice."""
        if not self._open:
            self._begin(self._least)
        elif self.now() >= self._end:
            self.exhausted = True
        return self.exhausted

    def defer(self, go_on: Call) -> None:
        """Call ``go_on`` in a later iteration, within a new slice."""
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


FOREVER: Final = -1

#: Maximum length of a cron expression in characters. The list of all minutes of an hour has 169.
LONGEST_CRON: Final = 1000


@dataclass(slots=True)
class Recurrence:
    """The deliveries of a scheduled message after the next one. Raises `Refused` for an invalid ``cron``.

    ``period`` (ms) and ``repeat`` (times after the first, `FOREVER` for no end) are AMQ_SCHEDULED_PERIOD and
    AMQ_SCHEDULED_REPEAT. With ``cron`` (five fields, the broker's local time) each cron time starts a series of these
    repeats after ``delay`` ms.
    """

    period: int = 0
    repeat: int = 0
    cron: str | None = None
    delay: int = 0

    def __post_init__(self) -> None:
        if self.cron is not None:
            try:
                if len(self.cron) > LONGEST_CRON:
                    raise CronSimError(f"Longer than {LONGEST_CRON} characters")
                if not self.cron.isascii():  # `str.split` would accept blanks of other scripts
                    raise CronSimError("Not ASCII")
                if len(self.cron.split()) != 5:
                    # the library would accept a sixth field, for seconds
                    raise CronSimError("Wrong number of fields")
                CronSim(self.cron, datetime.now())
            except CronSimError as fault:
                raise Refused(
                    f"AMQ_SCHEDULED_CRON '{self.cron}' is not a cron expression of five fields "
                    f"(minute hour day month weekday): {fault}",
                    status=400,
                ) from None

    def next_cron(self, now: int) -> int | None:
        """Return the next cron time after ``now`` (epoch ms), None if there is none."""
        assert self.cron is not None
        try:
            # a datetime with a time zone: no cron time is skipped or doubled when the clocks change
            following = next(CronSim(self.cron, datetime.fromtimestamp(now / 1000, LOCAL)))
            return int(following.timestamp() * 1000)
        except (StopIteration, OverflowError):  # OverflowError: no time before the year 10000
            return None

    @property
    def series(self) -> Recurrence | None:
        """The series that one cron time starts. None: there is no ``cron``, or each cron time has only one message,
        without delay.
        """
        if self.cron is None or (self.delay <= 0 and self.repeat == 0):
            return None
        return Recurrence(self.period, self.repeat)

    def advance(self, due: int, now: int) -> int | None:
        """Return the due time (epoch ms) that follows ``due``, None if ``due`` was the last one. Counts one repeat.
        Skips times before ``now`` (epoch ms), which a suspended machine has missed.
        """
        if self.cron is not None:
            return self.next_cron(max(due, now))
        if self.repeat == 0:
            return None
        if self.repeat > 0:
            self.repeat -= 1
        following = due + self.period
        if following <= now and self.period > 0:
            following += (now - following) // self.period * self.period + self.period
        return max(following, now)


class Schedule:
    """The delivery time or delay of messages with the same headers. One of 0 or below means no delay, as in Artemis."""

    def __init__(self, due: int, delay: int, recurrence: Recurrence | None) -> None:
        self.due = max(0, due)  # epoch ms (AMQ_SCHEDULED_TIME)
        self.delay = max(0, delay)  # ms (AMQ_SCHEDULED_DELAY)
        self.recurrence = recurrence

    def due_at(self, clock: Clock) -> Due:
        """Return the due time of a message sent now, 0 for no delay. A time has precedence over a delay."""
        recurrence = self.recurrence
        if self.due:
            return self.due
        if recurrence is not None and recurrence.cron is not None:
            return recurrence.next_cron(clock.now) or 0
        return clock.from_now(self.delay) if self.delay or recurrence is not None else 0
