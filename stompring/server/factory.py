"""Makes sessions for an acceptor and knows which are open."""

from __future__ import annotations

import logging
from itertools import count
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory

from stompring.broker.broker import Broker
from stompring.errors import LimitReached
from stompring.session.connect import Authenticator, farewell
from stompring.session.destination import Destinations
from stompring.session.outbox import Outgoing
from stompring.session.session import Session
from stompring.settings.acceptor import StompAcceptor

from .fairness import Fairness
from .http_refusal import http_refusal
from .protocol import StompProtocol
from .threshold import Door, Threshold
from .turned_away import TurnedAway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .websocket import WebSockets


log = logging.getLogger(__name__)


class Connections:
    """The sessions of all acceptors, for management and metrics."""

    def __init__(self, epoch: int) -> None:
        self._numbers = count(1)
        self._epoch = f"{epoch:x}"
        self.open: dict[str, Session] = {}
        self.total = 0
        self.fairness = Fairness()
        self.threshold = Threshold()

    def next_number(self) -> str:
        """A session id that no earlier run of the broker used."""
        self.total += 1
        return f"{self._epoch}-{next(self._numbers)}"

    def __len__(self) -> int:
        return len(self.open)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self.open.values()))


class StompFactory(Factory):
    """One STOMP acceptor."""

    noisy = False

    def __init__(
        self,
        broker: Broker,
        acceptor: StompAcceptor,
        authenticator: Authenticator,
        connections: Connections,
        outgoing: Outgoing,
        reactor: Any,
    ) -> None:
        self.broker = broker
        self.acceptor = acceptor
        self.authenticator = authenticator
        self.connections = connections
        self.outgoing = outgoing
        self.reactor = reactor
        self._destinations = Destinations(acceptor)
        self.door = Door(acceptor, connections.threshold)
        self._websockets: WebSockets | None = None
        if acceptor.websocket.only:
            _ = self.websockets  # before anybody waits for it

    def buildProtocol(self, addr: IAddress | None) -> StompProtocol | TurnedAway:
        """See IProtocolFactory. Beyond a limit a client is told so and closed."""
        host = str(getattr(addr, "host", ""))
        try:
            place = self.door.enter(host)
        except LimitReached as refused:
            fields = {"peer": host, "acceptor": self.acceptor.name}
            self.broker.refusals.tell(refused, host, str(refused), fields)
            over_http = self.acceptor.websocket.only
            words = http_refusal(503, str(refused)) if over_http else farewell(str(refused))
            return TurnedAway(words, self.reactor)
        return StompProtocol(self, place)

    @property
    def websockets(self) -> WebSockets:
        """What makes WebSockets of connections. Made when it is wanted: autobahn takes 0.15 s and 7 MB."""
        if self._websockets is None:
            from .websocket import WebSockets

            self._websockets = WebSockets(self.acceptor, self.broker.clock, self.reactor)
        return self._websockets

    def new_session(self, wire: StompProtocol) -> Session:
        """A client has connected."""
        number = self.connections.next_number()
        session = Session(
            self.broker, self.acceptor, self._destinations, self.authenticator, wire, self.outgoing, number
        )
        self.connections.open[number] = session
        self.broker.log_limit.info(
            log,
            "connection opened",
            "connection %s (%s) opened: acceptor %s, %s",
            number,
            wire.peer,
            self.acceptor.name,
            wire.carrier,
            fields={**session.log_fields(), "carrier": wire.carrier},
        )
        return session

    def forget(self, session: Session) -> None:
        """A connection is gone."""
        self.connections.open.pop(session.number, None)
