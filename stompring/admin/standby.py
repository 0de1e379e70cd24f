"""The HTTP listener of a broker that is not active yet: health, metrics, and 503 for everything else.

A load balancer that asks ``/health/ready`` sends clients to another broker. Each connection gets one answer and is
closed, so that the next request reaches the broker that has become active meanwhile.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import twisted
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from twisted.internet.interfaces import IAddress
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

import stompring
from stompring.errors import Refused
from stompring.session.connect import Login
from stompring.settings.model import BrokerConfiguration

from .api import (
    ANSWER_HEADERS,
    MANAGE,
    MANAGEMENT,
    VIEW,
    Answer,
    Problem,
    SecuritySource,
    check_fetch_site,
    check_host,
    check_login,
    check_origin,
    json_answer,
    problem_answer,
)
from .context import Node
from .ha import describe, ha_families, role_families, without_log
from .http import IDLE, AdminChannel, AdminRequest, AdminSite, HttpConnectionLimit

log = logging.getLogger(__name__)

STANDBY, ACTIVE = "standby", "active"

LIVE, READY, METRICS, HA = "/health/live", "/health/ready", "/metrics", "/api/v1/ha"
PAGE = "/"


class StandbyContext(SecuritySource, Protocol):
    """What the site shows."""

    reactor: Any

    @property
    def configuration(self) -> BrokerConfiguration: ...
    @property
    def node(self) -> Node | None:
        """This broker in its replicated log; None while it waits for a lock."""

    @property
    def reason(self) -> str:
        """What the broker waits for."""

    @property
    def acceptor_names(self) -> list[str]:
        """The acceptors that are not open."""


def show(context: StandbyContext) -> Answer:
    """The answer of ``/api/v1/ha``."""
    if context.node is None:
        return json_answer({**without_log(STANDBY), "fault": context.reason})
    return json_answer(describe(context.node.status(), context.configuration))


def live() -> Answer:
    """The answer of ``/health/live``."""
    return json_answer({"status": "UP"})


def ready(context: StandbyContext, *, recovering: bool = False) -> Answer:
    """The answer of ``/health/ready``: never ready, with the members that an active broker's answer has."""
    details = {
        "status": "RECOVERING" if recovering else "STANDBY",
        "stopping": False,
        "draining": False,
        "listeners": [],
        "missingListeners": context.acceptor_names,
        "diskFault": None,
        "storeFault": None,
        "replicationFault": None,
        "role": ACTIVE if recovering else STANDBY,
        "reason": "recovering" if recovering else context.reason,
    }
    return json_answer(details, status=503)


def recovering_problem() -> Problem:
    """The answer to everything but health while the broker recovers to become active."""
    return Problem(503, "This broker is recovering to become active", None, role=ACTIVE)


class _Standby(Collector):
    def __init__(self, node: Node | None) -> None:
        self._node = node

    def collect(self) -> Iterable[Metric]:
        build = {
            "version": stompring.__version__,
            "build": stompring.build(),
            "python": platform.python_version(),
            "twisted": twisted.__version__,
        }
        yield InfoMetricFamily("stompring_build", "Version of stompring and of its runtime.", value=build)
        yield from role_families(STANDBY) if self._node is None else ha_families(self._node.status())


def scrape(accept: str, node: Node | None = None) -> Answer:
    """The metrics of a standby: process, build, role, and those of its replicated log."""
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(_Standby(node))
    return Answer(encode(registry), content_type=content_type)


