"""The role of a broker in a replicated log: standby, takeover, active with beats, step-down.

Brokers elect no leader. The engine accepts an entry only at the sequence that its writer expects, which alone decides
which broker is active. This module decides when a broker tries.

`Node` is a state machine: each `Node.step` does what is due and returns the seconds until the next. `NodeThread` drives
it. Clock, randomness and log are parameters; the time of day is only displayed.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from math import inf
from random import Random
from threading import Event, Lock, Thread
from typing import NamedTuple, Protocol

from stompring.settings.model import frozen

from .copy import LocalCopy
from .log import (
    BEATS,
    Beat,
    Fenced,
    FileChange,
    LogEntry,
    LogFull,
    LogStatus,
    LogUnavailable,
    Operation,
    ReplicatedLog,
    SharedLog,
    UnsafeLog,
    decode_beat,
    encode_beat,
)

log = logging.getLogger(__name__)

#: Exit code of a broker that lost its active role: a supervisor starts it again, as a standby.
EXIT_NOT_ACTIVE = 75

#: Seconds without an entry after which the active broker appends a beat.
BEAT_INTERVAL = 0.5

#: Seconds between beats at most, even with other entries: standbys measure their lag by beats.
MAX_BEAT_INTERVAL = 5.0

#: Upper limit of the seconds without a stored append after which an active broker is suspended.
MAX_FRESHNESS = 3.0

#: Seconds between the suspension of the active broker and the first possible takeover.
MARGIN = 0.5

#: Minimum of ``takeover-timeout`` in seconds: three missed beats, then the suspension of the active broker.
MIN_TAKEOVER_TIMEOUT = 3 * BEAT_INTERVAL + MARGIN

#: Seconds for which the engine must answer after an outage before a standby takes over. In this time the active broker
#: can wait for the answer to a lost append, and then append three beats.
AFTER_OUTAGE = 2.0

#: Maximum seconds that a standby adds to ``takeover-timeout``, at random: so standbys try one after the other.
JITTER = 0.3

#: Seconds after a RELEASE in which only the standby that it names takes over.
SUCCESSOR_WAIT = 2.0

#: The reason of a RELEASE by a broker that became active and could not start.
START_FAILED = "failed"

#: Maximum seconds between a RELEASE and the next takeover after consecutive failed starts.
MAX_FAILED_WAIT = 30.0

#: Maximum seconds between two answers of the engine, without the wait for an entry: a longer gap is an outage.
SLOW_ANSWER = 1.0

#: Seconds without progress of the reactor or the disk after which a broker stops its beats.
REACTOR_TIMEOUT = 5.0

#: A request without effect: its receipt shows that the broker runs.
PING = "ping"

#: Requests of a standby to the active broker. CHECK: compare the log with the files and rewrite lost entries. REPAIR:
#: rewrite all files.
CHECK, REPAIR = "check", "repair"

#: Seconds from a CHECK or REPAIR to a rebuild of the standby's copy, and from a rebuild to the next request, while
#: entries are missing: at first, and at most.
CHECK_INTERVAL, MAX_CHECK_INTERVAL = 10.0, 300.0

#: Number of checks, `STATUS_INTERVAL` apart, after which entries missing from a copy count as lost. Late entries, or
#: the deletion of their file, arrive before that.
LOOKS = 3

#: Seconds between two attempts while the engine does not answer.
RETRY_INTERVAL = 0.2

#: Seconds between two log lines about a wait for the log, and about the progress of a rebuild.
WAIT_REPORT_INTERVAL = 60.0
REBUILD_REPORT_INTERVAL = 5.0

#: Maximum seconds by which an append of the disk thread may delay the beats and requests of the node's thread.
MAX_BUSY = 2.0

#: Seconds between two requests for the state of the log.
STATUS_INTERVAL = 2.0

#: Seconds for which the log may end before an entry that was read, while a new leader of the engine catches up.
MAX_SHORT_LOG = 10.0

#: Number of beats that stay in the log. When it has this number and `PURGED_BEATS` more, the oldest are purged.
KEPT_BEATS, PURGED_BEATS = 100, 50


def boot_time() -> float:
    """Return the seconds of a clock that is never set, and that continues while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def failed_wait(failures: int) -> float:
    """Return how many seconds to wait before the next takeover after ``failures`` consecutive failed starts: 0 after
    one failure.
    """
    return 0.0 if failures < 2 else min(2.0 ** min(failures - 1, 10), MAX_FAILED_WAIT)


