"""STOMP over WebSocket (RFC 6455), by autobahn: the upgrade, and what comes and goes within WebSocket messages.

A `WebSocket` stands between a `StompProtocol` and its transport. The protocol stays what it is for Twisted and for the
session; it hands on what it reads, and writes through this. Of incoming messages the payload is passed on as it comes:
where messages begin and end means nothing to STOMP, and so none is ever put together in memory.

autobahn's timers are not used, those of the protocol hold: ``handshake-timeout`` until CONNECT, `LINGER` at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from autobahn.websocket.compress import PerMessageDeflateOffer, PerMessageDeflateOfferAccept
from autobahn.websocket.types import ConnectionDeny, ConnectionRequest
from txaio.tx import make_logger

from stompring.broker.clock import Clock
from stompring.session.connection_limits import HandshakeRejected, OriginPolicy
from stompring.session.text import printable
from stompring.settings.acceptor import StompAcceptor

from .protocol import http_error_response
from .websocket_cutting import SHORT, frame_end, may_become_short, take_short
from .websocket_packing import pack

if TYPE_CHECKING:
    from .protocol import StompProtocol

log = logging.getLogger(__name__)

#: Bytes of the HTTP request that asks for a WebSocket: room for the cookies of a browser, as web servers have it.
LONGEST_REQUEST = 16 * 1024

#: Bytes of a frame given to autobahn at once: with compression so little becomes at most 16 MB before it is looked at.
SLICE = 16 * 1024

#: Pings and pongs that a client may send within a second, of which nobody needs more than one; and short fragments.
#: Each costs 20 µs, whatever is in it: without a limit little network would keep the broker busy.
MOST_CONTROLS, MOST_FRAGMENTS = 100, 1000

#: Bytes below which a fragment counts as short.
SHORT_FRAGMENT = 128

#: Bytes, for what is sent when the connection is closed (RFC 6455, 5.5).
LONGEST_REASON = 123

NORMAL, POLICY_VIOLATION, TOO_BIG = 1000, 1008, 1009


class WebSockets:
    """Makes the WebSockets of one acceptor."""

    def __init__(self, acceptor: StompAcceptor, clock: Clock, reactor: Any) -> None:
        self.clock = clock
        settings, limits = acceptor.websocket, acceptor.limits
        self.text = settings.web_socket_encoder_type == "text"
        self.compresses = settings.web_socket_compression_supported
        self.door = OriginPolicy(settings, acceptor.host)
        longest = settings.web_socket_max_frame_payload_length
        self.short = SHORT if longest < 0 else min(SHORT, longest)
        self._factory = WebSocketServerFactory(server="", reactor=reactor)
        self._factory.setProtocolOptions(
            versions=[13],
            webStatus=False,
            allowNullOrigin=True,  # of origins the door knows more
            openHandshakeTimeout=0,
            closeHandshakeTimeout=0,
            maxFramePayloadSize=max(longest, 0),
            # what is not compressed is no longer in memory than what was read
            maxMessagePayloadSize=limits.max_body_length + limits.max_header_length if self.compresses else 0,
        )
        options = {
            name: getattr(self._factory, name)
            for name in WebSocketServerProtocol.CONFIG_ATTRS
            if name != "perMessageCompressionAccept"
        }
        self._kind = cast(type[WebSocket], type("WebSocket", (WebSocket,), options))

    def open(self, owner: StompProtocol) -> WebSocket:
        """Begin with the HTTP request, on the transport of ``owner``."""
        websocket = self._kind(self, owner)
        websocket.factory = self._factory
        websocket.makeConnection(owner.transport)  # type: ignore[no-untyped-call]
        return websocket


class WebSocket(WebSocketServerProtocol):
    """One connection's WebSocket, from the HTTP request to the closing handshake."""

    #: autobahn would copy its options to each connection and format them for a log, which takes longer than all else.
    #: They are attributes of a class for each acceptor instead.
    CONFIG_ATTRS: list[str] = []

    #: What there is to say is said here, with the session's number.
    log = make_logger("critical")

    transport: Any
    state: Any
    data: Any
    current_frame: Any
    _perMessageCompress: Any

    def __init__(self, websockets: WebSockets, owner: StompProtocol) -> None:
        super().__init__()
        self._websockets = websockets
        self._owner: StompProtocol | None = owner
        self._clock = websockets.clock
        self._short = websockets.short
        self._gathered: list[bytes] = []  # what one read has brought for STOMP
        self._unsaid = b""  # STOMP frames from before there is a WebSocket
        self._last_words: tuple[int, str] = (NORMAL, "")
        self._reason = "WebSocket closed"  # why the connection ends, for the log
        self._ping: bytes | None = None  # the last one, to be answered
        self._second = self._controls = self._fragments = 0  # what came within which second

    # ---- reading

    def connectionMade(self) -> None:
        """See IProtocol."""
        assert self._owner is not None
        self.peer = self._owner.peer
        self._connectionMade()

    def dataReceived(self, data: bytes) -> None:
        """See IProtocol."""
        at = 0
        if self.state == self.STATE_CONNECTING:
            at = self._request(data)
        elif self.state == self.STATE_CLOSED:
            return
        elif self.current_frame is None and self.data:
            data, self.data = self.data + data, b""
        self._clock.refresh()
        end = len(data)
        while at < end and self.state != self.STATE_CLOSED:
            at = self._next(data, at)
            if self._perMessageCompress is not None:
                self._deliver()
        self._deliver()
        self._answer_ping()

    def _next(self, data: bytes, at: int) -> int:
        """Read on from ``at``; returns how far that went."""
        frame = self.current_frame
        if frame is not None:
            stop = at + max(int(frame.length) - int(self.current_frame_masker.pointer()), 1)
        else:
            if not self.inside_message:
                at = take_short(data, at, self._short, self._gathered)
                if may_become_short(data, at, self._short):
                    self.data = data[at:]  # until there is more
                    return len(data)
            stop = frame_end(data, at)
        stop = min(stop, at + SLICE)
        self._dataReceived(data[at:stop])
        return stop

    def connectionLost(self, reason: Any = None) -> None:
        """The transport is gone. The cycles of this object are broken, for its count to free it."""
        self._connectionLost(reason)
        self._owner = self.is_open = self.is_closed = None
        self._gathered.clear()

    def _request(self, data: bytes) -> int:
        """Read the HTTP request; returns where it ends in ``data``."""
        before = len(self.data)
        found = (self.data + data).find(b"\r\n\r\n")
        end = before + len(data) if found < 0 else found + 4
        if end > LONGEST_REQUEST:
            self.failHandshake(f"The request is longer than {LONGEST_REQUEST} bytes", 431)
        else:
            self._dataReceived(data[: end - before])
        return end - before

    def _deliver(self) -> None:
        if self._gathered:
            data = b"".join(self._gathered)
            self._gathered.clear()
            if self._owner is not None:
                self._owner.take(data)

    def onMessageBegin(self, isBinary: bool) -> None:
        """A message may be text or binary: STOMP is read from both."""
        self.message_data_total_length = 0

    def onMessageFrameBegin(self, length: int) -> None:
        """A frame, or a part of a message that was cut into several."""
        super().onMessageFrameBegin(length)
        frame = self.current_frame
        if length < SHORT_FRAGMENT and not (frame.fin and frame.opcode):
            self._count(fragments=1)

    def onMessageFrameData(self, payload: bytes) -> None:
        """A piece of a message."""
        if payload and not self.failedByMe:
            self._gathered.append(payload)

    def onMessageFrameEnd(self) -> None:
        """Nothing was put together."""

    def onMessageEnd(self) -> None:
        """Nothing was put together."""

    def onPing(self, payload: bytes) -> None:
        """Of several pings in a read the last one is answered, as RFC 6455 allows (5.5.3)."""
        self._ping = payload
        self._count(controls=1)

    def onPong(self, payload: bytes) -> None:
        """Nobody has asked for it, which is allowed."""
        self._count(controls=1)

    def _count(self, controls: int = 0, fragments: int = 0) -> None:
        second = self._clock.now // 1000
        if second != self._second:
            self._second, self._controls, self._fragments = second, 0, 0
        self._controls += controls
        self._fragments += fragments
        if self._controls > MOST_CONTROLS:
            self._fail_connection(
                POLICY_VIOLATION, f"More than {MOST_CONTROLS} pings and pongs within a second"
            )
        elif self._fragments > MOST_FRAGMENTS:
            reason = (
                f"More than {MOST_FRAGMENTS} fragments of less than {SHORT_FRAGMENT} bytes within a second"
            )
            self._fail_connection(POLICY_VIOLATION, reason)

    def _answer_ping(self) -> None:
        session = None if self._owner is None else self._owner.session
        # a client that takes nothing is not answered: that would pile up
        if self._ping is not None and session is not None and not session.outbox.paused:
            self.sendPong(self._ping)  # type: ignore[no-untyped-call]
            self._ping = None

    # ---- writing

    def packed(self, parts: Sequence[bytes]) -> bytes:
        """What the outbox writes: WebSocket messages of the parts of frames."""
        compress = None if self._perMessageCompress is None else self._compressed
        return pack(parts, text=self._websockets.text, compress=compress)

    def _compressed(self, data: bytes) -> bytes:
        deflate = self._perMessageCompress
        deflate.start_compress_message()
        first: bytes = deflate.compress_message_data(data)
        return first + bytes(deflate.end_compress_message())

    def write(self, data: bytes) -> None:
        """Bytes of the outbox. Before there is a WebSocket they can only be the reason why there will be none."""
        if self.state == self.STATE_OPEN:
            self.transport.write(data)
        elif self.state == self.STATE_CONNECTING:
            self._unsaid += data

    # ---- the upgrade

    def onConnect(self, request: ConnectionRequest) -> str | None:
        """The request is well-formed: may this client, and what does it speak?"""
        headers = request.headers
        try:
            return self._websockets.door.admit(
                request.path, headers.get("host", ""), headers.get("origin"), request.protocols
            )
        except HandshakeRejected as refusal:
            raise ConnectionDeny(refusal.status, refusal.reason) from None

    def perMessageCompressionAccept(self, offers: Sequence[object]) -> PerMessageDeflateOfferAccept | None:
        """Compression where it is switched on and the client asks for it."""
        if self._websockets.compresses:
            for offer in offers:
                if isinstance(offer, PerMessageDeflateOffer):
                    return PerMessageDeflateOfferAccept(offer)
        return None

    def _onOpen(self) -> None:
        """There is a WebSocket."""
        session = None if self._owner is None else self._owner.session
        if session is not None:
            session.outbox.join = self.packed
            spoken = self.websocket_protocol_in_use or "no subprotocol"
            log.debug(
                "connection %s (%s): WebSocket, %s",
                session.number,
                self.peer,
                spoken,
                extra=session.log_fields(),
            )

    def failHandshake(
        self, reason: str, code: int = 400, responseHeaders: Sequence[tuple[str, str]] | None = None
    ) -> None:
        """There will be none."""
        if code == HTTPStatus.UPGRADE_REQUIRED:
            reason = f"This is a STOMP broker, and speaks HTTP only to open a WebSocket: {reason}"
        self._reason = f"WebSocket refused ({code}): {reason}"
        self.sendHttpErrorResponse(code, reason, responseHeaders)
        self.dropConnection()

    def sendHttpErrorResponse(
        self, code: int, reason: str, responseHeaders: Sequence[tuple[str, str]] | None = None
    ) -> None:
        """An answer of HTTP, with the reason as its text."""
        headers = list(responseHeaders or ())
        if code == HTTPStatus.UPGRADE_REQUIRED:
            headers += [("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
        self.transport.write(http_error_response(code, printable_lines(reason), headers))

    # ---- the end

    def start_close(self) -> None:
        """The protocol is closing: tell the client in the way of what is spoken. `LINGER` limits what it waits for."""
        if self.state == self.STATE_OPEN:
            code, reason = self._last_words
            self.sendCloseFrame(
                code, reason.encode()[:LONGEST_REASON].decode(errors="ignore").encode() or None
            )
            self.transport.resumeProducing()  # the client answers with the same
            return
        if self.state == self.STATE_CONNECTING:
            _, _, text = self._unsaid.partition(b"\n\n")
            reason = text.decode(errors="replace").strip("\0\n") or "The connection is closed"
            self.sendHttpErrorResponse(HTTPStatus.SERVICE_UNAVAILABLE, reason)
            self.state = self.STATE_CLOSED
        self.transport.loseConnection()

    def onCloseFrame(self, code: Any, reasonRaw: Any) -> bool | None:
        """The client closes, or answers to ours. What came before still counts."""
        self._deliver()
        self._end("WebSocket closed by the client")
        answered: bool | None = super().onCloseFrame(code, reasonRaw)
        return answered

    def _fail_connection(self, code: int = NORMAL, reason: str = "") -> None:
        """The client has broken a rule: its connection ends with a code that says so (RFC 6455, 7.1.7)."""
        if self.state == self.STATE_CLOSED:
            return
        self._deliver()
        self._last_words = code, reason
        self.failedByMe = True
        self._end(f"WebSocket closed ({code}): {reason}")
        if code != TOO_BIG:  # of which the rest is still to come, and then the client's answer
            self.dropConnection()

    def unregisterProducer(self) -> None:
        """The protocol is the producer, and sees to that."""

    def _closeConnection(self, abort: bool = False) -> None:
        self._end(self._reason)
        self.transport.loseConnection()

    def _end(self, reason: str) -> None:
        """The session ends with the WebSocket, and before the transport: nothing is sent any more."""
        owner = self._owner
        if owner is not None:
            if owner.session is not None:
                owner.session.close(printable_lines(reason))
            owner.close()


def printable_lines(reason: str) -> str:
    """A reason of autobahn or of our own, in one line."""
    return printable(" ".join(reason.split()), 300)
