"""HTTP connections: limits on their number, on the time of a request and on the time of an answer.

Twisted limits the head of a request (500 headers, 16 KiB) and reads at most 16 KiB of pipelined requests ahead while it
handles one; here also while its answer is not read. Answers are produced as the client reads them. This module adds
the times: clients that send or read one byte now and then would occupy all connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IDelayedCall
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel

from stompring.broker.unfinished import UNCOUNTED, UnfinishedFrames
from stompring.errors import LimitReached
from stompring.session.connection_limits import ConnectionCounter
from stompring.settings.network import is_this_machine, source_network

from .access import ANSWER_HEADERS
from .api import BODY_LIMIT, DISCARD_LIMIT, Answer, problem_answer

#: Maximum number of connections of one HTTP listener: health checks, Prometheus, browsers with six each.
MAX_CONNECTIONS = 250

#: Maximum number of connections of one remote host: half, so that no host can occupy all of them.
MAX_CONNECTIONS_PER_HOST = MAX_CONNECTIONS // 2

#: Connections above these limits, which may request `HEALTH_PATHS` only: clients that occupy the listener must not make
#: health checks fail. A health check sends its request at once; if there are more, the oldest connection is closed.
HEALTH_CONNECTIONS = 16

#: Maximum duration of such a connection in seconds: enough for a TLS handshake over a slow line.
HEALTH_TIME = 5.0

#: The paths that they may request.
HEALTH_PATHS = frozenset((b"/health/live", b"/health/ready"))

#: Seconds in which a rejected client may read its answer.
CLOSE_TIME = 1.0

#: Maximum time of a request in seconds, from its first byte to its last: 1 MiB at 300 kbit/s.
REQUEST_TIME = 30.0

#: Maximum time in seconds in which a client reads nothing of a waiting answer.
ANSWER_TIME = 60.0

CLOSED = Failure(ConnectionDone())

#: Counts and logs a rejection: limit, peer, text.
Refuse = Callable[[str, str, str], None]


class AdminChannel(HTTPChannel):
    """One connection, with a time limit on its requests and on its answers."""

    totalHeadersSize = 16_384
    maxHeaders = 500

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.connection_limit: HttpConnectionLimit | None = None
        self.network = ""
        self._request_timer: IDelayedCall | None = None
        self._answer_timer: IDelayedCall | None = None
        self._abort_timer: IDelayedCall | None = None
        self._closing = False  # no more input is processed
        self._holds = False  # so much of an unfinished body that it counts
        self.exceeded: LimitReached | None = (
            None  # the limit that this connection exceeds; it may request health only
        )

    # ---- a connection above the limits

    @property
    def is_answering(self) -> bool:
        """Whether a request is being answered."""
        return bool(self._handlingRequest)

    def connectionMade(self) -> None:
        """A connection above the limits is rejected after `HEALTH_TIME`."""
        super().connectionMade()  # type: ignore[no-untyped-call]
        if self.exceeded is not None:
            self._request_timer = self._call_later(HEALTH_TIME, self.reject)

    def allHeadersReceived(self) -> None:
        """The head of a request is complete."""
        if self.exceeded is not None and self._path.partition(b"?")[0] not in HEALTH_PATHS:
            self.reject()
        else:
            super().allHeadersReceived()  # type: ignore[no-untyped-call]

    def checkPersistence(self, request: Any, version: bytes) -> bool:
        """Whether the connection stays open; above the limits it gets one answer."""
        return self.exceeded is None and bool(super().checkPersistence(request, version))  # type: ignore[no-untyped-call]

    def reject(self) -> None:
        """Answer 503 and close a connection above the limits that has not requested health in time."""
        if self._closing or self.exceeded is None:
            return
        self._closing = True
        self._request_timer = _cancel(self._request_timer)
        if self.connection_limit is not None:
            self.connection_limit.closed(self)
        self._count_rejection(str(self.exceeded.limit), str(self.exceeded))
        self.write(plain_answer(self.exceeded))  # type: ignore[no-untyped-call]
        self.loseConnection()  # type: ignore[no-untyped-call]
        abort = getattr(self.transport, "abortConnection", None)
        if abort is not None:
            self._abort_timer = self._call_later(CLOSE_TIME, abort)

    # ---- requests

    def dataReceived(self, data: bytes) -> None:
        """The first byte of a request starts its timer."""
        if self._closing:
            return
        if self._request_timer is None and not self._handlingRequest:
            self._request_timer = self._call_later(REQUEST_TIME, self._request_timed_out)
        super().dataReceived(data)  # type: ignore[no-untyped-call]

    def rawDataReceived(self, data: bytes) -> None:
        """Twisted pauses reading at `_optimisticEagerReadSize`, but not while an answer waits for the transport."""
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
        """A body that is not complete has ``size`` bytes in memory."""
        unfinished = None if self.connection_limit is None else self.connection_limit.unfinished
        if unfinished is not None and (size > UNCOUNTED or self._holds) and not self._closing:
            self._holds = unfinished.hold(self, size)

    def refuse(self, error: Exception) -> None:
        """See `Holder`."""
        if self._closing or not isinstance(error, LimitReached):
            return
        self._closing = True
        self._count_rejection(str(error.limit), str(error))
        self.write(plain_answer(error))  # type: ignore[no-untyped-call]
        self.loseConnection()  # type: ignore[no-untyped-call]

    def allContentReceived(self) -> None:
        """A request is complete."""
        if self._closing:
            return
        self.hold(0)
        self._request_timer = _cancel(self._request_timer)
        super().allContentReceived()  # type: ignore[no-untyped-call]

    def requestDone(self, request: Any) -> None:
        """A request is answered; a pipelined one is next."""
        super().requestDone(request)  # type: ignore[no-untyped-call]
        begun = self.requests or self._buffer
        if begun and self._request_timer is None and not self._handlingRequest:
            self._request_timer = self._call_later(REQUEST_TIME, self._request_timed_out)

    def _request_timed_out(self) -> None:
        self._request_timer = None
        self._closing = True
        text = f"The request is not complete after {REQUEST_TIME:.0f} seconds"
        self._count_rejection("http-request-time", text)
        self.write(plain_answer(LimitReached(text, "http-request-time", 408)))  # type: ignore[no-untyped-call]
        self.timeoutConnection()  # type: ignore[no-untyped-call]

    def _respondToBadRequestAndDisconnect(self) -> None:
        if self._receivedHeaderSize > self.totalHeadersSize or self._receivedHeaderCount > self.maxHeaders:
            self._head_too_large()
        else:
            super()._respondToBadRequestAndDisconnect()  # type: ignore[no-untyped-call]

    def _maybeChooseTransferDecoder(self, header: bytes, data: bytes) -> bool:
        """Twisted passes any number of digits to int(), which rejects more than 4300."""
        if header == b"Content-Length" and data.isdigit():
            data = data.lstrip(b"0") or b"0"
            if len(data) > len(str(DISCARD_LIMIT)) or int(data) > DISCARD_LIMIT:
                self._body_too_large()
                return False
        return bool(super()._maybeChooseTransferDecoder(header, data))  # type: ignore[no-untyped-call]

    def _body_too_large(self) -> None:
        self._closing = True
        text = f"The body is longer than {BODY_LIMIT} bytes"
        self._count_rejection("http-body", text)
        self.write(plain_answer(LimitReached(text, "http-body", 413)))  # type: ignore[no-untyped-call]
        self.loseConnection()  # type: ignore[no-untyped-call]

    def lineLengthExceeded(self, line: bytes) -> None:
        """A line of the head is too long."""
        self._head_too_large()

    def _head_too_large(self) -> None:
        self._closing = True
        text = f"The request head exceeds {self.totalHeadersSize} bytes or {self.maxHeaders} headers"
        self._count_rejection("http-head", text)
        self.write(plain_answer(LimitReached(text, "http-head", 431)))  # type: ignore[no-untyped-call]
        self.loseConnection()  # type: ignore[no-untyped-call]

    # ---- answers

    def pauseProducing(self) -> None:
        """The buffer of the transport is full."""
        if self._answer_timer is None:
            self._answer_timer = self._call_later(ANSWER_TIME, self._answer_timed_out)
        super().pauseProducing()  # type: ignore[no-untyped-call]

    def resumeProducing(self) -> None:
        """The buffer of the transport is empty."""
        self._answer_timer = _cancel(self._answer_timer)
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
        self._request_timer = _cancel(self._request_timer)
        self._answer_timer = _cancel(self._answer_timer)
        self._abort_timer = _cancel(self._abort_timer)
        if self.connection_limit is not None:
            self.connection_limit.closed(self)
            if self._holds and self.connection_limit.unfinished is not None:
                self.connection_limit.unfinished.forget(self)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]
        self._transferDecoder = None  # of an incomplete body: it refers to this channel

    def _call_later(self, seconds: float, call: Callable[[], None]) -> IDelayedCall:
        timer: IDelayedCall = self.callLater(seconds, call)  # type: ignore[no-untyped-call]
        return timer

    def _count_rejection(self, limit: str, text: str) -> None:
        if self.connection_limit is not None:
            self.connection_limit.refuse(limit, f"HTTP client {self.network}", text)


def _cancel(timer: IDelayedCall | None) -> IDelayedCall | None:
    if timer is not None and timer.active():
        timer.cancel()
    return None


class HttpConnectionLimit:
    """The connection limits of one HTTP listener. A few more connections are accepted for health requests alone."""

    def __init__(self, refuse: Refuse, unfinished: UnfinishedFrames | None = None) -> None:
        self.refuse = refuse
        self.unfinished = unfinished  # bodies among them
        self._open = ConnectionCounter()
        self._reserved: dict[AdminChannel, None] = {}  # in the order of their arrival

    def opened(self, channel: AdminChannel, address: IAddress | None) -> None:
        """Count a new connection, or reserve it for health if it exceeds a limit."""
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
        """The limit that one more connection from this network exceeds."""
        if self._open.total >= MAX_CONNECTIONS:
            return LimitReached(f"More than {MAX_CONNECTIONS} HTTP connections", "http-connections", 503)
        if not is_this_machine(network) and self._open.by_network[network] >= MAX_CONNECTIONS_PER_HOST:
            text = f"More than {MAX_CONNECTIONS_PER_HOST} HTTP connections from {network}"
            return LimitReached(text, "http-connections-per-host", 503)
        return None


def plain_answer(refused: LimitReached) -> bytes:
    """The bytes of an answer to a request that was not read."""
    answer: Answer = problem_answer(refused, "")
    assert isinstance(answer.body, bytes)
    headers = {
        **ANSWER_HEADERS,
        "Content-Type": answer.content_type,
        "Content-Length": len(answer.body),
        "Connection": "close",
    }
    lines = [f"HTTP/1.1 {answer.status} {_PHRASES[answer.status]}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + answer.body


_PHRASES = {
    408: "Request Timeout",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
