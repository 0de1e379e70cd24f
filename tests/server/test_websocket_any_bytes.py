"""Whatever a client sends by WebSocket: no exception, and the same whether it comes in one read or in many."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompring.settings.model import WebSocketSettings

from ..websocket_client import BINARY, CLOSE, PING, TEXT, piece_bytes
from .transport import House, read_pieces

#: The longest message that is read without the library.
SHORT_MESSAGE = 2048

REQUEST = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
LINES = (
    b"Origin: http://localhost",
    b"Origin: http://[",
    b"Origin: null",
    b"Host: other",
    b"Host: a:b",
    b"Host: a:" + b"9" * 5001,
    b"Origin: http://localhost:" + b"9" * 5001,
    b"Sec-WebSocket-Version: " + b"9" * 5001,
    b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=" + b"9" * 5001,
    b"Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=1_0",
    b"Cookie: \xff\x00",
    b"Sec-WebSocket-Protocol: v12.stomp",
    b"Sec-WebSocket-Protocol: ,,v11.stomp",
    b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=99",
    b"Sec-WebSocket-Extensions: permessage-deflate",
    b"no colon",
    b" folded",
)

PIECES = st.builds(
    piece_bytes,
    st.sampled_from([0, TEXT, BINARY, BINARY, BINARY, CLOSE, PING, 10, 3]),
    st.one_of(st.binary(max_size=130), st.just(b"\n" * 300), st.just(b"x" * (SHORT_MESSAGE + 7))),
    fin=st.sampled_from([True, True, True, False]),
    rsv=st.sampled_from([0, 0, 0, 0, 0, 0, 4, 1]),
    mask=st.sampled_from([b"\1\2\3\4", b"\0\0\0\0", b"\xff\xfe\xfd\xfc", b"abcd", b"ab\0d", None]),
)


class Taken:
    """What came of some reads: the bytes of STOMP, what was written, and whether the connection lasts."""

    def __init__(self, reads, websocket, frames=None):
        house = House()
        clock = house.clock
        factory = house.make_factory(websocket=websocket)
        if frames is not None:
            factory.websockets.frames = frames
        protocol, transport = house.join(factory)
        self.stomp = b""

        def take(data):
            self.stomp += data

        protocol.take = take
        for read in reads:
            if transport.connected:
                protocol.dataReceived(read)
        answer, _, self.frames = transport.value().partition(b"\r\n\r\n")
        self.status = answer[:12]
        clock.advance(10)
        clock.advance(10)
        assert not transport.connected
        assert clock.calls == []

    def codes(self):
        """Those of the Close frames."""
        return [piece.code for piece in read_pieces(self.frames) if piece.opcode == CLOSE]


@settings(deadline=None)
@given(st.lists(PIECES, max_size=12), st.binary(max_size=30), st.lists(st.integers(0, 3000)))
def test_frames_of_any_kind(pieces, end, cuts):
    websocket = WebSocketSettings(only=True, web_socket_max_frame_payload_length=SHORT_MESSAGE)
    data = b"".join(pieces) + end
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    reads = [data[start:stop] for start, stop in zip(places, places[1:], strict=False)]
    request = REQUEST + b"\r\n"
    at_once = Taken([request + data], websocket)
    assert at_once.status == b"HTTP/1.1 101"
    in_pieces = Taken([request, *reads], websocket)
    byte_by_byte = Taken([(request + data)[at : at + 1] for at in range(len(request) + len(data))], websocket)
    assert at_once.codes() == in_pieces.codes() == byte_by_byte.codes()
    if 1007 in at_once.codes():  # of text that is not UTF-8 some may have been passed on by then
        assert in_pieces.stomp.startswith(at_once.stomp)
        assert byte_by_byte.stomp.startswith(in_pieces.stomp)
    else:
        assert at_once.stomp == in_pieces.stomp == byte_by_byte.stomp


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(LINES), max_size=3),
    st.booleans(),
    st.one_of(st.just(b""), st.binary(max_size=100), PIECES),
    st.integers(0, 300),
)
def test_requests_of_any_kind(lines, compresses, after, cut):
    request = REQUEST + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + after
    websocket = WebSocketSettings(only=True, web_socket_compression_supported=compresses)
    taken = Taken([request[:cut], request[cut:]], websocket)
    assert taken.status in {b"HTTP/1.1 101", b"HTTP/1.1 400", b"HTTP/1.1 403", b"HTTP/1.1 503"}


@pytest.mark.parametrize("compresses", [True, False])
@pytest.mark.parametrize("line", LINES, ids=lambda line: line.decode("latin-1")[:60])
def test_each_line_alone(line, compresses):
    websocket = WebSocketSettings(only=True, web_socket_compression_supported=compresses)
    taken = Taken([REQUEST + line + b"\r\n\r\n"], websocket)
    assert taken.status in {b"HTTP/1.1 101", b"HTTP/1.1 400", b"HTTP/1.1 403"}


@settings(deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=5))
def test_bytes_of_any_kind(reads):
    Taken([b"GET ", *reads], WebSocketSettings())
    Taken(reads, WebSocketSettings(only=True))
    Taken([REQUEST, b"\r\n", *reads], WebSocketSettings(only=True))
