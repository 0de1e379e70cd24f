"""The running broker as the HTTP API sees it, and its tasks.

Cooperative tasks: long work in time slices, between which the reactor does other work.

`AdminContext`: the parts of the running broker that the HTTP API uses. The server's service provides it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import count
from types import GeneratorType
from typing import Any, Protocol, TypeVar, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import Cooperator, TaskFinished
from twisted.python.failure import Failure

from stompring.broker.bridge import Bridges
from stompring.broker.broker import Broker
from stompring.broker.clock import Background
from stompring.broker.history import History, HistoryMemory
from stompring.broker.queue_browser import PageRead
from stompring.errors import NotFound, Refused
from stompring.paging.paged_queue import TargetAreas
from stompring.policy.hooks import Policies
from stompring.replication.role import Node
from stompring.security.access import AccessControl
from stompring.security.accounts import Roles, UserFiles, Users
from stompring.security.certificates import Identity
from stompring.session.connect import Credentials, Login
from stompring.session.outbox import GlobalConnectionLimit, Outgoing
from stompring.session.session import Session
from stompring.session.subscription import Subscription
from stompring.settings.broker_xml import Reload
from stompring.settings.model import BrokerConfiguration, HttpAcceptor, StompAcceptor
from stompring.store.durable import Durable
from stompring.store.pages import Paging

log = logging.getLogger(__name__)

Found = TypeVar("Found")
Result = TypeVar("Result")

#: Seconds of one time slice of management and metrics: what they may add to the latency of messages.
TIME_SLICE = 0.005

#: Items processed between two checks of the time slice: a millisecond of work or less.
ITEMS_PER_STEP = 50


def begin_slice() -> Callable[[], bool]:
    """Begin a time slice; the function tells whether it is over."""
    end = time.perf_counter() + TIME_SLICE
    return lambda: time.perf_counter() >= end


def _called(begin: Callable[[Callable[[], None]], object]) -> Deferred[None]:
    """Fires when ``begin`` calls what it is given."""
    deferred: Deferred[None] = Deferred()
    begin(lambda: deferred.callback(None))
    return deferred


def page_read(wait: PageRead) -> Deferred[None]:
    """Fires when the page has been read and the iteration can continue."""
    return _called(wait.then)


def in_slices(found: Iterable[Found | PageRead]) -> Iterator[Found | Deferred[None] | None]:
    """What an iteration finds, and between its steps what a task yields: waits for pages, and None for a pause."""
    for index, one in enumerate(found):
        yield page_read(one) if isinstance(one, PageRead) else one
        if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
            yield None


def background_done(background: Background, key: object) -> Deferred[None]:
    """Fires when the background work on that queue is complete."""
    return _called(partial(background.after, key))


def awaited(deferred: Deferred[Result]) -> Generator[Deferred[None], None, Result]:
    """``result = yield from awaited(deferred)`` in a task. Raises what the Deferred fails with."""
    outcome: list[Result | Failure] = []
    yield deferred.addBoth(outcome.append)
    (result,) = outcome
    if isinstance(result, Failure):
        result.raiseException()
    return result


def result_of(outcome: Result | Generator[Any, None, Result]) -> Generator[Any, None, Result]:
    """``result = yield from result_of(outcome)`` in a task, for what may be a generator or the result itself."""
    return (yield from outcome) if isinstance(outcome, GeneratorType) else cast(Result, outcome)


class CooperativeTask:
    """Runs an iterator to its end; as a push producer it pauses while the client is slow."""

    def __init__(self, work: Generator[object, None, None], cooperator: Cooperator) -> None:
        self._work = work
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
        with suppress(TaskFinished, ValueError):  # ValueError: the work is running, and ends by itself
            self._task.stop()
            self._work.close()  # ends generators that wait for an event

    def _change(self, act: Callable[[], object], *, to: bool) -> None:
        if self._paused is not to:
            self._paused = to
            with suppress(TaskFinished):
                act()


class TaskState(StrEnum):
    """What has become of a task."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class ManagementTask:
    """Work on many messages that a request has started. It goes on if the client disconnects, and can be cancelled.

    ``done`` counts the messages it has changed, ``skipped`` those it could not change because they were in delivery or
    have left, ``failed`` those that could not go where they should; ``error`` is the first reason.
    """

    number: int
    operation: str
    queue: str
    user: str | None
    started: int  # this and ``ended``: epoch ms
    state: TaskState = TaskState.RUNNING
    ended: int | None = None
    done: int = 0
    skipped: int = 0
    failed: int = 0
    total: int | None = None
    error: str | None = None
    cancelled: bool = False
    finished: Deferred[None] = field(default_factory=Deferred)  # for the request that waits

    def fail(self, reason: str) -> None:
        """One message has failed; ``error`` is the first reason."""
        self.failed += 1
        self.error = self.error or reason

    def end(self, state: TaskState, now: int, error: str | None = None) -> None:
        """It has ended."""
        self.state, self.ended, self.error = state, now, error or self.error
        self.finished.callback(None)


