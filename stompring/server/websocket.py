"""STOMP over WebSocket (RFC 6455) with the sans-I/O server of `websockets`: the upgrade, and STOMP in messages.

A `WebSocket` is between a `StompProtocol` and its transport. Incoming payloads form one stream of bytes: STOMP ignores
the borders of messages, so only single frames, not whole messages, are buffered in memory. Each outgoing STOMP frame is
one message, as in Artemis and most brokers, because some clients expect one frame per message (@stomp/stompjs reads a
stream).

The time limits are those of STOMP over TCP: ``handshake-timeout`` until CONNECT, ``LINGER`` at the end.
"""

from __future__ import annotations

import codecs
import logging
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol

from twisted.internet.interfaces import ISSLTransport
from websockets import frames, http11
from websockets.exceptions import HeaderLineTooLong, TooManyHeaders
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import SEND_EOF, State
from websockets.server import ServerProtocol

from stompring.broker.clock import Clock
from stompring.session.commands import StompSession
from stompring.session.outbox import HandshakeRejected, OriginPolicy, Wire, printable
from stompring.settings.model import StompAcceptor
from stompring.stomp import websocket_frames
from stompring.stomp.headers import FIRST_FRAME, HeadLimits
from stompring.stomp.websocket_frames import LF, NATIVE, http_error_response, is_utf8

log = logging.getLogger(__name__)

#: Maximum bytes of the HTTP request for a WebSocket: enough for a browser's cookies. Web servers have similar limits.
MAX_REQUEST_SIZE = 16 * 1024

#: Maximum bytes of a WebSocket frame before CONNECT is accepted: the broker buffers it for an unknown client.
MAX_FRAME_BEFORE_CONNECT = FIRST_FRAME

#: Maximum number of control frames, and of short fragments, that a client may send per second. Each costs 10 µs:
#: without a limit a slow network link could occupy the broker.
MAX_CONTROL_FRAMES, MAX_SHORT_FRAGMENTS = 100, 1000

#: Bytes below which a fragment counts as short.
SHORT_FRAGMENT = 128

#: Maximum bytes of the reason in a Close frame (RFC 6455, 5.5).
MAX_CLOSE_REASON = 123

#: Maximum bytes of a client's control frame with its header (RFC 6455, 5.5).
MAX_CONTROL_FRAME_SIZE = 131

#: Maximum payload bytes of a message that `stompring.stomp.websocket_frames` reads.
SHORT_MESSAGE = 2048

#: The function of the library that masks and unmasks payloads, in C if the extension is compiled.
apply_mask: Callable[[bytes, bytes], bytes] = frames.apply_mask  # type: ignore[attr-defined]

# the library limits a line to 8 KiB, but a browser sends all cookies in one line
http11.MAX_LINE_LENGTH = MAX_REQUEST_SIZE

#: Logger of the library. At lower levels it logs whole frames, including passcodes.
_library_log = logging.getLogger("websockets.server")
_library_log.setLevel(logging.WARNING)


class Owner(Wire, Protocol):
    """The connection behind a WebSocket: a `StompProtocol`."""

    session: StompSession | None

    @property
    def transport(self) -> Any:
        """The transport of the WebSocket."""

    def take(self, data: bytes) -> None:
        """Process bytes of STOMP."""


class WebSocketFactory:
    """The factory of the WebSockets of one acceptor."""

    def __init__(self, acceptor: StompAcceptor, clock: Clock) -> None:
        self.clock = clock
        self.frames: Any = NATIVE or websocket_frames  # the module that reads and packs short messages
        settings, limits = acceptor.websocket, acceptor.limits
        self.text = settings.web_socket_encoder_type == "text"
        self.policy = OriginPolicy(settings, acceptor.host)
        self.extensions = (
            [ServerPerMessageDeflateFactory()] if settings.web_socket_compression_supported else None
        )
        self.max_frame = settings.web_socket_max_frame_payload_length
        # the library buffers whole frames: limit them to the length of the longest STOMP frame
        if self.max_frame < 0:
            head = HeadLimits(limits.max_headers, limits.max_header_length)
            self.max_frame = limits.max_body_length + head.max_block
        #: Maximum bytes of a decompressed message. None without compression: no payload is longer than its input.
        self.max_message = limits.max_body_length + limits.max_header_length if self.extensions else None

    def open(self, owner: Owner) -> WebSocket:
        """Create a WebSocket on the transport of ``owner``. It begins with the HTTP request."""
        return WebSocket(self, owner)