class Role(StrEnum):
    """The role of a broker in its log. Metrics, CLI and HTTP show the values."""

    #: The engine has not answered yet.
    CONNECTING = "connecting"
    #: Follows the log.
    STANDBY = "standby"
    #: Writes the log.
    ACTIVE = "active"
    #: Active, but without a recent stored append: it must not deliver.
    SUSPENDED = "suspended"
    #: Has released the log by its own decision.
    RELEASED = "released"
    #: Was active until another broker claimed the log, or until the log or the local copy was lost.
    FENCED = "fenced"
    #: Cannot follow the log: the log is unsafe (see `UnsafeLog`), or the local copy cannot be used.
    FAILED = "failed"


ACTIVE_ROLES = (Role.ACTIVE, Role.SUSPENDED)


@frozen
class Timing:
    """``takeover_timeout``: seconds without an entry after which a standby takes over. Raises `ValueError` for less
    than 2.
    """

    takeover_timeout: float

    def __post_init__(self) -> None:
        if self.takeover_timeout < MIN_TAKEOVER_TIMEOUT:
            raise ValueError(
                f"takeover-timeout is {self.takeover_timeout * 1000:.0f} ms:"
                f" at least {MIN_TAKEOVER_TIMEOUT * 1000:.0f} ms"
            )

    @property
    def freshness(self) -> float:
        """Seconds without a stored append after which the active broker is suspended. A standby takes over later."""
        return min(MAX_FRESHNESS, self.takeover_timeout - MARGIN)


class Takeover(NamedTuple):
    """A takeover by this broker.

    ``time``: epoch ms. ``seconds``: from the claim to `Node.mark_ready`, None before that.
    """

    time: int
    reason: str
    seconds: float | None


@frozen
class NodeStatus:
    """A broker in a replicated log, for metrics, CLI and HTTP.

    ``fresh``: `Node.is_fresh`. ``rebuilding``: a standby has not reached the end of the log since it connected. Of
    about ``rebuild_entries`` and ``rebuild_bytes`` (0: unknown, because the copy had a part of the log before) it has
    applied ``rebuilt_entries`` and ``rebuilt_bytes``. ``log``: state of the log ``log_age`` seconds ago. ``sequence``:
    last entry that was applied or appended. The lags are those of a standby behind the end of ``log``.
    ``missing_entries``: lower limit of the entries that the log has lost; above 0 this standby cannot take over.
    ``active``: active broker by its last beat, None if unknown; ``active_time``: the engine's time of that beat (epoch
    ms). ``fault``: why the broker waits, or is `Role.FENCED` or `Role.FAILED`.
    """

    role: Role
    broker: str
    fresh: bool
    rebuilding: bool
    rebuilt_entries: int
    rebuild_entries: int
    rebuilt_bytes: int
    rebuild_bytes: int
    log: LogStatus | None
    log_age: float
    sequence: int
    lag_entries: int
    lag_bytes: int
    lag_seconds: float
    missing_entries: int
    appends: int
    append_seconds: float
    append_bytes: int
    fenced: int
    takeovers: int
    last_takeover: Takeover | None
    active: Beat | None
    active_time: int
    fault: str


class StepDown(NamedTuple):
    """A request to this broker to give up its role: ``release`` (it becomes a standby) or ``leave`` (it stops).

    ``successor``: standby that shall take over, empty for any.
    """

    command: str
    successor: str = ""

    @property
    def exit_code(self) -> int:
        """The exit code of the process after the orderly stop."""
        return 0 if self.command == "leave" else EXIT_NOT_ACTIVE


class NodeCallbacks(Protocol):
    """The events of a node. The node's thread calls the methods; `on_lost` may be called by any thread."""

    def on_active(self) -> None:
        """The broker is active: `Node.log` accepts appends."""

    def on_suspended(self) -> None:
        """No append was stored for `Timing.freshness`: stop deliveries. `Node.is_fresh` turns false earlier."""

    def on_resumed(self) -> None:
        """An append was stored after `on_suspended`: the broker is still active."""

    def on_lost(self, reason: str, exit_code: int) -> None:
        """The broker must stop immediately, without another append. Called once. ``exit_code``: 75 if the broker was
        active, else 1.
        """

    def on_step_down(self, request: StepDown) -> None:
        """Stop in an orderly way, then call `Node.release`."""