#: Tasks that have ended and are still listed.
FINISHED_TASKS = 100

#: Tasks that may run at once.
RUNNING_TASKS = 100


class TaskList:
    """The tasks of a broker: those that run, and the last ones that have ended."""

    def __init__(self, reactor: Any, now: Callable[[], int]) -> None:
        # one for the whole site, so that many requests together take one time slice
        self.cooperator = Cooperator(begin_slice, lambda call: reactor.callLater(0, call))
        self._now = now
        self._numbers = count(1)
        self._tasks: dict[int, ManagementTask] = {}

    def __iter__(self) -> Iterator[ManagementTask]:
        return iter(list(self._tasks.values()))

    def find(self, number: str) -> ManagementTask:
        """The task of that id. Raises `NotFound`."""
        found = self._tasks.get(int(number)) if number.isascii() and number.isdigit() else None
        if found is None:
            raise NotFound(
                f"Task {number[:40]} does not exist; the last {FINISHED_TASKS} that ended are listed"
            )
        return found

    def new(self, operation: str, queue: str, user: str | None) -> ManagementTask:
        """A task that is about to start. Raises `Refused` where too many run."""
        running = sum(task.state is TaskState.RUNNING for task in self._tasks.values())
        if running >= RUNNING_TASKS:
            raise Refused(f"{running} tasks are running, and that is the limit: wait for one or cancel it")
        number = next(self._numbers)
        task = self._tasks[number] = ManagementTask(number, operation, queue, user, self._now())
        return task

    def start(self, task: ManagementTask, work: Iterator[object]) -> None:
        """Run the work of a task in slices. It ends when the work does, or fails with what that raises."""
        self.cooperator.cooperate(self._run(task, work))

    def stop(self) -> None:
        """The broker stops: no task does anything more. What they have done stays done."""
        for task in self:
            task.cancelled = True

    def _run(self, task: ManagementTask, work: Iterator[object]) -> Iterator[object]:
        error: str | None = None
        state = TaskState.FAILED
        try:
            while not task.cancelled:
                try:
                    wait = next(work)
                except StopIteration:
                    break
                yield wait
            state = TaskState.CANCELLED if task.cancelled else TaskState.COMPLETED
        except Refused as refused:
            error = str(refused)
        except Exception:
            log.exception("task %d (%s of queue %s) failed", task.number, task.operation, task.queue)
            error = "Internal error; see the broker's log"
        task.end(state, self._now(), error)
        log.log(
            logging.WARNING if state is TaskState.FAILED else logging.INFO,
            "task %d (%s of queue %s) %s: %d done, %d skipped, %d failed%s",
            task.number,
            task.operation,
            task.queue,
            state.value,
            task.done,
            task.skipped,
            task.failed,
            "" if task.error is None else f": {task.error}",
            extra={"queue": task.queue},
        )
        ended = [number for number, task in self._tasks.items() if task.state is not TaskState.RUNNING]
        for number in ended[:-FINISHED_TASKS]:
            del self._tasks[number]


