"""A protocol whose STOMP comes by WebSocket, on a transport in memory and with a clock that is set by hand."""

import gc
import weakref
import zlib

import pytest

from stompring.server.protocol import LINGER
from stompring.settings.model import FrameLimits, WebSocketSettings

from ..session.session_fixture import frame, parse
from ..websocket_client import BINARY, CLOSE, PING, PONG, TEXT, piece_bytes
from .transport import read_pieces

#: What docs/protocol.md allows; it says the same numbers.
MAX_REQUEST_SIZE = MAX_FRAME_BEFORE_CONNECT = 16_384
MAX_CONTROL_FRAMES, MAX_SHORT_FRAGMENTS, SHORT_FRAGMENT = 100, 1000, 128

CONNECT = frame("CONNECT", accept_version="1.2", host="/")
SUBSCRIBED = CONNECT + frame("SUBSCRIBE", destination="/queue/q", id="1")


def sent(body=b"", to="/queue/q", **headers):
    return frame("SEND", body, destination=to, **headers)


def request(path="/", **headers):
    all_headers = {
        "Host": "127.0.0.1:61614",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items())
    return f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode()


@pytest.fixture
def opened(house):
    """Opens a connection, of a ws acceptor where nothing else is said."""

    def open_connection(upgraded=True, **options):
        websocket = WebSocketSettings(**{"only": True, **options.pop("websocket", {})})
        protocol, transport = house.join(house.make_factory(websocket=websocket, **options))
        if upgraded:
            protocol.dataReceived(request())
            assert transport.value().startswith(b"HTTP/1.1 101 "), transport.value()
            transport.clear()
        return protocol, transport

    return open_connection


@pytest.fixture
def compressing(opened):
    """Opens a connection that has agreed on permessage-deflate."""

    def open_connection(**options):
        protocol, transport = opened(False, websocket={"web_socket_compression_supported": True}, **options)
        protocol.dataReceived(request(Sec_WebSocket_Extensions="permessage-deflate"))
        transport.clear()
        return protocol, transport

    return open_connection


def pieces(transport):
    """The WebSocket frames that were written."""
    data = transport.value()
    transport.clear()
    return read_pieces(data)


def commands(transport):
    """The STOMP frames that were written, one to a message."""
    found = []
    for piece in pieces(transport):
        assert piece.opcode in (TEXT, BINARY)
        (got,) = parse(piece.payload)
        found.append(got.command)
    return found


def code(transport):
    """Of the close that was all that was written."""
    (close,) = pieces(transport)
    return close.code


def say(protocol, *frames):
    protocol.dataReceived(b"".join(piece_bytes(BINARY, data) for data in frames))


# ---- what is spoken


def test_a_conversation(house, clock, opened):
    protocol, transport = opened()
    say(protocol, SUBSCRIBED)
    say(protocol, sent(b"x"))
    assert commands(transport) == ["CONNECTED", "MESSAGE"]
    say(protocol, frame("DISCONNECT", receipt="bye"))
    receipt, close = pieces(transport)
    assert (receipt.opcode, close.code) == (BINARY, 1000)
    assert transport.connected
    protocol.dataReceived(piece_bytes(CLOSE, close.payload))
    clock.advance(0)
    assert not transport.connected
    assert len(house.connections) == 0
    assert clock.calls == []


def test_a_frame_over_several_messages_with_pings_between(queues, opened):
    protocol, transport = opened()
    say(protocol, CONNECT)
    transport.clear()
    data = sent(b"x" * 1000, receipt="r")
    protocol.dataReceived(
        piece_bytes(TEXT, data[:10])
        + piece_bytes(BINARY, data[10:20], fin=False)
        + piece_bytes(PING, b"hello")
        + piece_bytes(0, data[20:300], fin=False)
        + piece_bytes(0, data[300:])
    )
    receipt, pong = pieces(transport)
    assert parse(receipt.payload)[0].command == "RECEIPT"
    assert (pong.opcode, pong.payload) == (PONG, b"hello")
    assert queues["q"].count == 1


