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
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel

from stompring.errors import LimitReached, Refused
from stompring.session.crowd import Crowd
from stompring.settings.peer import is_here, place_of

from .answer import Answer, problem_answer
from .body import BODY_LIMIT, PATIENCE

#: Connections to one HTTP listener: probes, a Prometheus or two, people with a browser, which opens six.
CONNECTIONS = 250

#: Connections from one address that is not this machine's: half, so that nobody shuts out all others.
CONNECTIONS_OF_ONE = CONNECTIONS // 2

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
        self.entrance: Entrance | None = None
        self.place = ""
        self._arriving: IDelayedCall | None = None
        self._stuck: IDelayedCall | None = None
        self._given_up = False  # nothing is read any more

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
        super().rawDataReceived(data)
        if (
            self._handlingRequest
            and self._waitingForTransport
            and sum(map(len, self._dataBuffer)) > self._optimisticEagerReadSize
        ):
            self._networkProducer.pauseProducing()

    def allContentReceived(self) -> None:
        """A whole request is there."""
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
        text = f"The request has not come within {REQUEST_TIME:.0f} seconds"
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
            if len(data) > len(str(PATIENCE)) or int(data) > PATIENCE:
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
        text = f"The head of a request is at most {self.totalHeadersSize} bytes and {self.maxHeaders} headers"
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
        self._refuse("http-answer-time", f"Nothing of an answer was taken for {ANSWER_TIME:.0f} seconds")
        self.forceAbortClient()  # type: ignore[no-untyped-call]

    # ---- the end

    def connectionLost(self, reason: Failure = CLOSED) -> None:
        """See IProtocol."""
        self._arriving = _cancel(self._arriving)
        self._stuck = _cancel(self._stuck)
        if self.entrance is not None:
            self.entrance.leave(self.place)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]

    def _later(self, seconds: float, call: Callable[[], None]) -> IDelayedCall:
        timer: IDelayedCall = self.callLater(seconds, call)  # type: ignore[no-untyped-call]
        return timer

    def _refuse(self, limit: str, text: str) -> None:
        if self.entrance is not None:
            self.entrance.refuse(limit, f"HTTP client {self.place}", text)


def _cancel(timer: IDelayedCall | None) -> IDelayedCall | None:
    if timer is not None and timer.active():
        timer.cancel()
    return None


class Entrance:
    """Counts the connections of one listener, and turns away those beyond the limits."""

    def __init__(self, refuse: Refuse) -> None:
        self.refuse = refuse
        self._crowd = Crowd()

    def enter(self, address: IAddress | None) -> str | Turned:
        """Where a client comes from, or what it gets instead of an answer."""
        place = place_of(str(getattr(address, "host", "")))
        if self._crowd.number >= CONNECTIONS:
            return self._turn("http-connections", place, f"More than {CONNECTIONS} HTTP connections")
        if not is_here(place) and self._crowd.by_place[place] >= CONNECTIONS_OF_ONE:
            text = f"More than {CONNECTIONS_OF_ONE} HTTP connections from {place}"
            return self._turn("http-connections-per-host", place, text)
        self._crowd.enter(place)
        return place

    def leave(self, place: str) -> None:
        """A client that was let in has gone."""
        self._crowd.leave(place)

    def _turn(self, limit: str, place: str, text: str) -> Turned:
        self.refuse(limit, f"HTTP client {place}", text)
        return Turned(LimitReached(text, limit, 503))


class Turned(Protocol):
    """A connection beyond a limit: it gets 503 and is closed."""

    def __init__(self, refused: Refused) -> None:
        self._refused = refused

    def connectionMade(self) -> None:
        """See IProtocol."""
        assert self.transport is not None
        self.transport.write(plain_answer(self._refused))
        self.transport.loseConnection()


def plain_answer(refused: Refused) -> bytes:
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
