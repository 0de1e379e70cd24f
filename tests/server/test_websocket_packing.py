"""WebSocket messages of the parts of an outbox."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.server.websocket_packing import pack

from ..websocket_client import BINARY, TEXT, Piece, WebSocketClient

LEAD = b"MESSAGE\nsubscription:1\nmessage-id:1-"


def unpacked(data: bytes) -> list[Piece]:
    reader = WebSocketClient.__new__(WebSocketClient)
    reader.buffer = data
    found = []
    while (piece := reader.cut()) is not None:
        found.append(piece)
    assert reader.buffer == b""
    assert all(piece.fin for piece in found)
    return found


@given(st.lists(st.binary(max_size=300)), st.booleans())
def test_a_message_for_each_frame(bodies: list[bytes], text: bool) -> None:
    parts: list[bytes] = []
    frames: list[bytes] = []
    for number, body in enumerate(bodies):
        tail = b"%d\n\n%b\0\n" % (number, body)
        parts += (b"\n", LEAD, tail) if number % 2 else (LEAD + tail,)
        frames += (b"\n", LEAD + tail) if number % 2 else (LEAD + tail,)
    pieces = unpacked(pack(parts, text=text))
    assert [piece.payload for piece in pieces] == frames
    for piece in pieces:
        assert piece.rsv == 0
        if not text:
            assert piece.opcode == BINARY
        elif piece.opcode == TEXT:
            piece.payload.decode()
        else:
            with pytest.raises(UnicodeDecodeError):
                piece.payload.decode()


@pytest.mark.parametrize("length", [125, 126, 65535, 65536, 1_000_000])
def test_lengths(length: int) -> None:
    frame = b"x" * (length - 2) + b"\0\n"
    for text in (False, True):
        (piece,) = unpacked(pack([frame[:100], frame[100:]], text=text))
        assert piece.payload == frame


def test_compressed_messages_say_so() -> None:
    pieces = unpacked(pack([b"a\0\n", b"\n"], compress=bytes.upper))
    assert [(piece.rsv, piece.payload) for piece in pieces] == [(4, b"A\0\n"), (4, b"\n")]
