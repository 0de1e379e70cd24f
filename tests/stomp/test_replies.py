"""Frames of a broker as a client reads them, in whatever pieces they come."""

from __future__ import annotations

import pytest

from stompring.errors import ProtocolError
from stompring.stomp.frames import encode_frame
from stompring.stomp.replies import Replies

CONNECTED = encode_frame(b"CONNECTED", [(b"version", b"1.2"), (b"session", b"a:b\\n")])
MESSAGE = encode_frame(b"MESSAGE", [(b"message-id", b"1:2"), (b"line", b"a\nb")], b"body\0")
RECEIPT = encode_frame(b"RECEIPT", [(b"receipt-id", b"7")])


@pytest.mark.parametrize("size", [1, 3, 10, 1000])
def test_in_pieces(size: int) -> None:
    stream = CONNECTED + b"\n\n" + MESSAGE + RECEIPT + b"\n"
    replies, found = Replies(), []
    for at in range(0, len(stream), size):
        found += replies.feed(stream[at : at + size])
    assert [(head.command, body) for head, body in found] == [
        (b"CONNECTED", b""),
        (b"MESSAGE", b"body\0"),
        (b"RECEIPT", b""),
    ]
    assert found[0][0].headers[b"session"] == b"a:b\\n"  # CONNECTED is not escaped
    assert found[1][0].headers == {b"message-id": b"1:2", b"line": b"a\nb", b"content-length": b"5"}


def test_an_error_in_place_of_connected() -> None:
    ((head, body),) = Replies().feed(b"ERROR\nmessage:no\n\nnot you\0")
    assert (head.command, head.headers, body) == (b"ERROR", {b"message": b"no"}, b"not you")


def test_a_fault_comes_behind_the_frames_before_it() -> None:
    replies = Replies()
    assert len(replies.feed(CONNECTED + RECEIPT + b"MESSAGE\nno colon\n\n\0")) == 2
    with pytest.raises(ProtocolError, match="has no colon"):
        replies.feed(b"")
