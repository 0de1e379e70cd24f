"""The two things about frames of WebSocket that the broker does faster than the library: short reads, binary writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.settings.model import WebSocketSettings

from ..session.session_fixture import frame, parse
from ..stomp.native import builds, native
from ..websocket_client import BINARY, CLOSE, PING, TEXT, piece_bytes
from .test_websocket_any_bytes import PIECES, REQUEST, SHORT_MESSAGE, Taken
from .transport import House, read_pieces

MASKS = st.binary(min_size=4, max_size=4)


def in_both_builds(outcome):
    """What comes of it with the functions in Python, which is the same with those in C."""
    first, *other = map(outcome, builds("_websocket"))
    assert other in ([], [first])
    return first


def taken(*reads, **settings):
    """What came of reads that follow the request, and the codes of Close frames."""

    def outcome(frames):
        found = Taken([REQUEST + b"\r\n", *reads], WebSocketSettings(only=True, **settings), frames)
        return found.stomp, found.codes()

    return in_both_builds(outcome)


@given(st.lists(st.tuples(st.sampled_from([BINARY, TEXT]), st.text(max_size=200), MASKS)), st.data())
def test_short_messages_wherever_the_read_ends(messages, data):
    payloads = b"".join(text.encode() for _, text, _ in messages)
    whole = b"".join(piece_bytes(opcode, text.encode(), mask=mask) for opcode, text, mask in messages)
    cut = data.draw(st.integers(0, len(whole)))
    assert taken(whole) == taken(whole[:cut], whole[cut:]) == (payloads, [])


@pytest.mark.parametrize("length", [0, 1, 125, 126, SHORT_MESSAGE - 1, SHORT_MESSAGE, SHORT_MESSAGE + 1])
def test_lengths_that_are_read(length):
    data = piece_bytes(BINARY, b"x" * length)
    for cut in range(min(len(data), 20)):
        assert taken(data[:cut], data[cut:]) == (b"x" * length, [])


@pytest.mark.parametrize(
    "data, expected, codes",
    [
        (piece_bytes(BINARY, b"x" * 70_000), b"", [1009]),
        (piece_bytes(BINARY, b"x", mask=None), b"", [1002]),
        (piece_bytes(BINARY, b"x", rsv=4), b"", [1002]),
        (piece_bytes(BINARY, b"x", fin=False), b"x", []),
        (piece_bytes(0, b"x"), b"", [1002]),
        (piece_bytes(PING, b"x"), b"", []),
        (piece_bytes(CLOSE, b"\x03\xe8"), b"", [1000]),
        (piece_bytes(TEXT, b"\xff"), b"", [1007]),
        (piece_bytes(TEXT, "ż".encode()[:1]), b"", [1007]),
        (b"\x82\xfe\x00\x05\1\2\3\4abcde", b"````d", []),  # not the shortest length
        (b"\x82\xff" + b"\0" * 12, b"", []),
        (b"\x82\x7f", b"", [1002]),
    ],
)
def test_what_is_left_to_the_library(data, expected, codes):
    assert taken(piece_bytes(TEXT, b"good") + data) == (b"good" + expected, codes)


def test_no_more_than_is_allowed():
    data = piece_bytes(BINARY, b"x" * 10)
    for reads in ([data], [data[:9], data[9:]]):
        assert taken(*reads, web_socket_max_frame_payload_length=9) == (b"", [1009])
        assert taken(*reads, web_socket_max_frame_payload_length=10) == (b"x" * 10, [])


def written(*frames, seconds=0):
    """What a client gets, by message, after it has subscribed to what it sends."""
    return in_both_builds(lambda build: written_by(build, frames, seconds))


def written_by(build, frames, seconds):
    house = House()
    factory = house.make_factory(websocket=WebSocketSettings(only=True))
    if build is not None:
        factory.websockets.frames = build
    protocol, transport = house.join(factory)
    connect = frame("CONNECT", accept_version="1.2", host="/", heart_beat="0,1000")
    subscribe = frame("SUBSCRIBE", destination="/queue/q", id="1")
    protocol.dataReceived(REQUEST + b"\r\n" + piece_bytes(BINARY, connect + subscribe))
    transport.clear()
    protocol.dataReceived(b"".join(piece_bytes(BINARY, data) for data in frames))
    for _ in range(seconds):
        house.clock.advance(1)
    pieces = read_pieces(transport.value())
    assert all(piece.fin and piece.rsv == 0 and piece.opcode == BINARY for piece in pieces)
    return [piece.payload for piece in pieces]


@given(st.lists(st.binary(max_size=300)))
def test_a_message_for_each_frame(bodies):
    found = written(*[frame("SEND", body, destination="/queue/q") for body in bodies])
    assert [[got.body for got in parse(payload)] for payload in found] == [[body] for body in bodies]


def test_a_message_for_each_beat():
    found = written(frame("SEND", b"x", destination="/queue/q"), seconds=3)
    assert len(found) > 2 and set(found[1:]) == {b"\n"}


@pytest.mark.parametrize("length", [125, 126, 65535, 65536, 1_000_000])
def test_lengths_that_are_written(length):
    head = len(b"RECEIPT\nreceipt-id:\n\n\0\n")
    if length < 1000:
        send = frame("SEND", b"", destination="/queue/other", receipt="x" * (length - head))
    else:
        (found,) = written(frame("SEND", b"x" * (length - 1), destination="/queue/q"))
        more = len(found) - length + 1
        send = frame("SEND", b"x" * (length - more), destination="/queue/q")
    (payload,) = written(send)
    assert len(payload) == length and len(parse(payload)) == 1


@given(st.lists(PIECES, max_size=12), st.binary(max_size=30), st.integers(1, 300))
def test_any_frames_are_read_the_same(pieces, end, longest):
    taken(b"".join(pieces) + end, web_socket_max_frame_payload_length=longest)


@pytest.mark.parametrize(
    "arguments", [(), (b"", 0), ("", 0, None), (b"", "", None), (b"", 2**64, None), (bytearray(10), 0, None)]
)
def test_wrong_arguments_are_refused(arguments):
    module = native("_websocket")
    with pytest.raises((TypeError, OverflowError)):
        module.read_short_messages(*arguments)
    for parts in [b"", (b"\n",), [bytearray(b"\n")], [None]]:
        with pytest.raises(TypeError):
            module.pack_binary(parts)