class StandbyResponder:
    """Answers one request."""

    def __init__(self, request: Request, context: StandbyContext) -> None:
        self._request = request
        self._context = context
        self._disconnected = False
        request.notifyFinish().addErrback(self._client_disconnected)

    def handle(self) -> None:
        path = self._request.path.decode("latin-1")
        reads = self._request.method in (b"GET", b"HEAD")
        try:
            check_host(self._header("host"), str(getattr(self._request.getHost(), "host", "")))
            check_origin(self._header("origin"), self._header("host"))
            if path != PAGE:  # that of the console, which a link of another site may open
                check_fetch_site(self._header("sec-fetch-site"))
            if reads and path == LIVE:
                self._write(live())
            elif reads and path == READY:
                self._write(ready(self._context))
            elif reads and path == METRICS:
                accept = self._header("accept") or ""
                self._write_to_viewers(lambda: scrape(accept, self._context.node))
            elif reads and path == HA:
                self._write_to_viewers(lambda: show(self._context))
            else:
                text = f"This broker is a standby: {self._context.reason}"
                raise Problem(503, text, None, role=STANDBY)
        except Refused as refused:
            self._write_problem(refused)

    def _write_to_viewers(self, answer: Callable[[], Answer]) -> None:
        """Answer those who may view the broker. Raises `Refused`."""
        request = self._request
        host = str(getattr(request.getClientAddress(), "host", ""))
        certificate: str | None = getattr(request, "certificate", None)
        login = check_login(self._context, self._header("authorization"), host, certificate)
        if login is None:
            self._write(answer())
            return

        def logged_in(found: Login) -> None:
            rights = found.authorizer
            if not (rights.allows_all or rights.allows(MANAGE, MANAGEMENT)):
                rights.check(VIEW, MANAGEMENT, None)
            self._write(answer())

        login.addCallback(logged_in).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        fault = failure.value
        if not isinstance(fault, Refused):
            log.error("%s failed: %s", self._request.path.decode("latin-1"), failure.getTraceback())
            fault = Refused("Internal error; see the broker's log", status=500)
        self._write_problem(fault)

    def _write_problem(self, refused: Refused) -> None:
        self._write(problem_answer(refused, self._request.uri.decode("latin-1")))

    def _write(self, answer: Answer) -> None:
        if self._disconnected:
            return
        request = self._request
        request.setResponseCode(answer.status)
        request.setHeader("Content-Type", answer.content_type or "")
        for name, value in answer.headers.items():
            request.setHeader(name, value)
        assert isinstance(answer.body, bytes)
        request.setHeader("Content-Length", str(len(answer.body)))
        request.write(answer.body)
        request.finish()

    def _header(self, name: str) -> str | None:
        value = self._request.requestHeaders.getRawHeaders(name.encode())
        return None if value is None else value[0].decode("utf-8", "replace")

    def _client_disconnected(self, _: Failure) -> None:
        self._disconnected = True


class StandbyResource(Resource):
    """The only resource of the site."""

    isLeaf = True

    def __init__(self, context: StandbyContext) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._context = context

    def render(self, request: Request) -> int:
        """Handle a request of any path."""
        for name, value in ANSWER_HEADERS.items():
            request.setHeader(name, value)
        StandbyResponder(request, self._context).handle()
        return NOT_DONE_YET


class StandbyChannel(AdminChannel):
    """One connection with one request."""

    def checkPersistence(self, request: Any, version: bytes) -> bool:
        """The connection is closed after the answer."""
        request.responseHeaders.setRawHeaders(b"connection", [b"close"])
        return False


class StandbySite(AdminSite):
    """The site of an HTTP acceptor while the broker is a standby."""

    requestFactory = AdminRequest
    protocol = StandbyChannel

    def __init__(self, context: StandbyContext) -> None:
        resource = StandbyResource(context)
        super().__init__(resource, timeout=IDLE, reactor=context.reactor)  # type: ignore[no-untyped-call]
        self.connection_limit = HttpConnectionLimit(lambda limit, peer, text: log.info("%s: %s", peer, text))
        self._channels: list[StandbyChannel] = []

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """A channel, closed by `close`."""
        channel = super().buildProtocol(addr)
        self._channels = [*(each for each in self._channels if each.transport is not None), channel]
        return channel

    def close(self) -> None:
        """Close the connections that are open."""
        for channel in self._channels:
            abort = getattr(channel.transport, "abortConnection", None)
            if abort is not None:
                abort()
        self._channels.clear()
