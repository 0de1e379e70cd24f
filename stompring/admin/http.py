"""The HTTP listener: a site of twisted.web that calls the route of each request and writes the answer.

Twisted limits the head of a request (500 headers, 16 KiB) and reads at most 16 KiB of pipelined requests ahead while it
handles one. This module extends that limit to the time in which a client does not read its answer, and adds limits on
the number of connections and on the time of requests and answers: otherwise clients that send or read one byte now and
then could occupy all connections.

The console at ``/`` consists of static files of the package, with headers for caching and a Content-Security-Policy;
so does the documentation at ``/docs/``. Each segment of a requested path is checked before the file system is used, and
only files of known types are served.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import GeneratorType
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IDelayedCall
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

import stompring
from stompring.broker.clock import cancel
from stompring.broker.limits import UNCOUNTED, UnfinishedFrames
from stompring.errors import ConfigurationError, LimitReached, NotFound, Refused
from stompring.security.accounts import peer_subject
from stompring.session.connect import Login
from stompring.session.outbox import ConnectionCounter
from stompring.settings.machine import shipped_directory
from stompring.settings.network import host_name, is_this_machine, source_network

from . import (
    addresses,
    broker,
    connections,
    events,
    ha,
    messages,
    metrics,
    openapi,
    queues,
    run_time,
    settings,
    users,
)
from .api import (
    ANSWER_HEADERS,
    BODY_LIMIT,
    DISCARD_LIMIT,
    JSON,
    Answer,
    Call,
    LimitedBody,
    Problem,
    Query,
    Route,
    Routes,
    Steps,
    check_content_type,
    check_fetch_site,
    check_host,
    check_login,
    check_origin,
    problem_answer,
    read_object,
    synced,
)
from .context import AdminContext, CooperativeTask, Security
from .request_log import READ_METHODS, RequestLog

#: The directory of the console's files.
DIRECTORY = Path(stompring.__file__).with_name("console")

#: The console's page, and the first segments of the paths of the console's other files and of the documentation.
PAGE, PREFIX, DOCS = "index.html", "console", "docs"

#: Content types by suffix; a file with another suffix is not served.
CONTENT_TYPES: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".md": "text/plain; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}

#: Suffixes of compressed formats.
COMPRESSED = frozenset((".ico", ".png", ".woff2"))

#: A valid segment of a path: without hidden files, separators and control characters.
SEGMENT = re.compile(r"[A-Za-z0-9_@-][A-Za-z0-9_.@-]*")

#: Maximum number of segments of a path.
MAX_DEPTH = 8

#: Maximum size of a file in bytes: files stay in memory.
MAX_FILE = 4 * 1024 * 1024

#: Headers of every file, in addition to the Content-Security-Policy.
HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), "
    "magnetometer=(), microphone=(), midi=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}

#: The Content-Security-Policy; the WebSocket listeners are added to connect-src.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src {}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

#: A host name or an IPv4 address that is valid in a Content-Security-Policy.
POLICY_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")

#: Value of the header X-Requested-With in requests of the console. The answer 401 then has `CHALLENGE`, so that the
#: browser does not open its own login dialog.
REQUESTED_WITH = "stompring-console"

#: The challenge of a 401 to the console: no browser has a dialog for this scheme.
CHALLENGE = 'Stompring-Basic realm="stompring", charset="UTF-8"'


class StaticFile(NamedTuple):
    """One file of the console."""

    content: bytes
    compressed: bytes | None  # None if compression saves nothing
    tag: str  # entity tag of the content, without quotes
    content_type: str


@lru_cache(1024)
def _read_file(directory: Path, path: Path, version: tuple[int, int, int]) -> StaticFile | None:
    """The file at a path, None if it must not be served. Raises OSError.

    ``version``: inode, time of change and size. After a change on disk the cache has no entry for the new version.
    """
    inside = path.resolve().is_relative_to(directory.resolve())
    if not inside or not path.is_file() or version[2] > MAX_FILE:
        return None
    content = path.read_bytes()
    compressed = None if path.suffix in COMPRESSED else gzip.compress(content, 6, mtime=0)
    if compressed is not None and len(compressed) >= len(content):
        compressed = None
    tag = hashlib.sha256(content).hexdigest()[:32]
    return StaticFile(content, compressed, tag, CONTENT_TYPES[path.suffix])


def find_file(directory: Path, segments: Sequence[str]) -> StaticFile | None:
    """The file with this path below the directory; None if it does not exist or must not be served."""
    if not 0 < len(segments) <= MAX_DEPTH or not all(map(SEGMENT.fullmatch, segments)):
        return None
    path = directory.joinpath(*segments)
    if path.suffix not in CONTENT_TYPES:
        return None
    try:
        status = path.stat()
        return _read_file(directory, path, (status.st_ino, status.st_mtime_ns, status.st_size))
    except OSError:
        return None


def find_page(segments: Sequence[str]) -> StaticFile | None:
    """A page of the documentation: HTML in a wheel, Markdown in a checkout. None if it does not exist."""
    *folders, name = segments
    try:
        directory = shipped_directory(DOCS)
    except ConfigurationError:
        return None
    pages = (find_file(directory, (*folders, f"{name or 'index'}{suffix}")) for suffix in (".html", ".md"))
    return next(filter(None, pages), None)


def console_answer(
    context: AdminContext,
    directory: Path,
    method: str,
    segments: list[str],
    header: Callable[[str], str | None],
) -> Answer:
    """A file of the console for a request with these headers.

    Raises `NotFound` for a file that does not exist, `Problem` for a method that changes something.
    """
    if method not in ("GET", "HEAD"):
        raise Problem(
            405,
            f"Method {method} is not supported by this path; supported: GET, HEAD",
            {"Allow": "GET, HEAD"},
        )
    if segments in ([PREFIX], [PREFIX, ""], [DOCS]):
        location = "docs/" if segments == [DOCS] else "./" if len(segments) == 1 else "../"
        return Answer(status=308, content_type=None, headers={"Location": location})
    page = segments == [""]
    if segments[0] == DOCS:
        file = find_page(segments[1:])
    else:
        file = find_file(directory, (PAGE,) if page else segments[1:])
    if file is None:
        raise NotFound(
            "The console is not installed: the package has no console/index.html. The API is below /api/v1"
            if page
            else f"Path /{'/'.join(segments)} does not exist"
        )
    zipped = file.compressed if accepts_gzip(header("accept-encoding")) else None
    tag = f'"{file.tag}"' if zipped is None else f'"{file.tag}-gzip"'
    sent = {
        **HEADERS,
        "Content-Security-Policy": POLICY.format(" ".join(("'self'", *web_sockets(context, header("host"))))),
        "ETag": tag,
        "Vary": "Accept-Encoding",
    }
    if matches(header("if-none-match"), tag):
        return Answer(status=304, content_type=None, headers=sent)
    if zipped is None:
        return Answer(file.content, 200, file.content_type, sent)
    return Answer(zipped, 200, file.content_type, {**sent, "Content-Encoding": "gzip"})


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    for part in (accept_encoding or "").lower().split(","):
        coding, _, weight = part.partition(";")
        if coding.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def matches(if_none_match: str | None, tag: str) -> bool:
    """Whether an If-None-Match header names an entity tag."""
    return any(one.strip().removeprefix("W/") in (tag, "*") for one in (if_none_match or "").split(","))


def web_sockets(context: AdminContext, host: str | None) -> Iterator[str]:
    """Yield the WebSocket listeners as sources of a Content-Security-Policy. ``host``: the request's Host header.

    A source cannot contain an IPv6 address: if ``host`` is one, the source allows any host with the port.
    """
    name = host_name(host or "")
    if not POLICY_HOST.fullmatch(name):
        if ":" not in name:
            return
        name = "*"
    bound = {acceptor: port for acceptor, _, port in context.listening}
    for acceptor in context.configuration.stomp_acceptors:
        web_socket = acceptor.websocket
        if acceptor.name in bound and (web_socket.only or web_socket.web_socket_upgrade):
            scheme = "ws" if acceptor.tls is None else "wss"
            yield f"{scheme}://{name}:{bound[acceptor.name]}"


#: Maximum number of connections of one HTTP listener: health checks, Prometheus, browsers with six each.
MAX_CONNECTIONS = 250

#: Maximum number of connections of one remote host: half, so that no host can occupy all of them.
MAX_CONNECTIONS_PER_HOST = MAX_CONNECTIONS // 2

#: Maximum number of connections above these limits, which may only request `HEALTH_PATHS`: clients that occupy the
#: listener must not make health checks fail. A health check sends its request immediately; if one connection more
#: arrives, the listener closes the oldest of them.
HEALTH_CONNECTIONS = 16

#: Maximum duration in seconds of a connection above the limits: enough for a TLS handshake over a slow line.
HEALTH_TIME = 5.0

#: The paths that connections above the limits may request.
HEALTH_PATHS = frozenset((b"/health/live", b"/health/ready"))

#: Seconds in which a rejected client may read its answer.
CLOSE_TIME = 1.0

#: Maximum time of a request in seconds, from its first byte to its last: 1 MiB at 300 kbit/s.
REQUEST_TIME = 30.0

#: Maximum time in seconds without progress in sending an answer.
ANSWER_TIME = 60.0

CLOSED = Failure(ConnectionDone())

#: Counts and logs a rejection. Parameters: name of the limit, peer, text of the error.
Refuse = Callable[[str, str, str], None]


class AdminChannel(HTTPChannel):
    """One connection, with a time limit on its requests and on its answers."""

    totalHeadersSize = 16_384
    maxHeaders = 500

    # set by `HttpConnectionLimit.opened`
    connection_limit: HttpConnectionLimit
    network: str
    exceeded: LimitReached | None  # the exceeded limit: only `HEALTH_PATHS` may be requested
    _request_timer: IDelayedCall | None = None
    _answer_timer: IDelayedCall | None = None
    _abort_timer: IDelayedCall | None = None
    _closing = False  # whether further input is ignored
    _holds = False  # whether ``connection_limit.unfinished`` counts the unfinished body

    # ---- a connection above the limits

    @property
    def is_answering(self) -> bool:
        """Whether a request is being answered."""
        return bool(self._handlingRequest)

    def connectionMade(self) -> None:
        super().connectionMade()  # type: ignore[no-untyped-call]
        if self.exceeded is not None:
            self._request_timer = self.callLater(HEALTH_TIME, self.reject)  # type: ignore[no-untyped-call]

    def allHeadersReceived(self) -> None:
        if self.exceeded is not None and self._path.partition(b"?")[0] not in HEALTH_PATHS:
            self.reject()
        else:
            super().allHeadersReceived()  # type: ignore[no-untyped-call]

    def checkPersistence(self, request: Any, version: bytes) -> bool:
        """Return whether the connection stays open after an answer; above the limits it does not."""
        return self.exceeded is None and bool(super().checkPersistence(request, version))  # type: ignore[no-untyped-call]

    def reject(self) -> None:
        """Answer 503 and close a connection above the limits, unless it has requested one of `HEALTH_PATHS` in time."""
        if self._closing or self.exceeded is None:
            return
        cancel(self._request_timer)
        self.connection_limit.closed(self)
        self._refuse(self.exceeded)
        abort = getattr(self.transport, "abortConnection", None)
        if abort is not None:
            self._abort_timer = self.callLater(CLOSE_TIME, abort)  # type: ignore[no-untyped-call]

    # ---- requests

    def dataReceived(self, data: bytes) -> None:
        if self._closing:
            return
        self._time_request()
        super().dataReceived(data)  # type: ignore[no-untyped-call]

    def rawDataReceived(self, data: bytes) -> None:
        """Also pause reading at `_optimisticEagerReadSize` bytes while an answer waits for the transport; Twisted does
        not.
        """
        if self._closing:
            return
        super().rawDataReceived(data)
        if (
            self._handlingRequest
            and self._waitingForTransport
            and sum(map(len, self._dataBuffer)) > self._optimisticEagerReadSize
        ):
            self._networkProducer.pauseProducing()

    def hold(self, size: int) -> None:
        """Count the bytes in memory of an incomplete body."""
        unfinished = self.connection_limit.unfinished
        if unfinished is not None and (size > UNCOUNTED or self._holds) and not self._closing:
            self._holds = unfinished.hold(self, size)

    def refuse(self, error: Exception) -> None:
        if not self._closing and isinstance(error, LimitReached):
            self._refuse(error)

    def _refuse(self, refused: LimitReached, *, close: bool = True) -> None:
        """Answer with the error, and process no more input."""
        self._closing = True
        self._count_rejection(str(refused.limit), str(refused))
        self.write(plain_answer(problem_answer(refused, "")))  # type: ignore[no-untyped-call]
        if close:
            self.loseConnection()  # type: ignore[no-untyped-call]

    def allContentReceived(self) -> None:
        if self._closing:
            return
        self.hold(0)
        cancel(self._request_timer)
        self._request_timer = None
        super().allContentReceived()  # type: ignore[no-untyped-call]

    def requestDone(self, request: Any) -> None:
        super().requestDone(request)  # type: ignore[no-untyped-call]
        if self.requests or self._buffer:
            self._time_request()

    def _time_request(self) -> None:
        if self._request_timer is None and not self._handlingRequest:
            self._request_timer = self.callLater(REQUEST_TIME, self._request_timed_out)  # type: ignore[no-untyped-call]

    def _request_timed_out(self) -> None:
        self._request_timer = None
        self._refuse(
            LimitReached(
                f"The request is not complete after {REQUEST_TIME:.0f} seconds", "http-request-time", 408
            ),
            close=False,
        )
        self.timeoutConnection()  # type: ignore[no-untyped-call]

    def _respondToBadRequestAndDisconnect(self) -> None:
        if self._receivedHeaderSize > self.totalHeadersSize or self._receivedHeaderCount > self.maxHeaders:
            self._head_too_large()
        else:
            super()._respondToBadRequestAndDisconnect()  # type: ignore[no-untyped-call]

    def _maybeChooseTransferDecoder(self, header: bytes, data: bytes) -> bool:
        """Limit Content-Length. Twisted passes it to int(), which rejects more than 4300 digits."""
        if header == b"Content-Length" and data.isdigit():
            data = data.lstrip(b"0") or b"0"
            if len(data) > len(str(DISCARD_LIMIT)) or int(data) > DISCARD_LIMIT:
                self._refuse(LimitReached(f"The body is longer than {BODY_LIMIT} bytes", "http-body", 413))
                return False
        return bool(super()._maybeChooseTransferDecoder(header, data))  # type: ignore[no-untyped-call]

    def lineLengthExceeded(self, line: bytes) -> None:
        self._head_too_large()

    def _head_too_large(self) -> None:
        self._refuse(
            LimitReached(
                f"The request head exceeds {self.totalHeadersSize} bytes or {self.maxHeaders} headers",
                "http-head",
                431,
            )
        )

    # ---- answers

    def pauseProducing(self) -> None:
        if self._answer_timer is None:
            self._answer_timer = self.callLater(ANSWER_TIME, self._answer_timed_out)  # type: ignore[no-untyped-call]
        super().pauseProducing()  # type: ignore[no-untyped-call]

    def resumeProducing(self) -> None:
        cancel(self._answer_timer)
        self._answer_timer = None
        super().resumeProducing()  # type: ignore[no-untyped-call]

    def _answer_timed_out(self) -> None:
        self._answer_timer = None
        self._count_rejection(
            "http-answer-time", f"The client has read nothing of an answer for {ANSWER_TIME:.0f} seconds"
        )
        self.forceAbortClient()  # type: ignore[no-untyped-call]

    # ---- the end

    def connectionLost(self, reason: Failure = CLOSED) -> None:
        """Stop the timers and release the connection."""
        for timer in (self._request_timer, self._answer_timer, self._abort_timer):
            cancel(timer)
        self.connection_limit.closed(self)
        if self._holds and self.connection_limit.unfinished is not None:
            self.connection_limit.unfinished.forget(self)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]
        # breaks a cycle: the decoder of an incomplete body refers to this channel
        self._transferDecoder = None

    def _count_rejection(self, limit: str, text: str) -> None:
        self.connection_limit.refuse(limit, f"HTTP client {self.network}", text)


class HttpConnectionLimit:
    """The connection limits of one HTTP listener. It accepts a few more connections for health requests only."""

    def __init__(self, refuse: Refuse, unfinished: UnfinishedFrames | None = None) -> None:
        self.refuse = refuse
        self.unfinished = unfinished  # limits the memory of unfinished frames and bodies
        self._open = ConnectionCounter()
        # connections for health requests only, in order of arrival
        self._reserved: dict[AdminChannel, None] = {}

    def opened(self, channel: AdminChannel, address: IAddress | None) -> None:
        """Count a new connection. If it exceeds a limit, it may only request `HEALTH_PATHS`."""
        channel.connection_limit = self
        channel.network = network = source_network(str(getattr(address, "host", "")))
        channel.exceeded = self._exceeded(network)
        if channel.exceeded is None:
            self._open.add(network)
            return
        self._reserved[channel] = None
        if len(self._reserved) > HEALTH_CONNECTIONS:
            oldest = next((each for each in self._reserved if not each.is_answering), None)
            if oldest is not None:
                oldest.reject()

    def closed(self, channel: AdminChannel) -> None:
        """Release a connection."""
        if channel.exceeded is None:
            self._open.remove(channel.network)
        else:
            self._reserved.pop(channel, None)

    def _exceeded(self, network: str) -> LimitReached | None:
        """The limit that one more connection from this network would exceed, None if there is none."""
        if self._open.total >= MAX_CONNECTIONS:
            return LimitReached(f"More than {MAX_CONNECTIONS} HTTP connections", "http-connections", 503)
        if not is_this_machine(network) and self._open.by_network[network] >= MAX_CONNECTIONS_PER_HOST:
            return LimitReached(
                f"More than {MAX_CONNECTIONS_PER_HOST} HTTP connections from {network}",
                "http-connections-per-host",
                503,
            )
        return None


def plain_answer(answer: Answer, *, body: bool = True) -> bytes:
    """The bytes of an answer that closes the connection before Twisted has read a request."""
    content = answer.body
    assert isinstance(content, bytes)
    headers = {
        **ANSWER_HEADERS,
        "Content-Type": answer.content_type,
        "Content-Length": len(content),
        "Connection": "close",
        **answer.headers,
    }
    lines = [f"HTTP/1.1 {answer.status} {_PHRASES[answer.status]}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + (content if body else b"")


_PHRASES = {
    200: "OK",
    408: "Request Timeout",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


log = logging.getLogger(__name__)


class Responder:
    """Answers one request to an active or a standby broker: checks origin and login, and writes the answer."""

    def __init__(self, request: Request, security: Security | None) -> None:
        self._request = request
        self._security = security
        self._method = request.method.decode("latin-1")
        self._instance = request.uri.decode("latin-1")  # URI as the client sent it: percent-encoded ASCII
        self._host = str(getattr(request.getClientAddress(), "host", ""))
        self._disconnected = False
        request.notifyFinish().addErrback(self._client_disconnected)

    def _header(self, name: str) -> str | None:
        value = self._request.requestHeaders.getRawHeaders(name.encode())
        return None if value is None else value[0].decode("utf-8", "replace")

    def _check_site(self, listens_on: str) -> None:
        """Raise 403 for a page of another site."""
        check_host(self._header("host"), listens_on)
        check_origin(self._header("origin"), self._header("host"))

    def _log_in(self) -> Deferred[Login] | None:
        certificate: str | None = getattr(self._request, "certificate", None)
        return check_login(self._security, self._header("authorization"), self._host, certificate)

    def _set_head(self, answer: Answer) -> None:
        request = self._request
        request.setResponseCode(answer.status)
        if answer.content_type is not None:
            request.setHeader("Content-Type", answer.content_type)
        for name, value in answer.headers.items():
            request.setHeader(name, value)

    def _write_body(self, answer: Answer) -> None:
        assert isinstance(answer.body, bytes)
        if answer.status not in (204, 304):
            self._request.setHeader("Content-Length", str(len(answer.body)))
        self._request.write(answer.body)
        self._request.finish()

    def _client_disconnected(self, _: Failure) -> None:
        self._disconnected = True


class RequestHandler(Responder):
    """Handles one request: checks, login, route, answer. Every error becomes an answer."""

    def __init__(self, request: Request, context: AdminContext, console: Path, routes: Routes) -> None:
        super().__init__(request, context.security)
        self._context = context
        self._console = console
        self._routes = routes
        self._cooperator = context.tasks.cooperator
        self._log = RequestLog(request, context)
        self._work: CooperativeTask | None = None
        self._unsynced: Answer | None = None  # the answer to a change that is not synced yet

    def handle(self) -> None:
        """Answer the request: immediately, or after the check of its login."""
        try:
            here = self._request.getHost()
            bound = getattr(here, "port", None)
            listens_on = (host for _, host, port in self._context.listening if port == bound)
            self._check_site(next(listens_on, getattr(here, "host", "")))
            assert self._request.postpath is not None
            try:
                segments = [segment.decode() for segment in self._request.postpath]
            except UnicodeDecodeError:
                raise Problem(400, "The path is not UTF-8") from None
            if segments == [""] or segments[0] in (PREFIX, DOCS):  # not the API: a file of the console
                self._write(
                    console_answer(self._context, self._console, self._method, segments, self._header)
                )
                return
            check_fetch_site(self._header("sec-fetch-site"))
            route, names = self._routes.find(self._method, segments)
            self._log.set_route(route, names)
            login = None if route.public else self._log_in()
        except Refused as refused:
            self._log.set_error(str(refused), login=refused.status == 401)
            self._write(problem_answer(refused, self._instance))
            return
        if login is None:
            self._call_route(route, names, Login())
        else:
            login.addCallbacks(lambda one: self._call_route(route, names, one), self._login_failed)

    # ---- the route

    def _call_route(self, route: Route, names: dict[str, str], login: Login) -> None:
        if self._disconnected:
            return
        self._context.broker.clock.refresh()
        if login.user is not None:
            self._log.fields["user"] = login.user
        try:
            _, _, query = self._request.uri.partition(b"?")
            body: dict[str, Any] = {}
            raw = b""
            if self._method not in READ_METHODS:
                content = self._request.content
                assert isinstance(content, LimitedBody)
                check_content_type(self._header("content-type"), content, route.body_type)
                if route.body_type == JSON:
                    body = read_object(content.getvalue())
                else:
                    raw = content.getvalue()
            call = Call(
                self._context,
                names,
                Query(query.decode("latin-1")),
                body,
                self._header("accept") or "",
                login.user,
                login.authorizer,
                self._log.peer,
                raw,
                self._header("last-event-id"),
            )
            self._log.set_body(call.body)
            route.check(call)
        except Exception as fault:
            self._write(self._error_answer(fault))
            return
        try:
            outcome = route.answer(call)
        except Exception as fault:
            outcome = self._error_answer(fault)
        if isinstance(outcome, GeneratorType):
            # not registered as a producer: a change completes even if its client disconnects
            self._work = CooperativeTask(self._run(outcome), self._cooperator)
        else:
            assert isinstance(outcome, Answer)
            self._write_when_synced(outcome)

    def _run(self, steps: Steps) -> Generator[object, None, None]:
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
        """Write the answer of a route. The answer to a change waits, like a RECEIPT, until the change is synced.

        An error waits too: its cause may be an unsynced change of another request.
        """
        if self._method in READ_METHODS or self._disconnected:
            self._write(answer)
        else:
            self._unsynced = answer
            synced(self._context).addCallback(self._write_change, answer)

    def _write_change(self, fault: str | None, answer: Answer) -> None:
        """Write the answer to a change. ``fault`` is the reason why the change is in effect but not synced."""
        self._unsynced = None
        if fault is not None and answer.status < 400:
            self._log.set_error(fault)
            answer = problem_answer(Refused(fault, status=503), self._instance)
        self._write(answer)

    # ---- the answer

    def _write(self, answer: Answer) -> None:
        self._log.write(answer)
        if self._disconnected:
            return
        request = self._request
        self._set_head(answer)
        if answer.status == 401 and self._header("x-requested-with") == REQUESTED_WITH:
            request.setHeader("WWW-Authenticate", CHALLENGE)
        if isinstance(answer.body, bytes):
            self._write_body(answer)
        elif self._method == "HEAD":
            request.write(b"")
            request.finish()
        else:
            self._work = CooperativeTask(self._write_pieces(answer.body), self._cooperator)
            request.registerProducer(self._work, True)

    def _write_pieces(self, pieces: Iterator[Any]) -> Generator[object, None, None]:
        try:
            for piece in pieces:
                if isinstance(piece, bytes):
                    if piece:
                        self._request.write(piece)
                    piece = None
                yield piece
        except Exception:
            # the last chunk is missing: the client recognizes an incomplete answer
            log.exception(
                "%s failed while sending its answer", self._log.request_line, extra=self._log.fields
            )
            self._request.loseConnection()
            return
        self._request.unregisterProducer()
        self._request.finish()

    def _client_disconnected(self, reason: Failure) -> None:
        super()._client_disconnected(reason)
        if self._unsynced is not None:  # the change is in effect, but its client gets no answer
            self._log.write(self._unsynced)
        if self._work is not None and self._method in READ_METHODS:
            self._work.stopProducing()


#: Seconds after which an idle connection is closed. Usual scrape intervals are shorter.
IDLE = 120.0


class AdminRequest(Request):
    """A request with a limited body."""

    @property
    def certificate(self) -> str | None:
        """The subject (RFC 4514) of the client's verified certificate, if it sent one."""
        return peer_subject(self.transport)

    def gotLength(self, length: int | None) -> None:
        self.content = LimitedBody()

    def handleContentChunk(self, data: bytes) -> None:
        assert isinstance(self.content, LimitedBody)
        self.content.write(data)
        if isinstance(self.channel, AdminChannel):
            self.channel.hold(self.content.tell())
        if self.content.length > DISCARD_LIMIT:
            self.loseConnection()  # type: ignore[no-untyped-call]


