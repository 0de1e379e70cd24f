"""HTTP connections: how many there may be, and how long a request may take to come and an answer to be taken.

Twisted bounds the head of a request (500 headers, 16 KiB) and reads no further while it works on one: at most 16 KiB
of what is pipelined behind it wait; here also while its answer is not taken. An answer is made as it is read. What is
added here is time: a client that sends
or takes a byte now and then keeps a connection alive for ever, and enough of them keep everybody else out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress, IDelayedCall
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel

from stompring.errors import LimitReached
from stompring.session.connection_limits import ConnectionCounter
from stompring.settings.network import is_this_machine, source_network

from .api import BODY_LIMIT, DISCARD_LIMIT, Answer, problem_answer

#: Connections to one HTTP listener: probes, a Prometheus or two, people with a browser, which opens six.
CONNECTIONS = 250

#: Connections from one address that is not this machine's: half, so that nobody shuts out all others.
CONNECTIONS_OF_ONE = CONNECTIONS // 2

#: Connections beyond these limits, which may ask for `HEALTH` alone: what watches the broker must not take it for dead
#: because others fill its listener. A probe sends its request at once; where there are more, the oldest one has to go.
HEALTH_CONNECTIONS = 16

#: Seconds for which such a connection may last, from its beginning: enough for a handshake of TLS over a slow line.
HEALTH_TIME = 5.0

#: What they may ask for.
HEALTH = frozenset((b"/health/live", b"/health/ready"))

#: Seconds that a connection which was turned away has to take its answer.
LINGER = 1.0

#: Seconds for a whole request, from its first byte to its last: 1 MiB over a line of 300 kbit/s.
REQUEST_TIME = 30.0

#: Seconds for which a client may take nothing of an answer that is ready for it.
ANSWER_TIME = 60.0

CLOSED = Failure(ConnectionDone())

#: Told of each refusal: the limit, who it was, and the text.
Refuse = Callable[[str, str, str], None]


class AdminChannel(HTTPChannel):
    """One connection, with a time limit on what it sends and on what it takes."""

    totalHeadersSize = 16_384
    maxHeaders = 500

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.connection_limit: HttpConnectionLimit | None = None
        self.network = ""
        self._arriving: IDelayedCall | None = None
        self._stuck: IDelayedCall | None = None
        self._leaving: IDelayedCall | None = None
        self._given_up = False  # nothing is read any more
        self.exceeded: LimitReached | None = None  # what keeps it from asking for anything but health

    # ---- one beyond the limits

    @property
    def answers(self) -> bool:
        """Whether a request is being answered."""
        return bool(self._handlingRequest)

    def connectionMade(self) -> None:
        """See IProtocol."""
        super().connectionMade()  # type: ignore[no-untyped-call]
        if self.exceeded is not None:
            self._arriving = self._later(HEALTH_TIME, self.reject)

    def allHeadersReceived(self) -> None:
        """The path is known."""
        if self.exceeded is not None and self._path.partition(b"?")[0] not in HEALTH:
            self.reject()
        else:
            super().allHeadersReceived()  # type: ignore[no-untyped-call]

    def checkPersistence(self, request: Any, version: bytes) -> bool:
        """One answer is all that it gets."""
        return self.exceeded is None and bool(super().checkPersistence(request, version))  # type: ignore[no-untyped-call]

    def reject(self) -> None:
        """Answer 503 and close: it is one too many, and has not asked for health in time."""
        if self._given_up or self.exceeded is None:
            return
        self._given_up = True
        self._arriving = _cancel(self._arriving)
        if self.connection_limit is not None:
            self.connection_limit.closed(self)
        self._refuse(str(self.exceeded.limit), str(self.exceeded))
        self.write(plain_answer(self.exceeded))  # type: ignore[no-untyped-call]
        self.loseConnection()  # type: ignore[no-untyped-call]
        abort = getattr(self.transport, "abortConnection", None)
        if abort is not None:
            self._leaving = self._later(LINGER, abort)

    # ---- a request comes

    def dataReceived(self, data: bytes) -> None:
        """See IProtocol. The first byte of a request begins its time."""
        if self._given_up:
            return
        if self._arriving is None and not self._handlingRequest:
            self._arriving = self._later(REQUEST_TIME, self._too_slow)
        super().dataReceived(data)  # type: ignore[no-untyped-call]

    def rawDataReceived(self, data: bytes) -> None:
        """See LineReceiver. Twisted stops at `_optimisticEagerReadSize`, but not while the answer is not taken."""
        if self._given_up:
            return
        super().rawDataReceived(data)
        if (
            self._handlingRequest
            and self._waitingForTransport
            and sum(map(len, self._dataBuffer)) > self._optimisticEagerReadSize
        ):
            self._networkProducer.pauseProducing()

    def allContentReceived(self) -> None:
        """A whole request is there."""
        if self._given_up:
            return
        self._arriving = _cancel(self._arriving)
        super().allContentReceived()  # type: ignore[no-untyped-call]

    def requestDone(self, request: Any) -> None:
        """It is answered; what was sent behind it comes next."""
        super().requestDone(request)  # type: ignore[no-untyped-call]
        begun = self.requests or self._buffer
        if begun and self._arriving is None and not self._handlingRequest:
            self._arriving = self._later(REQUEST_TIME, self._too_slow)

    def _too_slow(self) -> None:
        self._arriving = None
        self._given_up = True
        text = f"The request is not complete after {REQUEST_TIME:.0f} seconds"
        self._refuse("http-request-time", text)
        self.write(plain_answer(LimitReached(text, "http-request-time", 408)))  # type: ignore[no-untyped-call]
        self.timeoutConnection()  # type: ignore[no-untyped-call]

    def _respondToBadRequestAndDisconnect(self) -> None:
        if self._receivedHeaderSize > self.totalHeadersSize or self._receivedHeaderCount > self.maxHeaders:
            self._head_too_big()
        else:
            super()._respondToBadRequestAndDisconnect()  # type: ignore[no-untyped-call]

    def _maybeChooseTransferDecoder(self, header: bytes, data: bytes) -> bool:
        """Twisted gives any number of digits to int(), which refuses more than 4300."""
        if header == b"Content-Length" and data.isdigit():
            data = data.lstrip(b"0") or b"0"
            if len(data) > len(str(DISCARD_LIMIT)) or int(data) > DISCARD_LIMIT:
                self._body_too_long()
                return False
        return bool(super()._maybeChooseTransferDecoder(header, data))  # type: ignore[no-untyped-call]

    def _body_too_long(self) -> None:
        self._given_up = True
        text = f"The body is longer than {BODY_LIMIT} bytes"
        self._refuse("http-body", text)
        self.write(plain_answer(LimitReached(text, "http-body", 413)))  # type: ignore[no-untyped-call]
        self.loseConnection()  # type: ignore[no-untyped-call]

    def lineLengthExceeded(self, line: bytes) -> None:
        """See LineReceiver."""
        self._head_too_big()

    def _head_too_big(self) -> None:
        self._given_up = True
        text = f"The request head exceeds {self.totalHeadersSize} bytes or {self.maxHeaders} headers"
        self._refuse("http-head", text)
        self.write(plain_answer(LimitReached(text, "http-head", 431)))  # type: ignore[no-untyped-call]
        self.loseConnection()  # type: ignore[no-untyped-call]

    # ---- an answer goes

    def pauseProducing(self) -> None:
        """The socket takes no more."""
        if self._stuck is None:
            self._stuck = self._later(ANSWER_TIME, self._not_taken)
        super().pauseProducing()  # type: ignore[no-untyped-call]

    def resumeProducing(self) -> None:
        """It has taken everything."""
        self._stuck = _cancel(self._stuck)
        super().resumeProducing()  # type: ignore[no-untyped-call]

    def _not_taken(self) -> None:
        self._stuck = None
        self._refuse(
            "http-answer-time", f"The client has read nothing of an answer for {ANSWER_TIME:.0f} seconds"
        )
        self.forceAbortClient()  # type: ignore[no-untyped-call]

    # ---- the end

    def connectionLost(self, reason: Failure = CLOSED) -> None:
        """See IProtocol."""
        self._arriving = _cancel(self._arriving)
        self._stuck = _cancel(self._stuck)
        self._leaving = _cancel(self._leaving)
        if self.connection_limit is not None:
            self.connection_limit.closed(self)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]
        self._transferDecoder = None  # of a body that did not come to its end: it refers to this

    def _later(self, seconds: float, call: Callable[[], None]) -> IDelayedCall:
        timer: IDelayedCall = self.callLater(seconds, call)  # type: ignore[no-untyped-call]
        return timer

    def _refuse(self, limit: str, text: str) -> None:
        if self.connection_limit is not None:
            self.connection_limit.refuse(limit, f"HTTP client {self.network}", text)


def _cancel(timer: IDelayedCall | None) -> IDelayedCall | None:
    if timer is not None and timer.active():
        timer.cancel()
    return None


class HttpConnectionLimit:
    """The connection limits of one HTTP listener. A few more connections are accepted for health requests alone."""

    def __init__(self, refuse: Refuse) -> None:
        self.refuse = refuse
        self._open = ConnectionCounter()
        self._reserved: dict[AdminChannel, None] = {}  # in the order in which they came

    def opened(self, channel: AdminChannel, address: IAddress | None) -> None:
        """A client has come: its channel learns where it is, and whether there are too many."""
        channel.connection_limit = self
        channel.network = network = source_network(str(getattr(address, "host", "")))
        channel.exceeded = self._exceeded(network)
        if channel.exceeded is None:
            self._open.add(network)
            return
        self._reserved[channel] = None
        if len(self._reserved) > HEALTH_CONNECTIONS:
            oldest = next((each for each in self._reserved if not each.answers), None)
            if oldest is not None:
                oldest.reject()

    def closed(self, channel: AdminChannel) -> None:
        """A client has gone, or will."""
        if channel.exceeded is None:
            self._open.remove(channel.network)
        else:
            self._reserved.pop(channel, None)

    def _exceeded(self, network: str) -> LimitReached | None:
        """The limit that one more from there passes."""
        if self._open.total >= CONNECTIONS:
            return LimitReached(f"More than {CONNECTIONS} HTTP connections", "http-connections", 503)
        if not is_this_machine(network) and self._open.by_network[network] >= CONNECTIONS_OF_ONE:
            text = f"More than {CONNECTIONS_OF_ONE} HTTP connections from {network}"
            return LimitReached(text, "http-connections-per-host", 503)
        return None


def plain_answer(refused: LimitReached) -> bytes:
    """A whole answer for a client whose request was not read."""
    answer: Answer = problem_answer(refused, "")
    assert isinstance(answer.body, bytes)
    head = (
        f"HTTP/1.1 {answer.status} {_PHRASES[answer.status]}\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + answer.body


_PHRASES = {
    408: "Request Timeout",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
