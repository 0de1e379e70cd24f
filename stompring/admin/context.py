"""What the HTTP side needs of the running broker; the server's service is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort

from stompring.broker.broker import Broker
from stompring.security.access_control import AccessControl
from stompring.session.connect import Credentials, Login
from stompring.session.outbox import Outgoing
from stompring.session.session import Session
from stompring.settings.model import BrokerConfiguration

from .doors import Doors


class Threshold(Protocol):
    """How many connections there may be."""

    limit: int


class OpenConnections(Protocol):
    """The sessions that are open now, by their number, and how many there ever were."""

    open: dict[str, Session]
    total: int

    @property
    def threshold(self) -> Threshold: ...

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Session]: ...


class Reading(Protocol):
    """How full a disk is."""

    @property
    def usage(self) -> float:
        """The share in use, 0 to 1."""

    @property
    def free(self) -> int:
        """Bytes."""


class DiskMonitor(Protocol):
    """Looks at the disks now and then."""

    @property
    def reading(self) -> Reading | None:
        """Of the fuller disk, when it was last looked at."""


class Writer(Protocol):
    """What writes to the disk. Counts since the start."""

    failing: str | None
    batches: int
    bytes_written: int
    disk_seconds: float
    failures: int

    @property
    def waiting_bytes(self) -> int:
        """Told and not yet written."""


class Journal(Protocol):
    """The journal."""

    bytes: int
    live_bytes: int

    @property
    def segments(self) -> Sequence[object]:
        """Its files."""


class Compaction(Protocol):
    """What keeps the journal small. Counts since the start."""

    segments: int
    rewritten: int


class Recovery(Protocol):
    """What was found at the start."""

    lost_bytes: int


class Retention(Protocol):
    """What was done with and is kept. ``deleted`` counts since the start."""

    bytes: int
    deleted: int

    @property
    def files(self) -> int: ...
    @property
    def deleted_not_ingested(self) -> int:
        """Of those that were deleted, the ones that were not in every lake."""


class PageReads(Protocol):
    """What reads pages. Counts since the start."""

    bytes_read: int


class Paging(Protocol):
    """All pages. Counts since the start."""

    damaged_pages: int
    lost_messages: int

    @property
    def reads(self) -> PageReads: ...


class Store(Protocol):
    """Where messages are kept on disk."""

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
    """A limit on memory and how much of it is used, in bytes."""

    limit: int

    @property
    def used(self) -> int: ...


class Dispatch(Protocol):
    """What was read back from pages and who is to get it, of all queues together."""

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
    """Who knows the users. ``outcomes`` counts what became of logins since the start."""

    outcomes: Counter[str]

    def log_in(self, credentials: Credentials) -> Deferred[Login]:
        """Who that is. Fails with `Refused`, whose status is the answer's."""


class Security(Protocol):
    """Security, while it is on."""

    @property
    def logins(self) -> Logins: ...
    @property
    def authority(self) -> AccessControl: ...


class Reload(Protocol):
    """What came of reading the configuration file again, each a text for people."""

    applied: list[str]
    restart_required: list[str]
    failed: list[str]
    refused: str | None  # why nothing was changed; the others are empty then


class AdminContext(Protocol):
    """A broker with its listeners."""

    reactor: Any  # IReactorTime and IReactorThreads
    stopping: bool

    @property
    def broker(self) -> Broker: ...
    @property
    def configuration(self) -> BrokerConfiguration: ...
    @property
    def connections(self) -> OpenConnections: ...
    @property
    def outgoing(self) -> Outgoing: ...
    @property
    def store(self) -> Store | None:
        """``None`` where everything is in memory."""

    @property
    def paging(self) -> Paging | None:
        """``None`` where everything is in memory."""

    @property
    def dispatch(self) -> Dispatch | None:
        """``None`` where everything is in memory."""

    @property
    def disk_monitor(self) -> DiskMonitor | None:
        """``None`` where everything is in memory."""

    @property
    def doors(self) -> Doors:
        """What stands before the acceptors."""

    @property
    def security(self) -> Security | None:
        """Who may do what; ``None`` while security is off."""

    @property
    def ports(self) -> Sequence[IListeningPort]:
        """The listeners that are open."""

    @property
    def listening(self) -> Sequence[tuple[str, str, int]]:
        """Acceptor, configured host and bound port of each listener."""

    @property
    def reload(self) -> Callable[[], Reload]:
        """Read the configuration file again."""