class Node:
    """One broker of a replicated log.

    ``identity`` describes this process. Only the node's thread calls `step`. Any thread may call `is_fresh`, `touch`,
    `status`, `lose`, `release` and the methods of ``log``, through which the whole process appends.
    """

    def __init__(
        self,
        engine: ReplicatedLog,
        copy: LocalCopy,
        identity: Beat,
        callbacks: NodeCallbacks,
        timing: Timing,
        *,
        clock: Callable[[], float] = boot_time,
        wall_clock: Callable[[], float] = time.time,
        random: Random | None = None,
        read_wait: float = BEAT_INTERVAL,
    ) -> None:
        self._identity = identity
        self._callbacks = callbacks
        self._timing = timing
        self._freshness = timing.freshness
        self._clock = clock
        self._wall_clock = wall_clock
        self._random = random or Random()  # nosec B311: no secret
        self._read_wait = read_wait
        self._copy = copy
        #: The log to which the disk thread appends.
        self.log = SharedLog(engine, clock, self.lose)
        #: Purges obsolete entries. The active node calls it after each step, in its thread.
        self.on_idle: Callable[[], object] | None = None
        #: Does one step of a comparison of the log with the files. Rewrites files with lost entries, or all files if
        #: the argument is True. The active node calls it in its thread until it returns True.
        self.check_log: Callable[[bool], bool] | None = None
        self._role = Role.CONNECTING
        self._guard = Lock()  # guards `_role`, which several threads change
        self._fault = ""
        # fields of a standby
        self._rebuilding = True
        self._rebuilt_entries = self._rebuild_entries = self._rebuilt_bytes = self._rebuild_bytes = 0
        self._rebuild_end = 0  # sequence at the end of the log when the rebuild was measured
        self._silent_since = 0.0
        self._answering = 0.0  # seconds for which the engine has answered without an outage
        self._answered: float | None = None  # time of the engine's last answer
        self._jitter = 0.0
        self._tail: LogEntry | None = None  # the last entry that was read
        self._beat: Beat | None = None  # the last beat that was read
        self._beat_time = 0
        # unanswered claim: writer, sequence before the claim, time of the first try
        self._claim: tuple[int, int, float] | None = None
        self._refused = False  # whether the last claim failed, although the engine may answer reads
        self._short_since: float | None = None
        self._failures = 0  # number of consecutive failed starts of brokers up to now
        self._failures_reported = 0  # sequence of the last RELEASE that was reported
        self._unread_since: float | None = None  # time since which `read` has not returned the last entries
        self._unread = 0  # number of entries that `read` has not returned within `MAX_SHORT_LOG`
        self._lag = (0, 0, 0.0)
        self._missing = 0  # reported number of entries that the copy lacks
        self._looks = (0, 0)  # `missing` at the last check, and number of consecutive checks with this result
        self._check_asked_at, self._check_interval, self._checks = -inf, CHECK_INTERVAL, 0
        # fields of the active broker
        self._check = CHECK  # the next comparison: CHECK, REPAIR or none
        self._leader = ""
        self._beaten_at = 0.0
        self._touched: float | None = None
        self._stalled = False
        self._takeovers = 0
        self._takeover: Takeover | None = None
        self._claimed_at = 0.0
        # fields of both roles
        self._beats: deque[int] = deque()
        self._asked_at = -inf
        self._status_tried_at = -inf
        self._reported_at = -inf
        self._waiting_since: float | None = None

    # ---- for any thread

    def is_fresh(self) -> bool:
        """Return whether this broker is active and has stored an append recently, so that no other is active. Fast."""
        return self._role in ACTIVE_ROLES and self._clock() - self.log.stored_at < self._freshness

    def touch(self) -> None:
        """Report that the reactor and the disk run. Without another call within 5 s the broker stops its beats."""
        self._touched = self._clock()

    def mark_ready(self) -> None:
        """Report that the broker has recovered and accepts clients. From now on it must call `touch`."""
        self.touch()
        if self._takeover is not None:
            seconds = self._clock() - self._claimed_at
            self._takeover = self._takeover._replace(seconds=seconds)
            log.info("ready %.1f s after the takeover", seconds)

    def status(self) -> NodeStatus:
        """Return the current state, without a request to the engine."""
        active = self._role in ACTIVE_ROLES
        beat = self._identity if active else self._beat
        if beat is not None and beat.reason and not active:
            beat = None  # the broker of the beat has released the log
        entries, size, seconds = (0, 0, 0.0) if active else self._lag
        return NodeStatus(
            role=self._role,
            broker=self._identity.broker,
            fresh=self.is_fresh(),
            rebuilding=self._role is Role.STANDBY and self._rebuilding,
            rebuilt_entries=self._rebuilt_entries,
            rebuild_entries=max(self._rebuild_entries, self._rebuilt_entries),
            rebuilt_bytes=self._rebuilt_bytes,
            rebuild_bytes=self._rebuild_bytes and max(self._rebuild_bytes, self._rebuilt_bytes),
            log=self.log.last_status,
            log_age=self._clock() - self.log.status_at,
            sequence=self.log.sequence if active else self._copy.sequence,
            lag_entries=entries,
            lag_bytes=size,
            lag_seconds=seconds,
            missing_entries=0 if active else self._missing,
            appends=self.log.appends,
            append_seconds=self.log.append_seconds,
            append_bytes=self.log.append_bytes,
            fenced=self.log.fenced,
            takeovers=self._takeovers,
            last_takeover=self._takeover,
            active=beat,
            active_time=int(self._wall_clock() * 1000) if active else self._beat_time,
            fault=self._fault,
        )

    def lose(self, reason: str) -> None:
        """End the role of this broker: later appends fail. Calls `NodeCallbacks.on_lost`, once."""
        with self._guard:
            if self._role in (Role.FENCED, Role.FAILED, Role.RELEASED):
                return
            was_active = self._role in ACTIVE_ROLES
            self._role = Role.FENCED if was_active else Role.FAILED
            self._fault = reason
        self.log.close_writing(reason)
        log.critical("%s: %s", "not active any more" if was_active else "cannot be a standby", reason)
        self._callbacks.on_lost(reason, EXIT_NOT_ACTIVE if was_active else 1)

    def release(self, reason: str = "stopped", successor: str = "") -> bool:
        """Append RELEASE, so that a standby takes over immediately. Returns whether the RELEASE is stored.

        With the reason `START_FAILED` standbys wait longer with each consecutive failure. Blocks for the seconds of one
        append. Later appends are refused even if the RELEASE is not stored.
        """
        with self._guard:
            if self._role not in ACTIVE_ROLES:
                if self._role in (Role.CONNECTING, Role.STANDBY):
                    self._role = Role.RELEASED
                return False
            self._role = Role.RELEASED
        return self._append_release(reason, successor)

    def _append_release(self, reason: str, successor: str) -> bool:
        failures = self._failures + 1 if reason == START_FAILED else 0
        beat = replace(self._identity, reason=reason, successor=successor, failures=failures)
        try:
            self.log.append_release(beat)
        except (OSError, Fenced, UnsafeLog) as fault:
            log.warning(
                "cannot release the replicated log (%s): a standby takes over after %g s without beats",
                fault,
                self._timing.takeover_timeout,
            )
            return False
        log.info("released the replicated log: %s", reason)
        return True

    # ---- the state machine

    def step(self) -> float:
        """Do what is due. Returns the seconds until the next call."""
        try:
            match self._role:
                case Role.CONNECTING:
                    return self._connect()
                case Role.STANDBY:
                    return self._follow()
                case Role.ACTIVE | Role.SUSPENDED:
                    return self._stay_active()
                case _:
                    return BEAT_INTERVAL
        except (LogUnavailable, LogFull) as fault:
            self._answered = None
            self._wait_for(f"{fault}")
            return RETRY_INTERVAL
        except (UnsafeLog, Fenced) as fault:
            self.lose(str(fault))
        except OSError as fault:  # an error of the local copy
            if self._role in ACTIVE_ROLES:
                raise
            self._answered = None
            self._wait_for(f"the local copy cannot be written: {fault}")
            return 1.0
        return BEAT_INTERVAL

    def _become(self, role: Role, *expected: Role) -> bool:
        with self._guard:
            if self._role not in expected:
                return False
            self._role = role
            return True

    def _wait_for(self, fault: str) -> None:
        """Log why the broker waits, at first and then once a minute."""
        now = self._clock()
        if self._waiting_since is None:
            self._waiting_since, self._reported_at = now, -inf
        self._fault = fault
        if now - self._reported_at >= WAIT_REPORT_INTERVAL:
            self._reported_at = now
            waited = now - self._waiting_since
            since = f", for {waited / 60:.0f} min" if waited else ""
            log.warning("%s broker waits for the replicated log%s: %s", self._role.value, since, fault)

    def _waits_no_more(self) -> None:
        if self._waiting_since is not None:
            log.info("the replicated log answers after %.0f s", self._clock() - self._waiting_since)
            self._waiting_since, self._fault = None, ""

    # ---- standby

    def _connect(self) -> float:
        status = self.log.connect()
        self._copy.open(self.log)
        tail = self.log.last(BEATS)
        if tail is not None:
            self._read_beat(tail)
            if tail.sequence <= self._copy.sequence:
                self._beats.append(tail.sequence)
            if tail.sequence == self._copy.sequence:
                self._tail = tail
        self._begin_silence()
        self._waits_no_more()
        self._measure_rebuild(status)
        if self._become(Role.STANDBY, Role.CONNECTING):
            log.info(
                "standby of the replicated log %s, which ends at entry %d; the local copy has entry %d",
                status.identity,
                status.last,
                self._copy.sequence,
            )
        return 0.0

    def _begin_silence(self) -> None:
        self._silent_since = self._clock()
        self._jitter = self._random.uniform(0, JITTER)

    def _note_answer(self) -> None:
        """Record an answer of the engine. ``_answering`` begins at 0 again after an outage."""
        now = self._clock()
        if self._answered is None or now - self._answered > self._read_wait + SLOW_ANSWER:
            self._answering = 0.0
        else:
            self._answering += now - self._answered
        self._answered = now

    def _follow(self) -> float:
        entries = self.log.read(self._copy.sequence, self._due_in(self._read_wait))
        self._note_answer()
        if entries:
            return self._apply(entries)
        if not self._refused:
            self._waits_no_more()
        self._end_rebuild()
        self._ask_standby()
        self._measure_lag()
        reason = self._takeover_reason()
        if reason:
            return self._take_over(reason)
        return 0.0 if self._read_wait else self._due_in(BEAT_INTERVAL / 5)

    def _due_in(self, most: float) -> float:
        """Return the seconds until this standby may take over if no entry arrives, at most ``most``."""
        silence = self._clock() - self._silent_since
        due = max(self._timing.takeover_timeout + self._jitter - silence, AFTER_OUTAGE - self._answering)
        return min(most, max(due, 0.01)) if most else 0.0

    def _apply(self, entries: Sequence[LogEntry]) -> float:
        before = self._copy.sequence
        self._copy.apply(entries)
        self._unread_since = None
        self._tail, self._refused = entries[-1], False
        if self._copy.sequence < entries[-1].sequence:  # the copy was discarded
            self._begin_rebuild()
        elif self._rebuilding:
            # the copy had a part of the log, so that the number of missing entries is unknown: count sequences
            self._rebuilt_entries += self._copy.sequence - before if not self._rebuild_bytes else len(entries)
            self._rebuilt_bytes += sum(len(entry.change.data) for entry in entries)
        self._waits_no_more()
        for entry in entries:
            self.log.bytes += len(entry.change.data)
            if entry.change.key == BEATS:
                self._read_beat(entry)
                self._beats.append(entry.sequence)
        while len(self._beats) > KEPT_BEATS + PURGED_BEATS:
            self._beats.popleft()
        self._begin_silence()
        self._answered = self._clock()
        if self._claim is not None:
            return self._find_claim(entries)
        if self._rebuilding:
            if self._copy.sequence >= self._rebuild_end:
                self._end_rebuild()
            elif self._clock() - self._reported_at >= REBUILD_REPORT_INTERVAL:
                self._reported_at = self._clock()
                log.info("rebuilding the local copy: %s", rebuild_text(self.status()))
        self._ask_standby()
        self._measure_lag()
        return 0.0

    def _begin_rebuild(self) -> None:
        self._tail = None
        self._rebuilding = True
        self._measure_rebuild(self.log.status())

    def _measure_rebuild(self, status: LogStatus) -> None:
        """Measure the entries and bytes between the copy's sequence and the end of the log."""
        self._rebuilt_entries = self._rebuilt_bytes = 0
        whole = not self._copy.sequence
        self._rebuild_bytes = status.bytes if whole else 0
        self._rebuild_entries = status.entries if whole else max(status.last - self._copy.sequence, 0)
        self._rebuild_end = status.last
        self._reported_at = self._clock()

    def _end_rebuild(self) -> None:
        if self._rebuilding:
            self._rebuilding = False
            log.info("the local copy is up to date at entry %d", self._copy.sequence)

    def _read_beat(self, entry: LogEntry) -> None:
        self._beat, self._beat_time = decode_beat(entry.change.data), entry.time
        self.log.bytes = max(self.log.bytes, self._beat.bytes)

    def _measure_lag(self) -> None:
        now = self._clock()
        if now - self._status_tried_at < STATUS_INTERVAL:
            return
        self._status_tried_at = now
        status = self.log.status()
        self._look_for_losses(status.last)
        behind = status.last - self._copy.sequence
        if behind <= 0:
            self._lag = (0, 0, 0.0)
            return
        newest = self.log.last(BEATS)
        size, seconds = 0, 0.0
        if newest is not None and newest.sequence > self._copy.sequence:
            size = max(decode_beat(newest.change.data).bytes - self.log.bytes, 0)
            if self._tail is not None:
                seconds = max((newest.time - self._tail.time) / 1000, 0.0)
        self._lag = (behind, size, seconds)

    def _look_for_losses(self, last: int) -> None:
        """Check whether the copy lacks entries. While the copy is behind the end of the log, missing entries may be
        purged ones of a file that a later entry deletes.
        """
        if self._copy.sequence >= last:
            self._unread = 0
        missing = 0 if self._rebuilding else self._unread or self._copy.missing
        self._looks = (missing, self._looks[1] + 1 if missing == self._looks[0] else 1)
        if not missing:
            if self._missing and not self._rebuilding:
                log.info("the local copy is complete: no entry is missing")
                self._missing = 0
        elif self._looks[1] >= LOOKS:
            self._report_missing(missing)

    def _report_missing(self, missing: int) -> None:
        """Report entries that the log has lost, and request them from the active broker or the leader of the engine."""
        if not self._missing:
            log.error(
                "the replicated log, or the node that it is read from, has lost entries: %d or more are missing in the "
                "local copy, with which this broker does not take over. See docs/high-availability.md",
                missing,
            )
            self._check_asked_at, self._check_interval, self._checks = -inf, CHECK_INTERVAL, 0
        self._missing = missing
        now = self._clock()
        if now - self._check_asked_at < self._check_interval:
            return
        self._check_asked_at = now
        self._checks += 1
        if self._checks % 2:
            self.log.request(CHECK if self._checks == 1 else REPAIR, "")
        # perhaps only the node that was read lacks the entries, or the entry that removed their file is lost
        else:
            self._check_interval = min(2 * self._check_interval, MAX_CHECK_INTERVAL)
            self.log.read_from_leader()
            self._copy.restart(
                self.log, "entries are missing, which the leader of the engine may have by now"
            )
            self._begin_rebuild()

    def _ask_standby(self) -> None:
        now = self._clock()
        if now - self._asked_at < BEAT_INTERVAL:
            return
        self._asked_at = now
        for command in self.log.requests(self._identity.broker, active=False):
            if command == "leave":
                self._callbacks.on_step_down(StepDown("leave"))
            elif command != PING:
                log.info("request %r ignored: this broker is a standby", command)

    # ---- takeover

    def _takeover_reason(self) -> str:
        """Return why this standby, which has read all entries, takes over now; empty if it does not."""
        if self._copy.sequence == 0 and self.log.last_status and self.log.last_status.last == 0:
            return "the log is empty"
        silence = self._clock() - self._silent_since
        tail = self._tail
        if tail is not None and tail.change.operation is Operation.RELEASE:
            released = decode_beat(tail.change.data)
            if silence < failed_wait(released.failures):
                self._report_failures(released, tail.sequence)
                return ""
            own = self._identity.broker
            meant = released.successor == own or (
                not released.successor and (released.broker != own or released.reason == "stopped")
            )
            if meant or silence >= SUCCESSOR_WAIT:
                return f"released by {released.broker or 'another broker'} ({released.reason})"
        if silence >= self._timing.takeover_timeout + self._jitter and self._answering >= AFTER_OUTAGE:
            return f"no entry for {silence:.1f} s"
        return ""

    def _report_failures(self, released: Beat, sequence: int) -> None:
        if self._failures_reported != sequence:
            self._failures_reported = sequence
            log.warning(
                "brokers of the replicated log have become active and failed to start, %d in a row, %s the last one: "
                "the next takeover is %g s later. Their logs have the reason",
                released.failures,
                released.broker,
                failed_wait(released.failures),
            )

    def _take_over(self, reason: str) -> float:
        asked = self._clock()
        status = self.log.status()
        if self._clock() - asked > SLOW_ANSWER:
            self._answered = None
            return 0.0
        after = self._copy.sequence
        if status.last > after:  # the node that answered the read lags behind the engine's leader
            self._begin_silence()
            if self._unread_since is None:
                self._unread_since = self._clock()
            elif self._clock() - self._unread_since > MAX_SHORT_LOG:
                self._unread = status.last - after
                self._report_missing(self._unread)
            return 0.0
        if status.last < after:
            return self._short_log(status)
        self._short_since = None
        if self._copy.missing:
            self._report_missing(self._copy.missing)
            self._begin_silence()
            return 0.0
        tail = self._tail
        self._failures = decode_beat(tail.change.data).failures if tail and tail.change.key == BEATS else 0
        writer = self._random.getrandbits(62) + 1
        self._claim = (writer, after, self._clock())
        return self._try_claim(reason)

    def _short_log(self, status: LogStatus) -> float:
        now = self._clock()
        if self._short_since is None:
            self._short_since = now
        self._begin_silence()
        if now - self._short_since > MAX_SHORT_LOG:
            raise UnsafeLog(
                f"the log ends at entry {status.last}, entry {self._copy.sequence} was read from it:"
                " the engine has lost entries. See docs/high-availability.md"
            )
        return 0.0

    def _try_claim(self, reason: str) -> float:
        assert self._claim is not None
        writer, after, began = self._claim
        contents = self._copy.summary
        data = encode_beat(replace(self._identity, bytes=self.log.bytes, contents=contents))
        change = FileChange(Operation.CLAIM, data=data)
        self._refused = True
        try:
            sequence = self.log.claim(writer, after, change)
        except LogFull:
            self._claim = None
            self._keep_beats(1)  # makes space for the claim
            raise
        self._claim, self._refused = None, False
        self._begin_silence()
        if sequence is None:
            log.info("another broker has written to the replicated log: this one stays a standby")
            return 0.0
        self.log.stored_at = min(self.log.stored_at, began)
        self.log.contents = contents
        self._copy.apply([LogEntry(sequence, 0, writer, 0, change)])
        if not self._become(Role.ACTIVE, Role.STANDBY):  # another thread has called `release` meanwhile
            self._append_release("stopped", "")
            return BEAT_INTERVAL
        self._takeovers += 1
        self._takeover = Takeover(int(self._wall_clock() * 1000), reason, None)
        self._claimed_at = self._beaten_at = began
        self._waits_no_more()
        self._lag = (0, 0, 0.0)
        log.info("active in the replicated log from entry %d on: %s", sequence, reason)
        self._callbacks.on_active()
        return 0.0

    def _find_claim(self, entries: Sequence[LogEntry]) -> float:
        """Complete a claim that had no answer, if it was stored and is the last entry."""
        assert self._claim is not None
        writer, after, began = self._claim
        if entries[-1].writer == writer:
            return self._try_claim(f"the claim of {self._clock() - began:.1f} s ago was stored")
        self._claim = None
        return 0.0

    # ---- active

    def _stay_active(self) -> float:
        self._check_suspended()
        now = self._clock()
        if self.log.busy and now - self._asked_at < MAX_BUSY:  # the append in progress replaces a beat
            return BEAT_INTERVAL / 5
        if self._reactor_runs(now) and (
            now - self.log.stored_at >= BEAT_INTERVAL or now - self._beaten_at >= MAX_BEAT_INTERVAL
        ):
            self._append_beat()
            self._check_suspended()
        if now - self._asked_at >= BEAT_INTERVAL:
            self._asked_at = now
            self._serve_requests()
        if now - self._status_tried_at >= STATUS_INTERVAL:
            self._status_tried_at = now
            leader = self.log.status().leader
            # the new leader may lack entries that the old one had
            if leader and self._leader and leader != self._leader:
                self._check = self._check or CHECK
            self._leader = leader or self._leader
            if len(self._beats) > KEPT_BEATS + PURGED_BEATS:
                self._keep_beats(KEPT_BEATS)
        if self.on_idle is not None:
            self.on_idle()
        self._waits_no_more()
        if self._check and self.check_log is not None:
            if not self.check_log(self._check == REPAIR):
                return 0.05
            self._check = ""
        return min(BEAT_INTERVAL, max(self.log.stored_at + BEAT_INTERVAL - self._clock(), 0.05))

    def _append_beat(self) -> None:
        try:
            sequence = self.log.append_beat(self._identity)
        except LogFull:
            self._keep_beats(1)  # makes space for another beat
            raise
        self._beaten_at = self._clock()
        self._beats.append(sequence)

    def _reactor_runs(self, now: float) -> bool:
        stalled = self._touched is not None and now - self._touched > REACTOR_TIMEOUT
        if stalled and not self._stalled:
            log.warning(
                "the reactor or the disk has not answered for %g s: no more beats, a standby may take over",
                REACTOR_TIMEOUT,
            )
        self._stalled = stalled
        return not stalled

    def _check_suspended(self) -> None:
        if self.is_fresh():
            if self._become(Role.ACTIVE, Role.SUSPENDED):
                log.info("resumed: still active in the replicated log")
                self._callbacks.on_resumed()
        elif self._become(Role.SUSPENDED, Role.ACTIVE):
            log.warning(
                "suspended: nothing was stored in the replicated log for %.1f s",
                self._clock() - self.log.stored_at,
            )
            self._callbacks.on_suspended()

    def _serve_requests(self) -> None:
        for request in self.log.requests(self._identity.broker, active=True):
            command, _, successor = request.partition(" ")
            if command in ("release", "leave"):
                log.info("asked to %s", request)
                self._callbacks.on_step_down(StepDown(command, successor))
            elif command in (CHECK, REPAIR):
                self._check = REPAIR if REPAIR in (command, self._check) else CHECK
            elif command != PING:
                log.warning("request %r ignored: unknown", request)

    def _keep_beats(self, kept: int) -> None:
        """Purge all beats except the latest ``kept``, at least 1: the newest beat has the contents of the log."""
        if len(self._beats) >= kept:
            self.log.purge(BEATS, self._beats[-kept] - 1)
            while len(self._beats) > kept:
                self._beats.popleft()

    def close(self) -> None:
        """Disconnect. The caller has stopped the thread of `step`, and all writes of files."""
        try:
            if self._role is not Role.CONNECTING and self._role is not Role.FAILED:
                self._copy.close(clean=self._role is not Role.FENCED)
        except OSError as fault:
            log.warning("cannot close the local copy: %s", fault)
        self.log.close()


