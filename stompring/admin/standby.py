"""The HTTP listener of a broker that is not active yet: health, metrics, and 503 for all other requests.

A load balancer that checks ``/health/ready`` sends clients to another broker. Each connection is closed after one
answer, so that the next request reaches the site of the active broker after a takeover.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IAddress
from twisted.python.failure import Failure
from twisted.web.server import Request

from stompring.errors import Refused
from stompring.replication.role import Node, Role
from stompring.session.connect import Login
from stompring.settings.model import BrokerConfiguration

from .api import (
    MANAGEMENT,
    VIEW,
    Answer,
    Problem,
    check_fetch_site,
    json_answer,
    manages,
    problem_answer,
)
from .context import Security
from .ha import describe, ha_families
from .http import IDLE, AdminChannel, AdminResource, AdminSite, HttpConnectionLimit, Responder
from .metrics import process_registry
from .request_log import READ_METHODS

log = logging.getLogger(__name__)

STANDBY, ACTIVE = "standby", "active"

LIVE, READY, METRICS, HA = "/health/live", "/health/ready", "/metrics", "/api/v1/ha"
PAGE = "/"


class StandbyContext:
    """The data of a standby that its HTTP site shows; base class of the standby."""

    reactor: Any
    configuration: BrokerConfiguration
    security: Security | None
    node: Node | None  # the node in the replicated log; None: this broker waits for a lock
    reason: str  # why the broker waits

    @property
    def acceptor_names(self) -> list[str]:
        """The names of all acceptors of the configuration."""
        raise AssertionError("a derived class has it")


def live() -> Answer:
    """The answer of ``/health/live``."""
    return json_answer({"status": "UP"})


def ready(context: StandbyContext, *, recovering: bool = False) -> Answer:
    """The answer of ``/health/ready``: status 503, with all members that an active broker's answer has."""
    return json_answer(
        {
            "status": "RECOVERING" if recovering else "STANDBY",
            "stopping": False,
            "draining": False,
            "listeners": [],
            "missingListeners": context.acceptor_names,
            "diskFault": None,
            "storeFault": None,
            "replicationFault": None,
            "loginFault": None,
            "role": ACTIVE if recovering else STANDBY,
            "reason": "recovering" if recovering else context.reason,
        },
        status=503,
    )


def recovering_problem() -> Problem:
    """The answer to all requests except health while the broker recovers to become active."""
    return Problem(503, "This broker is recovering to become active", role=ACTIVE)


class StandbyResponder(Responder):
    """Answers one request."""

    def __init__(self, request: Request, context: StandbyContext) -> None:
        super().__init__(request, context.security)
        self._context = context

    def handle(self) -> None:
        """Answer immediately if the request needs no login, else after the check of its login."""
        path = self._request.path.decode("latin-1")
        maybeDeferred(self._answer, path).addErrback(self._error_answer).addCallback(self._write)

    def _answer(self, path: str) -> Deferred[Answer]:
        self._check_site(str(getattr(self._request.getHost(), "host", "")))
        if path != PAGE:  # the console, at `PAGE`, may be opened by a link on another site
            check_fetch_site(self._header("sec-fetch-site"))
        if self._method not in READ_METHODS or path not in (LIVE, READY, METRICS, HA):
            raise Problem(503, f"This broker is a standby: {self._context.reason}", role=STANDBY)
        if path in (LIVE, READY):
            return succeed(live() if path == LIVE else ready(self._context))
        return (self._log_in() or succeed(Login())).addCallback(self._view, path)

    def _view(self, login: Login, path: str) -> Answer:
        """Return the answer for ``path``. Raises `Refused` if the user may not view the broker."""
        if not manages(login.authorizer):
            login.authorizer.check(VIEW, MANAGEMENT, None)
        context, node = self._context, self._context.node
        if path == HA:
            described = describe(node, context.configuration, Role.STANDBY)
            if node is None:
                described["fault"] = context.reason
            return json_answer(described)
        # the answer of ``/metrics``: metrics of the process, the build, the role and the replicated log
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(self._header("accept") or "")
        return Answer(
            encode(process_registry(partial(ha_families, node, Role.STANDBY))), content_type=content_type
        )

    def _error_answer(self, failure: Failure) -> Answer:
        fault = failure.value
        if not isinstance(fault, Refused):
            log.error("%s failed: %s", self._request.path.decode("latin-1"), failure.getTraceback())
            fault = Refused("Internal error; see the broker's log", status=500)
        return problem_answer(fault, self._instance)

    def _write(self, answer: Answer) -> None:
        if not self._disconnected:
            self._set_head(answer)
            self._write_body(answer)


class StandbyChannel(AdminChannel):
    """A connection that is closed after the answer to its first request."""

    def checkPersistence(self, request: Any, version: bytes) -> bool:
        request.responseHeaders.setRawHeaders(b"connection", [b"close"])
        return False


class StandbySite(AdminSite):
    """The site of an HTTP acceptor while the broker is a standby."""

    protocol = StandbyChannel

    def __init__(self, context: StandbyContext) -> None:
        super().__init__(
            AdminResource(lambda request: StandbyResponder(request, context).handle()),
            timeout=IDLE,
            reactor=context.reactor,
        )  # type: ignore[no-untyped-call]
        self.connection_limit = HttpConnectionLimit(lambda limit, peer, text: log.info("%s: %s", peer, text))
        self._channels: list[StandbyChannel] = []

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Create the channel of a connection, and list it so that `close` can close it."""
        channel = super().buildProtocol(addr)
        self._channels = [*(each for each in self._channels if each.transport is not None), channel]
        return channel

    def close(self) -> None:
        """Close all open connections."""
        for channel in self._channels:
            abort = getattr(channel.transport, "abortConnection", None)
            if abort is not None:
                abort()
        self._channels.clear()
