"""Numbers in headers: what int() takes and no one means, and what it refuses in its own words."""

import pytest

from stompring.session.outbox import MAX_INTERVAL, agree
from stompring.settings.model import StompAcceptor

from .session_fixture import Server, frame

LONG = "9" * 5001

#: int() takes some of these, and raises a `ValueError` of its own for the longest.
NO_NUMBERS = [
    "",
    "1_0",
    "\u0661",
    "\u00b2",
    "\u00a01",
    "+1",
    "--1",
    "1.0",
    "1e3",
    "0x1",
    "nan",
    "inf",
    "1e999",
    LONG,
    f"-{LONG}",
]


def refused(client):
    message = client.error()["message"]
    assert "Internal error" not in message, message
    return message


def test_content_length_with_many_zeros(server, client):
    client.write(f"SEND\ndestination:/queue/q\nreceipt:r\ncontent-length:{'0' * 5000}1\n\nx\0".encode())
    assert client.one("RECEIPT") and server.queue().message_count == 1


def test_a_heart_beat_that_is_longer_than_any_number():
    acceptor = StompAcceptor("a", "h", 1)
    for digits in (LONG, "9" * 19, f"{'0' * 5000}{MAX_INTERVAL + 1}"):
        assert agree(f"{digits},{digits}", acceptor, -1) == agree(
            f"{MAX_INTERVAL},{MAX_INTERVAL}", acceptor, -1
        )
    assert agree(f"{'0' * 5000}1000, 1000", acceptor, -1) == agree("1000,1000", acceptor, -1)
    client = Server().client(None)
    client.say("CONNECT", accept_version="1.2", heart_beat=f"{LONG},{LONG}")
    assert client.one("CONNECTED")["heart-beat"] == f"{MAX_INTERVAL},{MAX_INTERVAL}"


@pytest.mark.parametrize("name", ["JMSXGroupSeq", "_AMQ_GROUP_SEQUENCE", "timestamp", "x-mine"])
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_headers_that_are_not_read_as_numbers(client, name, value):
    client.write(frame("SEND", destination="/queue/q", receipt="r", JMSXGroupID="g", **{name: value}))
    assert client.one("RECEIPT")


@pytest.mark.parametrize("value", [value for value in NO_NUMBERS if value != ""])
@pytest.mark.parametrize(
    "selector", ["a = {}", "a BETWEEN {0} AND {0}", "{0} * {0} > a", "a LIKE {}", "-{} = a"]
)
def test_selectors(server, client, selector, value):
    """Compiled or refused, and then each header is a number or is none."""
    client.write(
        frame("SUBSCRIBE", destination="/queue/q", id="1", selector=selector.format(value), receipt="r")
    )
    answer = client.read()[-1]
    assert answer.command == "RECEIPT" or "Invalid selector" in answer["message"], answer
    producer = server.client()
    for number, header in enumerate(NO_NUMBERS):
        producer.write(frame("SEND", destination="/queue/q", receipt=number, a=header))
        assert producer.one("RECEIPT")


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("value", [*NO_NUMBERS, f"{LONG}-{LONG}", "1-\u0661"])
def test_acknowledging(client, command, value):
    client.subscribe(id="1", ack="client-individual")
    client.write(frame(command, id=value))
    refused(client)
