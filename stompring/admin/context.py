"""The parts of the running broker that the HTTP API uses, and its tasks: long work in time slices of the reactor.

The service of the server derives from `AdminContext`.
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
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

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
from stompring.session.connect import Credentials, Login
from stompring.session.outbox import GlobalConnectionLimit, Outgoing
from stompring.session.session import Session
from stompring.session.subscription import Subscription
from stompring.settings.broker_xml import Reload
from stompring.settings.model import BrokerConfiguration, HttpAcceptor, StompAcceptor
from stompring.store.durable import Durable
from stompring.store.pages import Paging

if TYPE_CHECKING:
    from stompring.security.certificates import Identity

log = logging.getLogger(__name__)

Found = TypeVar("Found")
Result = TypeVar("Result")

#: Seconds of one time slice of management and metrics: the latency that they may add to messages.
TIME_SLICE = 0.005

#: Items processed between two checks of the time slice: a millisecond of work or less.
ITEMS_PER_STEP = 50


def begin_slice() -> Callable[[], bool]:
    """Begin a time slice. Returns a function that tests whether the slice is over."""
    end = time.perf_counter() + TIME_SLICE
    return lambda: time.perf_counter() >= end


def _called(begin: Callable[[Callable[[], None]], object]) -> Deferred[None]:
    """Return a Deferred that fires when ``begin`` calls its argument."""
    deferred: Deferred[None] = Deferred()
    begin(lambda: deferred.callback(None))
    return deferred


def page_read(wait: PageRead) -> Deferred[None]:
    """Return a Deferred that fires when the page has been read and the iteration can continue."""
    return _called(wait.then)


def in_slices(found: Iterable[Found | PageRead]) -> Iterator[Found | Deferred[None] | None]:
    """Iterate as a task: yields the items, a Deferred to wait for a page, and None to pause for the reactor."""
    for index, one in enumerate(found):
        yield page_read(one) if isinstance(one, PageRead) else one
        if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
            yield None


def background_done(background: Background, key: object) -> Deferred[None]:
    """Return a Deferred that fires when the background work on a queue is complete."""
    return _called(partial(background.after, key))


def awaited(deferred: Deferred[Result]) -> Generator[Deferred[None], None, Result]:
    """Wait in a task: ``result = yield from awaited(deferred)``. Raises the exception of the Deferred."""
    outcome: list[Result | Failure] = []
    yield deferred.addBoth(outcome.append)
    (result,) = outcome
    if isinstance(result, Failure):
        result.raiseException()
    return result


def result_of(outcome: Result | Generator[Any, None, Result]) -> Generator[Any, None, Result]:
    """Wait in a task: ``result = yield from result_of(outcome)``; ``outcome`` is a generator, or the result itself."""
    return (yield from outcome) if isinstance(outcome, GeneratorType) else cast(Result, outcome)


class CooperativeTask:
    """Runs a generator to its end. As a push producer it pauses while the client is slow."""

    def __init__(self, work: Generator[object, None, None], cooperator: Cooperator) -> None:
        self._work = work
        self._task = cooperator.cooperate(work)
        self._paused = False

    def pauseProducing(self) -> None:
        self._change(self._task.pause, to=True)

    def resumeProducing(self) -> None:
        self._change(self._task.resume, to=False)

    def stopProducing(self) -> None:
        with suppress(TaskFinished, ValueError):  # ValueError: the work is running, and ends by itself
            self._task.stop()
            self._work.close()  # ends generators that wait for an event

    def _change(self, act: Callable[[], object], *, to: bool) -> None:
        if self._paused is not to:
            self._paused = to
            with suppress(TaskFinished):
                act()


class TaskState(StrEnum):
    """The state of a task."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass
class ManagementTask:
    """Work on many messages that a request has started. It continues if the client disconnects, and can be cancelled.

    ``done`` counts the changed messages, ``skipped`` the messages that were in delivery or have left the queue, and
    ``failed`` the messages that could not be changed. ``error``: why the task failed, else why the first of the failed
    messages could not be changed.
    """

    number: int
    operation: str
    queue: str
    user: str | None
    started: int  # epoch ms, like ``ended``
    state: TaskState = TaskState.RUNNING
    ended: int | None = None
    done: int = 0
    skipped: int = 0
    failed: int = 0
    total: int | None = None
    error: str | None = None
    cancelled: bool = False
    finished: Deferred[None] = field(default_factory=Deferred)  # fires when the task ends

    def fail(self, reason: str) -> None:
        """Count a failed message; ``error`` keeps the first reason."""
        self.failed += 1
        self.error = self.error or reason

    def end(self, state: TaskState, now: int, error: str | None = None) -> None:
        """End the task, and notify the request that waits for it."""
        self.state, self.ended, self.error = state, now, error or self.error
        self.finished.callback(None)


#: Maximum number of ended tasks in the list.
FINISHED_TASKS = 100

#: Maximum number of running tasks.
RUNNING_TASKS = 100


