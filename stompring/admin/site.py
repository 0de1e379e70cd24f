"""The HTTP listener: all routes on one site of twisted.web."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IAddress
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from stompring.security.certificates import peer_subject

from . import addresses, connections, health, messages, metrics, openapi, overview, queues, scheduled
from .body import PATIENCE, LimitedBody
from .channel import AdminChannel, Entrance
from .exchange import Exchange
from .routes import Routes
from .served import Served
from .slices import make_cooperator

#: Seconds after which an idle connection is closed: longer than any usual scrape interval.
IDLE = 120.0


class AdminRequest(Request):
    """A request whose body cannot fill the memory."""

    @property
    def certificate(self) -> str | None:
        """The subject of the client's certificate (RFC 4514), where it showed one that was verified."""
        return peer_subject(self.transport)

    def gotLength(self, length: int | None) -> None:
        """See IRequest."""
        self.content = LimitedBody()

    def handleContentChunk(self, data: bytes) -> None:
        """See IRequest."""
        assert isinstance(self.content, LimitedBody)
        self.content.write(data)
        if self.content.length > PATIENCE:
            self.loseConnection()  # type: ignore[no-untyped-call]


class AdminResource(Resource):
    """Everything there is, by the routes."""

    isLeaf = True

    def __init__(self, served: Served, routes: Routes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._served = served
        self._routes = routes
        self._cooperator = make_cooperator(served.reactor)

    def render(self, request: Request) -> int:
        """See IResource."""
        request.setHeader("Server", "stompring")
        request.setHeader("Cache-Control", "no-store")
        request.setHeader("X-Content-Type-Options", "nosniff")
        Exchange(request, self._served, self._routes, self._cooperator).begin()
        return NOT_DONE_YET


class AdminSite(Site):
    """A site without a log line for each request, that lets in so many connections and no more."""

    requestFactory = AdminRequest
    protocol = AdminChannel  # type: ignore[assignment]
    entrance: Entrance

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """See IProtocolFactory."""
        channel: AdminChannel = super().buildProtocol(addr)  # type: ignore[no-untyped-call]
        self.entrance.enter(channel, addr)
        return channel

    def log(self, request: Any) -> None:
        """Say nothing: probes and scrapes come all the time."""


def admin_routes() -> Routes:
    """All routes there are."""
    rooms = (health, metrics, openapi, overview, queues, messages, scheduled, addresses, connections)
    return Routes(route for room in rooms for route in room.ROUTES)


def admin_site(service: Served) -> AdminSite:
    """What an HTTP acceptor serves."""
    resource = AdminResource(service, admin_routes())
    site = AdminSite(resource, timeout=IDLE, reactor=service.reactor)  # type: ignore[no-untyped-call]
    site.entrance = Entrance(service.broker.refusals.add)
    return site
