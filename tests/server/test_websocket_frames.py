"""The two things about frames of WebSocket that the broker does faster than the library: short reads, binary writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.server.websocket import apply_mask
from stompring.settings.model import WebSocketSettings
from stompring.stomp import websocket_frames

from ..session.session_fixture import frame, parse
from ..stomp.native import native
from ..websocket_client import BINARY, CLOSE, PING, TEXT, piece_bytes
from .test_websocket_any_bytes import PIECES, REQUEST, SHORT_MESSAGE, Taken
from .transport import House, read_pieces

MASKS = st.binary(min_size=4, max_size=4)


@pytest.fixture(autouse=True, scope="module", params=["pure", "native"])
def build(request):
    before = websocket_frames.NATIVE
    websocket_frames.NATIVE = native("_websocket") if request.param == "native" else None
    yield
    websocket_frames.NATIVE = before


def taken(*reads, **settings):
    """What came of reads that follow the request, and the codes of Close frames."""
    found = Taken([REQUEST + b"\r\n", *reads], WebSocketSettings(only=True, **settings))
    return found.stomp, found.codes()


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
    house = House()
    protocol, transport = house.join(house.make_factory(websocket=WebSocketSettings(only=True)))
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


@given(st.lists(PIECES, max_size=12), st.binary(max_size=30), st.integers(0, 300))
def test_both_builds_read_the_same(pieces, end, longest):
    data = b"".join(pieces) + end
    found = native("_websocket").read_short_messages(data, longest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(websocket_frames, "NATIVE", None)
        assert found == websocket_frames.read_short_messages(data, longest, apply_mask)


@pytest.mark.parametrize(
    "arguments", [(), (b"",), ("", 0), (b"", ""), (b"", 2**64), (bytearray(10), 0), (b"", 0, 0)]
)
def test_wrong_arguments_are_refused(arguments):
    module = native("_websocket")
    with pytest.raises((TypeError, OverflowError)):
        module.read_short_messages(*arguments)
    for parts in [b"", (b"\n",), [bytearray(b"\n")], [None]]:
        with pytest.raises(TypeError):
            module.pack_binary(parts)
