"""The two things about frames of WebSocket that the broker does faster than the library: short reads, binary writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import apply_mask

from stompring.stomp.websocket_frames import pack_binary, read_short_messages

from ..websocket_client import BINARY, CLOSE, PING, TEXT, piece_bytes
from .test_websocket_any_bytes import SHORT_MESSAGE
from .transport import read_pieces

MASKS = st.binary(min_size=4, max_size=4)
LEAD = b"MESSAGE\nsubscription:1\nmessage-id:1-"


@given(st.lists(st.tuples(st.sampled_from([BINARY, TEXT]), st.text(max_size=200), MASKS)), st.data())
def test_short_messages_wherever_the_read_ends(messages, data):
    payloads = [text.encode() for _, text, _ in messages]
    whole = b"".join(piece_bytes(opcode, text.encode(), mask=mask) for opcode, text, mask in messages)
    taken = []
    assert read_short_messages(whole, SHORT_MESSAGE, taken, apply_mask) == (len(whole), True)
    assert taken == payloads
    cut = data.draw(st.integers(0, len(whole)))
    taken = []
    at, incomplete = read_short_messages(whole[:cut], SHORT_MESSAGE, taken, apply_mask)
    assert incomplete
    assert read_short_messages(whole[at:], SHORT_MESSAGE, taken, apply_mask) == (len(whole) - at, True)
    assert taken == payloads


@pytest.mark.parametrize("length", [0, 1, 125, 126, SHORT_MESSAGE - 1, SHORT_MESSAGE])
def test_lengths_that_are_read(length):
    data = piece_bytes(BINARY, b"x" * length)
    taken = []
    assert read_short_messages(data, SHORT_MESSAGE, taken, apply_mask) == (len(data), True)
    assert taken == [b"x" * length]
    for cut in range(min(len(data), 20)):
        assert read_short_messages(data[:cut], SHORT_MESSAGE, [], apply_mask) == (0, True)


@pytest.mark.parametrize(
    "data",
    [
        piece_bytes(BINARY, b"x" * (SHORT_MESSAGE + 1)),
        piece_bytes(BINARY, b"x" * 70_000),
        piece_bytes(BINARY, b"x", mask=None),
        piece_bytes(BINARY, b"x", rsv=4),
        piece_bytes(BINARY, b"x", fin=False),
        piece_bytes(0, b"x"),
        piece_bytes(PING, b"x"),
        piece_bytes(CLOSE, b"\x03\xe8"),
        piece_bytes(TEXT, b"\xff"),
        piece_bytes(TEXT, "ż".encode()[:1]),
        b"\x82\xfe\x00\x05\1\2\3\4abcde",  # not the shortest length
        b"\x82\xff" + b"\0" * 12,
        b"\x82\x7f",
    ],
)
def test_what_is_left_to_the_library(data):
    good = piece_bytes(TEXT, b"good")
    taken = []
    assert read_short_messages(good + data, SHORT_MESSAGE, taken, apply_mask) == (len(good), False)
    assert taken == [b"good"]


def test_no_more_than_is_allowed():
    data = piece_bytes(BINARY, b"x" * 10)
    assert read_short_messages(data, 9, [], apply_mask) == (0, False)
    assert read_short_messages(data[:9], 9, [], apply_mask) == (0, False)
    assert read_short_messages(data, 10, [], apply_mask) == (len(data), True)
    assert read_short_messages(data[:9], 10, [], apply_mask) == (0, True)


def unpacked(data):
    found = read_pieces(data)
    assert all(piece.fin and piece.rsv == 0 for piece in found)
    return found


@given(st.lists(st.binary(max_size=300)))
def test_a_message_for_each_frame(bodies):
    parts = []
    frames = []
    for number, body in enumerate(bodies):
        tail = b"%d\n\n%b\0\n" % (number, body)
        parts += (b"\n", LEAD, tail) if number % 2 else (LEAD + tail,)
        frames += (b"\n", LEAD + tail) if number % 2 else (LEAD + tail,)
    pieces = unpacked(pack_binary(parts))
    assert [piece.payload for piece in pieces] == frames
    assert all(piece.opcode == BINARY for piece in pieces)


@pytest.mark.parametrize("length", [125, 126, 65535, 65536, 1_000_000])
def test_lengths_that_are_written(length):
    frame = b"x" * (length - 2) + b"\0\n"
    (piece,) = unpacked(pack_binary([frame[:100], frame[100:]]))
    assert piece.payload == frame