class WebSocket:
    """The WebSocket of one connection, from the HTTP request to the closing handshake."""

    _state = State.CONNECTING  # CLOSING: the Close frame was sent; CLOSED: input is ignored
    _request = b""  # incomplete HTTP request
    _compresses = False
    _tail = b""  # incomplete short message
    _unparsed = 0  # bytes of an incomplete frame that the library has received
    _partial = 0  # bytes that the library has received since the last complete frame
    _fragmented = False  # whether the next frame continues a message of several frames
    _decoder: codecs.IncrementalDecoder | None = None  # UTF-8 check of a text message
    _unsent = b""  # STOMP frames written before the upgrade
    _close: tuple[int, str] = (CloseCode.NORMAL_CLOSURE, "")
    _ping: bytes | None = None  # payload of the last unanswered ping
    _second = 0  # the epoch second that ``_counts`` is for

    def __init__(self, factory: WebSocketFactory, owner: Owner) -> None:
        self._factory = factory
        self._owner: Owner | None = owner
        self._transport: Any = owner.transport
        self._clock = factory.clock
        first = min(factory.max_frame, MAX_FRAME_BEFORE_CONNECT)
        self._protocol = ServerProtocol(
            extensions=factory.extensions, max_size=(factory.max_message, first), logger=_library_log
        )
        self._short = min(SHORT_MESSAGE, first)
        self._payloads: list[bytes] = []  # payloads of one read, not passed to the owner yet
        self._counts: Counter[str] = Counter()  # frames of the current second, by kind

    # ---- reading

    def dataReceived(self, data: bytes) -> None:
        if self._state is State.CONNECTING:
            data = self._read_request(data)
        if not data or self._state is State.CLOSED:
            return
        self._clock.refresh()
        if not (self._unparsed or self._fragmented or self._compresses):
            data = self._read_short_messages(data)
        if data:
            self._read_frames(data)
        self._deliver()
        self._answer_ping()

    def connectionLost(self) -> None:
        """Break reference cycles when the transport is closed."""
        self._owner = None
        self._state = State.CLOSED
        self._payloads.clear()
        self._protocol.parser.close()
        _break_cycle(self._protocol.parser_exc)

    def _read_short_messages(self, data: bytes) -> bytes:
        """Read short messages without the library, at the beginning of a frame. Returns the remaining bytes."""
        if self._tail:
            data, self._tail = self._tail + data, b""
        payload, at, incomplete = self._factory.frames.read_short_messages(data, self._short, apply_mask)
        if payload:
            self._payloads.append(payload)
        if incomplete:
            self._tail = data[at:]
            return b""
        return data[at:]

    def _read_frames(self, data: bytes) -> None:
        protocol = self._protocol
        protocol.receive_data(data)
        self._unparsed += len(data)
        self._partial += len(data)
        for frame in protocol.events_received():
            assert isinstance(frame, Frame)
            self._partial = 0
            length = len(frame.data)
            # length of the payload and of its header
            self._unparsed -= length + (6 if length < 126 else 8 if length < 65536 else 14)
            self._frame_received(frame)
            if self._state is State.CLOSED:
                return
        if SEND_EOF in protocol.data_to_send():  # the client has violated the protocol
            failed = protocol.close_sent
            assert failed is not None
            self._fail(failed.code, failed.reason)
        elif self._partial > MAX_CONTROL_FRAME_SIZE:
            self._take(b"")  # a part of a long frame counts as a heart-beat, too

    def _frame_received(self, frame: Frame) -> None:
        opcode, data = frame.opcode, bytes(frame.data)
        if opcode is Opcode.CLOSE:
            self._deliver()
            self._end("WebSocket closed by the client")
            self._state = State.CLOSED
            self._transport.loseConnection()
        elif opcode is Opcode.PING or opcode is Opcode.PONG:
            if opcode is Opcode.PING:
                self._ping = data  # only the last ping of a read is answered (RFC 6455, 5.5.3)
            self._count(MAX_CONTROL_FRAMES, "pings and pongs")
        else:
            self._fragmented = not frame.fin
            if opcode is Opcode.TEXT:
                self._decoder = codecs.getincrementaldecoder("utf-8")()
            elif opcode is Opcode.BINARY:
                self._decoder = None
            if self._decoder is not None:
                try:
                    self._decoder.decode(data, frame.fin)
                except UnicodeDecodeError as fault:
                    self._fail(CloseCode.INVALID_DATA, f"Text is not UTF-8: {fault.reason}")
                    return
            if data:
                self._payloads.append(data)
            if len(data) < SHORT_FRAGMENT and (not frame.fin or opcode is Opcode.CONT):
                self._count(MAX_SHORT_FRAGMENTS, f"fragments of less than {SHORT_FRAGMENT} bytes")

    def _count(self, most: int, what: str) -> None:
        second = self._clock.now // 1000
        if second != self._second:
            self._second = second
            self._counts.clear()
        self._counts[what] += 1
        if self._counts[what] > most:
            self._fail(CloseCode.POLICY_VIOLATION, f"More than {most} {what} within a second")

    def _deliver(self) -> None:
        if self._payloads:
            payloads, self._payloads = self._payloads, []
            self._take(b"".join(payloads))

    def _take(self, data: bytes) -> None:
        owner = self._owner
        if owner is not None:
            if owner.session is not None:
                owner.session.carried = self._partial
            owner.take(data)
            if owner.session is not None and owner.session.connected:
                self._protocol.max_fragment_size = self._factory.max_frame

    def _answer_ping(self) -> None:
        session = None if self._owner is None else self._owner.session
        # no answer for a client that does not read: pongs would accumulate
        ping = self._ping
        if (
            ping is not None
            and self._state is State.OPEN
            and session is not None
            and not session.outbox.paused
        ):
            self._transport.write(Frame(Opcode.PONG, ping).serialize(mask=False))
            self._ping = None

    # ---- writing

    def pack(self, parts: list[bytes]) -> bytes:
        """Pack parts of STOMP frames into WebSocket messages, one per frame, for one write of the outbox."""
        if not (self._factory.text or self._compresses):
            packed: bytes = self._factory.frames.pack_binary(parts)
            return packed
        protocol = self._protocol
        pieces: list[bytes] = []
        for part in parts:
            pieces.append(part)
            if part[-1] == LF:
                message = b"".join(pieces)
                pieces.clear()
                if self._factory.text and is_utf8(message):
                    protocol.send_text(message)
                else:
                    protocol.send_binary(message)
        return b"".join(protocol.data_to_send())

    def write(self, data: bytes) -> None:
        """Write bytes of the outbox. Before the upgrade only buffer the bytes: they are an ERROR, and `start_close`
        puts its text into the HTTP answer.
        """
        if self._state is State.OPEN:
            self._transport.write(data)
        elif self._state is State.CONNECTING:
            self._unsent += data

    # ---- the upgrade

    def _read_request(self, data: bytes) -> bytes:
        """Read the HTTP request, and answer it when it is complete. Returns the bytes after it."""
        data = self._request + data
        end = data.find(b"\r\n\r\n") + 4
        complete = end >= 4
        if (end if complete else len(data)) > MAX_REQUEST_SIZE:
            self._reject(431, f"The request is longer than {MAX_REQUEST_SIZE} bytes")
        elif complete:
            self._request = b""
            self._answer_request(data[:end])
            return data[end:]
        else:
            self._request = data
        return b""

    def _answer_request(self, head: bytes) -> None:
        protocol = self._protocol
        protocol.receive_data(head)
        events = protocol.events_received()
        if not events:
            self._reject_handshake(HTTPStatus.BAD_REQUEST)
            return
        (request,) = events
        assert isinstance(request, Request)
        hosts = request.headers.get_all("Host")
        if len(hosts) != 1:
            self._reject(HTTPStatus.BAD_REQUEST, "The request must have one Host header")
            return
        response = protocol.accept(request)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            self._reject_handshake(response.status_code)
            return
        offered = ",".join(request.headers.get_all("Sec-WebSocket-Protocol")).split(",")
        try:
            subprotocol = self._factory.policy.check(
                request.path.partition("?")[0],
                hosts[0],
                request.headers.get("Origin"),
                [name for name in map(str.strip, offered) if name],
            )
        except HandshakeRejected as rejected:
            self._reject(rejected.status, rejected.reason)
            return
        if subprotocol is not None:
            response.headers["Sec-WebSocket-Protocol"] = subprotocol
        protocol.send_response(response)
        self._transport.write(b"".join(protocol.data_to_send()))
        self._opened(subprotocol)

    def _opened(self, subprotocol: str | None) -> None:
        self._state = State.OPEN
        self._compresses = bool(self._protocol.extensions)
        session = None if self._owner is None else self._owner.session
        if session is not None:
            session.outbox.join = self.pack
            log.debug(
                "connection %s (%s): WebSocket opened, %s",
                session.number,
                "" if self._owner is None else self._owner.peer,
                subprotocol or "no subprotocol",
                extra=session.log_fields(),
            )

    def _reject_handshake(self, status: int) -> None:
        """Reject a request that the library has found invalid."""
        fault = self._protocol.handshake_exc
        cause = fault if fault is None or fault.__cause__ is None else fault.__cause__
        if isinstance(cause, (HeaderLineTooLong, TooManyHeaders)):
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        _break_cycle(fault)
        self._reject(status, str(cause))

    def _reject(self, status: int, reason: str) -> None:
        """Answer with an HTTP error in place of the upgrade."""
        headers = []
        if status == HTTPStatus.UPGRADE_REQUIRED:
            reason = f"HTTP is accepted here only to open a WebSocket: {reason}"
            headers = [("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")]
        elif status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers = [("Allow", "GET")]
        self._transport.write(http_error_response(status, _one_line(reason), headers))
        self._state = State.CLOSED
        self._end(f"WebSocket rejected ({status}): {reason}")

    # ---- the end

    def start_close(self) -> None:
        """Send a Close frame, or an HTTP error before the upgrade. The client then has ``LINGER`` seconds to close."""
        if self._state is State.OPEN:
            self._state = State.CLOSING
            code, reason = self._close
            close = Close(code, reason.encode()[:MAX_CLOSE_REASON].decode(errors="ignore"))
            self._transport.write(Frame(Opcode.CLOSE, close.serialize()).serialize(mask=False))
            self._transport.resumeProducing()  # to read the client's Close frame
            return
        if self._state is State.CONNECTING:
            self._state = State.CLOSED
            text = self._unsent.partition(b"\n\n")[2].decode(errors="replace").strip("\0\n")
            reason = _one_line(text or "The connection is closed")
            self._transport.write(http_error_response(HTTPStatus.SERVICE_UNAVAILABLE, reason))
        self._transport.loseConnection()

    def _fail(self, code: int, reason: str) -> None:
        """Close with an error code after the client has violated the protocol (RFC 6455, 7.1.7)."""
        self._deliver()  # process the valid payloads before the violation
        self._close = code, reason
        self._end(f"WebSocket closed ({code}): {reason}")
        self._state = State.CLOSED
        if code == CloseCode.MESSAGE_TOO_BIG and not ISSLTransport.providedBy(self._transport):
            # close only this direction: otherwise further input would reset TCP before the client reads the Close frame
            self._transport.loseWriteConnection()
        else:
            self._transport.loseConnection()

    def _end(self, reason: str) -> None:
        """End the session, and close the connection of the owner."""
        owner = self._owner
        if owner is not None:
            if owner.session is not None:
                owner.session.close(_one_line(reason))
            owner.close()


def _one_line(reason: str) -> str:
    return printable(" ".join(reason.split()), 300)


def _break_cycle(fault: BaseException | None) -> None:
    """Drop tracebacks: their frames refer to the connection, which refers to the exception."""
    while fault is not None:
        fault.__traceback__ = None
        fault = fault.__context__