class TaskList:
    """The running tasks of a broker, and the last tasks that have ended."""

    def __init__(self, reactor: Any, now: Callable[[], int]) -> None:
        # the same for all HTTP sites: many requests together share one time slice
        self.cooperator = Cooperator(begin_slice, lambda call: reactor.callLater(0, call))
        self._now = now
        self._numbers = count(1)
        self._tasks: dict[int, ManagementTask] = {}

    def __iter__(self) -> Iterator[ManagementTask]:
        return iter(list(self._tasks.values()))

    def find(self, number: str) -> ManagementTask:
        """The task with this id. Raises `NotFound`."""
        found = self._tasks.get(int(number)) if number.isascii() and number.isdigit() else None
        if found is None:
            raise NotFound(
                f"Task {number[:40]} does not exist; the last {FINISHED_TASKS} that ended are listed"
            )
        return found

    def new(self, operation: str, queue: str, user: str | None) -> ManagementTask:
        """Create a task; `start` runs its work. Raises `Refused` if too many tasks run."""
        running = sum(task.state is TaskState.RUNNING for task in self._tasks.values())
        if running >= RUNNING_TASKS:
            raise Refused(f"{running} tasks are running, and that is the limit: wait for one or cancel it")
        number = next(self._numbers)
        task = self._tasks[number] = ManagementTask(number, operation, queue, user, self._now())
        return task

    def start(self, task: ManagementTask, work: Iterator[object]) -> None:
        """Run the work of a task in slices. The task ends with the work, or fails with its exception."""
        self.cooperator.cooperate(self._run(task, work))

    def stop(self) -> None:
        """Cancel all tasks, because the broker stops. Their changes so far remain."""
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
        """Used share of the disk, 0 to 1."""

    @property
    def free(self) -> int:
        """Free bytes of the disk."""


class DiskMonitor(Protocol):
    """Checks the disks periodically."""

    @property
    def reading(self) -> Reading | None:
        """The last reading of the fuller disk."""


class Logins(Protocol):
    """The check of logins. ``outcomes`` counts logins by outcome since the start."""

    outcomes: Counter[str]

    @property
    def fault(self) -> str | None:
        """The reason why a directory could not check the last login; None if every directory answers."""

    def log_in(self, credentials: Credentials) -> Deferred[Login]:
        """Log in with these credentials. Fails with `Refused`, whose status is that of the answer."""


class Security(Protocol):
    """Logins and permissions."""

    authority: AccessControl
    users: Users
    roles: Roles

    @property
    def logins(self) -> Logins: ...
    def certificate_subjects(self) -> Mapping[str, str]:
        """Return the certificate subject of each user that has one."""

    def read_changes(self) -> Deferred[None]:
        """Read changed users and roles files. The Deferred fires when the changes are in effect."""

    def edit_users(self, change: Callable[[UserFiles], None]) -> Deferred[None]:
        """Change users and roles files in a thread. The Deferred fires when the change is in effect, or has failed."""


class Listeners(Protocol):
    """TLS and the PROXY protocol of all acceptors. Failures are counted by acceptor since the start."""

    tls_failures: Counter[str]
    proxy_failures: Counter[str]

    def identities(self) -> Iterable[tuple[str, Identity]]:
        """The certificates, each with its acceptor."""


class HistoryOfBroker(Protocol):
    """The sampler of rates and history."""

    history: History | None
    memory: HistoryMemory

    def stalled(self) -> Mapping[Subscription, int]:
        """Return the stalled consumers, each with the age in seconds of its oldest unacknowledged message."""

    def shift(self) -> int:
        """Milliseconds by which the wall clock was adjusted since the start."""


class Drain(Protocol):
    """The drain state. ``since`` is its start in epoch ms, None if the broker does not drain."""

    since: int | None

    def begin(self) -> bool:
        """Refuse new connections. False if the broker already refuses them."""

    def end(self) -> bool:
        """Accept connections again. False if the broker already accepts them."""


class ManagementCounters(Protocol):
    """Requests to the management-address, since the start."""

    succeeded: int
    failed: int


class RunTimeChanges(Protocol):
    """Changes of elements of broker.xml at run time. ``durable``: False if a restart loses them."""

    durable: bool

    def present(self, kind: str, name: str) -> Mapping[str, Any] | None:
        """Return the values of an element by their names in broker.xml; None if the element does not exist."""

    def put(
        self,
        kind: str,
        name: str,
        element: Mapping[str, Any] | None,
        check: Callable[[BrokerConfiguration], object] = ...,
    ) -> None:
        """Create or replace an element; None deletes it. Raises `ConfigurationError`, `Refused`."""

    def addresses(self, found: dict[str, Any]) -> Iterator[None]:
        """Add the addresses and queues for `export` to ``found``."""

    def export(self, addresses: Mapping[str, Any], secrets: bool) -> Deferred[str]:
        """Return a Deferred with a broker.xml that contains all changes. A thread makes the text."""


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
    store: Durable | None  # None without persistence, like the next three attributes
    paging: Paging | None
    dispatch: TargetAreas | None
    disk_monitor: DiskMonitor | None
    bridges: Bridges
    run_time: RunTimeChanges
    ports: list[IListeningPort]  # the open listeners
    #: acceptor, configured host and bound port of each listener that the broker opened at its start
    listening: list[tuple[str, str, int]]
    #: acceptors configured when the broker started, by name
    acceptors: Mapping[str, StompAcceptor | HttpAcceptor]
    listener_stack: Listeners
    tasks: TaskList
    drain: Drain  # refusal of new connections
    sampler: HistoryOfBroker  # rates and history
    security: Security | None  # None without security
    management: ManagementCounters
    reload: Callable[[], Reload]  # reloads the configuration file
    preview_reload: Callable[[], Reload]  # the result that a reload would have; changes nothing

    @property
    def replication_fault(self) -> str | None:
        """Why the replicated log cannot store, so that the broker delivers nothing. None: the log can store."""
        raise AssertionError("a derived class has it")
