"""The HTTP listener: a site of twisted.web that takes each request to its route and writes the answer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import GeneratorType
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress, IDelayedCall
from twisted.internet.task import Cooperator
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from stompring.errors import Refused
from stompring.security.certificates import peer_subject
from stompring.session.connect import Login

from . import (
    addresses,
    bridges,
    broker,
    connections,
    consumers,
    dead_letters,
    diverts,
    drain,
    events,
    ha,
    history,
    loggers,
    message_export,
    message_tasks,
    messages,
    metrics,
    openapi,
    permissions,
    plugins,
    queues,
    retention,
    send,
    settings,
    users,
)
from .access import (
    ANSWER_HEADERS,
    check_fetch_site,
    check_host,
    check_login,
    check_origin,
    check_permissions,
)
from .api import (
    DISCARD_LIMIT,
    JSON,
    SYNC_TIME,
    Answer,
    Call,
    LimitedBody,
    Problem,
    Query,
    Route,
    Routes,
    Steps,
    check_content_type,
    not_synced_text,
    problem_answer,
    read_object,
)
from .channel import AdminChannel, HttpConnectionLimit
from .console import CHALLENGE, REQUESTED_WITH, console_answer, is_console
from .context import AdminContext
from .request_log import READ_METHODS, RequestLog
from .tasks import CooperativeTask

log = logging.getLogger(__name__)


class RequestHandler:
    """Handles one request: checks, login, route, answer. Every error becomes an answer."""

    def __init__(
        self, request: Request, context: AdminContext, routes: Routes, cooperator: Cooperator
    ) -> None:
        self._request = request
        self._context = context
        self._routes = routes
        self._cooperator = cooperator
        self._method = request.method.decode("latin-1")
        self._instance = request.uri.decode("latin-1")  # as it was sent: percent-encoded ASCII
        self._log = RequestLog(request, context)
        self._disconnected = False
        self._work: CooperativeTask | None = None
        self._unsynced: Answer | None = None  # the answer to a change that is not synced yet
        self._timeout: IDelayedCall | None = None  # while the answer waits for the sync
        request.notifyFinish().addErrback(self._client_disconnected)

    def handle(self) -> None:
        """Answer at once, or after the login is checked."""
        try:
            segments = self._segments()
            if is_console(segments):
                self._write(self._console_answer(segments))
                return
            check_fetch_site(self._header("sec-fetch-site"))
            route, names = self._routes.find(self._method, segments)
            self._log.set_route(route, names)
            login = None if route.public else self._login()
        except Refused as refused:
            self._log.set_error(str(refused), login=refused.status == 401)
            self._write(problem_answer(refused, self._instance))
            return
        if login is None:
            self._call_route(route, names, Login())
        else:
            login.addCallbacks(lambda one: self._call_route(route, names, one), self._login_failed)

    def _login(self) -> Deferred[Login] | None:
        certificate: str | None = getattr(self._request, "certificate", None)
        return check_login(self._context, self._header("authorization"), self._log.host, certificate)

    def _header(self, name: str) -> str | None:
        value = self._request.requestHeaders.getRawHeaders(name.encode())
        return None if value is None else value[0].decode("utf-8", "replace")

    def _console_answer(self, segments: list[str]) -> Answer:
        headers = {name: self._header(name) for name in ("host", "accept-encoding", "if-none-match")}
        return console_answer(self._context, self._method, segments, headers)

    def _segments(self) -> list[str]:
        """The decoded segments of the path. Raises 400, and 403 for a page of another site."""
        request = self._request
        check_host(self._header("host"), self._listens_on())
        check_origin(self._header("origin"), self._header("host"))
        assert request.postpath is not None
        try:
            return [segment.decode() for segment in request.postpath]
        except UnicodeDecodeError:
            raise Problem(400, "The path is not UTF-8") from None

    def _listens_on(self) -> str:
        here = self._request.getHost()
        bound = getattr(here, "port", None)
        configured = (host for _, host, port in self._context.listening if port == bound)
        return next(configured, getattr(here, "host", ""))

    # ---- the route

    def _call_route(self, route: Route, names: dict[str, str], login: Login) -> None:
        if self._disconnected:
            return
        self._context.broker.clock.refresh()
        self._log.set_user(login.user)
        try:
            call = self._call(route, names, login)
            self._log.set_body(call.body)
            check_permissions(login.authorizer, route.permissions, call)
            route.check(call)
        except Exception as fault:
            self._write(self._error_answer(fault))
            return
        try:
            outcome = route.answer(call)
        except Exception as fault:
            self._write_when_synced(self._error_answer(fault))
            return
        if isinstance(outcome, GeneratorType):
            # no producer: a change completes even if its client disconnects
            self._work = CooperativeTask(self._run(outcome), self._cooperator)
        else:
            assert isinstance(outcome, Answer)
            self._write_when_synced(outcome)

    def _call(self, route: Route, names: dict[str, str], login: Login) -> Call:
        request = self._request
        _, _, query = request.uri.partition(b"?")
        body: dict[str, Any] = {}
        raw = b""
        if self._method not in READ_METHODS:
            content = request.content
            assert isinstance(content, LimitedBody)
            check_content_type(self._header("content-type"), content, route.body_type)
            if route.body_type == JSON:
                body = read_object(content.getvalue())
            else:
                raw = content.getvalue()
        accept = self._header("accept") or ""
        return Call(
            self._context,
            names,
            Query(query.decode("latin-1")),
            body,
            accept,
            login.user,
            login.authorizer,
            self._log.peer,
            raw,
            self._header("last-event-id"),
        )

    def _run(self, steps: Steps) -> Iterator[object]:
        try:
            answer = yield from steps
        except Exception as fault:
            answer = self._error_answer(fault)
        self._write_when_synced(answer)

    def _error_answer(self, fault: Exception) -> Answer:
        if not isinstance(fault, Refused):
            log.error("%s failed", self._log.request_line, exc_info=fault, extra=self._log.fields)
            fault = Refused("Internal error; see the broker's log", status=500)
        self._log.set_error(str(fault))
        self._context.broker.rejections.add_error(fault, self._log.request_line, str(fault), self._log.fields)
        return problem_answer(fault, self._instance)

    def _login_failed(self, failure: Failure) -> None:
        if isinstance(failure.value, Exception):
            answer = self._error_answer(failure.value)
            self._log.set_error(str(failure.value), login=True)
            self._write(answer)

    # ---- a change is synced before it is answered

    def _write_when_synced(self, answer: Answer) -> None:
        """Write the answer of a route; that of a change waits until the change is synced, as a RECEIPT does.

        An error waits too: its cause may be a change of another request that is not synced yet.
        """
        if self._method in READ_METHODS:
            self._write(answer)
            return
        self._unsynced = answer
        self._context.broker.storage.when_synced(self._synced)
        if self._unsynced is not None and not self._disconnected:
            self._timeout = self._context.reactor.callLater(SYNC_TIME, self._not_synced)

    def _synced(self) -> None:
        answer, self._unsynced = self._unsynced, None
        self._stop_waiting()
        if answer is not None:
            self._write(answer)

    def _not_synced(self) -> None:
        """The disk is failing or slow: the change is in effect, and a crash may lose it."""
        answer, self._unsynced, self._timeout = self._unsynced, None, None
        assert answer is not None
        if answer.status < 400:
            store = self._context.store
            cause = None if store is None else store.writer.failing
            refused = Refused(not_synced_text(cause), status=503)
            self._log.set_error(str(refused))
            answer = problem_answer(refused, self._instance)
        self._write(answer)

    def _stop_waiting(self) -> None:
        timeout, self._timeout = self._timeout, None
        if timeout is not None:
            timeout.cancel()

    # ---- the answer

    def _write(self, answer: Answer) -> None:
        self._log.write(answer)
        if self._disconnected:
            return
        request = self._request
        request.setResponseCode(answer.status)
        if answer.content_type is not None:
            request.setHeader("Content-Type", answer.content_type)
        for name, value in answer.headers.items():
            request.setHeader(name, value)
        if answer.status == 401 and self._header("x-requested-with") == REQUESTED_WITH:
            request.setHeader("WWW-Authenticate", CHALLENGE)
        if isinstance(answer.body, bytes):
            if answer.status not in (204, 304):
                request.setHeader("Content-Length", str(len(answer.body)))
            request.write(answer.body)
            request.finish()
        elif self._method == "HEAD":
            request.write(b"")
            request.finish()
        else:
            self._work = CooperativeTask(self._write_pieces(answer.body), self._cooperator)
            request.registerProducer(self._work, True)

    def _write_pieces(self, pieces: Iterator[Any]) -> Iterator[object]:
        try:
            for piece in pieces:
                if isinstance(piece, bytes):
                    if piece:
                        self._request.write(piece)
                    piece = None
                yield piece
        except Exception:
            # without its last chunk the client recognizes the answer as incomplete
            log.exception(
                "%s failed while sending its answer", self._log.request_line, extra=self._log.fields
            )
            self._request.loseConnection()
            return
        self._request.unregisterProducer()
        self._request.finish()

    def _client_disconnected(self, _: Failure) -> None:
        self._disconnected = True
        if self._unsynced is not None:  # the change is in effect; only its answer is lost
            self._log.write(self._unsynced)
        self._unsynced = None
        self._stop_waiting()
        if self._work is not None and self._method in READ_METHODS:
            self._work.stopProducing()


#: Seconds after which an idle connection is closed: longer than usual scrape intervals.
IDLE = 120.0


class AdminRequest(Request):
    """A request with a limited body."""

    @property
    def certificate(self) -> str | None:
        """The subject (RFC 4514) of the client's verified certificate, if it sent one."""
        return peer_subject(self.transport)

    def gotLength(self, length: int | None) -> None:
        """Twisted's hook for the start of a body."""
        self.content = LimitedBody()

    def handleContentChunk(self, data: bytes) -> None:
        """Twisted's hook for each part of a body."""
        assert isinstance(self.content, LimitedBody)
        self.content.write(data)
        if isinstance(self.channel, AdminChannel):
            self.channel.hold(self.content.tell())
        if self.content.length > DISCARD_LIMIT:
            self.loseConnection()  # type: ignore[no-untyped-call]