def test_all_messages_of_a_read_are_one_write(opened, monkeypatch):
    protocol, transport = opened()
    say(protocol, SUBSCRIBED)
    transport.clear()
    writes = []
    monkeypatch.setattr(transport, "write", writes.append)
    say(protocol, *[sent(b"x" * n) for n in (1, 200, 70_000)])
    assert len(writes) == 1
    assert len(writes[0]) > 70_000


def test_text(opened):
    protocol, transport = opened(websocket={"web_socket_encoder_type": "text"})
    say(protocol, SUBSCRIBED)
    say(protocol, *[sent(body) for body in ("ż".encode(), b"\xff")])
    assert [piece.opcode for piece in pieces(transport)] == [TEXT, TEXT, BINARY]


def test_text_of_any_length(opened):
    protocol, transport = opened(websocket={"web_socket_encoder_type": "text"})
    say(protocol, SUBSCRIBED)
    transport.clear()
    bodies = ["x" * length for length in (1, 125, 126, 65_535, 65_536, 1_000_000)]
    say(protocol, *[sent(body.encode()) for body in bodies])
    written = pieces(transport)
    assert [parse(piece.payload)[0].body.decode() for piece in written] == bodies
    assert {piece.opcode for piece in written} == {TEXT}


def test_a_plain_acceptor_speaks_both(house, opened):
    for first, expected in ((b"\n\n" + CONNECT, b"CONNECTED\n"), (request(), b"HTTP/1.1 101 ")):
        for step in (1, 3, 1000):
            protocol, transport = opened(upgraded=False, websocket={"only": False})
            for at in range(0, len(first), step):
                protocol.dataReceived(first[at : at + step])
            assert transport.value().startswith(expected), transport.value()
            transport.hang_up()
    assert len(house.connections) == 0


def test_after_the_first_bytes_plain_stomp_is_read_as_ever(opened):
    protocol, _ = opened(upgraded=False, websocket={"only": False})
    protocol.dataReceived(CONNECT)
    assert "dataReceived" not in vars(protocol)
    assert type(protocol).dataReceived is type(protocol).take


def test_the_upgrade_can_be_switched_off(opened):
    protocol, transport = opened(upgraded=False, websocket={"only": False, "web_socket_upgrade": False})
    protocol.dataReceived(request() + b"\0")
    assert transport.value().startswith(b"ERROR\n"), transport.value()


# ---- limits