def rebuild_percent(status: NodeStatus) -> int:
    """Return the percentage of entries that a standby has applied, at most 99 before it reaches the end of the log."""
    if not status.rebuilding:
        return 100
    return min(100 * status.rebuilt_entries // max(status.rebuild_entries, 1), 99)


def rebuild_text(status: NodeStatus) -> str:
    """Return the progress of a rebuilding standby as text."""
    unit, name = (1e9, "GB") if status.rebuild_bytes >= 1e9 else (1e6, "MB")
    size = f"{status.rebuilt_bytes / unit:.1f}"
    if status.rebuild_bytes:
        size += f" of about {status.rebuild_bytes / unit:.1f}"
    return f"{rebuild_percent(status)} %, {status.rebuilt_entries} of {status.rebuild_entries} entries, {size} {name}"


class NodeThread:
    """The thread that calls `Node.step` until it is stopped."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="replicated log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        """Stop stepping, then disconnect. Waits at most ``timeout`` seconds for a step in progress."""
        self._stopped.set()
        self._thread.join(timeout)
        if not self._thread.is_alive():
            self._node.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                delay = self._node.step()
            except Exception:
                log.exception("unexpected fault in the thread of the replicated log")
                self._node.lose("an unexpected fault in the thread of the replicated log")
                return
            if delay > 0:
                self._stopped.wait(delay)
