"""Reads cut into WebSocket frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.server.websocket_cutting import SHORT, frame_end, may_become_short, take_short

from ..websocket_client import BINARY, CLOSE, PING, TEXT, piece_bytes

MASKS = st.binary(min_size=4, max_size=4)


@given(st.lists(st.tuples(st.sampled_from([BINARY, TEXT]), st.text(max_size=200), MASKS)), st.data())
def test_short_messages_wherever_the_read_ends(
    messages: list[tuple[int, str, bytes]], data: st.DataObject
) -> None:
    payloads = [text.encode() for _, text, _ in messages]
    whole = b"".join(piece_bytes(opcode, text.encode(), mask=mask) for opcode, text, mask in messages)
    taken: list[bytes] = []
    assert take_short(whole, 0, SHORT, taken) == len(whole)
    assert taken == payloads
    cut = data.draw(st.integers(0, len(whole)))
    taken = []
    at = take_short(whole[:cut], 0, SHORT, taken)
    assert may_become_short(whole[:cut], at, SHORT)
    assert frame_end(whole, at) == len(whole) or take_short(whole, at, SHORT, []) > at
    assert take_short(whole[at:], 0, SHORT, taken) == len(whole) - at
    assert taken == payloads


@pytest.mark.parametrize("length", [0, 1, 125, 126, SHORT - 1, SHORT])
def test_lengths(length: int) -> None:
    data = piece_bytes(BINARY, b"x" * length)
    taken: list[bytes] = []
    assert take_short(data, 0, SHORT, taken) == len(data)
    assert taken == [b"x" * length]
    for cut in range(min(len(data), 20)):
        assert take_short(data[:cut], 0, SHORT, []) == 0
        assert may_become_short(data[:cut], 0, SHORT)
        assert frame_end(data[:cut], 0) == cut
    assert frame_end(b"?" + data + b"more", 1) == len(data) + 1


@pytest.mark.parametrize(
    "data",
    [
        piece_bytes(BINARY, b"x" * (SHORT + 1)),
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
def test_what_is_left_to_autobahn(data: bytes) -> None:
    good = piece_bytes(TEXT, b"good")
    taken: list[bytes] = []
    assert take_short(good + data, 0, SHORT, taken) == len(good)
    assert taken == [b"good"]
    assert not may_become_short(data, 0, SHORT)
    assert frame_end(data, 0) == len(data)


def test_no_more_than_is_allowed() -> None:
    data = piece_bytes(BINARY, b"x" * 10)
    assert take_short(data, 0, 9, []) == 0 and take_short(data, 0, 10, []) == len(data)
    assert not may_become_short(data[:9], 0, 9) and may_become_short(data[:9], 0, 10)
