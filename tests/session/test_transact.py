"""BEGIN, COMMIT and ABORT."""

from __future__ import annotations

from ..broker.world import assert_nothing_held, bodies
from .conversation import Client, Server


def send(client: Client, body: bytes, **headers: object) -> None:
    client.say("SEND", body, destination="/queue/q", **headers)


def keeping() -> Server:
    return Server({"#": {"auto_delete_queues": False}})


def test_sends_happen_at_commit() -> None:
    server = keeping()
    client = server.client()
    client.say("BEGIN", transaction="t", receipt="1")
    send(client, b"a", transaction="t", receipt="2")
    send(client, b"outside")
    assert [got["receipt-id"] for got in client.read()] == ["1", "2"]
    assert bodies(server.queue()) == [b"outside"]
    client.say("COMMIT", transaction="t", receipt="3")
    assert client.one("RECEIPT")["receipt-id"] == "3"
    (message, _) = [ref.message for ref in server.queue().everything_pending()][::-1]
    assert message.body == b"a" and message.header(b"transaction") is None


def test_an_id_is_free_again() -> None:
    server = keeping()
    client = server.client()
    for end in ("ABORT", "COMMIT", "COMMIT"):
        client.say("BEGIN", transaction="t")
        send(client, end.encode(), transaction="t")
        client.say(end, transaction="t")
    assert bodies(server.queue()) == [b"COMMIT", b"COMMIT"]
    client.say("COMMIT", transaction="t", receipt="r")
    assert "no transaction 't'" in client.error()["message"]


def test_begun_twice() -> None:
    client = Server().client()
    client.say("BEGIN", transaction="t")
    client.say("BEGIN", transaction="t", receipt="r")
    assert "already started: t" in client.error()["message"]


def test_more_transactions_than_allowed() -> None:
    client = Server(acceptor={"transactions_allowed": 2}).client()
    for number in range(3):
        client.say("BEGIN", transaction=number)
    assert "transactionsAllowed" in client.error()["message"]


def test_acks_take_effect_at_commit_and_are_undone_by_abort() -> None:
    server = keeping()
    client = server.client()
    for number in range(2):
        send(client, b"%d" % number)
    client.say("SUBSCRIBE", destination="/queue/q", id="s", ack="client-individual", prefetch_count=2)
    first, second = client.read()
    client.say("BEGIN", transaction="a")
    client.say("ACK", id=first["ack"], transaction="a")
    client.say("BEGIN", transaction="b")
    client.say("ACK", id=second["ack"], transaction="b")
    assert server.queue().delivering == 2
    client.say("COMMIT", transaction="a")
    assert (server.queue().delivering, server.queue().messages_acknowledged) == (1, 1)
    client.say("ABORT", transaction="b")
    again = client.one("MESSAGE")
    assert (again.body, again["redelivered"]) == (b"1", "true")
    client.say("ACK", id=again["ack"])
    assert_nothing_held(server.world)


def test_nack_in_a_transaction() -> None:
    server = keeping()
    client = server.client()
    send(client, b"0")
    client.say("SUBSCRIBE", destination="/queue/q", id="s", ack="client")
    message = client.one("MESSAGE")
    client.say("BEGIN", transaction="t")
    client.say("NACK", id=message["ack"], transaction="t")
    assert client.read() == []
    client.say("COMMIT", transaction="t")
    assert client.one("MESSAGE")["redelivered"] == "true"


def test_an_unknown_transaction_costs_the_message_nothing() -> None:
    server = keeping()
    client = server.client()
    send(client, b"0")
    client.say("SUBSCRIBE", destination="/queue/q", id="s", ack="client")
    message = client.one("MESSAGE")
    client.say("ACK", id=message["ack"], transaction="nope")
    client.error()
    assert bodies(server.queue()) == [b"0"]