class AdminResource(Resource):
    """The only resource: it leaves every path to the routes."""

    isLeaf = True

    def __init__(self, context: AdminContext, routes: Routes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._context = context
        self._routes = routes
        self._cooperator = context.tasks.cooperator

    def render(self, request: Request) -> int:
        """Handle a request of any path."""
        for name, value in ANSWER_HEADERS.items():
            request.setHeader(name, value)
        RequestHandler(request, self._context, self._routes, self._cooperator).handle()
        return NOT_DONE_YET


class AdminSite(Site):
    """The site of an HTTP acceptor: a limited number of connections, and no access log."""

    requestFactory = AdminRequest
    protocol = AdminChannel  # type: ignore[assignment]
    connection_limit: HttpConnectionLimit

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """A channel, counted by the connection limit."""
        channel: AdminChannel = super().buildProtocol(addr)  # type: ignore[no-untyped-call]
        self.connection_limit.opened(channel, addr)
        return channel

    def log(self, request: Any) -> None:
        """No access log: health checks and scrapes are frequent. `request_log` logs changes."""


def admin_routes() -> Routes:
    """All routes of the API."""
    parts = (
        broker,
        metrics,
        queues,
        messages,
        message_tasks,
        send,
        addresses,
        diverts,
        bridges,
        connections,
        consumers,
        history,
        events,
        drain,
        loggers,
        users,
        permissions,
        dead_letters,
        message_export,
        settings,
        plugins,
        retention,
        ha,
    )
    return Routes(openapi.with_document([route for part in parts for route in part.ROUTES]))


def admin_site(service: AdminContext) -> AdminSite:
    """The site of an HTTP acceptor."""
    resource = AdminResource(service, admin_routes())
    site = AdminSite(resource, timeout=IDLE, reactor=service.reactor)  # type: ignore[no-untyped-call]
    site.connection_limit = HttpConnectionLimit(service.broker.rejections.add, service.broker.unfinished)
    return site
