"""`AdminContext`: the parts of the running broker that the HTTP API uses. The server's service provides it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort

from stompring.broker.bridge import Bridges
from stompring.broker.broker import Broker
from stompring.broker.history import History, HistoryMemory
from stompring.policy.hooks import Policies
from stompring.replication.role import NodeStatus
from stompring.security.access_control import AccessControl
from stompring.security.roles import Roles
from stompring.security.user_files import UserFiles
from stompring.security.users import Users
from stompring.session.connect import Credentials, Login
from stompring.session.outbox import Outgoing
from stompring.session.session import Session
from stompring.session.subscription import Subscription
from stompring.settings.acceptor import HttpAcceptor, StompAcceptor
from stompring.settings.model import BrokerConfiguration
from stompring.settings.model import Retention as RetentionSettings
from stompring.store.retention import RetainedFile

from .tasks import TaskList


class GlobalLimit(Protocol):
    """The limit on open connections."""

    limit: int


class OpenConnections(Protocol):
    """The open sessions by connection id, and the number opened since the start."""

    open: dict[str, Session]
    total: int

    @property
    def global_limit(self) -> GlobalLimit: ...

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


class Writer(Protocol):
    """The writer of journal and pages. Counters start with the broker."""

    failing: str | None
    batches: int
    bytes_written: int
    disk_seconds: float
    failures: int

    @property
    def waiting_bytes(self) -> int:
        """Bytes queued and not yet written."""


class Journal(Protocol):
    """The journal."""

    bytes: int
    live_bytes: int

    @property
    def segments(self) -> Sequence[object]:
        """Its files."""


class Compaction(Protocol):
    """Compaction of the journal. Counters start with the broker."""

    segments: int
    rewritten: int


class Recovery(Protocol):
    """The result of recovery."""

    lost_bytes: int


class Retention(Protocol):
    """Retained files. ``deleted`` counts since the start."""

    bytes: int
    deleted: int

    @property
    def directory(self) -> Path: ...
    @property
    def settings(self) -> RetentionSettings: ...
    @property
    def retained(self) -> Sequence[RetainedFile]: ...
    @property
    def files(self) -> int: ...
    @property
    def deleted_not_ingested(self) -> int:
        """Deleted files that not every lake had ingested."""


class PageReads(Protocol):
    """Reads of pages. Counters start with the broker."""

    bytes_read: int


class Paging(Protocol):
    """The page files. Counters start with the broker."""

    damaged_pages: int
    lost_messages: int

    @property
    def reads(self) -> PageReads: ...


class Store(Protocol):
    """The store: journal and retained files."""

    @property
    def writer(self) -> Writer: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def compaction(self) -> Compaction: ...
    @property
    def recovery(self) -> Recovery | None: ...
    @property
    def retention(self) -> Retention | None: ...


class Budget(Protocol):
    """A limit on memory and its usage, in bytes."""

    limit: int

    @property
    def used(self) -> int: ...


class Dispatch(Protocol):
    """Messages read back from pages, and their target lists, of all queues."""

    @property
    def budget(self) -> Budget: ...
    @property
    def pending_cache_bytes(self) -> int: ...
    @property
    def head_cache_bytes(self) -> int: ...
    @property
    def direct_entries(self) -> int: ...
    @property
    def reference_entries(self) -> int: ...
    @property
    def watermark_lag(self) -> int: ...
    @property
    def blocks_read(self) -> int: ...


class Logins(Protocol):
    """The check of logins. ``outcomes`` counts them by outcome since the start."""

    outcomes: Counter[str]

    def log_in(self, credentials: Credentials) -> Deferred[Login]:
        """The login of these credentials. Fails with `Refused`, whose status is that of the answer."""


class Security(Protocol):
    """Logins and permissions."""

    @property
    def logins(self) -> Logins: ...
    @property
    def authority(self) -> AccessControl: ...
    @property
    def users(self) -> Users: ...
    @property
    def roles(self) -> Roles: ...
    def certificate_subjects(self) -> Mapping[str, str]:
        """User to the subject of the certificate with which the user logs in."""

    def read_changes(self) -> Deferred[None]:
        """Fires when changes of the users and roles files are in effect."""

    def edit_users(self, change: Callable[[UserFiles], None]) -> Deferred[None]:
        """Run a change of these files in a thread. Fires when it is in effect, or with its error."""


class Certificate(Protocol):
    """A certificate of an acceptor."""

    @property
    def file(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def not_after(self) -> datetime: ...


class Listeners(Protocol):
    """TLS and the PROXY protocol of all acceptors. Failures by acceptor, since the start."""

    @property
    def tls_failures(self) -> Mapping[str, int]: ...
    @property
    def proxy_failures(self) -> Mapping[str, int]: ...
    def identities(self) -> Iterable[tuple[str, Certificate]]:
        """The certificates, each with its acceptor."""


class ChangedValue(Protocol):
    """A value that differs; ``before`` and ``after`` are JSON values."""

    @property
    def what(self) -> str: ...
    @property
    def name(self) -> str | None: ...
    @property
    def setting(self) -> str: ...
    @property
    def before(self) -> object: ...
    @property
    def after(self) -> object: ...
    @property
    def restart(self) -> bool: ...


class Reload(Protocol):
    """The result of a reload, as texts."""

    applied: list[str]
    restart_required: list[str]
    failed: list[str]
    refused: str | None  # the error, if nothing was changed
    warnings: list[str]
    ignored: list[str]

    @property
    def changes(self) -> Sequence[ChangedValue]:
        """The values that differ."""


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


class Node(Protocol):
    """This broker in its replicated log."""

    def status(self) -> NodeStatus:
        """How it is now, without a question to the engine."""


class ManagementCounters(Protocol):
    """Requests to the management-address, since the start."""

    succeeded: int
    failed: int


class AdminContext(Protocol):
    """A broker with its listeners."""

    reactor: Any  # IReactorTime and IReactorThreads
    reactor_name: str
    stopping: bool

    @property
    def broker(self) -> Broker: ...
    @property
    def policies(self) -> Policies:
        """The address policies of the broker."""

    @property
    def configuration(self) -> BrokerConfiguration: ...
    @property
    def connections(self) -> OpenConnections: ...
    @property
    def outgoing(self) -> Outgoing: ...
    @property
    def store(self) -> Store | None:
        """``None`` without persistence."""

    @property
    def node(self) -> Node | None:
        """``None`` without a replicated log."""

    @property
    def replication_fault(self) -> str | None:
        """Why no message is delivered: the replicated log does not store; None while they are."""

    @property
    def paging(self) -> Paging | None:
        """``None`` without persistence."""

    @property
    def dispatch(self) -> Dispatch | None:
        """``None`` without persistence."""

    @property
    def disk_monitor(self) -> DiskMonitor | None:
        """``None`` without persistence."""

    @property
    def bridges(self) -> Bridges:
        """The bridges by name."""

    @property
    def drain(self) -> Drain:
        """Refusal of new connections."""

    @property
    def acceptors(self) -> Mapping[str, StompAcceptor | HttpAcceptor]:
        """The acceptors of the start, by name."""

    @property
    def sampler(self) -> HistoryOfBroker:
        """Rates and history."""

    @property
    def listener_stack(self) -> Listeners:
        """Certificates and failures of the listeners."""

    @property
    def security(self) -> Security | None:
        """``None`` without security."""

    @property
    def ports(self) -> Sequence[IListeningPort]:
        """The open listeners."""

    @property
    def listening(self) -> Sequence[tuple[str, str, int]]:
        """Acceptor, configured host and bound port of each listener of the start."""

    @property
    def tasks(self) -> TaskList:
        """Work on many messages that requests have started."""

    @property
    def management(self) -> ManagementCounters:
        """Management by messages."""

    @property
    def reload(self) -> Callable[[], Reload]:
        """Reload the configuration file."""

    @property
    def preview_reload(self) -> Callable[[], Reload]:
        """The result that a reload would have now; changes nothing."""
