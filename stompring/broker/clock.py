"""Time as the broker sees it, work in slices of it, and recurrence.

Time as the broker sees it: one reading per read of a socket, the reactor's ``callLater``, and the local time zone.

There are two clocks. The *wall clock* is for people, headers and files; it jumps when somebody sets it. The *steady
clock* is for intervals; it never jumps.

Work on many messages at once, in slices of the reactor's time: between two of them everybody else is served.

A job is an iterator: each step does a little, a message's worth, and leaves everything in order. What is small is done
at once, as if it were no job. Jobs with one key (a queue) are done one after the other, in the order they came; those
with different keys take turns.

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
from typing import Any, NamedTuple, Protocol

from cronsim import CronSim, CronSimError
from mypy_extensions import mypyc_attr

from stompring.errors import Refused

#: Something to do later.
Call = Callable[[], object]

#: A clock, in seconds.
Seconds = Callable[[], float]


class Timer(Protocol):
    """What ``callLater`` returns (Twisted's IDelayedCall)."""

    def cancel(self) -> None: ...
    def active(self) -> bool: ...


class ScheduledTimer(NamedTuple):
    """A `Timer` where a scheduler of the standard library is the reactor."""

    scheduler: sched.scheduler
    event: sched.Event

    def active(self) -> bool:
        return self.event in self.scheduler.queue

    def cancel(self) -> None:
        self.scheduler.cancel(self.event)


def cancel(timer: Timer | None) -> None:
    """Cancel a timer, if there is one that has not rung."""
    if timer is not None and timer.active():
        timer.cancel()


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

    now: int
    steady: Clock

    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        wall: Seconds | None = getattr(reactor, "wall_seconds", None)
        self._wall: Seconds = wall or reactor.seconds
        self.steady = self if wall is None else SteadyClock(self)
        self.refresh()

    def refresh(self) -> int:
        """Read the time anew, on both clocks."""
        steady = self.steady
        if steady is not self:
            steady.now = int(self.reactor.seconds() * 1000)
        self.now = now = int(self._wall() * 1000)
        return now

    def call_at(self, due: int, call: Call) -> Timer:
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

    def soon(self, call: Call) -> None:
        """Call ``call`` after what is going on now."""
        self.reactor.callLater(0, call)


class SteadyClock(Clock):
    """The steady clock of a reactor that has both: milliseconds since some moment. Read together with the other."""

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
        """Cron expressions need no name."""
        return None

    def fromutc(self, moment: datetime) -> datetime:
        """See tzinfo."""
        return datetime.fromtimestamp(moment.replace(tzinfo=UTC).timestamp()).replace(tzinfo=self)


LOCAL = LocalZone()


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

    def __init__(self, clock: Clock, now: Seconds) -> None:
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

    def after(self, key: object, call: Call) -> None:
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
        except Exception:  # the other jobs go on
            log.exception("background job failed")


def _then(call: Call) -> Job:
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

    steps = 0


class Slices:
    """Does long work of one kind in slices of the reactor's time, which all who have such work share, round robin:
    queues that deliver a backlog, connections with frames that take long.

    A turn's slice begins with the first look at the time, so that what is short costs nothing. ``now`` is a clock
    that only goes forward, in seconds; ``least`` are the seconds of a slice.
    """

    def __init__(self, clock: Clock, now: Seconds, least: float) -> None:
        self.now = now
        self.exhausted = False  # the slice of this turn is used up: what is not short waits for the next one
        self._clock = clock
        self._least = least
        self._line: deque[Call] = deque()
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

    def defer(self, go_on: Call) -> None:
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


FOREVER = -1

#: Characters of a cron expression: every minute of an hour by its number is 170. Longer ones only take time to read.
LONGEST_CRON = 1000


@dataclass(slots=True)
class Recurrence:
    """What is left to do after the next delivery.

    ``period`` (ms) and ``repeat`` (times after the first, `FOREVER` for no end) are AMQ_SCHEDULED_PERIOD and
    AMQ_SCHEDULED_REPEAT. With ``cron`` (five fields, the broker's local time) each cron time starts such a series
    anew after ``delay`` ms.
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
                if not self.cron.isascii():  # blanks of other scripts would count as such
                    raise CronSimError("Not ASCII")
                if len(self.cron.split()) != 5:
                    raise CronSimError("Wrong number of fields")  # the library would take six, with seconds
                CronSim(self.cron, datetime.now())
            except CronSimError as fault:
                raise Refused(
                    f"AMQ_SCHEDULED_CRON '{self.cron}' is not a cron expression of five fields "
                    f"(minute hour day month weekday): {fault}",
                    status=400,
                ) from None

    def next_cron(self, now: int) -> int | None:
        """The next cron time after ``now`` (epoch ms), None when there never is one."""
        assert self.cron is not None
        try:
            # with a zone that knows its changes to and from summer time, a run is neither skipped nor doubled
            following = next(CronSim(self.cron, datetime.fromtimestamp(now / 1000, LOCAL)))
            return int(following.timestamp() * 1000)
        except (StopIteration, OverflowError):  # the latter: nothing more before the year 10000
            return None

    @property
    def series(self) -> Recurrence | None:
        """What one cron time starts, None when it is one message at once, or there is no cron expression."""
        if self.cron is None or (self.delay <= 0 and self.repeat == 0):
            return None
        return Recurrence(self.period, self.repeat)

    def advance(self, due: int, now: int) -> int | None:
        """The due time after the one that has just come (epoch ms); None when it was the last.

        Times that were missed (a suspended machine) are not made up for: the next one lies after ``now``.
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
    """When messages with the same headers are delivered. A delay or time of 0 or below means "now", as in Artemis."""

    def __init__(self, due: int, delay: int, recurrence: Recurrence | None) -> None:
        self.due = max(0, due)  # epoch ms (AMQ_SCHEDULED_TIME)
        self.delay = max(0, delay)  # ms (AMQ_SCHEDULED_DELAY)
        self.recurrence = recurrence

    def due_at(self, clock: Clock) -> Due:
        """When a message sent now is delivered, 0 for at once. A time wins over a delay."""
        recurrence = self.recurrence
        if self.due:
            return self.due
        if recurrence is not None and recurrence.cron is not None:
            return recurrence.next_cron(clock.now) or 0
        return clock.from_now(self.delay) if self.delay or recurrence is not None else 0