class AdminResource(Resource):
    """The only resource of a site: ``handle`` answers requests of any path."""

    isLeaf = True

    def __init__(self, handle: Callable[[Request], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._handle = handle

    def render(self, request: Request) -> int:
        for name, value in ANSWER_HEADERS.items():
            request.setHeader(name, value)
        self._handle(request)
        return NOT_DONE_YET


class AdminSite(Site):
    """The site of an HTTP acceptor: a limited number of connections, and no access log."""

    requestFactory = AdminRequest
    protocol = AdminChannel  # type: ignore[assignment]
    connection_limit: HttpConnectionLimit

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Create a channel, and count it in the connection limit."""
        channel: AdminChannel = super().buildProtocol(addr)  # type: ignore[no-untyped-call]
        self.connection_limit.opened(channel, addr)
        return channel

    def log(self, request: Any) -> None:
        """Do nothing: health checks and scrapes would fill an access log. `request_log` logs changes."""


def admin_routes() -> Routes:
    """All routes of the API."""
    parts = (
        broker,
        metrics,
        queues,
        messages,
        addresses,
        connections,
        events,
        run_time,
        settings,
        users,
        ha,
    )
    found = [each for part in parts for each in vars(part).values() if isinstance(each, Route)]
    return Routes(openapi.with_document(found))


def admin_site(service: AdminContext, console: Path = DIRECTORY) -> AdminSite:
    """The site of an HTTP acceptor. ``console`` is the directory with the files of the console."""
    routes = admin_routes()
    site = AdminSite(
        AdminResource(lambda request: RequestHandler(request, service, console, routes).handle()),
        timeout=IDLE,
        reactor=service.reactor,
    )  # type: ignore[no-untyped-call]
    site.connection_limit = HttpConnectionLimit(service.broker.rejections.add, service.broker.unfinished)
    return site
