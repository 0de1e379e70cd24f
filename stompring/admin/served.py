"""What the HTTP side needs of the running broker; the server's service is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from twisted.internet.interfaces import IListeningPort

from stompring.broker.broker import Broker
from stompring.security.users import Users
from stompring.session.session import Session
from stompring.settings.model import BrokerConfiguration


class OpenConnections(Protocol):
    """The sessions that are open now, by their number, and how many there ever were."""

    open: dict[str, Session]
    total: int

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Session]: ...


class Served(Protocol):
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
    def users(self) -> Users | None:
        """Who may log in; ``None`` while security is off."""

    @property
    def ports(self) -> Sequence[IListeningPort]:
        """The listeners that are open."""

    @property
    def listening(self) -> Sequence[tuple[str, str, int]]:
        """Acceptor, configured host and bound port of each listener."""

    @property
    def reload(self) -> Callable[[], str | None]:
        """Read the configuration file again; returns why that was refused, ``None`` when it was not."""
