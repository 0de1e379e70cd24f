"""A COMMIT is checked as a whole against the limits of the addresses it sends to, where these FAIL."""

import pytest

from .session_fixture import Server, frame

BODY = b"x" * 1000


def serve(settings, **configuration):
    entries = {"#": {"auto_delete_queues": False}, "q": {"address_full_policy": "FAIL", **settings}}
    server = Server(entries, **configuration)
    return server, server.client()


def transact(client, count, destination="/queue/q", *before):
    sends = frame("SEND", BODY, destination=destination, transaction="t") * count
    begin = frame("BEGIN", transaction="t") + b"".join(before)
    client.write(begin + sends + frame("COMMIT", transaction="t", receipt="r"))


@pytest.mark.parametrize(
    "settings, configuration, limit",
    [
        ({"max_size_bytes": 20_000}, {}, "max-size-bytes 20000"),
        ({"max_size_messages": 5}, {}, "max-size-messages 5"),
        ({}, {"global_max_size": 20_000}, "global-max-size 20000"),
        ({}, {"global_max_messages": 5}, "global-max-messages 5"),
    ],
)
def test_a_commit_takes_as_many_as_come_one_by_one_and_else_none(settings, configuration, limit):
    _, client = serve(settings, **configuration)
    count = 0
    while not client.session.closed:
        client.send(BODY)
        count += 1
    server, client = serve(settings, **configuration)
    transact(client, count)
    text = client.error()["message"]
    assert f"Transaction t is not committed: Address q is too full for {count} messages of" in text
    assert text.endswith(limit) and server.queue().message_count == 0
    transact(server.client(), count - 1)
    assert server.queue().message_count == count - 1


def test_what_is_refused_in_it_or_stays_in_another_queue_makes_no_room():
    server, client = serve({"max_size_messages": 2})
    for name in ("one", "two"):
        client.subscribe("/topic/q", name, ack="client-individual")
    for _ in range(2):
        client.send(b"old", "/topic/q")
    ids = [message["ack"] for message in client.read()]
    verbs = frame("ACK", id=ids[0], transaction="t") + frame("NACK", id=ids[2], transaction="t")
    transact(client, 1, "/topic/q", verbs)
    assert "max-size-messages 2" in client.error()["message"]


def test_a_ring_that_gives_up_as_many_as_come_breaks_no_limit():
    server, client = serve({"max_size_messages": 4, "default_ring_size": 3})
    for _ in range(2):
        transact(client, 50)
        assert client.one("RECEIPT")["receipt-id"] == "r"
    assert server.queue().message_count == 3


def test_an_address_without_a_queue_holds_nothing():
    server, client = serve({"max_size_messages": 4})
    client.subscribe("/topic/q")
    client.send(b"", "/topic/q")
    client.say("UNSUBSCRIBE", id="s")
    client.read()
    transact(client, 50, "/topic/q")
    assert client.one("RECEIPT")["receipt-id"] == "r"
