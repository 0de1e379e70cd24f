"""The client without I/O: frames of a broker in whatever pieces they come, receipts, heart-beats, errors."""

import pytest

from stompring.errors import ProtocolError
from stompring.stomp.client import MAX_HEART_BEAT, FrameReader, StompClient, ack, frame
from stompring.stomp.frames import encode_frame

CONNECTED = encode_frame(b"CONNECTED", [(b"version", b"1.2"), (b"session", b"a:b\\n")])
MESSAGE = encode_frame(b"MESSAGE", [(b"message-id", b"1:2"), (b"line", b"a\nb")], b"body\0")
RECEIPT = encode_frame(b"RECEIPT", [(b"receipt-id", b"7")])


@pytest.mark.parametrize("size", [1, 3, 10, 1000])
def test_in_pieces(size):
    stream = CONNECTED + b"\n\n" + MESSAGE + RECEIPT + b"\n"
    replies, found = FrameReader(), []
    for at in range(0, len(stream), size):
        found += replies.feed(stream[at : at + size])
    assert [(head.command, body) for head, body in found] == [
        (b"CONNECTED", b""),
        (b"MESSAGE", b"body\0"),
        (b"RECEIPT", b""),
    ]
    assert found[0][0].headers[b"session"] == b"a:b\\n"  # CONNECTED is not escaped
    assert found[1][0].headers == {b"message-id": b"1:2", b"line": b"a\nb", b"content-length": b"5"}


def test_an_error_in_place_of_connected():
    ((head, body),) = FrameReader().feed(b"ERROR\nmessage:no\n\nnot you\0")
    assert (head.command, head.headers, body) == (b"ERROR", {b"message": b"no"}, b"not you")


def test_a_fault_comes_behind_the_frames_before_it():
    replies = FrameReader()
    assert len(replies.feed(CONNECTED + RECEIPT + b"MESSAGE\nno colon\n\n\0")) == 2
    with pytest.raises(ProtocolError, match="has no colon"):
        replies.feed(b"")


def connected(client, heart_beat=b"0,0"):
    client.receive(encode_frame(b"CONNECTED", [(b"version", b"1.2"), (b"heart-beat", heart_beat)]))
    assert client.connected.headers[b"version"] == b"1.2"
    return client


def test_connect_is_not_escaped_and_names_what_was_given():
    assert StompClient(500).connect("a", "me", "pass:word", "c") == (
        b"CONNECT\naccept-version:1.2\nhost:a\nheart-beat:500,500\nlogin:me\npasscode:pass:word\nclient-id:c\n\n\0\n"
    )
    assert StompClient().connect("a") == b"CONNECT\naccept-version:1.2\nhost:a\nheart-beat:0,0\n\n\0\n"


def test_a_receipt_confirms_those_before_it():
    client = connected(StompClient())
    assert [client.next_receipt() for _ in range(3)] == ["1", "2", "3"] and client.unconfirmed == 3
    client.receive(frame("RECEIPT", [("receipt-id", "2")]))
    assert client.unconfirmed == 1
    for receipt in ("1", "nonsense", "9" * 30, ""):
        client.receive(frame("RECEIPT", [("receipt-id", receipt)]))
    assert client.unconfirmed == 1
    client.receive(frame("RECEIPT", [("receipt-id", "3")]))
    assert client.unconfirmed == 0


@pytest.mark.parametrize(
    "own, theirs, sends, receives",
    [
        (0, b"10,10", 0.0, 0.0),
        (500, b"0,0", 0.0, 0.0),
        (500, b"1000,100", 0.5, 1.0),
        (500, b"100,1000", 1.0, 0.5),
        (500, b"x,99999999999", MAX_HEART_BEAT / 1000, 0.0),
    ],
)
def test_heart_beats_are_agreed_on(own, theirs, sends, receives):
    client = connected(StompClient(own), theirs)
    assert (client.send_interval, client.receive_interval) == (sends, receives)


@pytest.mark.parametrize(
    "message, body, text",
    [("no", b"", "no"), ("no", b"no", "no"), ("no", b"not you", "no: not you"), ("", b"not you", "not you")],
)
def test_the_first_error_counts(message, body, text):
    client = connected(StompClient())
    assert client.error_text == ""
    client.receive(frame("ERROR", [("message", message)], body) + frame("ERROR", [("message", "second")]))
    assert client.error_text == text


def test_messages_and_their_acknowledgement():
    client = connected(StompClient())
    client.receive(MESSAGE + frame("MESSAGE", [("message-id", "2"), ("ack", "a")]))
    (first, body), (second, _) = client.messages
    assert body == b"body\0"
    assert ack(first) == b"ACK\nid:1\\c2\n\n\0\n" and ack(second) == b"ACK\nid:a\n\n\0\n"