def test_a_request_that_does_not_end(clock, opened):
    protocol, transport = opened(upgraded=False)
    protocol.dataReceived(b"GET / HTTP/1.1\r\n")
    for _ in range(MAX_REQUEST_SIZE // 1000 + 1):
        protocol.dataReceived(b"x" * 998 + b"\r\n")
    assert transport.value().startswith(b"HTTP/1.1 431 "), transport.value()
    clock.advance(0)
    assert not transport.connected


def test_a_request_that_is_as_long_as_it_may_be(opened):
    room = MAX_REQUEST_SIZE - len(request(Cookie=""))
    for length, status in ((room, b"101"), (room + 1, b"431")):
        protocol, transport = opened(upgraded=False)
        protocol.dataReceived(request(Cookie="x" * length))
        assert transport.value().startswith(b"HTTP/1.1 %b " % status)


def test_a_request_that_takes_too_long(clock, opened):
    protocol, transport = opened(upgraded=False)
    for byte in request()[:9]:
        clock.advance(1)
        protocol.dataReceived(bytes((byte,)))
    assert transport.connected
    clock.advance(1)
    assert b"HTTP/1.1 503 " in transport.value()
    assert b"\r\n\r\nNo CONNECT within 10 s (handshake-timeout)\n" in transport.value()
    clock.advance(0)
    assert not transport.connected
    clock.advance(10)  # when refusals are summed up
    assert clock.calls == []


def test_a_websocket_on_which_nothing_is_said(clock, opened):
    _, transport = opened()
    clock.advance(10)
    error, close = pieces(transport)
    assert "handshake-timeout" in parse(error.payload)[0]["message"]
    assert close.code == 1000
    clock.advance(LINGER)
    assert transport.aborted


def test_more_connections_than_allowed(house, clock, opened):
    protocol, first = opened(connections_allowed=1)
    _, second = house.join(protocol._factory)
    assert b"HTTP/1.1 503 " in second.value()
    assert b"More than 1 connections to acceptor s" in second.value()
    clock.advance(0)
    assert not second.connected
    first.hang_up()
    _, third = house.join(protocol._factory)
    assert third.connected


def test_a_frame_that_is_too_long(clock, queues, opened):
    protocol, transport = opened(websocket={"web_socket_max_frame_payload_length": 1000})
    say(protocol, CONNECT + frame("SUBSCRIBE", destination="/queue/q", id="1", ack="client"))
    data = sent(b"x" * 990)
    say(protocol, data[:500], data[500:])
    transport.clear()
    protocol.dataReceived(piece_bytes(BINARY, data)[:600])
    (close,) = pieces(transport)
    assert close.code == 1009
    assert "1000" in close.reason
    queue = queues["q"]
    assert (queue.count, queue.consumers) == (1, [])
    clock.advance(0)
    assert transport.connected
    assert transport.half_closed
    # the rest of it, what the client answers, and its end
    protocol.dataReceived(piece_bytes(BINARY, data)[600:] + piece_bytes(CLOSE, close.payload))
    clock.advance(0)
    assert transport.connected
    transport.hang_up()
    assert not transport.aborted
    assert queue.count == 1
    assert clock.calls == []


def test_frames_are_short_until_connected(queues, opened):
    protocol, transport = opened()
    protocol.dataReceived(piece_bytes(BINARY, b"\n" * (MAX_FRAME_BEFORE_CONNECT + 1))[:20])
    assert code(transport) == 1009
    protocol, transport = opened()
    say(protocol, b"\n" * MAX_FRAME_BEFORE_CONNECT, CONNECT)
    say(protocol, sent(b"x" * MAX_FRAME_BEFORE_CONNECT))
    assert commands(transport) == ["CONNECTED"]
    assert queues["q"].count == 1


def test_a_frame_that_is_not_whole_counts(house, queues, opened):
    protocol, transport = opened()
    say(protocol, CONNECT)
    data = piece_bytes(BINARY, sent(b"x" * 200_000))
    protocol.dataReceived(data[:100_000])
    protocol.dataReceived(data[100_000:150_000])
    assert house.broker.unfinished.bytes == 150_000
    protocol.dataReceived(data[150_000:])
    assert house.broker.unfinished.bytes == 0
    assert queues["q"].count == 1


def test_a_frame_is_as_long_as_one_of_stomp_may_be(opened):
    protocol, transport = opened(limits=FrameLimits(max_body_length=1000))
    say(protocol, CONNECT)
    transport.clear()
    protocol.dataReceived(piece_bytes(BINARY, b"\n" * 2_000_000)[:20])
    assert code(transport) == 1009


def test_a_part_of_a_long_frame_is_a_sign_of_life(clock, queues, opened):
    protocol, transport = opened()
    say(protocol, frame("CONNECT", accept_version="1.2", host="/", heart_beat="1000,0"))
    data = piece_bytes(BINARY, sent(b"x" * 4000))
    for at in range(0, len(data), 400):
        clock.advance(1)
        protocol.dataReceived(data[at : at + 400])
    assert transport.connected
    assert queues["q"].count == 1
    for _ in range(4):
        clock.advance(1)
        protocol.dataReceived(piece_bytes(PING, b"x" * 100))
    assert "Did not receive data" in parse(pieces(transport)[2].payload)[0]["message"]


def test_broken_rules(clock, opened):
    cases = [
        (piece_bytes(BINARY, CONNECT, mask=None), 1002),
        (piece_bytes(BINARY, CONNECT, rsv=4), 1002),
        (piece_bytes(3, CONNECT), 1002),
        (piece_bytes(11, b""), 1002),
        (piece_bytes(0, CONNECT), 1002),
        (piece_bytes(BINARY, b"x", fin=False) + piece_bytes(TEXT, b"x"), 1002),
        (piece_bytes(PING, b"x", fin=False), 1002),
        (piece_bytes(PING, b"x" * 126), 1002),
        (piece_bytes(CLOSE, b"x"), 1002),
        (b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\2\3\4", 1009),
        (piece_bytes(TEXT, b"\xff\xfe"), 1007),
        (piece_bytes(TEXT, b"a\xc5"), 1007),
        (piece_bytes(TEXT, b"a\xc5", fin=False) + piece_bytes(0, b"a"), 1007),
    ]
    for data, code in cases:
        protocol, transport = opened()
        protocol.dataReceived(data)
        (close,) = pieces(transport)
        assert close.code == code, data
        assert close.reason
        protocol.dataReceived(b"x" * 1000)  # is not even looked at
        clock.advance(0)
        assert transport.connected == (code == 1009)
        transport.hang_up()
    assert clock.calls == []


def test_what_came_before_a_broken_rule_counts(queues, opened):
    protocol, transport = opened()
    good = piece_bytes(BINARY, CONNECT + sent(receipt="r"))
    protocol.dataReceived(good + piece_bytes(BINARY, b"", mask=None))
    *frames, close = pieces(transport)
    assert [parse(piece.payload)[0].command for piece in frames] == ["CONNECTED", "RECEIPT"]
    assert close.code == 1002
    assert queues["q"].count == 1


def test_pings_of_one_read_get_one_answer(opened):
    protocol, transport = opened()
    protocol.dataReceived(b"".join(piece_bytes(PING, b"%d" % n) for n in range(MAX_CONTROL_FRAMES)))
    assert [piece.payload for piece in pieces(transport)] == [b"99"]


def test_a_flood_of_pings(clock, opened):
    protocol, transport = opened()
    for _ in range(3):
        protocol.dataReceived(piece_bytes(PING) * MAX_CONTROL_FRAMES)
        clock.advance(1)
    assert {piece.opcode for piece in pieces(transport)} == {PONG}
    protocol.dataReceived(piece_bytes(PING) * (MAX_CONTROL_FRAMES + 1))
    assert code(transport) == 1008


def test_a_flood_of_fragments(clock, opened):
    for opcode in (BINARY, TEXT):
        protocol, transport = opened()
        protocol.dataReceived(piece_bytes(opcode, b"", fin=False))
        for _ in range(3):
            protocol.dataReceived(piece_bytes(0, b"\n", fin=False) * (MAX_SHORT_FRAGMENTS - 1))
            clock.advance(1)
        protocol.dataReceived(piece_bytes(0, b"\n" * SHORT_FRAGMENT, fin=False) * (MAX_SHORT_FRAGMENTS + 1))
        assert pieces(transport) == []
        short = b"\n" * (SHORT_FRAGMENT - 1)
        protocol.dataReceived(piece_bytes(0, short, fin=False) * (MAX_SHORT_FRAGMENTS + 1))
        (close,) = pieces(transport)
        assert close.code == 1008
        assert "fragments" in close.reason


def test_who_takes_nothing_is_not_answered(opened):
    protocol, transport = opened()
    protocol.pauseProducing()
    for _ in range(50):
        protocol.dataReceived(piece_bytes(PING, b"x"))
    assert pieces(transport) == []
    protocol.resumeProducing()
    protocol.dataReceived(piece_bytes(PING, b"y"))
    assert [piece.payload for piece in pieces(transport)] == [b"y"]


# ---- the end


def test_the_client_closes(clock, queues, opened):
    protocol, transport = opened()
    say(
        protocol,
        CONNECT + frame("SUBSCRIBE", destination="/queue/q", id="1", ack="client") + sent(),
    )
    queue = queues["q"]
    assert queue.delivering == 1
    transport.clear()
    protocol.dataReceived(piece_bytes(CLOSE, b"\x03\xe9bye"))
    assert [piece.code for piece in pieces(transport)] == [1000]
    assert (queue.count, queue.delivering) == (1, 0)
    clock.advance(0)
    assert not transport.connected
    assert clock.calls == []


def test_what_came_with_the_close_counts(queues, opened):
    protocol, transport = opened()
    send = sent(receipt="r")
    protocol.dataReceived(piece_bytes(BINARY, CONNECT + send) + piece_bytes(CLOSE))
    connected, receipt, close = pieces(transport)
    assert parse(receipt.payload)[0].command == "RECEIPT"
    assert close.code == 1000
    assert queues["q"].count == 1


def test_a_client_that_does_not_answer_the_close(clock, opened):
    protocol, transport = opened()
    say(protocol, CONNECT + frame("DISCONNECT"))
    for _ in range(4):
        clock.advance(LINGER / 4 - 0.01)
        protocol.dataReceived(piece_bytes(BINARY, b"still here"))
    assert not transport.aborted
    clock.advance(1)
    assert transport.aborted


def test_a_blocked_producer_is_not_read(clock, queues, opened):
    producer, transport = opened()
    say(producer, CONNECT, sent(to="/queue/full") * 2)
    assert transport.producerState == "paused"
    queues["full"].purge()
    clock.advance(0)
    assert transport.producerState == "producing"


def test_the_answer_to_a_close_is_read_of_who_was_blocked(opened):
    producer, transport = opened()
    say(producer, CONNECT, sent(to="/queue/full") * 2)
    producer.session.refuse(ValueError("enough"))
    assert transport.producerState == "producing"


def test_a_lost_connection_leaves_nothing_to_the_garbage_collector(request, opened):
    protocol, transport = opened()
    say(protocol, SUBSCRIBED)
    gone = [weakref.ref(protocol), weakref.ref(protocol._websocket), weakref.ref(protocol.session)]
    gc.collect()
    gc.disable()
    request.addfinalizer(gc.enable)
    transport.hang_up()
    transport.protocol = transport.producer = None  # as Twisted does
    del protocol, transport
    assert [ref() for ref in gone] == [None, None, None]


# ---- compression


def test_compression_is_refused_unless_it_is_switched_on(opened):
    for compresses in (False, True):
        protocol, transport = opened(
            upgraded=False, websocket={"web_socket_compression_supported": compresses}
        )
        protocol.dataReceived(request(Sec_WebSocket_Extensions="permessage-deflate"))
        assert (b"permessage-deflate" in transport.value()) == compresses


def test_a_compressed_conversation(compressing):
    protocol, transport = compressing()
    there, back = zlib.compressobj(wbits=-15), zlib.decompressobj(wbits=-15)
    body = b"much of the same " * 50_000
    for data in (
        SUBSCRIBED,
        sent(body),
    ):
        deflated = there.compress(data) + there.flush(zlib.Z_SYNC_FLUSH)
        protocol.dataReceived(piece_bytes(BINARY, deflated[:-4], rsv=4))
    written = pieces(transport)
    assert [piece.rsv for piece in written] == [4, 4]
    assert len(written[1].payload) < 10_000
    connected, message = (parse(back.decompress(piece.payload + b"\0\0\xff\xff"))[0] for piece in written)
    assert (connected.command, message.command) == ("CONNECTED", "MESSAGE")
    assert message.body == body
    say(protocol, sent(b"as it is"))  # compressed or not, each for itself
    assert len(pieces(transport)) == 1


def test_a_compressed_bomb(compressing, monkeypatch):
    protocol, transport = compressing(limits=FrameLimits(max_body_length=1_000_000))
    there = zlib.compressobj(9, wbits=-15)
    bomb = there.compress(b"\n" * 200_000_000) + there.flush(zlib.Z_SYNC_FLUSH)
    taken = []
    monkeypatch.setattr(protocol, "take", lambda data: taken.append(len(data)))
    protocol.dataReceived(piece_bytes(BINARY, bomb[:-4], rsv=4))
    assert code(transport) == 1009
    assert sum(taken) < 2_000_000


def test_what_cannot_be_decompressed(compressing):
    protocol, transport = compressing()
    protocol.dataReceived(piece_bytes(BINARY, b"\xff" * 100, rsv=4))
    assert code(transport) == 1002