class OpenConnections(Protocol):
    """The open sessions by connection id, and the number opened since the start."""

    open: dict[str, Session]
    total: int
    global_limit: GlobalConnectionLimit

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Session]: ...


class Reading(Protocol):
    """Usage of a disk."""

    @property
    def usage(self) -> float:
        """The used share, 0 to 1."""

    @property
    def free(self) -> int:
        """Free bytes."""


class DiskMonitor(Protocol):
    """Checks the disks periodically."""

    @property
    def reading(self) -> Reading | None:
        """The last reading of the fuller disk."""


class Logins(Protocol):
    """The check of logins. ``outcomes`` counts them by outcome since the start."""

    outcomes: Counter[str]

    def log_in(self, credentials: Credentials) -> Deferred[Login]:
        """The login of these credentials. Fails with `Refused`, whose status is that of the answer."""


class Security(Protocol):
    """Logins and permissions."""

    authority: AccessControl
    users: Users
    roles: Roles

    @property
    def logins(self) -> Logins: ...
    def certificate_subjects(self) -> Mapping[str, str]:
        """User to the subject of the certificate with which the user logs in."""

    def read_changes(self) -> Deferred[None]:
        """Fires when changes of the users and roles files are in effect."""

    def edit_users(self, change: Callable[[UserFiles], None]) -> Deferred[None]:
        """Run a change of these files in a thread. Fires when it is in effect, or with its error."""


class Listeners(Protocol):
    """TLS and the PROXY protocol of all acceptors. Failures by acceptor, since the start."""

    tls_failures: Counter[str]
    proxy_failures: Counter[str]

    def identities(self) -> Iterable[tuple[str, Identity]]:
        """The certificates, each with its acceptor."""


class HistoryOfBroker(Protocol):
    """The sampler of rates and history."""

    history: History | None
    memory: HistoryMemory

    def stalled(self) -> Mapping[Subscription, int]:
        """Consumers that have held a message unacknowledged for a minute while more wait; for how many seconds."""

    def shift(self) -> int:
        """Milliseconds by which the wall clock was set since the start."""


class Drain(Protocol):
    """Whether the broker drains, and since when (epoch ms)."""

    since: int | None

    def begin(self) -> bool:
        """Refuse new connections from now on. False if that was so already."""

    def end(self) -> bool:
        """Accept connections again. False if that was so already."""


class ManagementCounters(Protocol):
    """Requests to the management-address, since the start."""

    succeeded: int
    failed: int


class AdminContext:
    """A broker with its listeners: the base class of the service."""

    reactor: Any  # IReactorTime and IReactorThreads
    reactor_name: str
    stopping: bool
    broker: Broker
    policies: Policies
    configuration: BrokerConfiguration
    connections: OpenConnections
    outgoing: Outgoing
    node: Node | None  # None without a replicated log
    store: Durable | None  # this and the next three: None without persistence
    paging: Paging | None
    dispatch: TargetAreas | None
    disk_monitor: DiskMonitor | None
    bridges: Bridges
    ports: list[IListeningPort]  # the open listeners
    #: acceptor, configured host and bound port of each listener of the start
    listening: list[tuple[str, str, int]]
    acceptors: Mapping[str, StompAcceptor | HttpAcceptor]  # of the start, by name
    listener_stack: Listeners
    tasks: TaskList
    drain: Drain  # refusal of new connections
    sampler: HistoryOfBroker  # rates and history
    security: Security | None  # None without security
    management: ManagementCounters
    reload: Callable[[], Reload]  # of the configuration file
    preview_reload: Callable[[], Reload]  # the result that a reload would have now; changes nothing

    @property
    def replication_fault(self) -> str | None:
        """Why no message is delivered: the replicated log does not store; None while they are."""
        raise AssertionError("a derived class has it")
